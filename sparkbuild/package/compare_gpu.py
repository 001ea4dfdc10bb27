"""GPU code that differs: which kernels, and whether it is more than the names.

A kernel is a section ``.text.<name>`` of a cubin; its bytes hold no names. So two kernels with the
same bytes are the same machine code (SASS), whatever they are called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sparkbuild.errors import BinaryError
from sparkbuild.fatbin import Image, fatbin_images
from sparkbuild.package import compare_elf
from sparkbuild.package.compare_elf import Parsed, first_difference
from sparkbuild.package.differences import GpuCode

SECTIONS: Final = (".nv_fatbin", "__nv_relfatbin")

_CODE: Final = re.compile(r"\.text\.(?P<kernel>.+)")
_DATA: Final = re.compile(r"\.nv\.(constant\d+(\..+)?|global\.init|shared\..+)")
"""What kernels read: parameters' layout, constants, tables."""
_CHECKSUM: Final = re.compile(
    r"(_(?:INTERNAL|GLOBAL__N)_+)[0-9a-f]{8}(_\d+_\w+?_cu_)(?:[0-9a-f]{8})?"
)
"""In names of what a file hides: a CRC of the source's path, and one of the module's name."""
_INSTRUCTION: Final = 16
"""Bytes, on every architecture since Volta."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A difference between two fat binaries: the kernel, what it is, how much it means."""

    place: str
    what: str
    state: GpuCode


def normalised(name: str) -> str:
    """A symbol's name without what depends on a source's place."""
    return _CHECKSUM.sub(r"\1*\2", name)


def fatbin_differences(first: bytes, second: bytes) -> Iterator[Found]:
    """Differences between two ``.nv_fatbin`` sections, container by container."""
    try:
        left, right = fatbin_images(first), fatbin_images(second)
    except BinaryError as error:
        yield Found(place="", what=f"cannot be read: {'; '.join(error.problems)}", state="unread")
        return
    if len(left) != len(right):
        what = f"{len(left)} and {len(right)} fat binaries, one for each source file"
        yield Found(place="", what=what, state="differs")
        return
    for number, (one, two) in enumerate(zip(left, right, strict=True), 1):
        if one != two:
            yield from _container(f"fat binary {number} of {len(left)}", one, two)


def _container(name: str, first: Sequence[Image], second: Sequence[Image]) -> Iterator[Found]:
    targets = [[image.target for image in images] for images in (first, second)]
    if targets[0] != targets[1]:
        what = f"{name}: targets {' '.join(targets[0])} and {' '.join(targets[1])}"
        yield Found(place="", what=what, state="differs")
        return
    for one, two in zip(first, second, strict=True):
        if one != two:
            yield from _image(name, one, two)


def _image(name: str, first: Image, second: Image) -> Iterator[Found]:
    one, two = first.unpacked(), second.unpacked()
    target = first.target
    if one is None or two is None:
        yield Found(place=target, what=f"{name} cannot be unpacked", state="unread")
    elif one == two:
        yield Found(place=target, what=f"{name} is packed otherwise", state="same code")
    elif not (one.startswith(compare_elf.MAGIC) and two.startswith(compare_elf.MAGIC)):
        at = one.count(b"\n", 0, first_difference(one, two)) + 1
        yield Found(place=target, what=f"{name}: text differs from line {at} on", state="differs")
    else:
        try:
            left, right = compare_elf.parse(one), compare_elf.parse(two)
        except compare_elf.DAMAGE:
            yield Found(
                place=target, what=f"{name} holds no cubin that can be read", state="unread"
            )
            return
        yield from _cubin(name, target, left, right)


def _cubin(name: str, target: str, first: Parsed, second: Parsed) -> Iterator[Found]:
    one, two = _by_name(first), _by_name(second)
    found = False
    for section in [*one, *(two.keys() - one.keys())]:
        difference = _section(target, section, one.get(section), two.get(section))
        if difference:
            found = True
            yield difference
    if not found:
        what = f"{name}: the same machine code and constants; {_around(first, second)}"
        yield Found(place=target, what=what, state="same code")


def _around(first: Parsed, second: Parsed) -> str:
    """What differs of two cubins whose code and constants are the same."""
    one = sorted(first.sections.keys() - second.sections.keys(), key=_code_first)
    two = sorted(second.sections.keys() - first.sections.keys(), key=_code_first)
    if one and [*map(normalised, one)] == [*map(normalised, two)]:
        return f"names with a checksum of the source's path differ: {one[0]} and {two[0]}"
    sections = [section for section, _ in compare_elf.section_differences(first, second)]
    return f"what lies around them differs: {', '.join(sections[:3]) or 'the order of sections'}"


def _code_first(section: str) -> tuple[bool, str]:
    return (_CODE.fullmatch(section) is None, section)


def _by_name(parsed: Parsed) -> dict[str, bytes]:
    """Code and constants by normalised section name, in the file's order."""
    return {
        normalised(name): section.content
        for name, section in parsed.sections.items()
        if _CODE.fullmatch(name) or _DATA.fullmatch(name)
    }


def _section(target: str, name: str, one: bytes | None, two: bytes | None) -> Found | None:
    if one == two:
        return None
    kernel = _CODE.fullmatch(name)
    place = f"{target}: {kernel['kernel'] if kernel else name}"
    if one is None or two is None:
        what = f"only in the {'second' if one is None else 'first'}"
    elif kernel and len(one) == len(two):
        pairs = [slice(at, at + _INSTRUCTION) for at in range(0, len(one), _INSTRUCTION)]
        differ = sum(one[pair] != two[pair] for pair in pairs)
        what = f"{differ:,} of {len(pairs):,} instructions differ"
    elif kernel:
        what = f"{len(one) // _INSTRUCTION:,} and {len(two) // _INSTRUCTION:,} instructions"
    else:
        what = f"bytes differ from {first_difference(one, two):#x} on"
    return Found(place=place, what=what, state="differs")


def holds_code(data: bytes) -> bool:
    """Whether a file is an ELF file with GPU code in it."""
    if not data.startswith(compare_elf.MAGIC) or SECTIONS[0].encode() not in data:
        return False
    try:
        return any(section in compare_elf.parse(data).sections for section in SECTIONS)
    except compare_elf.DAMAGE:
        return False


def worst(states: Sequence[GpuCode]) -> GpuCode:
    """The state of many: the one that promises least."""
    order: tuple[GpuCode, ...] = ("unread", "differs", "same code", "same bytes", "none")
    return next((state for state in order if state in states), "none")
