"""CUDA fat binaries: which GPU targets a library holds code for.

The layout was found by compiling one kernel for many targets with nvcc 13.0.88 and 13.2.78 and
comparing with cuobjdump. A section holds containers, 8-byte aligned; a container is a header
(magic, version 1, header size, payload size) and images back to back. An image's header tells its
kind, its sizes, the architecture's number, and in its flags the suffix: bit 20 for ``a``, bit 21
for ``f``. Compression touches payloads only, so nothing has to be unpacked to know the targets.
cuobjdump itself prints ``sm_120`` for machine code of ``120f``; the flags do tell them apart. Bit
15 marks a payload that is one Zstandard frame, its packed size at byte 16 and its real one at 56;
bit 13 marks an older compression.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sparkbuild.errors import BinaryError

MAGIC: Final = 0xBA55ED50

_CONTAINER: Final = struct.Struct("<IHHQ")
_IMAGE: Final = struct.Struct("<HHIQ")
_ARCHITECTURE: Final = struct.Struct("<I")
_ARCHITECTURE_AT: Final = 28
_FLAGS: Final = struct.Struct("<Q")
_FLAGS_AT: Final = 40
_LEAST_HEADER: Final = 64
_KINDS: Final = {1: "compute", 2: "sm", 8: "lto"}
_ACCELERATED: Final = 1 << 20
_FAMILY: Final = 1 << 21
_ZSTANDARD: Final = 1 << 15
_OTHERWISE_PACKED: Final = 1 << 13
_PACKED_AT: Final = 16
_REAL_AT: Final = 56
_ALIGNMENT: Final = 8


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image of a container: its target, and its bytes as they are stored."""

    target: str
    stored: bytes
    real_size: int | None
    """Where it is a Zstandard frame: the size of what is in it."""
    sealed: bool = False
    """True where it is packed in a way that is not known here."""

    def unpacked(self) -> bytes | None:
        """The code itself: an ELF file (a cubin) or PTX; None where it cannot be unpacked."""
        if self.sealed:
            return None
        if self.real_size is None:
            return self.stored
        import zstandard  # noqa: PLC0415 - needed for a comparison only

        try:
            content = zstandard.ZstdDecompressor().decompress(
                self.stored, max_output_size=self.real_size
            )
        except zstandard.ZstdError:
            return None
        return content if len(content) == self.real_size else None


def fatbin_targets(section: bytes) -> list[tuple[str, ...]]:
    """Targets of every container in a ``.nv_fatbin`` section, images in file order.

    ``sm_121a`` is machine code, ``compute_121a`` PTX, ``lto_121a`` intermediate code. Raises
    BinaryError when the bytes do not have the known layout: a guess would be no proof.
    """
    return [tuple(image.target for image in images) for images in fatbin_images(section)]


def fatbin_images(section: bytes) -> list[tuple[Image, ...]]:
    """Images of every container, each container one source file's; raises as ``fatbin_targets``."""
    containers = []
    position = 0
    while position < len(section):
        if not any(section[position : position + _ALIGNMENT]):
            position += _ALIGNMENT
            continue
        magic, version, header, size = _unpack(_CONTAINER, section, position)
        end = position + header + size
        if magic != MAGIC or version != 1 or header < _CONTAINER.size or end > len(section):
            raise _unknown(f"no fat binary container at offset {position}")
        containers.append(tuple(_images(section, position + header, end)))
        position = -(-end // _ALIGNMENT) * _ALIGNMENT
    return containers


def wrong_targets(containers: Sequence[Sequence[str]], asked: Sequence[str]) -> list[str]:
    """Target sets that differ from ``asked`` (such as ``sm_121a``), each told once with its count.

    Every container is one source file's code: one without an asked target fails only when its
    kernels run, and one with another target, or with PTX, hides a wrong build.
    """
    wanted = tuple(sorted(set(asked)))
    counts: dict[tuple[str, ...], int] = {}
    for images in containers:
        found = tuple(sorted(set(images)))
        if found != wanted:
            counts[found] = counts.get(found, 0) + 1
    return [
        f"expected {' '.join(wanted)}, found {' '.join(found) or 'none'} "
        f"in {count} of {len(containers)} fat binaries"
        for found, count in counts.items()
    ]


def _images(section: bytes, position: int, end: int) -> Iterator[Image]:
    while position < end:
        kind, _, header, size = _unpack(_IMAGE, section, position)
        if header < _LEAST_HEADER or position + header + size > end:
            raise _unknown(f"an image at offset {position} does not fit into its container")
        if kind not in _KINDS:
            raise _unknown(f"an image at offset {position} is of unknown kind {kind}")
        (number,) = _unpack(_ARCHITECTURE, section, position + _ARCHITECTURE_AT)
        (flags,) = _unpack(_FLAGS, section, position + _FLAGS_AT)
        suffix = "a" if flags & _ACCELERATED else "f" if flags & _FAMILY else ""
        yield _image(section, position, f"{_KINDS[kind]}_{number}{suffix}", flags)
        position += header + size


def _image(section: bytes, position: int, target: str, flags: int) -> Image:
    """The image whose header, known to fit, is at ``position``."""
    _, _, header, size = _unpack(_IMAGE, section, position)
    start = position + header
    if not flags & (_ZSTANDARD | _OTHERWISE_PACKED):
        return Image(target=target, stored=section[start : start + size], real_size=None)
    (packed,) = _unpack(_ARCHITECTURE, section, position + _PACKED_AT)
    (real,) = _unpack(_FLAGS, section, position + _REAL_AT)
    return Image(
        target=target,
        stored=section[start : start + min(packed, size)],
        real_size=real,
        sealed=not flags & _ZSTANDARD,
    )


def _unpack(layout: struct.Struct, data: bytes, position: int) -> tuple[int, ...]:
    if position + layout.size > len(data):
        raise _unknown(f"cut off at offset {position}")
    return layout.unpack_from(data, position)


def _unknown(reason: str) -> BinaryError:
    return BinaryError(
        "a CUDA fat binary has a layout that is not known",
        problems=[reason],
        next_step="list its targets with `cuobjdump --list-elf --list-ptx` and compare",
    )
