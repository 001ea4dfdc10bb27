"""Two ELF files that differ: which sections, and which functions and objects in them."""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

DAMAGE: Final = (ELFError, ConstructError, struct.error, ArithmeticError, AssertionError,
                 AttributeError, LookupError, MemoryError, TypeError, ValueError)  # fmt: skip
"""What pyelftools raises on a damaged file."""
MAGIC: Final = b"\x7fELF"
NAMES_SHOWN: Final = 12
"""Symbols named for each section; the rest is counted."""
_NO_BYTES: Final = "SHT_NOBITS"
_TABLES: Final = (".symtab", ".dynsym")


@dataclass(frozen=True, kw_only=True)
class Symbol:
    """A function or object: its section, where it begins there, its size."""

    section: int
    start: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section: its contents, and what kind it is of."""

    index: int
    kind: str
    size: int
    content: bytes


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """An ELF file taken apart; sections by name, the second of a name as ``name#2``."""

    heading: Mapping[str, object]
    sections: Mapping[str, Section]
    symbols: Mapping[str, Symbol]
    files: frozenset[str] = field(default=frozenset())
    """Names of source files in the symbol table."""


def parse(data: bytes) -> Parsed:
    """Take an ELF file apart. Raises one of ``DAMAGE`` where it cannot be read."""
    elf = ELFFile(io.BytesIO(data))
    sections: dict[str, Section] = {}
    addresses: list[int] = []
    met: Counter[str] = Counter()
    every: list[Any] = list(elf.iter_sections())
    for index, section in enumerate(every):
        met[section.name] += 1
        count = met[section.name]
        kind = str(section["sh_type"])
        sections[section.name if count == 1 else f"{section.name}#{count}"] = Section(
            index=index,
            kind=kind,
            size=int(section["sh_size"]),
            content=b"" if kind == _NO_BYTES or index == 0 else bytes(section.data()),
        )
        addresses.append(int(section["sh_addr"]))
    table = next((one for name in _TABLES for one in every if one.name == name), None)
    symbols, files = _symbols(table, addresses) if table is not None else ({}, set())
    header = {name: elf[name] for name in ("e_machine", "e_type", "e_flags", "e_entry")}
    return Parsed(heading=header, sections=sections, symbols=symbols, files=frozenset(files))


def section_differences(first: Parsed, second: Parsed) -> Iterator[tuple[str, str]]:
    """Pairs of a section's name and what differs of it, in the first file's order.

    The header counts as a section of the name ``header``.
    """
    for name in first.heading:
        if first.heading[name] != second.heading[name]:
            yield "header", f"{name}: {first.heading[name]} and {second.heading[name]}"
    for name in [*first.sections, *(second.sections.keys() - first.sections.keys())]:
        one, two = first.sections.get(name), second.sections.get(name)
        if one is None or two is None:
            yield name, f"only in the {'second' if one is None else 'first'}"
        elif one.size != two.size:
            yield name, f"{one.size:,} and {two.size:,} bytes"
        elif one.content != two.content:
            yield name, f"bytes differ from {first_difference(one.content, two.content):#x} on"
        elif one.kind != two.kind:
            yield name, f"type {one.kind} and {two.kind}"


def symbol_differences(first: Parsed, second: Parsed, section: str) -> Iterator[tuple[str, str]]:
    """Functions and objects of a section whose bytes differ; names that only one file has.

    Those of another size come first: where one grows, all behind it moves and calls change.
    """
    one, two = first.sections.get(section), second.sections.get(section)
    if one is None or two is None:
        return
    left = {name: s for name, s in first.symbols.items() if s.section == one.index}
    right = {name: s for name, s in second.symbols.items() if s.section == two.index}
    found = [
        *((name, "only in the first") for name in sorted(left.keys() - right.keys())),
        *((name, "only in the second") for name in sorted(right.keys() - left.keys())),
    ]
    both = sorted(left.keys() & right.keys())
    grown = [name for name in both if left[name].size != right[name].size]
    found += [(name, f"{left[name].size:,} and {right[name].size:,} bytes") for name in grown]
    found += [
        (name, "bytes differ")
        for name in both
        if name not in grown and _bytes_of(one, left[name]) != _bytes_of(two, right[name])
    ]
    yield from found[:NAMES_SHOWN]
    if len(found) > NAMES_SHOWN:
        yield "", f"and {len(found) - NAMES_SHOWN:,} more functions and objects"


def file_differences(first: Parsed, second: Parsed) -> Iterator[tuple[str, str]]:
    """Source files that only one symbol table names: a compiler's temporary ones, for instance."""
    for which, names in (("first", first.files - second.files),
                         ("second", second.files - first.files)):  # fmt: skip
        if names:
            shown = ", ".join(sorted(names)[:3])
            rest = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
            yield ".symtab", f"source files that only the {which} names: {shown}{rest}"


def first_difference(first: bytes, second: bytes) -> int:
    """Offset of the first byte that differs; the shorter one's length where it is a prefix."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _bytes_of(section: Section, symbol: Symbol) -> bytes:
    return section.content[symbol.start : symbol.start + symbol.size]


def _symbols(table: Any, addresses: list[int]) -> tuple[dict[str, Symbol], set[str]]:
    found: dict[str, Symbol] = {}
    files: set[str] = set()
    met: Counter[str] = Counter()
    for symbol in table.iter_symbols():
        kind, section, size = symbol["st_info"]["type"], symbol["st_shndx"], symbol["st_size"]
        if kind == "STT_FILE":
            files.add(symbol.name)
        if kind not in {"STT_FUNC", "STT_OBJECT"} or not isinstance(section, int) or not size:
            continue
        met[symbol.name] += 1
        count = met[symbol.name]
        start = int(symbol["st_value"]) - addresses[section]
        found[symbol.name if count == 1 else f"{symbol.name}#{count}"] = Symbol(
            section=section, start=start, size=int(size)
        )
    return found, files
