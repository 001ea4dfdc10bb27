"""Two wheels side by side: which member, which section, which function or kernel differs."""

from __future__ import annotations

import difflib
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sparkbuild.errors import PackageError
from sparkbuild.files import sha256_file
from sparkbuild.package import compare_elf, compare_gpu
from sparkbuild.package.differences import Comparison, Difference, GpuCode, Side
from sparkbuild.package.verify import unsafe_names

LINES_SHOWN: Final = 8
"""Changed lines of a text that are quoted, each at most ``_WIDTH`` characters."""
_WIDTH: Final = 200
_DIST_INFO: Final = re.compile(r"[^/]+\.dist-info/")
_RECORD: Final = "*.dist-info/RECORD"
_UNREADABLE: Final = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError)


def compare(first: Path, second: Path) -> Comparison:
    """Everything that differs between two wheels.

    Members of the metadata folder are the same member whatever version is in the folder's name.
    Raises PackageError where one is no wheel that can be read, or has unsafe names.
    """
    sides = (_side(first), _side(second))
    if sides[0].sha256 == sides[1].sha256:
        count = len(_members(first))
        return Comparison(
            first=sides[0], second=sides[1], members=count, equal=count, differences=()
        )
    try:
        with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as two:
            return _compared(sides, _Opened(one), _Opened(two))
    except _UNREADABLE as error:
        raise PackageError(
            "one of the two wheels is damaged",
            problems=[str(error)],
            evidence=[first, second],
            next_step="fetch or make it again",
        ) from error


class _Opened:
    """A wheel's members by the name that they are compared under."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.members = {_plain(member.filename): member for member in archive.infolist()}

    def read(self, name: str) -> bytes:
        return self.archive.read(self.members[name])


def _compared(sides: tuple[Side, Side], one: _Opened, two: _Opened) -> Comparison:
    found: list[Difference] = []
    states: list[GpuCode] = []
    equal = 0
    both = [name for name in one.members if name in two.members]
    for name in sorted(one.members.keys() ^ two.members.keys()):
        which = "first" if name in one.members else "second"
        found.append(Difference(member=name, kind="member", what=f"only in the {which}"))
    for name in both:
        found += _header_differences(name, one.members[name], two.members[name])
        left, right = one.read(name), two.read(name)
        if left == right:
            equal += 1
        else:
            differences, state = content_differences(name, left, right)
            found += differences
            states += [state]
    states += _untouched(one, two, both)
    found += _archive_differences(one, two, both, nothing_else=not found)
    return Comparison(
        first=sides[0],
        second=sides[1],
        members=len(both),
        equal=equal,
        differences=tuple(found),
        gpu_code=compare_gpu.worst(states),
    )


def _untouched(one: _Opened, two: _Opened, both: list[str]) -> list[GpuCode]:
    """One state for the libraries with GPU code that are the same bytes, where there are any."""
    same = [name for name in both if one.members[name].CRC == two.members[name].CRC]
    gpu = any(compare_gpu.holds_code(one.read(name)) for name in same if ".so" in name)
    return ["same bytes"] if gpu else []


def content_differences(name: str, first: bytes, second: bytes) -> tuple[list[Difference], GpuCode]:
    """What differs between two files that differ, and what that says of the GPU code in them."""
    if first.startswith(compare_elf.MAGIC) and second.startswith(compare_elf.MAGIC):
        try:
            return _elf(name, compare_elf.parse(first), compare_elf.parse(second))
        except compare_elf.DAMAGE as error:
            what = f"cannot be read as ELF: {type(error).__name__}: {error}"
            return [Difference(member=name, kind="member", what=what)], "unread"
    what = _text(first, second) or (
        f"{len(first):,} and {len(second):,} bytes; they differ from "
        f"{compare_elf.first_difference(first, second):#x} on"
    )
    if name == _RECORD:
        what = "digests follow the members"
    return [Difference(member=name, kind="member", what=what)], "none"


def _elf(
    name: str, first: compare_elf.Parsed, second: compare_elf.Parsed
) -> tuple[list[Difference], GpuCode]:
    found: list[Difference] = []
    states: list[GpuCode] = []
    sections = list(compare_elf.section_differences(first, second))
    for section, what in sections:
        found.append(Difference(member=name, kind="section", place=section, what=what))
        if section in compare_gpu.SECTIONS:
            one, two = first.sections.get(section), second.sections.get(section)
            for each in compare_gpu.fatbin_differences(
                one.content if one else b"", two.content if two else b""
            ):
                kind = Difference(member=name, kind="kernel", place=each.place, what=each.what)
                found.append(kind)
                states.append(each.state)
            continue
        found += [
            Difference(member=name, kind="symbol", place=symbol, what=f"{what} ({section})")
            for symbol, what in compare_elf.symbol_differences(first, second, section)
        ]
    found += [
        Difference(member=name, kind="symbol", place=place, what=what)
        for place, what in compare_elf.file_differences(first, second)
    ]
    gpu = [section for section in compare_gpu.SECTIONS if section in first.sections]
    if gpu and not states:
        states = ["same bytes"]
    return found, compare_gpu.worst(states)


def _text(first: bytes, second: bytes) -> str:
    """The changed lines; an empty text where one is no text."""
    try:
        left, right = first.decode("utf-8"), second.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    if "\0" in left or "\0" in right:
        return ""
    changed = [
        line[:_WIDTH]
        for line in difflib.unified_diff(left.splitlines(), right.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    rest = len(changed) - LINES_SHOWN
    more = [f"and {rest} more lines"] if rest > 0 else []
    return "\n".join([*changed[:LINES_SHOWN], *more]) or "line ends differ"


def _header_differences(
    name: str, one: zipfile.ZipInfo, two: zipfile.ZipInfo
) -> Iterator[Difference]:
    """Date, mode and the like, which an installer or the archive's bytes depend on."""
    for what, left, right in (
        ("path", one.filename, two.filename),
        ("date", one.date_time, two.date_time),
        ("mode", oct(one.external_attr >> 16), oct(two.external_attr >> 16)),
        ("compression", one.compress_type, two.compress_type),
        ("made on system", one.create_system, two.create_system),
        ("extra field", one.extra.hex(), two.extra.hex()),
        ("comment", one.comment.hex(), two.comment.hex()),
    ):
        if left != right:
            yield Difference(member=name, kind="archive", what=f"{what}: {left} and {right}")


def _archive_differences(
    one: _Opened, two: _Opened, both: list[str], *, nothing_else: bool
) -> Iterator[Difference]:
    """Order and packing: the same members need not give the same archive."""
    if both != [name for name in two.members if name in one.members]:
        yield Difference(member="", kind="archive", what="members are in another order")
    packed = [
        name
        for name in both
        if one.members[name].CRC == two.members[name].CRC
        and one.members[name].compress_size != two.members[name].compress_size
    ]
    if packed:
        what = f"{len(packed)} members hold the same and are packed otherwise: another zlib?"
        yield Difference(member="", kind="archive", what=what)
    elif nothing_else:
        what = "all members are the same: the archives' own bytes differ (another zlib?)"
        yield Difference(member="", kind="archive", what=what)


def _members(wheel: Path) -> Mapping[str, zipfile.ZipInfo]:
    """Members by name. Raises PackageError where it is no wheel or has unsafe names."""
    try:
        with zipfile.ZipFile(wheel) as opened:
            problems = list(unsafe_names(opened))
            members = {member.filename: member for member in opened.infolist()}
    except _UNREADABLE as error:
        problems, members = [f"it cannot be read: {error}"], {}
    if problems or not any(_DIST_INFO.match(name) for name in members):
        raise PackageError(
            f"{wheel.name} is no wheel that can be compared",
            problems=problems or ["it has no .dist-info folder"],
            evidence=[wheel],
            next_step="name two wheels",
        )
    return members


def _side(wheel: Path) -> Side:
    _members(wheel)
    return Side(path=str(wheel), sha256=sha256_file(wheel), size=wheel.stat().st_size)


def _plain(name: str) -> str:
    return _DIST_INFO.sub("*.dist-info/", name, count=1)
