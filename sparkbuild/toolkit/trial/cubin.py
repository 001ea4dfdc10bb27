"""GPU machine code: who assembled it, for which target, and what an object file embeds.

The note's layout was found in cubins of ptxas 12.9.86, 13.0.88 and 13.2.78: owner ``NVIDIA Corp``,
type 2000, six little-endian 32-bit words (layout 2, or CUDA's own version, 129, in 12.9; then where
in the text table that follows the input's name, the tool, its version, its build and its options
begin).
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from sparkbuild.errors import BinaryError
from sparkbuild.fatbin import fatbin_targets

NOTE: Final = ".note.nv.tkinfo"
_TYPE: Final = 2000
_HEADER: Final = struct.Struct("<6I")
_LAYOUTS: Final = frozenset({2, 129})

_VERSION: Final = re.compile(r"Cuda compilation tools, release \S+, V(\d+\.\d+\.\d+)")
_BUILD: Final = re.compile(r"Build \S+?/compiler\.(\d+)(?:_\d+)?")
_ARCHITECTURE: Final = re.compile(r"-arch[ =](sm_\d+[af]?)(?:\s|$)")

FATBIN: Final = ".nv_fatbin"

_DAMAGE: Final = (
    ELFError, ConstructError, struct.error, ArithmeticError, AssertionError, AttributeError,
    LookupError, MemoryError, OSError, TypeError,
)  # fmt: skip
"""What pyelftools raises on a damaged file."""


@dataclass(frozen=True, kw_only=True)
class CubinNote:
    """What ptxas leaves in its output; None where it is not there."""

    tool: str
    version: str | None
    build: str | None
    """Changelist number, as in ``Build cuda_13.0.r13.0/compiler.36424714_0``."""
    target: str | None
    """``sm_121a``, from the options that are in the note."""


def read_note(cubin: bytes) -> CubinNote:
    """Read a cubin's tool note. Raises ValueError where there is none, or one of another layout."""
    with _damage_told():
        for section in _sections(cubin, NOTE):
            for note in section.iter_notes():
                if note["n_type"] == _TYPE:
                    return _note(note["n_descdata"])
    raise ValueError(f"it has no {NOTE}")


def object_targets(content: bytes) -> tuple[str, ...]:
    """GPU code in an object file, sorted: ``sm_121a`` is machine code, ``compute_121a`` PTX.

    Raises ValueError for a damaged file or an unknown layout.
    """
    with _damage_told():
        sections = [section.data() for section in _sections(content, FATBIN)]
    try:
        containers = [images for data in sections for images in fatbin_targets(data)]
    except BinaryError as refusal:
        raise ValueError(f"{FATBIN}: {'; '.join(refusal.problems)}") from refusal
    return tuple(sorted({target for images in containers for target in images}))


@contextlib.contextmanager
def _damage_told() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise ValueError(f"it is damaged: {type(error).__name__}: {error}") from error


def _sections(content: bytes, name: str) -> Iterator[Any]:
    elf = ELFFile(io.BytesIO(content))
    yield from (section for section in elf.iter_sections() if section.name == name)


def _note(data: bytes) -> CubinNote:
    layout, _, tool, version, build, options = _HEADER.unpack_from(data)
    if layout not in _LAYOUTS:
        raise ValueError(f"its {NOTE} is of layout {layout}, known are 2 and 129")
    table = data[_HEADER.size :]

    def text(offset: int) -> str:
        return table[offset:].partition(b"\0")[0].decode(errors="replace")

    said = _VERSION.fullmatch(text(version))
    built = _BUILD.fullmatch(text(build))
    asked = _ARCHITECTURE.search(text(options))
    return CubinNote(
        tool=text(tool),
        version=said[1] if said else None,
        build=built[1] if built else None,
        target=asked[1] if asked else None,
    )
