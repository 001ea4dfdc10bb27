"""GGUF files written by hand, changed copies of the shipped canaries, and a build in miniature."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkbuild.canary.catalogue import DATA
from sparkbuild.model.asked import Asked
from sparkbuild.model.build import Build, read_build
from sparkbuild.model.finding import Finding
from sparkbuild.model.fit import fit
from sparkbuild.model.header import Value
from sparkbuild.model.read import Model, read_model
from sparkbuild.model.types import BY_NAME, BY_NUMBER

CANARIES = {
    "glm5-next": True,
    "qwen35": True,
    "glm47-flash": True,
    "llama": False,
}
"""Whether each sees."""
NUMBERS = {kind.name: number for number, kind in BY_NUMBER.items()}
GRAPHS = ("qwen35", "deepseek2", "glm4_moe")


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(value: Value) -> bytes:
    """A metadata value with its type before it; integers are u32 alone and i32 in arrays."""
    if isinstance(value, tuple):
        items = [
            struct.pack("<Ii", 5, item) if type(item) is int else value_bytes(item)
            for item in value
        ]
        head = (items or [struct.pack("<I", 5)])[0][:4]
        body = b"".join(item[4:] for item in items)
        return struct.pack("<I", 9) + head + struct.pack("<Q", len(value)) + body
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", 8) + text(value)


@dataclass(kw_only=True)
class File:
    """What a GGUF file is to hold; tensor data is a hole in it."""

    values: dict[str, Value] = field(default_factory=dict)
    tensors: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    version: int = 3
    offsets: dict[str, int] = field(default_factory=dict)
    """Offsets that are not what they should be."""

    @classmethod
    def like(cls, model: Model) -> File:
        return cls(
            values=dict(model.values),
            tensors={name: (t.shape, t.type) for name, t in model.tensors.items()},
        )

    def head(self) -> bytes:
        table, offset = b"", 0
        for name, (shape, kind) in self.tensors.items():
            number = NUMBERS[kind] if kind in NUMBERS else int(kind.removeprefix("type "))
            at = self.offsets.get(name, offset)
            table += text(name) + struct.pack(f"<I{len(shape)}qIQ", len(shape), *shape, number, at)
            offset += self.size(shape, kind)
        entries = b"".join(text(key) + value_bytes(value) for key, value in self.values.items())
        counts = struct.pack("<IQQ", self.version, len(self.tensors), len(self.values))
        head = b"GGUF" + counts + entries + table
        return head + bytes(-len(head) % 32)

    def write(self, path: Path, *, cut: int = 0) -> Path:
        head = self.head()
        whole = len(head) + sum(self.size(*tensor) for tensor in self.tensors.values())
        with path.open("wb") as file:
            file.write(head)
            file.truncate(whole - cut)
        return path

    @staticmethod
    def size(shape: Sequence[int], kind: str) -> int:
        known = BY_NAME.get(kind, BY_NAME["f32"])
        size = math.prod(shape) // known.block * known.size
        return -(-size // 32) * 32


def canary(name: str) -> Model:
    return read_model(DATA / name / f"{name}-q8_0.gguf")


def tower(name: str) -> Model | None:
    return read_model(DATA / name / "mmproj-f16.gguf") if CANARIES[name] else None


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Model]:
    """``changed(model, change)``: a model written again after ``change(file)``."""

    def make(model: Model, change: Callable[[File], object], name: str = "changed.gguf") -> Model:
        file = File.like(model)
        change(file)
        return read_model(file.write(tmp_path / name))

    return make


def library(path: Path, texts: Sequence[str], *, machine: int = 62) -> Path:
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, machine)
    path.write_bytes(head + b"\0".join(text.encode() for text in ("", *texts, "")) + b"\x07\x01")
    return path


def graph_names(classes: Sequence[str]) -> list[str]:
    names = [f"llama_model_{name}" for name in classes]
    return [f"N{len(name)}{name}9graph_mtpE" for name in names]


def patterns() -> list[str]:
    """Names of the canaries' tensors as libllama has them."""
    found = {
        re.sub(r"\.\d+(?=\.|$)", ".%d", name).removesuffix(".weight").removesuffix(".bias")
        for each in CANARIES
        for name in canary(each).tensors
    }
    return sorted(found)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build's folder with libraries of a few kilobytes that know the canaries."""
    root = tmp_path_factory.mktemp("build")
    (root / "bin").mkdir()
    library(
        root / "bin" / "libllama.so.0",
        ["clip", "llama", "qwen35", "rwkv6qwen2", "deepseek2", "glm5-next", "(unknown)",
         "general.type", "GLM5-Next NextN graph not implemented yet",
         *patterns(), *graph_names(GRAPHS)],
    )  # fmt: skip
    library(root / "bin" / "libmtmd.so.0", ["glm4v", "glm5v", "gemma3", "cap_from_file"])
    library(root / "bin" / "libggml-base.so.0", list(BY_NAME))
    return root


@pytest.fixture(scope="session")
def build(folder: Path) -> Build:
    return read_build(folder)


def findings(
    model: Model, vision: Model | None, build: Build | None, asked: Asked | None = None
) -> dict[str, Finding]:
    found = fit(model, vision, build, asked or Asked(context=4096))
    names = [finding.name for finding in found]
    assert len(set(names)) == len(names)
    return {finding.name: finding for finding in found}


def wrong(found: dict[str, Finding]) -> dict[str, str]:
    """Names and states of all that is not ok; a note is."""
    return {name: f.state for name, f in found.items() if f.state in {"warning", "fault"}}
