"""GGUF files of a few kilobytes that hold a little of everything."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from sparkbuild.canary.catalogue import DATA
from sparkbuild.model.header import Value
from sparkbuild.model.read import read_model
from sparkbuild.model.types import BY_NAME, BY_NUMBER

NUMBERS = {kind.name: number for number, kind in BY_NUMBER.items()}


def small() -> bytes:
    """A model of two blocks with a NextN block, 24 tokens and a template, and its tensor data."""
    model = read_model(DATA / "glm5-next" / "glm5-next-q8_0.gguf")
    tokens = model.texts("tokenizer.ggml.tokens") or ()
    values: dict[str, Value] = {
        key: value[:24] if isinstance(value, tuple) and len(value) > 100 else value
        for key, value in model.values.items()
    }
    values["tokenizer.ggml.tokens"] = tokens[-24:]
    values["tokenizer.chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tensors = {
        name: tensor
        for name, tensor in model.tensors.items()
        if name.startswith(("blk.0.", "blk.9.nextn", "output", "token_embd"))
    }
    return head(values, dict.fromkeys(tensors, ((32, 2), "q8_0"))) + bytes(68 * 32)


def small_tower() -> bytes:
    """An mmproj with a few of its tensors."""
    model = read_model(DATA / "glm5-next" / "mmproj-f16.gguf")
    names = [*model.tensors][:12]
    return head(dict(model.values), dict.fromkeys(names, ((32, 2), "f16"))) + bytes(2048)


def head(values: Mapping[str, Value], tensors: Mapping[str, tuple[tuple[int, int], str]]) -> bytes:
    """A header, padded; tensors one after another in multiples of 32 bytes."""
    entries = b"".join(_text(key) + _value(value) for key, value in values.items())
    table, offset = b"", 0
    for name, (shape, kind) in tensors.items():
        layout = f"<I{len(shape)}qIQ"
        table += _text(name) + struct.pack(layout, len(shape), *shape, NUMBERS[kind], offset)
        size = shape[0] * shape[1] // BY_NAME[kind].block * BY_NAME[kind].size
        offset += -(-size // 32) * 32
    found = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + entries + table
    return found + bytes(-len(found) % 32)


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    if isinstance(value, tuple):
        items = [_value(item) for item in value] or [struct.pack("<I", 5)]
        body = b"".join(item[4:] for item in items)
        return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(value)) + body
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<Iq", 11, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", 8) + _text(value)
