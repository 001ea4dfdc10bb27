"""Numbers as PTX writes them, and the sizes of its types."""

from __future__ import annotations

import re
import struct
from typing import Final

from sparkbuild.qualify.ptx.model import Immediate

SIZES: Final = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    "b128": 16,
    "f16": 2,
    "bf16": 2,
    "f16x2": 4,
    "bf16x2": 4,
    "f32": 4,
    "tf32": 4,
    "f64": 8,
    "pred": 1,
}
"""Bytes of each fundamental type; a predicate takes a byte only in the executor."""

WARP_SIZE: Final = 32
"""The predefined constant ``WARP_SZ``."""

_INTEGER: Final = re.compile(
    r"(-?)(?:(0[xX][0-9a-fA-F]+)|(0[bB][01]+)|(0[0-7]*)|([1-9][0-9]*))[uU]?$"
)
_FLOAT: Final = re.compile(r"(-?)0([fFdD])([0-9a-fA-F]+)$")
_DECIMAL: Final = re.compile(r"-?\d+\.\d*(?:[eE][+-]?\d+)?$")
_DIGITS: Final = {"f": 8, "d": 16}


def integer(text: str) -> int | None:
    """The value of an integer constant: decimal, hexadecimal, octal or binary; else None."""
    match = _INTEGER.match(text)
    if match is None:
        return None
    sign, hexadecimal, binary, octal, decimal = match.groups()
    if decimal:
        value = int(decimal)
    elif hexadecimal:
        value = int(hexadecimal, 16)
    elif binary:
        value = int(binary, 2)
    else:
        value = int(octal, 8)
    return -value if sign else value


def immediate(text: str) -> Immediate | None:
    """A constant operand; None where the text is none."""
    value = integer(text)
    if value is not None:
        return Immediate(value)
    match = _FLOAT.match(text)
    if match is not None:
        form = match[2].lower()
        if len(match[3]) != _DIGITS[form]:
            return None
        bits = int(match[3], 16) ^ ((1 << (_DIGITS[form] * 4 - 1)) if match[1] else 0)
        return Immediate(bits, "f32" if form == "f" else "f64")
    if _DECIMAL.match(text):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], "f64")
    return Immediate(WARP_SIZE) if text == "WARP_SZ" else None


def encode(value: Immediate, type_: str) -> bytes | None:
    """The bytes of a constant as a variable of that type holds it; None where it does not fit."""
    size = SIZES[type_]
    if value.kind == "int":
        if type_[0] == "f" and size >= 4:
            return struct.pack("<f" if size == 4 else "<d", value.value)
        if not -(1 << (8 * size - 1)) <= value.value < 1 << (8 * size):
            return None
        return (value.value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    raw = value.value.to_bytes(4 if value.kind == "f32" else 8, "little")
    if len(raw) == size:
        return raw
    number = struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    return struct.pack("<f" if size == 4 else "<d", number) if size in {4, 8} else None
