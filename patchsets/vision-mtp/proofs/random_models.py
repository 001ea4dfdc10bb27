"""Tiny models of random weights for the architectures of drafts, with a canary's vocabulary.

Weights are drawn from a seed; the width is the canaries', so that a draft fits behind any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import gguf
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

WIDTH: Final = 256
VOCABULARY: Final = 512
_HEADS: Final = 4
_HEADS_KV: Final = 2
_HEAD: Final = 64
_FEED_FORWARD: Final = 256
_CONTEXT: Final = 8192
_TARGET_LAYERS: Final = (0, 1, 2)
"""Layers of the target whose states eagle3 and dflash read."""
_MASK: Final = 500
"""The token that stands for what dflash has still to draft."""
_SEED: Final = 5


class Model:
    """A GGUF file that grows: metadata, then tensors, then ``written``."""

    def __init__(self, path: Path, architecture: str, vocabulary: Path, *, layers: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rng = np.random.default_rng(_SEED)
        self.architecture = architecture
        self.writer = gguf.GGUFWriter(path, architecture)
        for key, field in gguf.GGUFReader(vocabulary).fields.items():
            if key.startswith("tokenizer."):
                self._copied(key, field)
        self.numbers(
            block_count=layers,
            context_length=_CONTEXT,
            embedding_length=WIDTH,
            feed_forward_length=_FEED_FORWARD,
            vocab_size=VOCABULARY,
            **{"rope.dimension_count": _HEAD},
            **{"attention.key_length": _HEAD, "attention.value_length": _HEAD},
        )
        self.fractions(**{"rope.freq_base": 1e4, "attention.layer_norm_rms_epsilon": 1e-5})
        self.embedding: Array = self.rng.standard_normal((VOCABULARY, WIDTH), np.float32)

    def numbers(self, **values: int) -> None:
        """Whole numbers below the architecture's prefix."""
        for key, value in values.items():
            self.writer.add_uint32(f"{self.architecture}.{key}", value)

    def fractions(self, **values: float) -> None:
        """Numbers below the architecture's prefix."""
        for key, value in values.items():
            self.writer.add_float32(f"{self.architecture}.{key}", value)

    def lists(self, values: Mapping[str, list[int] | list[bool]]) -> None:
        """Lists below the architecture's prefix."""
        for key, value in values.items():
            self.writer.add_array(f"{self.architecture}.{key}", value)

    def heads(self) -> None:
        """The same attention in every block."""
        self.numbers(**{"attention.head_count": _HEADS, "attention.head_count_kv": _HEADS_KV})

    def matrix(self, columns: int, rows: int, gain: float = 1.0) -> Array:
        """[rows, columns], so that what comes out is about ``gain`` times what goes in."""
        drawn: Array = self.rng.standard_normal((rows, columns), np.float32)
        return drawn * np.float32(gain / columns**0.5)

    def add(self, name: str, weights: Array) -> None:
        """A tensor."""
        self.writer.add_tensor(f"{name}.weight", np.ascontiguousarray(weights))

    def ones(self, *names: str, size: int = WIDTH) -> None:
        """Norms that change nothing."""
        for name in names:
            self.add(name, np.ones(size, np.float32))

    def block(self, number: int, *, inputs: int = WIDTH, gain: float = 1.0) -> None:
        """Attention, which reads ``inputs`` numbers, and a gated feed-forward layer."""
        name = f"blk.{number}"
        self.ones(f"{name}.attn_norm")
        self.add(f"{name}.attn_q", self.matrix(inputs, _HEADS * _HEAD))
        self.add(f"{name}.attn_k", self.matrix(inputs, _HEADS_KV * _HEAD))
        self.add(f"{name}.attn_v", self.matrix(inputs, _HEADS_KV * _HEAD))
        self.add(f"{name}.attn_output", self.matrix(_HEADS * _HEAD, WIDTH, gain))
        self.ones(f"{name}.ffn_norm")
        self.add(f"{name}.ffn_gate", self.matrix(WIDTH, _FEED_FORWARD))
        self.add(f"{name}.ffn_up", self.matrix(WIDTH, _FEED_FORWARD))
        self.add(f"{name}.ffn_down", self.matrix(_FEED_FORWARD, WIDTH, gain))

    def written(self) -> Path:
        """The finished file."""
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.path

    def _copied(self, key: str, field: gguf.ReaderField) -> None:
        value, kind = field.contents(), field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            self.writer.add_array(key, value)
        else:
            self.writer.add_key_value(key, value, kind)


def step35(path: Path, vocabulary: Path, *, heads: int = 3) -> Path:
    """A trunk of two blocks and chained draft heads that mostly agree with it.

    All say a fixed permutation of the last token; attention alters some, so that drafts are
    accepted in part. Every second block has a sliding window.
    """
    trunk, noise = 2, 0.35
    layers = trunk + heads
    model = Model(path, "step35", vocabulary, layers=layers)
    model.lists(
        {
            "attention.head_count": [_HEADS] * layers,
            "attention.head_count_kv": [_HEADS_KV] * layers,
            "attention.sliding_window_pattern": [bool(number % 2) for number in range(layers)],
            "expert_feed_forward_length": [0] * layers,
        }
    )
    model.numbers(
        expert_count=0,
        expert_used_count=0,
        nextn_predict_layers=heads,
        **{"attention.sliding_window": 24},
    )
    model.fractions(**{"rope.freq_base_swa": 1e4})
    model.add("token_embd", model.embedding)
    model.ones("output_norm")
    output = np.empty_like(model.embedding)
    output[model.rng.permutation(VOCABULARY)] = model.embedding
    model.add("output", output)
    for number in range(layers):
        model.block(number, gain=noise)
    one = np.eye(WIDTH, dtype=np.float32)
    for number in range(trunk, layers):
        name = f"blk.{number}.nextn"
        model.add(f"{name}.eh_proj", np.concatenate([one, 0.1 * one], axis=1))
        model.ones(f"{name}.enorm", f"{name}.hnorm")
    return model.written()


def eagle3(path: Path, vocabulary: Path) -> Path:
    """A draft that reads three layers of its target."""
    model = Model(path, "eagle3", vocabulary, layers=1)
    model.heads()
    model.lists({"target_layers": list(_TARGET_LAYERS)})
    model.numbers(target_hidden_size=WIDTH)
    model.add("fc", model.matrix(len(_TARGET_LAYERS) * WIDTH, WIDTH))
    model.ones("output_norm", "blk.0.attn_norm_2")
    model.add("output", model.matrix(WIDTH, VOCABULARY))
    model.add("token_embd", model.embedding)
    model.block(0, inputs=2 * WIDTH)
    return model.written()


def dflash(
    path: Path, vocabulary: Path, *, mrope: bool = False, markov: bool = False, window: int = 0
) -> Path:
    """A draft that fills in a block of masked tokens at once; with ``markov`` it is dspark's."""
    layers, read, narrow = 2, _TARGET_LAYERS[:2], 32
    model = Model(path, "dflash", vocabulary, layers=layers)
    model.heads()
    model.writer.add_uint32("tokenizer.ggml.mask_token_id", _MASK)
    model.lists({"target_layers": list(read)})
    model.numbers(block_size=8)
    if mrope:
        model.lists({"rope.dimension_sections": [_HEAD // 2, 0, 0, 0]})
    if window:
        model.numbers(**{"attention.sliding_window": window})
        model.lists({"attention.sliding_window_pattern": [True] * layers})
    model.add("fc", model.matrix(len(read) * WIDTH, WIDTH))
    model.ones("enc.output_norm", "output_norm")
    model.add("output", model.matrix(WIDTH, VOCABULARY))
    model.add("token_embd", model.embedding)
    if markov:
        model.add("markov_w1", model.matrix(narrow, VOCABULARY))
        model.add("markov_w2", model.matrix(narrow, VOCABULARY))
    for number in range(layers):
        model.block(number)
        model.ones(f"blk.{number}.attn_q_norm", f"blk.{number}.attn_k_norm", size=_HEAD)
    return model.written()
