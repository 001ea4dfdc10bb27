"""One question to an ELF file each: what it needs, where it looks, who it is."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from sparkbuild.build.window import Metered
from sparkbuild.errors import BinaryError

FATBIN_SECTIONS: Final = (".nv_fatbin", "__nv_relfatbin")

_DF_TEXTREL: Final = 0x4
_PF_X: Final = 0x1

_DAMAGE: Final = (
    ELFError,
    ConstructError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    TypeError,
    ValueError,
)
"""What pyelftools raises on a damaged file, as fuzzing found."""


@dataclass(frozen=True, kw_only=True)
class ElfFacts:
    """An ELF file's dynamic facts; a list is in file order, an absent text is None."""

    machine: str
    soname: str | None
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    """Entries of DT_RUNPATH, split at colons."""
    rpath: tuple[str, ...]
    """Entries of DT_RPATH, which also rules over the libraries' own search."""
    build_id: str | None
    interpreter: str | None
    text_relocations: bool
    executable_stack: bool
    """Also True where there is no GNU_STACK header: the loader then makes the stack executable."""
    fatbins: tuple[bytes, ...]
    """Contents of the sections that hold CUDA fat binaries."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What a file's headers tell, and where the rest lies; no section of GPU code is read."""

    facts: ElfFacts
    """Without ``fatbins``."""
    type: str
    """``ET_EXEC``, ``ET_DYN``, ``ET_REL``."""
    wide: bool
    """64 bits, little-endian: what symbols are looked up in."""
    sections: tuple[tuple[str, int, int], ...]
    """Name, offset and size of those that have bytes in the file, as they are stored."""
    loaded: tuple[tuple[int, int, int], ...]
    """Address, offset and size of what is loaded from the file."""


def read_outline(path: Path, stream: Metered) -> Outline:
    """Read an open file, of ``path``. Raises BinaryError where it is no ELF file, or damaged."""
    try:
        elf = ELFFile(cast("BinaryIO", stream))  # of which it reads, seeks and asks the place
        sections: list[Any] = list(elf.iter_sections())
        loads: list[Any] = list(elf.iter_segments("PT_LOAD"))
        return Outline(
            facts=_facts(elf, ()),
            type=str(elf["e_type"]),
            wide=elf.elfclass == 64 and elf.little_endian,
            sections=tuple(
                (section.name, section["sh_offset"], section["sh_size"])
                for section in sections
                if section["sh_type"] not in {"SHT_NOBITS", "SHT_NULL"}
            ),
            loaded=tuple((one["p_vaddr"], one["p_offset"], one["p_filesz"]) for one in loads),
        )
    except _DAMAGE as error:
        raise _damaged(path, error) from error


def read_elf(path: Path) -> ElfFacts:
    """Read one file. Raises BinaryError when it is no ELF file or a damaged one."""
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            return _facts(elf, tuple(_fatbins(elf)))
    except _DAMAGE as error:
        raise _damaged(path, error) from error


def read_soname(path: Path) -> str | None:
    """A library's SONAME, without reading the hundreds of megabytes that may be in it.

    Raises BinaryError when it is no ELF file or a damaged one.
    """
    try:
        with path.open("rb") as stream:
            segments: list[Any] = list(ELFFile(stream).iter_segments("PT_DYNAMIC"))
            for segment in segments:
                for tag in segment.iter_tags("DT_SONAME"):
                    return str(tag.soname)
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    return None


def _damaged(path: Path, error: Exception) -> BinaryError:
    return BinaryError(
        f"{path.name} is no ELF file that can be read",
        problems=[f"{type(error).__name__}: {error}"],
        evidence=[path],
        next_step="build again; if it stays so, the disk or the linker is damaged",
    )


def _facts(elf: ELFFile, fatbins: tuple[bytes, ...]) -> ElfFacts:
    segments: list[Any] = list(elf.iter_segments())
    tags = [
        tag for segment in segments if _is(segment, "PT_DYNAMIC") for tag in segment.iter_tags()
    ]
    flags = sum(tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS")
    stacks = [segment for segment in segments if _is(segment, "PT_GNU_STACK")]
    interpreters = [s.get_interp_name() for s in segments if _is(s, "PT_INTERP")]
    sonames = [tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"]
    return ElfFacts(
        machine=str(elf["e_machine"]),
        soname=sonames[0] if sonames else None,
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        runpath=_entries(tag.runpath for tag in tags if tag.entry.d_tag == "DT_RUNPATH"),
        rpath=_entries(tag.rpath for tag in tags if tag.entry.d_tag == "DT_RPATH"),
        build_id=next(_build_ids(segments), None),
        interpreter=interpreters[0] if interpreters else None,
        text_relocations=bool(flags & _DF_TEXTREL)
        or any(tag.entry.d_tag == "DT_TEXTREL" for tag in tags),
        executable_stack=not stacks or any(s["p_flags"] & _PF_X for s in stacks),
        fatbins=fatbins,
    )


def _fatbins(elf: ELFFile) -> Iterator[bytes]:
    for section in elf.iter_sections():
        if section.name in FATBIN_SECTIONS:
            yield section.data()


def _build_ids(segments: list[Any]) -> Iterator[str]:
    for segment in segments:
        if _is(segment, "PT_NOTE"):
            for note in segment.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    yield str(note["n_desc"])


def _is(segment: Any, kind: str) -> bool:
    return bool(segment["p_type"] == kind)


def _entries(values: Iterator[str]) -> tuple[str, ...]:
    return tuple(entry for value in values for entry in value.split(":"))
