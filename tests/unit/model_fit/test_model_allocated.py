"""The sum against what a real server allocates: ten models of nine architectures, within 5 %.

Six are made here, of holes, with the proportions of models that people serve: weights are most of
it. Of the canaries, whose weights are next to nothing, a long context is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.canary.catalogue import DATA
from sparkbuild.model.asked import Asked
from sparkbuild.model.header import Value
from sparkbuild.model.memory import budget
from sparkbuild.model.read import Model, read_model

from .conftest import File, canary
from .test_model_real import serve

pytestmark = pytest.mark.real

WITHIN = 0.05
EMBEDDING, HEADS, KV_HEADS, WIDTH, FEED, BLOCKS, EXPERTS = 1024, 16, 8, 64, 3072, 3, 8
CONTEXT, TOKENS = 4096, 128
_ALLOCATED = re.compile(r" (?:model|KV|RS|compute|output) buffer size = +(?P<mib>[\d.]+) MiB")
Shapes = Mapping[str, tuple[int, ...]]

NORM, ROWS, KEYS = (EMBEDDING,), (EMBEDDING, HEADS * WIDTH), (EMBEDDING, KV_HEADS * WIDTH)
ATTENTION: Shapes = {
    "attn_norm.weight": NORM, "attn_q.weight": ROWS, "attn_k.weight": KEYS, "attn_v.weight": KEYS,
    "attn_output.weight": (HEADS * WIDTH, EMBEDDING), "ffn_norm.weight": NORM,
}  # fmt: skip
DENSE: Shapes = {
    "ffn_gate.weight": (EMBEDDING, FEED), "ffn_up.weight": (EMBEDDING, FEED),
    "ffn_down.weight": (FEED, EMBEDDING),
}  # fmt: skip
BIASES: Shapes = {
    f"attn_{name}.bias": (width * WIDTH,)
    for name, width in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
}
NORMED: Shapes = {"attn_q_norm.weight": (WIDTH,), "attn_k_norm.weight": (WIDTH,)}
ROUTED: Shapes = {
    "ffn_gate_inp.weight": (EMBEDDING, EXPERTS),
    "ffn_gate_exps.weight": (EMBEDDING, FEED // 4, EXPERTS),
    "ffn_up_exps.weight": (EMBEDDING, FEED // 4, EXPERTS),
    "ffn_down_exps.weight": (FEED // 4, EMBEDDING, EXPERTS),
}
BLOCK: dict[str, Shapes] = {
    "llama": {**ATTENTION, **DENSE},
    "qwen2": {**ATTENTION, **DENSE, **BIASES},
    "qwen3": {**ATTENTION, **DENSE, **NORMED},
    "qwen3moe": {**ATTENTION, **ROUTED, **NORMED},
    "gemma": {**ATTENTION, **DENSE},
    "internlm2": {**ATTENTION, **DENSE},
}  # fmt: skip


def made(architecture: str, path: Path) -> Model:
    """A model whose weights are holes in its file."""
    tokenizer = {k: v for k, v in canary("llama").values.items() if k.startswith("tokenizer.")}
    numbers: dict[str, Value] = {
        "block_count": BLOCKS, "context_length": CONTEXT, "embedding_length": EMBEDDING,
        "feed_forward_length": FEED, "attention.head_count": HEADS, "rope.dimension_count": WIDTH,
        "attention.head_count_kv": KV_HEADS, "attention.key_length": WIDTH,
        "attention.value_length": WIDTH, "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 10000.0,
    }  # fmt: skip
    if any(name.endswith("_exps.weight") for name in BLOCK[architecture]):
        numbers |= {"expert_count": EXPERTS, "expert_used_count": 2,
                    "expert_feed_forward_length": FEED // 4}  # fmt: skip
    vocabulary = canary("llama").length("tokenizer.ggml.tokens")
    shapes = {"token_embd.weight": (EMBEDDING, vocabulary), "output_norm.weight": NORM}
    if architecture != "gemma":  # its head is its embeddings
        shapes["output.weight"] = (EMBEDDING, vocabulary)
    shapes |= {
        f"blk.{number}.{name}": shape
        for number in range(BLOCKS)
        for name, shape in BLOCK[architecture].items()
    }
    file = File(
        values={"general.architecture": architecture, **tokenizer,
                **{f"{architecture}.{name}": value for name, value in numbers.items()}},
        tensors={name: (shape, "f16" if len(shape) > 1 else "f32")
                 for name, shape in shapes.items()},
    )  # fmt: skip
    return read_model(file.write(path))


def compare(model: Model, asked: Asked, program: Path, log: Path) -> float:
    """The sum without its reserve, as a share of what the server's log says it allocated."""
    up, lines = serve(program, log, "-m", str(model.path), "-c", str(asked.context),
                      "-ub", str(asked.micro_batch), "-fa", "on")  # fmt: skip
    assert up, lines[-20:]
    allocated = sum(float(m["mib"]) for line in lines if (m := _ALLOCATED.search(line)))
    parts = budget(model, None, asked).parts
    return sum(part.bytes for part in parts if part.kind == "start") / (1 << 20) / allocated


@pytest.mark.parametrize("architecture", BLOCK)
def test_a_model_made_for_it(architecture: str, real_build: Any, tmp_path: Path) -> None:
    model = made(architecture, tmp_path / "model.gguf")
    asked = Asked(context=CONTEXT, micro_batch=TOKENS)
    share = compare(model, asked, real_build.bin / "llama-server", tmp_path / "log")
    assert 0 <= share - 1 < WITHIN, share


@pytest.mark.parametrize("name", ["qwen35", "glm47-flash", "glm5-next", "llama"])
def test_a_canary_with_a_long_context(name: str, real_build: Any, tmp_path: Path) -> None:
    model = read_model(DATA / name / f"{name}-q8_0.gguf")
    asked = Asked(context=65536, micro_batch=TOKENS)
    share = compare(model, asked, real_build.bin / "llama-server", tmp_path / "log")
    assert 0 <= share - 1 < WITHIN, share
