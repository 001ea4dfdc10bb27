"""GGUF files made of another one: its metadata, and tensors of which some have changed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from sparkbuild.canary.gguf.layout import ALIGNMENT, TYPES, Layout, Tensor, layout
from sparkbuild.canary.gguf.weights import raw, weights
from sparkbuild.files import write_atomic

_FILE_TYPE: Final = "general.file_type"
_ALL_F32: Final = 0
"""llama.cpp's number for a file that is float32 throughout (LLAMA_FTYPE_ALL_F32)."""
_COUNT_AT: Final = 8
"""The byte where the number of tensors stands, after the magic and the version."""

Change = Callable[[Tensor], tuple[str, bytes]]
"""A tensor of the file to its type and bytes in the new one."""


def widen(master: Path, out: Path) -> Path:
    """Write ``master`` with every weight as the float32 that it stands for.

    llama-quantize could do it for what it quantises and leaves the rest as it is; half-precision
    weights then make the CPU round activations too. Numpy does all of it, so the file owes
    nothing to ggml.
    """
    found = layout(master)

    def change(tensor: Tensor) -> tuple[str, bytes]:
        return "f32", weights(found, tensor).astype("<f4", copy=False).tobytes()

    return rewrite(found, out, found.tensors.values(), change, file_type=_ALL_F32)


def graft(path: Path, premade: Path, out: Path) -> Path:
    """Write ``path`` with every tensor that ``premade`` has as it is there."""
    found, given = layout(path), layout(premade)

    def change(tensor: Tensor) -> tuple[str, bytes]:
        source = given if tensor.name in given.tensors else found
        taken = source.tensors[tensor.name]
        return taken.type, raw(source, taken).tobytes()

    return rewrite(found, out, found.tensors.values(), change)


def select(path: Path, out: Path, types: Iterable[str]) -> Path:
    """Write only the tensors of some types: what ``graft`` takes."""
    found, wanted = layout(path), frozenset(types)
    kept = [tensor for tensor in found.tensors.values() if tensor.type in wanted]
    return rewrite(found, out, kept, lambda t: (t.type, raw(found, t).tobytes()))


def rewrite(
    found: Layout,
    out: Path,
    tensors: Iterable[Tensor],
    change: Change,
    *,
    file_type: int | None = None,
) -> Path:
    """Write a file with the metadata of ``found`` and the given tensors, changed."""
    table, body, count = bytearray(), bytearray(), 0
    for tensor in tensors:
        kind, data = change(tensor)
        table += _entry(tensor, kind, len(body))
        body += data
        body += bytes(_padded(len(body)) - len(body))
        count += 1
    head = _metadata(found, count, file_type) + table
    write_atomic(out, bytes(head) + bytes(_padded(len(head)) - len(head)) + bytes(body))
    return out


def _metadata(found: Layout, count: int, file_type: int | None) -> bytearray:
    with found.path.open("rb") as file:
        head = bytearray(file.read(found.metadata_end))
    struct.pack_into("<Q", head, _COUNT_AT, count)
    field = found.fields.get(_FILE_TYPE)
    if field is not None and file_type is not None:
        struct.pack_into(f"<{field.code}", head, field.offset, file_type)
    return head


def _entry(tensor: Tensor, kind: str, at: int) -> bytes:
    name = tensor.name.encode()
    shape = tuple(reversed(tensor.shape))
    return (
        struct.pack("<Q", len(name))
        + name
        + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, TYPES[kind][0], at)
    )


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
