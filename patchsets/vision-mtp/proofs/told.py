"""Every MTP graph takes token embeddings with hidden states as it takes tokens: the same logits.

For each architecture with drafts a tiny model of random weights is made from the metadata of
upstream's own test-llama-archs, with one block more. Where a graph asks for tensors that are only
in files, a file is made. The trained canaries are told the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import random_models
from rewritten import Array, rewritten

from sparkbuild.canary.gguf.layout import layout
from sparkbuild.canary.gguf.weights import weights
from sparkbuild.patch_bench import Bench

HERE: Final = Path(__file__).parent
TRAINED: Final = ("glm47-flash", "qwen35", "glm5-next")
IN_FILES: Final = ("deepseek4", "mimo2", "step35")
"""Whose graph looks for the draft block, or for a joined matrix, in the file."""
FAR: Final = 1e-10
"""NMSE with the hidden states of another place: 3e-9 and more. Where these change nothing, a graph
that drops them would pass."""


def compared(bench: Bench, names: tuple[str, ...], *, trained: bool) -> None:
    """Architectures by upstream's names, and the trained canaries."""
    program = bench.compiled(HERE / "rows.cpp")
    for canary in TRAINED if trained else ():
        model = bench.canary(canary).model
        judged(bench, canary, *bench.ran(program, model, embeddings(bench, model)))
    folder = bench.folder / "archs"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.gguf"):
        old.unlink()
    made = bench.compiled(bench.source / "tests" / "test-llama-archs.cpp")
    pattern = f"^({'|'.join(re.escape(name) for name in names)})$"
    status, said = bench.ran(made, "-a", pattern, "-s", "1", "-o", folder)
    bench.check("upstream's tiny models", well=status == 0, found=said[-200:])
    for name in names:
        if name == "step35":  # of which upstream has none
            random_models.step35(folder / "step35-random.gguf", bench.canary("llama").model)
        found = sorted(folder.glob(f"{name}-*.gguf"))
        if not bench.check(f"{name}, its metadata", well=bool(found), found=len(found)):
            continue
        if name in IN_FILES:
            model = found[0]
            if name != "step35":
                model = with_block(model, folder / f"drafts-{name}.gguf")
            judged(bench, name, *bench.ran(program, model, embeddings(bench, model)))
        else:
            judged(bench, name, *bench.ran(program, found[0], "random"))


def judged(bench: Bench, name: str, status: int, said: str) -> None:
    """The program's two distances: none for rows, some where the hidden states are others."""
    numbers = re.findall(r"^(\d\.\d+e[+-]\d+)$", said, re.MULTILINE)
    well = status == 0 and len(numbers) == 2
    well = well and float(numbers[0]) == 0 and float(numbers[1]) > FAR
    found = f"NMSE {', of another place '.join(numbers)}" if numbers else said[-300:]
    bench.check(f"{name}, rows for tokens", well=well, found=found)


def embeddings(bench: Bench, model: Path) -> Path:
    """A file with the model's token embeddings, float32."""
    found = layout(model)
    out = bench.folder / "embeddings.f32"
    weights(found, found.tensors["token_embd.weight"]).astype("<f4").tofile(out)
    return out


def with_block(source: Path, out: Path) -> Path:
    """A model with a draft block like its first block, queries, keys and values joined."""
    reader = gguf.GGUFReader(source)
    name = str(reader.fields["general.architecture"].contents())
    count = int(reader.fields[f"{name}.block_count"].contents())
    width = int(reader.fields[f"{name}.embedding_length"].contents())
    rng = np.random.default_rng(1)
    block: dict[str, Array] = {
        "nextn.eh_proj.weight": (rng.standard_normal((width, 2 * width)) * 0.1).astype(np.float32),
        "nextn.enorm.weight": np.ones(width, np.float32),
        "nextn.hnorm.weight": np.ones(width, np.float32),
    }
    for tensor in reader.tensors:
        if tensor.name.startswith("blk.0."):
            block[tensor.name.removeprefix("blk.0.")] = tensor.data
    parts = ("attn_q.", "attn_k.", "attn_v.")
    if all(f"{part}weight" in block for part in parts):
        joined = np.concatenate([block[f"{part}weight"] for part in parts])
        block = {name: value for name, value in block.items() if not name.startswith(parts)}
        block["attn_qkv.weight"] = joined

    def longer(key: str, value: Any) -> tuple[str, Any]:
        listed = key.startswith(name) and isinstance(value, list) and len(value) == count
        return key, [*value, value[0]] if listed else value

    added = {f"blk.{count}.{key}": value for key, value in block.items()}
    more = {f"{name}.block_count": count + 1, f"{name}.nextn_predict_layers": 1}
    return rewritten(source, out, change=longer, added=added, numbers=more)
