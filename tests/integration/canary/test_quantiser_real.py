"""The real llama-quantize makes what the map says, and numpy reads the same weights from it."""

from pathlib import Path
from typing import Any, Protocol

import gguf
import numpy as np
import pytest

from sparkbuild.canary.gguf.derive import Derived, FormRecord, derive
from sparkbuild.canary.gguf.typemap import MIX, PLAIN, load_map, quantised_types
from sparkbuild.errors import CanaryError

pytestmark = pytest.mark.real

ERRORS = {
    "q1_0": 0.37, "q2_0": 0.53, "q2_k": 0.1, "q3_k": 0.025, "q4_0": 0.009, "q4_1": 0.007,
    "q4_k": 0.0055, "q5_0": 0.0022, "q5_1": 0.0016, "q5_k": 0.0014, "q6_k": 0.0004,
    "iq3_xxs": 0.037, "iq3_s": 0.031, "iq4_nl": 0.0065, "iq4_xs": 0.0066, "mxfp4": 0.0155,
    "nvfp4": 0.0105, "tq1_0": 0.75, "tq2_0": 0.75, "f16": 1e-6, "bf16": 1e-5,
}  # fmt: skip
"""NMSE of normal weights at most: seen with b11434, and a tenth more. Left out are the types that
need tables of a minute (IQ1, IQ2), and Q8_0, which the master has."""


class Build(Protocol):
    """What the fixture ``real_build`` gives."""

    @property
    def bin(self) -> Path: ...


def write_master(path: Path, rows: int = 16) -> None:
    rng = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(256)
    writer.add_block_count(len(ERRORS))
    writer.add_feed_forward_length(256)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    shapes = {f"blk.{i}.ffn_up.weight": (rows, 256) for i in range(len(ERRORS))}
    for name, shape in {**shapes, "blk.0.ffn_down.weight": (rows, 128)}.items():
        values = rng.normal(size=shape).astype(np.float32)
        data = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def derived(build: Build, folder: Path, tensors: dict[str, str], **rest: Any) -> Derived:
    lines = [f'"{name}" = "{kind}"' for name, kind in tensors.items()]
    types = folder / "map.toml"
    types.write_text(
        'schema = 1\narchitecture = "llama"\ndefault = "q8_0"\n[tensors]\n' + "\n".join(lines)
    )
    return derive(
        folder / "toy.gguf", "mix", quantiser=build.bin / "llama-quantize",
        folder=folder / "forms", log=folder / "log", types=types, **rest,
    )  # fmt: skip


def test_every_type_of_this_llama_cpp_is_in_the_mix(real_source: Path) -> None:
    known = quantised_types(real_source / "ggml/include/ggml.h")
    assert len(known) >= 23
    assert known == set(load_map(MIX).tensors.values()) - PLAIN


def test_types_come_as_asked_and_are_as_close_as_their_bits_allow(
    real_build: Build, tmp_path: Path
) -> None:
    write_master(tmp_path / "toy.gguf")
    tensors = {f"blk.{i}.ffn_up.weight": kind for i, kind in enumerate(ERRORS)}
    first = derived(real_build, tmp_path, tensors, record=None)
    assert first.content.types == dict.fromkeys(ERRORS, 1)
    too_far = {k: v for k, v in first.content.errors.items() if not v <= ERRORS[k]}
    assert too_far == {}
    # The second time from the same inputs, in another folder: the same bytes.
    first.path.unlink()
    again = derived(real_build, tmp_path, tensors, record=FormRecord(digests=(first.sha256,)))
    assert again.how == "same bytes"


def test_a_row_that_a_type_does_not_divide_is_refused(real_build: Build, tmp_path: Path) -> None:
    write_master(tmp_path / "toy.gguf", rows=2)
    with pytest.raises(CanaryError, match="did not make") as caught:
        derived(real_build, tmp_path, {"blk.0.ffn_down.weight": "q4_k"}, record=None)
    assert "not divisible" in caught.value.problems[0]
