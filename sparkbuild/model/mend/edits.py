"""Changes of metadata: data alone, on what a header says and on its very bytes."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from sparkbuild.model.header import ARRAY, SCALARS, STRING, Scalar, Value
from sparkbuild.model.read import Model

_U32: Final = 4
_COUNT_AT: Final = 16
"""The byte where the number of metadata entries stands: magic, version and tensors before it."""
_ARRAY_HEAD: Final = struct.Struct("<IIQ")
_LENGTH: Final = struct.Struct("<Q")


class _Edit(msgspec.Struct, frozen=True, kw_only=True, tag_field="change"):
    """One change, and why it is made."""

    key: str
    """As it is before the change."""
    reason: str


class Rename(_Edit, frozen=True, kw_only=True, tag="rename"):
    """The key, or with a dot at its end every key below it, gets another name.

    Places and values stay.
    """

    to: str
    keys: int = 1

    def name(self, key: str) -> str:
        """What a key is called afterwards."""
        if self.key.endswith(".") and key.startswith(self.key):
            return self.to + key[len(self.key) :]
        return self.to if key == self.key else key


class Put(_Edit, frozen=True, kw_only=True, tag="put"):
    """The key gets this text or 32-bit count; one that is new goes behind all others."""

    value: str | int
    was: str = ""
    """What it says before, for a person; empty where it says nothing."""


class Resize(_Edit, frozen=True, kw_only=True, tag="resize"):
    """The array gets so many entries: the last ones go, or ``fill`` is added."""

    length: int
    was: int
    fill: Scalar | None = None


Edit = Rename | Put | Resize


def changed(values: dict[str, Value], edits: Iterable[Edit]) -> dict[str, Value]:
    """The values after the edits, in the order of the file that would be written."""
    for edit in edits:
        if isinstance(edit, Rename):
            values = {edit.name(key): held for key, held in values.items()}
        elif isinstance(edit, Put):
            values = {**values, edit.key: edit.value}
        else:
            values = {**values, edit.key: _resized(values[edit.key], edit)}
    return values


def _resized(value: Value, edit: Resize) -> Value:
    assert isinstance(value, tuple)  # noqa: S101 - a rule looked before it asked for this
    fill = () if edit.fill is None else (edit.fill,) * (edit.length - len(value))
    return (value + fill)[: edit.length]


def edited(model: Model, edits: Iterable[Edit]) -> Model:
    """The model as it is after the edits: what its first file says, and nothing else, differs."""
    first, *others = model.shards
    header = dataclasses.replace(first.header, values=changed(first.header.values, edits))
    shard = dataclasses.replace(first, header=header)
    return dataclasses.replace(model, shards=(shard, *others))


class Entries:
    """Metadata entries of a file as bytes, changed one by one; what is not changed stays as is."""

    def __init__(self, data: bytes, places: dict[str, tuple[int, int]]) -> None:
        self._start = data[:_COUNT_AT]
        self._held: dict[str, tuple[bytes, bytes]] = {}
        for key, (begin, end) in places.items():
            split = begin + _LENGTH.size + _LENGTH.unpack_from(data, begin)[0]
            self._held[key] = (data[begin + _LENGTH.size : split], data[split:end])

    def apply(self, edits: Iterable[Edit]) -> None:
        """Make the changes, each on what those before it left."""
        for edit in edits:
            if isinstance(edit, Rename):
                self._rename(edit)
                continue
            name, body = self._held.get(edit.key, (edit.key.encode(), b""))
            new = _put(edit.value) if isinstance(edit, Put) else _resize(body, edit)
            self._held[edit.key] = (name, new)

    def _rename(self, edit: Rename) -> None:
        """Only the part that an edit names is replaced: a key may hold bytes that are no text."""
        gone, come = len(edit.key.encode()), edit.to.encode()
        self._held = {
            (new := edit.name(key)): (name if new == key else come + name[gone:], body)
            for key, (name, body) in self._held.items()
        }

    def encoded(self, table: bytes) -> bytes:
        """The whole header with that table of tensors behind, no padding."""
        parts = [self._start, _LENGTH.pack(len(self._held))]
        for name, body in self._held.values():
            parts += [_LENGTH.pack(len(name)), name, body]
        return b"".join([*parts, table])


def _put(value: str | int) -> bytes:
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    text = value.encode()
    return struct.pack("<I", STRING) + _LENGTH.pack(len(text)) + text


def _resize(body: bytes, edit: Resize) -> bytes:
    """An array with another length; its elements keep their type."""
    _, kind, count = _ARRAY_HEAD.unpack_from(body)
    letter = SCALARS[kind]
    data = body[_ARRAY_HEAD.size :]
    if edit.length > count:
        data += struct.pack(f"<{edit.length - count}{letter}", *[edit.fill] * (edit.length - count))
    size = struct.calcsize(f"<{letter}")
    return _ARRAY_HEAD.pack(ARRAY, kind, edit.length) + data[: edit.length * size]
