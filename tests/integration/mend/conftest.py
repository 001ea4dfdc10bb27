"""Shipped canaries respelled, by gguf-py, to what a fork wrote before the architecture's merge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from sparkbuild.canary.catalogue import DATA

GLM = DATA / "glm5-next" / "glm5-next-q8_0.gguf"
TOWER = DATA / "glm5-next" / "mmproj-f16.gguf"
OLD = {"glm5-next": "glm5next"}
Respell = Callable[..., Path]


def respelled(source: Path, out: Path, *how: str) -> Path:
    """Write ``source`` as the fork would have.

    ``short``: arrays end with the trunk. ``nokpool``, ``oneend``, ``noend``: keys are left out.
    ``fork``: an mmproj's keys as the fork's converter had them.
    """
    reader = gguf.GGUFReader(source)
    name = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(out, OLD.get(name, name))
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or _gone(key, how):
            continue
        kind, value = field.types[0], field.contents()
        if "short" in how and key.endswith(("head_count_kv", "swiglu_clamp_exp")):
            value = value[:-1]
        if key == "clip.projector_type":
            value = "glm5next"
        new = key.replace("glm5-next.", "glm5next.")
        if "fork" in how:
            new = new.replace("swiglu_clamp", "swiglu_limit")
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(new, value, kind, sub_type=sub)
    for tensor in reader.tensors:
        plain = tensor.tensor_type in {0, 1}
        shape = None if plain else tensor.data.shape
        writer.add_tensor(tensor.name, tensor.data, raw_shape=shape, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _gone(key: str, how: tuple[str, ...]) -> bool:
    turn = ("eot_token_id", "eom_token_id")
    ends: dict[str, tuple[str, ...]] = {
        "oneend": turn,
        "noend": (*turn, "eos_token_id"),
        "nokpool": ("indexer.kpool",),
        "fork": ("min_pixels", "max_pixels"),
    }
    return any(key.endswith(ends.get(each, ("\0",))) for each in how)


@pytest.fixture(scope="session")
def respell(tmp_path_factory: pytest.TempPathFactory) -> Respell:
    """The function ``respell(source, *how)``: the path of a respelled copy, made once a session."""
    folder = tmp_path_factory.mktemp("respelled")

    def make(source: Path, *how: str) -> Path:
        out = folder / f"{source.stem}-{'-'.join(how) or 'plain'}.gguf"
        return out if out.exists() else respelled(source, out, *how)

    return make
