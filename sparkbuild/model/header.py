"""One GGUF file's header: metadata and tensor table, whatever is in the file.

Our own reading of the format. gguf-py's reader wraps every value and array element in a numpy
array: it took 15 s and 740 MB for the header (10 MB, 1,760 tensors, 155,000 tokens) of a model of
114 GB, this one 0.4 s and 60 MB; and it follows any count that a file announces. Here nothing is
allocated before the bytes for it are known to be there, and every count has a limit.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass, field
from typing import Final

from sparkbuild.model.types import BY_NUMBER

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
"""What llama.cpp reads; 3 is 2 with a byte order that may be another."""
ALIGNMENT: Final = 32
"""Of tensor data, where ``general.alignment`` says nothing else (GGUF_DEFAULT_ALIGNMENT)."""

MOST_BYTES: Final = 128 << 20
"""Of a header. The largest vocabularies (262,144 tokens with scores and merges) take 16 MB."""
MOST_ELEMENTS: Final = 2 << 20
"""Of all arrays together. Such a vocabulary has 1.3 million."""
MOST_ENTRIES: Final = 1 << 16
"""Metadata entries; models have 30 to 80, adapters with lists of names some hundreds."""
MOST_TENSORS: Final = 1 << 17
"""In a file. 512 blocks, llama.cpp's own limit, of 60 tensors each are 31,000."""
MOST_DIMENSIONS: Final = 4
"""GGML_MAX_DIMS."""
MOST_NAME: Final = 63
"""Bytes of a tensor's name: GGML_MAX_NAME less the NUL."""
MOST_WEIGHTS: Final = 1 << 63
"""ggml counts them, and their bytes, in signed 64 bits."""

_CHUNK: Final = 1 << 20
SCALARS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
"""struct's letter by GGUF value type."""
STRING: Final = 8
ARRAY: Final = 9
_LENGTH: Final = struct.Struct("<Q")

Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]


class HeaderError(ValueError):
    """What is wrong with a header: where, what was expected, what is there."""

    def __init__(self, where: str, expected: str, found: str) -> None:
        super().__init__(f"{where}: expected {expected}, found {found}")


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor; ``shape`` is ggml's order, the length of a row first."""

    name: str
    shape: tuple[int, ...]
    type: str
    """ggml's name of it; ``type 137`` for a number that is not known here."""
    offset: int
    """Bytes from the beginning of the file's tensor data."""
    bytes: int | None
    """None where the type is not known."""

    @property
    def weights(self) -> int:
        """How many."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Header:
    """All before the tensor data; ``data`` is the byte where that begins."""

    version: int
    alignment: int
    values: dict[str, Value]
    tensors: tuple[Tensor, ...]
    """In the file's order."""
    data: int
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The byte where each metadata entry begins, its key first, and the one behind its value."""
    table: tuple[int, int] = (0, 0)
    """The same of the tensor table."""


def read_header(handle: int, size: int) -> Header:
    """Read from an open file of ``size`` bytes. Raises HeaderError, and OSError from reading."""
    source = _Source(handle, size)
    if source.take(len(MAGIC), "magic") != MAGIC:
        raise HeaderError("byte 0", "the letters GGUF", repr(bytes(source.data[:8])))
    version = source.number("I", "version")
    if version not in VERSIONS:
        raise HeaderError("byte 4, version", " or ".join(map(str, VERSIONS)), str(version))
    count = source.counted("number of tensors", MOST_TENSORS, least=24)
    entries = source.counted("number of metadata entries", MOST_ENTRIES, least=13)
    values: dict[str, Value] = {}
    places: dict[str, tuple[int, int]] = {}
    for _ in range(entries):
        begin = source.at
        key, value = _entry(source)
        if not key or key in values:
            raise HeaderError(source.place("metadata key"), "a new name", repr(key[:80]))
        values[key] = value
        places[key] = (begin, source.at)
    alignment = _alignment(values)
    begin = source.at
    tensors: dict[str, Tensor] = {}
    for _ in range(count):
        tensor = _tensor(source)
        if tensor.name in tensors:
            raise HeaderError(source.place("tensor name"), "a new name", repr(tensor.name))
        tensors[tensor.name] = tensor
    return Header(
        version=version,
        alignment=alignment,
        values=values,
        tensors=tuple(tensors.values()),
        data=padded(source.at, alignment),
        places=places,
        table=(begin, source.at),
    )


def padded(size: int, alignment: int) -> int:
    """``size`` rounded up to a multiple of ``alignment``."""
    return -(-size // alignment) * alignment


class _Source:
    """Reads one thing after another, and no byte of the file before it is asked for."""

    def __init__(self, handle: int, size: int) -> None:
        self.handle = handle
        self.size = size
        self.data = bytearray()
        self.at = 0
        self.elements = 0

    def place(self, what: str) -> str:
        """Where reading stands, for a refusal."""
        return f"byte {self.at}, {what}"

    def require(self, length: int, what: str) -> None:
        """Have the next ``length`` bytes in ``data``. Raises HeaderError where they cannot be."""
        end = self.at + length
        if end <= len(self.data):
            return
        if end > self.size:
            raise HeaderError(
                self.place(what), f"{length} bytes", f"{self.size - self.at} to the end"
            )
        if end > MOST_BYTES:
            raise HeaderError(self.place(what), f"a header of at most {MOST_BYTES} bytes", f"{end}")
        while len(self.data) < end:
            ahead = min(self.size, MOST_BYTES, max(end, len(self.data) + _CHUNK))
            got = os.pread(self.handle, ahead - len(self.data), len(self.data))
            if not got:  # it was cut meanwhile
                raise HeaderError(self.place(what), f"{length} bytes", "the end of the file")
            self.data += got

    def take(self, length: int, what: str) -> bytes:
        """The next bytes."""
        self.require(length, what)
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def scalar(self, code: str, what: str) -> Scalar:
        """One value of a struct letter."""
        value: Scalar = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}"), what))[0]
        return value

    def number(self, code: str, what: str) -> int:
        """One integer."""
        return int(self.scalar(code, what))

    def counted(self, what: str, most: int, *, least: int) -> int:
        """A count of things that take at least so many bytes each."""
        count = self.number("Q", what)
        if count > most:
            raise HeaderError(self.place(what), f"at most {most}", str(count))
        if count * least > self.size - self.at:
            raise HeaderError(self.place(what), "as many as fit into the file", str(count))
        return count

    def text(self, what: str, most: int = MOST_BYTES) -> str:
        """A string; bytes that are no UTF-8 are shown by their numbers."""
        length = self.number("Q", what)
        if length > most:
            raise HeaderError(self.place(what), f"at most {most} bytes", str(length))
        return self.take(length, what).decode(errors="backslashreplace")

    def texts(self, count: int, what: str) -> tuple[str, ...]:
        """Strings, one after another: the one loop here that large files spend their time in."""
        found = []
        for _ in range(count):
            self.require(8, what)
            (length,) = _LENGTH.unpack_from(self.data, self.at)
            self.at += 8
            self.require(length, what)
            end = self.at + length
            found.append(self.data[self.at : end].decode(errors="backslashreplace"))
            self.at = end
        return tuple(found)


def _entry(source: _Source) -> tuple[str, Value]:
    key = source.text("metadata key")
    what = f"value of {key[:80]!r}"
    kind = source.number("I", what)
    if kind == STRING:
        return key, source.text(what)
    if kind == ARRAY:
        return key, _array(source, what)
    return key, source.scalar(_letter(source, kind, what), what)


def _array(source: _Source, what: str) -> tuple[Scalar, ...]:
    kind = source.number("I", what)
    code = "" if kind == STRING else _letter(source, kind, what)
    width = struct.calcsize(f"<{code}") if code else _LENGTH.size
    count = source.counted(f"length of the {what}", MOST_ELEMENTS - source.elements, least=width)
    source.elements += count
    if not code:
        return source.texts(count, what)
    return struct.unpack(f"<{count}{code}", source.take(count * width, what))


def _letter(source: _Source, kind: int, what: str) -> str:
    if kind not in SCALARS:
        raise HeaderError(source.place(what), "a GGUF value type (no array of arrays)", str(kind))
    return SCALARS[kind]


def _alignment(values: dict[str, Value]) -> int:
    value = values.get("general.alignment", ALIGNMENT)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value & (value - 1):
        raise HeaderError("general.alignment", "a power of two", repr(value)[:80])
    return value


def _tensor(source: _Source) -> Tensor:
    name = source.text("tensor name", MOST_NAME)
    what = f"tensor {name!r}"
    dimensions = source.number("I", what)
    if dimensions > MOST_DIMENSIONS:
        raise HeaderError(
            source.place(what), f"at most {MOST_DIMENSIONS} dimensions", str(dimensions)
        )
    shape = tuple(source.number("q", what) for _ in range(dimensions))
    number = source.number("I", what)
    offset = source.number("Q", what)
    weights = math.prod(shape)
    if any(length < 0 for length in shape) or weights >= MOST_WEIGHTS:
        raise HeaderError(source.place(what), "a shape that can be", str(shape))
    kind = BY_NUMBER.get(number)
    if kind is None:
        return Tensor(name=name, shape=shape, type=f"type {number}", offset=offset, bytes=None)
    if (shape[0] if shape else 1) % kind.block:
        raise HeaderError(
            source.place(what), f"rows of whole {kind.name} blocks of {kind.block}", str(shape)
        )
    size = weights // kind.block * kind.size
    return Tensor(name=name, shape=shape, type=kind.name, offset=offset, bytes=size)
