"""How many members a zip archive announces, before a library makes an object of each."""

from __future__ import annotations

import os
import struct
from typing import Final

MOST_MEMBERS: Final = 1 << 17
"""In a wheel; the largest published ones have some ten thousand."""
_MOST_DIRECTORY: Final = 64 << 20
"""Bytes of the list of members: 500 for each of so many."""

_END: Final = struct.Struct("<4s4H2LH")
_END_MAGIC: Final = b"PK\x05\x06"
_LOCATOR: Final = struct.Struct("<4sLQL")
_LOCATOR_MAGIC: Final = b"PK\x06\x07"
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_COMMENT: Final = (1 << 16) - 1
"""Bytes of the longest comment, which follows the end record (APPNOTE.TXT 4.3.16)."""


def directory_problem(handle: int, size: int) -> str:
    """Why an open archive of ``size`` bytes is not to be listed; empty where it may be."""
    start = max(0, size - _END.size - _COMMENT - _LOCATOR.size)
    tail = os.pread(handle, size - start, start)
    at = tail.rfind(_END_MAGIC)
    if at < 0 or at + _END.size > len(tail):
        return "it has no list of its members: the download broke off, or it is no archive"
    _, _, _, _, members, listed, _, _ = _END.unpack_from(tail, at)
    before = at - _LOCATOR.size
    if before >= 0 and tail[before : before + 4] == _LOCATOR_MAGIC:
        _, _, place, _ = _LOCATOR.unpack_from(tail, before)
        record = os.pread(handle, _END64.size, place) if place < size else b""
        if len(record) == _END64.size:
            *_, members, listed, _ = _END64.unpack(record)
    if members > MOST_MEMBERS or listed > _MOST_DIRECTORY:
        return (
            f"it announces {members} members in {listed} bytes, expected at most {MOST_MEMBERS} "
            f"in {_MOST_DIRECTORY}"
        )
    return ""
