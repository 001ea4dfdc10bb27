"""A tiny model of the llama architecture: the same bytes on every machine, from one seed.

Weights come from SHAKE-128 (FIPS 202) over the tensor's name: no random generator of any library
is involved, so no release of one can change them. Every weight is a 24-bit integer times a power
of two times one float32 scale: exact, and one rounding, on any IEEE 754 machine.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gguf
import numpy as np
from numpy.typing import NDArray

from sparkbuild.errors import SmokeError
from sparkbuild.files import sha256_bytes, sha256_file, write_atomic
from sparkbuild.smoke import tokenizer

Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Dimensions of the model; ``head`` is the width of one attention head."""

    layers: int = 3
    embedding: int = 128
    heads: int = 4
    heads_kv: int = 2
    head: int = 64
    """ggml-cuda has flash attention kernels for 64, none for less than 40."""
    feed_forward: int = 256
    context: int = 2048
    rope_base: float = 10000.0
    epsilon: float = 1e-5


SHAPE: Final = Shape()
SEED: Final = "sparkbuild tiny 1"
FILE: Final = "sparkbuild-tiny-f32.gguf"

# Gains over 1/sqrt(fan in), found by trying: attention sharp enough to look far back, layers strong
# enough against the residual stream that every tensor moves the logits, logits wide enough that
# the best token leads by far more than any healthy kernel's rounding.
_GAINS: Final = {
    "attn_q": 1.6,
    "attn_k": 1.6,
    "attn_v": 1.4,
    "attn_output": 1.4,
    "ffn_gate": 1.6,
    "ffn_up": 1.6,
    "ffn_down": 1.6,
    "output": 3.0,
}
_NORM_SPREAD: Final = 0.25
_UNIFORM_DEVIATION: Final = 1 / math.sqrt(3)
"""Standard deviation of the uniform distribution on [-1, 1)."""
_QUIET: Final = 0.25
"""Output gain of tokens that are not plain ASCII, so that every continuation is readable text."""


def weights() -> Weights:
    """Every tensor by its GGUF name, as [rows, columns] = [output, input] float32."""
    shape = SHAPE
    q, kv = shape.heads * shape.head, shape.heads_kv * shape.head
    vocab = len(tokenizer.vocabulary().tokens)
    result = {"token_embd.weight": _uniform("token_embd.weight", (vocab, shape.embedding), 1.0)}
    for layer in range(shape.layers):
        for name, rows, columns in (
            ("attn_q", q, shape.embedding),
            ("attn_k", kv, shape.embedding),
            ("attn_v", kv, shape.embedding),
            ("attn_output", shape.embedding, q),
            ("ffn_gate", shape.feed_forward, shape.embedding),
            ("ffn_up", shape.feed_forward, shape.embedding),
            ("ffn_down", shape.embedding, shape.feed_forward),
        ):
            key = f"blk.{layer}.{name}.weight"
            result[key] = _uniform(key, (rows, columns), _GAINS[name] / math.sqrt(columns))
        for name in ("attn_norm", "ffn_norm"):
            key = f"blk.{layer}.{name}.weight"
            result[key] = _norm(key)
    result["output_norm.weight"] = _norm("output_norm.weight")
    gain = _GAINS["output"] / math.sqrt(shape.embedding)
    output = _uniform("output.weight", (vocab, shape.embedding), gain)
    output[_quiet_tokens()] *= np.float32(_QUIET)
    result["output.weight"] = output
    return result


def ensure(folder: Path, *, sha256: str) -> Path:
    """The model file in ``folder``, written where it is missing or not what it should be.

    Raises SmokeError where the bytes made here are not those that the suite was recorded with.
    """
    path = folder / FILE
    if path.is_file() and sha256_file(path) == sha256:
        return path
    data = model_bytes()
    found = sha256_bytes(data)
    if found != sha256:
        raise SmokeError(
            "the tiny model made here is not the one that the suite was recorded with",
            problems=[f"sha256 of {FILE}: expected {sha256}, found {found}"],
            next_step="install sparkbuild's own dependencies at the versions that pyproject.toml "
            "allows; where gguf itself changed, record the suite anew",
        )
    write_atomic(path, data)
    return path


def model_bytes() -> bytes:
    """The whole GGUF file."""
    with tempfile.TemporaryDirectory(prefix="sparkbuild-tiny-") as folder:
        path = Path(folder) / FILE
        write(path, weights())
        return path.read_bytes()


def write(path: Path, tensors: Weights) -> None:
    """Write ``tensors`` with the tiny model's metadata as GGUF; not atomic, not checked."""
    writer = gguf.GGUFWriter(path, "llama")
    _add_shape(writer)
    _add_vocabulary(writer)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: gguf.GGUFWriter) -> None:
    shape = SHAPE
    writer.add_name(Path(FILE).stem)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.embedding)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads_kv)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    known = tokenizer.vocabulary()
    types = [gguf.TokenType.NORMAL] * known.ordinary
    types += [gguf.TokenType.CONTROL] * (len(known.tokens) - known.ordinary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(known.tokens)
    writer.add_token_types(types)
    writer.add_token_merges(known.merges)
    writer.add_bos_token_id(known.end)
    writer.add_eos_token_id(known.end)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.CHAT_TEMPLATE)


def _uniform(name: str, shape: tuple[int, ...], deviation: float) -> NDArray[np.float32]:
    """Uniform values of mean 0 and the given standard deviation."""
    scale = np.float32(deviation / _UNIFORM_DEVIATION)
    return _unit(name, shape) * scale


def _norm(name: str) -> NDArray[np.float32]:
    spread = np.float32(_NORM_SPREAD)
    return np.float32(1) + _unit(name, (SHAPE.embedding,)) * spread


def _unit(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Multiples of 2^-23 in [-1, 1): 24 bits of SHAKE-128 over the seed and the name for each."""
    count = math.prod(shape)
    stream = hashlib.shake_128(f"{SEED}/{name}".encode()).digest(4 * count)
    integers = np.frombuffer(stream, dtype="<u4") >> np.uint32(8)
    values = integers.astype(np.int32) - np.int32(1 << 23)
    return (values.astype(np.float32) * np.float32(2.0**-23)).reshape(shape)


def _quiet_tokens() -> list[int]:
    known = tokenizer.vocabulary()
    readable = [tokenizer.decode([index]) for index in range(known.ordinary)]
    return [
        at
        for at, text in enumerate(readable)
        if not text.decode("latin-1").isprintable() or not text.isascii()
    ]
