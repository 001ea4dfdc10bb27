"""Where everything lies in a GGUF file: metadata values and tensors, by byte.

Our own reading of the format (version 3, little-endian): gguf-py refuses types that it does not
know yet, and tells no offsets of metadata values, which perturbations need.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.errors import CanaryError

_MAGIC: Final = b"GGUF"
_VERSION: Final = 3
ALIGNMENT: Final = 32
"""Of tensor data, where ``general.alignment`` says nothing else."""
_SCALARS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
"""struct's letter by GGUF value type; 8 is a string, 9 an array."""
_STRING: Final = 8
_ARRAY: Final = 9

TYPES: Final = {
    "f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20),
    "q5_0": (6, 32, 22), "q5_1": (7, 32, 24), "q8_0": (8, 32, 34), "q2_k": (10, 256, 84),
    "q3_k": (11, 256, 110), "q4_k": (12, 256, 144), "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210), "iq2_xxs": (16, 256, 66), "iq2_xs": (17, 256, 74),
    "iq3_xxs": (18, 256, 98), "iq1_s": (19, 256, 50), "iq4_nl": (20, 32, 18),
    "iq3_s": (21, 256, 110), "iq2_s": (22, 256, 82), "iq4_xs": (23, 256, 136),
    "iq1_m": (29, 256, 56), "bf16": (30, 1, 2), "tq1_0": (34, 256, 54), "tq2_0": (35, 256, 66),
    "mxfp4": (39, 32, 17), "nvfp4": (40, 64, 36), "q1_0": (41, 128, 18), "q2_0": (42, 64, 18),
}  # fmt: skip
"""Name as ggml prints it: number in the file, weights a block, bytes a block (ggml-common.h)."""
_BY_NUMBER: Final = {number: name for name, (number, _, _) in TYPES.items()}

Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, kw_only=True)
class Field:
    """A metadata value; ``offset`` is the byte where it (or an array's first element) begins.

    ``code`` is struct's letter for one element, empty for strings, which cannot change in place.
    """

    key: str
    value: Value
    offset: int
    code: str


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor; ``shape`` is numpy's order, the row last: the reverse of ggml's."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    """From the beginning of the file, in bytes."""

    @property
    def elements(self) -> int:
        """How many weights."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """How many bytes."""
        _, block, size = TYPES[self.type]
        return self.elements // block * size

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        _, block, size = TYPES[self.type]
        return self.shape[-1] // block * size


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The whole file."""

    path: Path
    fields: dict[str, Field]
    tensors: dict[str, Tensor]
    """In the file's order."""
    metadata_end: int
    """The byte after the last metadata value, where the table of tensors begins."""

    @property
    def architecture(self) -> str:
        """``general.architecture``."""
        return str(self.fields["general.architecture"].value)


def layout(path: Path) -> Layout:
    """Read a GGUF file's metadata and tensor table; weights are not touched.

    Raises CanaryError where the file is no whole GGUF of version 3.
    """
    data = memoryview(path.read_bytes())
    try:
        return _layout(path, _Cursor(data))
    except (struct.error, ValueError, KeyError, IndexError) as error:
        raise CanaryError(
            f"{path.name} is not a GGUF file that sparkbuild can read",
            problems=[f"{type(error).__name__}: {error}"],
            evidence=[path],
            next_step="make the file again",
        ) from error


class _Cursor:
    """Reads one thing after another."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def take(self, code: str) -> Scalar:
        value: Scalar = struct.unpack_from(f"<{code}", self.data, self.at)[0]
        self.at += struct.calcsize(f"<{code}")
        return value

    def count(self, code: str = "Q") -> int:
        return int(self.take(code))

    def text(self) -> str:
        size = self.count()
        raw = bytes(self.data[self.at : self.at + size])
        if len(raw) != size:
            raise ValueError("ends in the middle of a string")
        self.at += size
        return raw.decode()

    def field(self) -> Field:
        key = self.text()
        kind = self.count("I")
        if kind == _STRING:
            return Field(key=key, offset=self.at, value=self.text(), code="")
        if kind != _ARRAY:
            code = _SCALARS[kind]
            return Field(key=key, offset=self.at, value=self.take(code), code=code)
        inner, length = self.count("I"), self.count()
        offset = self.at
        if inner == _STRING:
            return Field(
                key=key, offset=offset, value=tuple(self.text() for _ in range(length)), code=""
            )
        code = _SCALARS[inner]
        values = struct.unpack_from(f"<{length}{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{length}{code}")
        return Field(key=key, offset=offset, value=values, code=code)


def _layout(path: Path, cursor: _Cursor) -> Layout:
    if bytes(cursor.data[:4]) != _MAGIC:
        raise ValueError("does not begin with GGUF")
    cursor.at = len(_MAGIC)
    version = cursor.count("I")
    if version != _VERSION:
        raise ValueError(f"version {version}, expected {_VERSION}")
    n_tensors, n_fields = cursor.count(), cursor.count()
    fields = {field.key: field for field in (cursor.field() for _ in range(n_fields))}
    metadata_end = cursor.at
    heads = [_head(cursor) for _ in range(n_tensors)]
    alignment = fields["general.alignment"].value if "general.alignment" in fields else ALIGNMENT
    assert isinstance(alignment, int)  # noqa: S101 - the format says so
    base = -(-cursor.at // alignment) * alignment
    tensors = {
        name: Tensor(name=name, shape=shape, type=kind, offset=base + offset)
        for name, shape, kind, offset in heads
    }
    end = max((tensor.offset + tensor.bytes for tensor in tensors.values()), default=0)
    if end > len(cursor.data):
        raise ValueError(f"{len(cursor.data)} bytes, the tensors need {end}")
    return Layout(path=path, fields=fields, tensors=tensors, metadata_end=metadata_end)


def _head(cursor: _Cursor) -> tuple[str, tuple[int, ...], str, int]:
    name = cursor.text()
    dimensions = [cursor.count() for _ in range(cursor.count("I"))]
    number = cursor.count("I")
    if number not in _BY_NUMBER:
        raise ValueError(f"{name} has the tensor type {number}, which is not known here")
    return name, tuple(reversed(dimensions)), _BY_NUMBER[number], cursor.count()
