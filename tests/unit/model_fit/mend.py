"""A model in miniature as a fork spelled it before the merge, and a file with odd metadata."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from sparkbuild.model.header import Value

from .conftest import File, text

TOKENS = ("a", "b", "<|endoftext|>", "<|user|>", "<|observation|>", *map(str, range(27)))
ENDS = {"eos": 2, "eot": 3, "eom": 4}
BLOCKS = 4
KPOOL = 4

KEYS: dict[str, Value] = {
    "block_count": BLOCKS,
    "context_length": 1024,
    "embedding_length": 32,
    "attention.head_count": 2,
    "attention.head_count_kv": (0, 0, 1, 1),
    "attention.layer_norm_rms_epsilon": 1e-5,
    "nextn_predict_layers": 1,
    "kda.gate_lower_bound": -5.0,
    "attention.key_length": 8,
    "attention.key_length_mla": 8,
    "attention.value_length_mla": 8,
    "attention.q_lora_rank": 8,
    "attention.kv_lora_rank": 8,
    "ssm.conv_kernel": 4,
    "kda.head_dim": 8,
    "expert_count": 2,
    "expert_used_count": 1,
    "expert_feed_forward_length": 8,
    "expert_shared_count": 1,
    "rope.dimension_count": 0,
    "attention.indexer.head_count": 2,
    "attention.indexer.key_length": 8,
    "attention.indexer.top_k": 16,
    "attention.indexer.kpool": KPOOL,
    "attention.indexer.types": (True, True, True),
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 4,
    "hyper_connection.epsilon": 1e-6,
    "swiglu_clamp_exp": (10.0,) * BLOCKS,
}


def old(name: str = "glm5next", /, **gone: None) -> File:
    """A whole file of that spelling; ``gone`` keys are left out, two underscores are a dot."""
    lost = {key.replace("__", ".") for key in gone}
    values: dict[str, Value] = {"general.architecture": name, "general.name": "x"}
    values |= {f"{name}.{key}": value for key, value in KEYS.items() if key not in lost}
    values |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": TOKENS}
    values |= {f"tokenizer.ggml.{end}_token_id": number for end, number in ENDS.items()}
    values = {key: value for key, value in values.items() if key not in lost}
    return File(
        values=values,
        tensors={
            "token_embd.weight": ((32, len(TOKENS)), "f32"),
            "blk.0.ssm_a": ((2,), "f32"),
            "blk.2.indexer_compressor_ape.weight": ((8, KPOOL), "f32"),
            "blk.3.indexer_compressor_ape.weight": ((8, KPOOL), "f32"),
        },
    )


ODD = (
    text(b"k\xff") + struct.pack("<IB", 0, 7),
    text(b"glm5next.k\xff") + struct.pack("<Id", 12, float("nan")),
    text("half") + struct.pack("<Ih", 3, -2),
    text("texts") + struct.pack("<IIQ", 9, 8, 2) + text(b"\xfe") + text(""),
    text("none") + struct.pack("<IIQ", 9, 10, 0),
    text("general.alignment") + struct.pack("<II", 4, 64),
)
"""Entries of kinds that published files do not have."""


def odd(path: Path, *, version: int = 3, rest: int = 5) -> bytes:
    """Write ``old`` with ``ODD`` before its last entries and random data; gives the data."""
    file = old(attention__indexer__kpool=None)
    plain = file.head()
    table = plain.index(text("token_embd.weight"))
    cut = plain.index(text("tokenizer.ggml.eos_token_id"))
    body = plain[24:cut] + b"".join(ODD) + plain[cut:table]
    tensors, offset = b"", 0
    for name, (shape, kind) in file.tensors.items():
        tensors += text(name) + struct.pack(f"<I{len(shape)}qIQ", len(shape), *shape, 0, offset)
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        offset += -(-size // 64) * 64
        assert kind == "f32"
    counts = struct.pack("<IQQ", version, len(file.tensors), len(file.values) + len(ODD))
    head = b"GGUF" + counts + body + tensors
    data = random.Random(1).randbytes(offset + rest)  # noqa: S311
    path.write_bytes(head + bytes(-len(head) % 64) + data)
    return data
