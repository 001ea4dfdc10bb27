"""Is a binary whole, and for which machine: read from headers alone, nothing is run.

Every reader takes ``read(offset, length)``, which gives fewer bytes past the end, and the file's
size in bytes. Constants are those of the ELF specification, of ``ar`` and of LLVM's bitstream.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

ReadAt = Callable[[int, int], bytes]

ELF_MAGIC: Final = b"\x7fELF"
ARCHIVE_MAGIC: Final = b"!<arch>\n"
BITCODE_MAGIC: Final = b"BC\xc0\xde"

_MACHINES: Final = {62: "x86_64", 183: "aarch64"}
_KINDS: Final[dict[int, Literal["program", "library"]]] = {2: "program", 3: "library"}
_PT_INTERP: Final = 3
_SHT_STRTAB: Final = 3
_SHT_NOBITS: Final = 8
_SHN_XINDEX: Final = 0xFFFF
_PN_XNUM: Final = 0xFFFF

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_MEMBER: Final = struct.Struct("16s12s6s6s8s10s2s")


@dataclass(frozen=True, kw_only=True)
class Binary:
    """What a file's headers say; ``damage`` is empty where every part of it lies in the file."""

    machine: str = ""
    """``x86_64``, ``aarch64``, ``machine 21``; empty where none is stated."""
    kind: Literal["program", "library", "other"] = "other"
    damage: str = ""


def read_elf(read: ReadAt, size: int) -> Binary:
    """An ELF file: its machine, whether it can be started, and whether all of it is there."""
    head = read(0, _HEADER.size)
    if len(head) < _HEADER.size:
        return Binary(damage=f"ends inside its header, after {len(head)} bytes")
    ident, kind, machine, _, _, segments, sections, _, _, ph, phnum, sh, shnum, names = (
        _HEADER.unpack(head)
    )
    name = _machine(machine)
    if ident[4:6] != b"\x02\x01":
        return Binary(machine=name, damage="is no 64-bit little-endian ELF file")
    table = _Table(read, size)
    first = table.rows(sections, _SECTION, sh, 1) if sections else []
    if first and shnum == 0:
        shnum = first[0][5]
    if first and names == _SHN_XINDEX:
        names = first[0][6]
    if first and phnum == _PN_XNUM:
        phnum = first[0][7]
    programs = table.rows(segments, _SEGMENT, ph, phnum)
    rows = table.rows(sections, _SECTION, sh, shnum) if sections else []
    for row in programs:
        table.inside("a segment", row[2], row[5])
    for row in rows:
        if row[1] != _SHT_NOBITS:
            table.inside("a section", row[4], row[5])
    if sections and not (names < len(rows) and rows[names][1] == _SHT_STRTAB):
        table.damage.append("has a section table without names")
    if not programs and kind in _KINDS:
        table.damage.append("has nothing to load")
    found: Literal["program", "library", "other"] = _KINDS.get(kind, "other")
    if found == "library" and any(row[0] == _PT_INTERP for row in programs):
        found = "program"  # position-independent
    return Binary(machine=name, kind=found, damage=next(iter(table.damage), ""))


def elf_machine(head: bytes) -> str | None:
    """The machine that the first 64 bytes of an ELF file state, None of anything else."""
    if len(head) < _HEADER.size or not head.startswith(ELF_MAGIC):
        return None
    return _machine(_HEADER.unpack_from(head)[2])


def _machine(number: int) -> str:
    return _MACHINES.get(number, f"machine {number}")


class _Table:
    """Reads header tables and notes what lies outside the file."""

    def __init__(self, read: ReadAt, size: int) -> None:
        self._read = read
        self._size = size
        self.damage: list[str] = []

    def inside(self, what: str, offset: int, length: int) -> bool:
        """True where ``what`` lies in the file."""
        if offset + length <= self._size:
            return True
        self.damage.append(
            f"is cut off: {what} ends at byte {offset + length}, the file at {self._size}"
        )
        return False

    def rows(
        self, offset: int, layout: struct.Struct, step: int, count: int
    ) -> list[tuple[int, ...]]:
        """The rows of a table, none of one that is damaged."""
        if not self.inside("a header table", offset, step * count):
            return []
        if count and step < layout.size:
            self.damage.append(f"has a header table of {step}-byte rows")
            return []
        data = self._read(offset, step * count)
        if len(data) < step * count:
            self.damage.append("ended while it was read")
            return []
        return [layout.unpack_from(data, index * step) for index in range(count)]


def read_archive(read: ReadAt, size: int) -> Binary:
    """A static library: its members' machine, and whether every member is there.

    The symbol index names the members, so a cut between two of them shows too.
    """
    machines: set[str] = set()
    last = 0
    end = len(ARCHIVE_MAGIC)
    for offset, length, end in _members(read, size):
        if end > size:
            return Binary(damage=f"is cut off: a member ends at byte {end}, the file at {size}")
        name = read(offset - _MEMBER.size, 16).rstrip()
        if name == b"/":
            last = max(_indexed(read(offset, length)), default=0)
        elif name != b"//" and read(offset, 4) == ELF_MAGIC:
            machines.add(read_elf(lambda at, n, base=offset: read(base + at, n), length).machine)  # type: ignore[misc]
    machine = ", ".join(sorted(machines))
    if end != size:
        return Binary(machine=machine, damage=f"is cut off or damaged at byte {end} of {size}")
    if last + _MEMBER.size > size:
        damage = f"is cut off: its index names a member at byte {last}, the file ends at {size}"
        return Binary(machine=machine, damage=damage)
    return Binary(machine=machine)


def _members(read: ReadAt, size: int) -> Iterator[tuple[int, int, int]]:
    """Offset, length and padded end of each member, as far as the headers can be read."""
    at = len(ARCHIVE_MAGIC)
    while at < size:
        head = read(at, _MEMBER.size)
        if len(head) < _MEMBER.size or head[58:] != b"`\n" or not head[48:58].strip().isdigit():
            return
        length = int(head[48:58])
        start = at + _MEMBER.size
        at = start + length + length % 2
        yield start, length, at


def _indexed(data: bytes) -> tuple[int, ...]:
    """Offsets of the members in an archive's symbol index."""
    if len(data) < 4:
        return ()
    count = min(struct.unpack_from(">I", data)[0], len(data) // 4 - 1)
    return struct.unpack_from(f">{count}I", data, 4)


def read_bitcode(read: ReadAt, size: int) -> Binary:
    """LLVM bitcode: whether its outermost blocks fill the file.

    At that level a block is ENTER_SUBBLOCK (2 bits), its id (vbr8), the width inside (vbr4),
    aligned to 32 bits, then its length in 32-bit words.
    """
    at = len(BITCODE_MAGIC)
    while at < size:
        head = read(at, 8)
        if len(head) < 8 or head[0] & 0b11 != 1:
            return Binary(damage=f"is cut off or damaged at byte {at} of {size}")
        at += 8 + 4 * int.from_bytes(head[4:], "little")
    if at == len(BITCODE_MAGIC) or at != size:
        return Binary(damage=f"is cut off: its last block ends at byte {at}, the file at {size}")
    return Binary()
