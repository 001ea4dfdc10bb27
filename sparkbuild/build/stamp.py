"""Build number and commit of llama.cpp, out of its libraries' own variables.

``common/build-info.cpp`` of b11434 exports ``LLAMA_BUILD_NUMBER`` (an int) and ``LLAMA_COMMIT`` (a
pointer to a text): the dynamic symbol table says where they lie, and where a loader is to fill the
pointer in, a relocation says with what.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparkbuild.build.elf import Outline
from sparkbuild.build.window import Window

_NUMBER: Final = b"LLAMA_BUILD_NUMBER"
_COMMIT: Final = b"LLAMA_COMMIT"
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_RELATIVE: Final = frozenset({8, 1027})
"""R_X86_64_RELATIVE and R_AARCH64_RELATIVE."""
_MOST: Final = 64 << 20
"""Bytes of a table; libllama-common's largest has 2 MB."""
_LONGEST: Final = 80
"""Bytes of a commit's name: 40 hex digits, or a word such as ``unknown``."""


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """What the libraries say of their source; None where they say nothing."""

    build: int | None = None
    commit: str | None = None


def stamp_of(handle: int, size: int, outline: Outline) -> Stamp:
    """Read the stamp of an open file of ``size`` bytes; an empty one where there is none."""
    if not outline.wide:
        return Stamp()
    tables = {name: (at, length) for name, at, length in outline.sections if at + length <= size}
    found = _addresses(handle, tables)
    number = _at(handle, size, outline, found.get(_NUMBER), 4)
    pointer = _at(handle, size, outline, found.get(_COMMIT), 8)
    place = int.from_bytes(pointer, "little") if pointer else 0
    if not place and _COMMIT in found:
        place = _relocated(_table(handle, tables.get(".rela.dyn")), found[_COMMIT])
    text = _at(handle, size, outline, place or None, _LONGEST) or b""
    word, end, _ = text.partition(b"\0")
    return Stamp(
        build=int.from_bytes(number, "little", signed=True) if number else None,
        commit=word.decode("ascii", errors="backslashreplace") if word and end else None,
    )


def symbol_names(handle: int, size: int, outline: Outline) -> bytes:
    """All names of dynamic symbols, each ended by a NUL; empty where there are none."""
    tables = {name: (at, length) for name, at, length in outline.sections if at + length <= size}
    return _table(handle, tables.get(".dynstr"))


def _addresses(handle: int, tables: Mapping[str, tuple[int, int]]) -> dict[bytes, int]:
    """Where the two variables are loaded."""
    names = _table(handle, tables.get(".dynstr"))
    places = {names.find(b"\0" + name + b"\0") + 1: name for name in (_NUMBER, _COMMIT)}
    places.pop(0, None)
    if not places:
        return {}
    symbols = _table(handle, tables.get(".dynsym"))
    whole = len(symbols) // _SYMBOL.size * _SYMBOL.size
    return {
        places[name]: value
        for name, _, _, section, value, _ in _SYMBOL.iter_unpack(symbols[:whole])
        if name in places and section
    }


def _table(handle: int, place: tuple[int, int] | None) -> bytes:
    if place is None or place[1] > _MOST:
        return b""
    return Window(handle=handle, start=place[0], size=place[1])[:]


def _relocated(table: bytes, address: int) -> int:
    whole = len(table) // _RELOCATION.size * _RELOCATION.size
    for offset, info, addend in _RELOCATION.iter_unpack(table[:whole]):
        if offset == address and info & 0xFFFFFFFF in _RELATIVE:
            return int(addend)
    return 0


def _at(handle: int, size: int, outline: Outline, address: int | None, length: int) -> bytes:
    """Bytes as they lie at an address; empty where nothing of the file is loaded there."""
    for base, offset, loaded in outline.loaded:
        if address is not None and base <= address < base + loaded:
            begin = offset + address - base
            if begin + 4 <= size:
                return Window(handle=handle, start=begin, size=length)[:]
    return b""
