"""A model file made anew with some of it changed, by the field's own reader and writer."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
from gguf import quants

from sparkbuild.faults.contract import NotPlantedError
from sparkbuild.faults.edit import AnyModelEdit, Entry, Key, Lose, Rename, Weights

_ARCHITECTURE: Final = "general.architecture"
_OWN: Final = "GGUF."
"""How the reader names what is in the header and no key."""
_ROLLED: Final = 8
"""A rolled tensor is moved by this part of its rows."""
Kind = gguf.GGUFValueType


@dataclass(frozen=True, kw_only=True)
class Value:
    """A key's value with its type, and of an array that of its items."""

    value: Any
    kind: Kind
    items: Kind | None = None


@dataclass(frozen=True, kw_only=True)
class Block:
    """A tensor: its bytes, [rows, ..., bytes of a row], and its type."""

    data: np.ndarray[Any, np.dtype[np.uint8]]
    kind: gguf.GGMLQuantizationType


@dataclass(frozen=True, kw_only=True)
class Content:
    """All that a file holds, in its order."""

    keys: dict[str, Value]
    tensors: dict[str, Block]


def read(path: Path) -> Content:
    """What a file of one shard holds."""
    reader = gguf.GGUFReader(path)
    return Content(
        keys={
            name: Value(
                value=field.contents(),
                kind=field.types[0],
                items=field.types[-1] if field.types[0] is Kind.ARRAY else None,
            )
            for name, field in reader.fields.items()
            if not name.startswith(_OWN)
        },
        tensors={
            one.name: Block(data=_bytes(one.data), kind=one.tensor_type) for one in reader.tensors
        },
    )


def write(content: Content, path: Path, *, shards: int = 1) -> tuple[Path, ...]:
    """Write it to a file, or to so many with the names that llama.cpp gives them."""
    most = math.ceil(len(content.tensors) / shards) if shards > 1 else 0
    architecture = content.keys.get(_ARCHITECTURE)
    writer = gguf.GGUFWriter(
        path, str(architecture.value) if architecture else "", split_max_tensors=most
    )
    for name, one in content.keys.items():
        if name != _ARCHITECTURE:
            writer.add_key_value(name, one.value, one.kind, one.items)
    if architecture is None:
        del writer.kv_data[0][_ARCHITECTURE]
    for name, block in content.tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(block.data), raw_dtype=block.kind)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tuple(sorted(path.parent.glob(f"{path.stem}*.gguf")))


def edited(content: Content, edits: Sequence[AnyModelEdit]) -> Content:
    """The content after the edits. Raises NotPlantedError where one finds nothing to change."""
    for edit in edits:
        match edit:
            case Key() | Entry():
                content = replace(content, keys=_with_key(content.keys, edit))
            case Lose():
                content = _without(content, edit)
            case Rename():
                content = _renamed(content, edit)
            case Weights():
                content = replace(content, tensors=_with_weights(content.tensors, edit))
    return content


def _with_key(keys: dict[str, Value], edit: Key | Entry) -> dict[str, Value]:
    known = keys.get(edit.key)
    if isinstance(edit, Entry):
        if known is None or edit.old not in known.value:
            raise NotPlantedError(f"{edit.key} holds no {edit.old!r}")
        items = [edit.new if one == edit.old else one for one in known.value]
        return {**keys, edit.key: replace(known, value=items)}
    value = list(edit.value) if isinstance(edit.value, tuple) else edit.value
    if known is not None and known.value == value:
        raise NotPlantedError(f"{edit.key} is {value!r} already")
    if known is None or isinstance(value, list) != (known.kind is Kind.ARRAY):
        items_kind = Kind.get_type(value[0]) if isinstance(value, list) else None
        known = Value(value=value, kind=Kind.get_type(value), items=items_kind)
    return {**keys, edit.key: replace(known, value=value)}


def _without(content: Content, edit: Lose) -> Content:
    names = content.keys if edit.what == "key" else content.tensors
    gone = set(fnmatch.filter(names, edit.name))
    if not gone:
        raise NotPlantedError(f"there is no {edit.what} {edit.name}")
    if edit.what == "key":
        return replace(content, keys={k: v for k, v in content.keys.items() if k not in gone})
    return replace(content, tensors={k: v for k, v in content.tensors.items() if k not in gone})


def _renamed(content: Content, edit: Rename) -> Content:
    names = content.keys if edit.what == "key" else content.tensors
    if not any(edit.old in name for name in names):
        raise NotPlantedError(f"no {edit.what} has {edit.old!r} in its name")
    if edit.what == "key":
        keys = {name.replace(edit.old, edit.new): one for name, one in content.keys.items()}
        return replace(content, keys=keys)
    tensors = {name.replace(edit.old, edit.new): one for name, one in content.tensors.items()}
    return replace(content, tensors=tensors)


def _with_weights(tensors: dict[str, Block], edit: Weights) -> dict[str, Block]:
    names = fnmatch.filter(tensors, edit.name)
    if not names:
        raise NotPlantedError(f"there is no tensor {edit.name}")
    return {
        name: _changed(name, block, edit) if name in names else block
        for name, block in tensors.items()
    }


def _changed(name: str, block: Block, edit: Weights) -> Block:
    data = block.data
    match edit.how:
        case "rolled":
            new = replace(block, data=np.roll(data, max(1, len(data) // _ROLLED), axis=0))
        case "halved":
            new = replace(block, data=data[: len(data) // 2])
        case "negated":
            new = replace(block, data=_bytes(-_floats(name, block)))
        case "labelled":
            new = replace(block, kind=_kind(edit.type))
        case "requantised":
            kind = _kind(edit.type)
            values = quants.dequantize(data, block.kind)
            new = Block(data=_bytes(quants.quantize(values, kind)), kind=kind)
    if new.kind == block.kind and np.array_equal(new.data, data):
        raise NotPlantedError(f"{name} is the same after all")
    return new


def _kind(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name.upper()]


def _floats(name: str, block: Block) -> np.ndarray[Any, Any]:
    types = {gguf.GGMLQuantizationType.F32: np.float32, gguf.GGMLQuantizationType.F16: np.float16}
    if block.kind not in types:
        raise NotPlantedError(f"{name} is {block.kind.name}, which has no sign of its own")
    return block.data.view(types[block.kind])


def _bytes(values: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.ascontiguousarray(values).view(np.uint8)
