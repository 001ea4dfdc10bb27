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
from typing import Final, Protocol

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

MOST_CONTAINERS: Final = 1 << 16
MOST_IMAGES: Final = 1 << 18
"""In a section. libggml-cuda has 144 containers for one target, libcublas.so.13 193 with 1,257
images for seven."""
MOST_PADDING: Final = 1 << 20
"""Zero bytes between two containers; linkers align to pages at most."""
MOST_UNPACKED: Final = 1 << 28
"""Bytes of an image that are unpacked; the largest of llama.cpp's have some megabytes."""


class Section(Protocol):
    """A section's bytes, or what reads a part of them when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an image's payload lies in its section; sizes in bytes."""

    target: str
    start: int
    size: int
    real_size: int | None
    sealed: bool

    def image(self, section: Section) -> Image:
        """The image itself."""
        return Image(
            target=self.target,
            stored=section[self.start : self.start + self.size],
            real_size=self.real_size,
            sealed=self.sealed,
        )


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
            told = zstandard.frame_content_size(self.stored)
            # A frame is given the room that it claims, so the claim is looked at first.
            if self.real_size > MOST_UNPACKED or told not in {-1, self.real_size}:
                return None
            content = zstandard.ZstdDecompressor().decompress(
                self.stored, max_output_size=self.real_size
            )
        except zstandard.ZstdError:
            return None
        return content if len(content) == self.real_size else None


def fatbin_targets(section: Section) -> list[tuple[str, ...]]:
    """Targets of every container in a ``.nv_fatbin`` section, images in file order.

    ``sm_121a`` is machine code, ``compute_121a`` PTX, ``lto_121a`` intermediate code. Raises
    BinaryError when the bytes do not have the known layout: a guess would be no proof.
    """
    return [tuple(place.target for place in places) for places in fatbin_places(section)]


def fatbin_images(section: Section) -> list[tuple[Image, ...]]:
    """Images of every container, each container one source file's; raises as ``fatbin_targets``."""
    return [tuple(place.image(section) for place in places) for places in fatbin_places(section)]


def fatbin_places(section: Section) -> Iterator[tuple[Place, ...]]:
    """The same without their payloads, of which no byte is asked for; raises as it goes on."""
    position = containers = images = 0
    while (position := _skipped(section, position)) < len(section):
        magic, version, header, size = _unpack(_CONTAINER, section, position)
        end = position + header + size
        if magic != MAGIC or version != 1 or header < _CONTAINER.size or end > len(section):
            raise _unknown(f"no fat binary container at offset {position}")
        found = tuple(_places(section, position + header, end))
        containers, images = containers + 1, images + len(found)
        if containers > MOST_CONTAINERS or images > MOST_IMAGES:
            raise _unknown(f"more than {MOST_CONTAINERS} containers or {MOST_IMAGES} images")
        yield found
        position = -(-end // _ALIGNMENT) * _ALIGNMENT


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


def _skipped(section: Section, position: int) -> int:
    """``position``, or where the zeros end that begin there: a multiple of 8 bytes on."""
    if any(section[position : position + _ALIGNMENT]):
        return position
    zeros = section[position : position + MOST_PADDING]
    rest = zeros.lstrip(b"\0")
    if not rest and position + len(zeros) < len(section):
        raise _unknown(f"more than {MOST_PADDING} zero bytes at offset {position}")
    return position + (len(zeros) - len(rest)) // _ALIGNMENT * _ALIGNMENT if rest else len(section)


def _places(section: Section, position: int, end: int) -> Iterator[Place]:
    count = 0
    while position < end:
        kind, _, header, size = _unpack(_IMAGE, section, position)
        if header < _LEAST_HEADER or position + header + size > end:
            raise _unknown(f"an image at offset {position} does not fit into its container")
        if kind not in _KINDS:
            raise _unknown(f"an image at offset {position} is of unknown kind {kind}")
        if (count := count + 1) > MOST_IMAGES:
            raise _unknown(f"more than {MOST_IMAGES} images in one container")
        (number,) = _unpack(_ARCHITECTURE, section, position + _ARCHITECTURE_AT)
        (flags,) = _unpack(_FLAGS, section, position + _FLAGS_AT)
        suffix = "a" if flags & _ACCELERATED else "f" if flags & _FAMILY else ""
        yield _place(section, position, f"{_KINDS[kind]}_{number}{suffix}", flags)
        position += header + size


def _place(section: Section, position: int, target: str, flags: int) -> Place:
    """Of the image whose header, known to fit, is at ``position``."""
    _, _, header, size = _unpack(_IMAGE, section, position)
    start = position + header
    if not flags & (_ZSTANDARD | _OTHERWISE_PACKED):
        return Place(target=target, start=start, size=size, real_size=None, sealed=False)
    (packed,) = _unpack(_ARCHITECTURE, section, position + _PACKED_AT)
    (real,) = _unpack(_FLAGS, section, position + _REAL_AT)
    return Place(
        target=target,
        start=start,
        size=min(packed, size),
        real_size=real,
        sealed=not flags & _ZSTANDARD,
    )


def _unpack(layout: struct.Struct, data: Section, position: int) -> tuple[int, ...]:
    piece = data[position : position + layout.size]
    if len(piece) < layout.size:
        raise _unknown(f"cut off at offset {position}")
    return layout.unpack(piece)


def _unknown(reason: str) -> BinaryError:
    return BinaryError(
        "a CUDA fat binary has a layout that is not known",
        problems=[reason],
        next_step="list its targets with `cuobjdump --list-elf --list-ptx` and compare",
    )
