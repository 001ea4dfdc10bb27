"""What of a model's metadata can be set right, and what is refused with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparkbuild.canary.catalogue import DATA
from sparkbuild.errors import ModelError
from sparkbuild.model.asked import Asked, Machine
from sparkbuild.model.header import Value
from sparkbuild.model.inspection import Inspection, document, inspect
from sparkbuild.model.mend.edits import Put, Rename, Resize, edited
from sparkbuild.model.mend.plan import Plan, accepted, plan
from sparkbuild.model.read import Model, read_model

from .conftest import CANARIES, File, canary, tower
from .mend import BLOCKS, ENDS, KEYS, KPOOL, TOKENS, old

Written = Callable[[File], Model]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def make(file: File) -> Model:
        return read_model(file.write(tmp_path / "model.gguf"))

    return make


def values(planned: Plan) -> dict[str, Value]:
    return edited(planned.model, planned.edits).values


def faults(planned: Plan) -> dict[str, str]:
    return {fault.name: fault.found for fault in planned.faults}


RIGHT = old("glm5-next").values


def near(found: dict[str, Value]) -> dict[str, object]:
    """Values as a file holds them: 1e-5 is no float32."""
    return {
        key: pytest.approx(value) if isinstance(value, float) else value
        for key, value in found.items()
    }


@pytest.mark.parametrize("name", CANARIES)
def test_what_is_right_stays(name: str) -> None:
    for model in (canary(name), tower(name)):
        if model is not None:
            planned = plan(model)
            assert (planned.edits, planned.faults, planned.helps) == ((), (), False)


@pytest.mark.parametrize(
    "gone",
    [
        {},
        {"attention__indexer__kpool": None},
        {"attention__indexer__types": None},
        {"tokenizer__ggml__eot_token_id": None},
        {"tokenizer__ggml__eot_token_id": None, "tokenizer__ggml__eom_token_id": None},
        {f"tokenizer__ggml__{end}_token_id": None for end in ENDS},
    ],
)
def test_an_old_spelling_becomes_what_upstream_has(gone: dict[str, None], written: Written) -> None:
    file = old(**gone)
    planned = plan(written(file))
    assert planned.helps, planned.faults
    expected = dict(RIGHT)
    if "attention__indexer__types" in gone:
        del expected["glm5-next.attention.indexer.types"]
    assert values(planned) == near(expected)
    kept = [key for key in values(planned) if key.replace("glm5-next", "glm5next") in file.values]
    assert kept == [key.replace("glm5next", "glm5-next") for key in file.values]
    assert isinstance(planned.edits[0], Put)
    assert planned.edits[0].was == "glm5next"


def test_a_file_is_told_to_be_mendable(written: Written) -> None:
    for file, count in ((old("glm5-next"), 0), (old(), 2)):
        found: Inspection = inspect(
            written(file), None, None, Asked(context=64), Machine(available=1 << 40, total=1 << 40)
        )
        assert sum(len(one.changes) for one in found.mendable) == count
        assert len(document(found)["mendable"]) == bool(count)


def test_both_spellings_in_one_file_are_refused(written: Written) -> None:
    file = old()
    file.values["glm5-next.block_count"] = BLOCKS
    planned = plan(written(file))
    assert "both, such as glm5next.block_count" in faults(planned)["keys"]
    assert not planned.helps


def test_other_architectures_are_left_alone(written: Written) -> None:
    file = old("glm4_moe")
    file.values["glm4_moe.attention.head_count_kv"] = (1, 1, 1)
    assert plan(written(file)).edits == ()


NAMES = {
    "attention.head_count_kv": ((0, 0, 1), (0, 0, 1, 1)),
    "swiglu_clamp_exp": ((10.0,) * 3, (10.0,) * 4),
    "swiglu_clamp_shexp": ((7.0,) * 3, (7.0,) * 4),
}


@pytest.mark.parametrize("name", ["glm5next", "glm5-next"])
@pytest.mark.parametrize("key", NAMES)
def test_an_array_of_the_trunk_alone_gets_the_nextn_blocks_entry(
    name: str, key: str, written: Written
) -> None:
    short, whole = NAMES[key]
    file = old(name)
    file.values[f"{name}.{key}"] = short
    planned = plan(written(file))
    assert planned.helps, planned.faults
    assert values(planned)[f"glm5-next.{key}"] == whole
    [edit] = [edit for edit in planned.edits if isinstance(edit, Resize)]
    assert (edit.was, edit.length) == (3, 4)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("swiglu_clamp_exp", (10.0, 9.0, 10.0)),  # which of them the NextN block has, nothing tells
        ("attention.head_count_kv", (0, 1)),
        ("attention.head_count_kv", ("0", "0", "1")),
        ("attention.indexer.types", (True, True)),
    ],
)
def test_an_array_that_nothing_tells_is_refused(
    key: str, value: tuple[int | float | str, ...], written: Written
) -> None:
    file = old("glm5-next")
    file.values[f"glm5-next.{key}"] = value
    planned = plan(written(file))
    assert planned.edits == ()
    assert key in faults(planned)["array lengths"]


def test_entries_for_blocks_that_are_not_there_are_cut(written: Written) -> None:
    file = old("glm5-next", nextn_predict_layers=None)
    file.values |= {
        "glm5-next.block_count": 3,
        "glm5-next.attention.head_count_kv": (0, 0, 1, 1),
        "glm5-next.swiglu_clamp_exp": (10.0,) * 3,
    }
    with_block = plan(written(file))
    assert "attention.head_count_kv" in faults(with_block)["array lengths"]
    del file.tensors["blk.3.indexer_compressor_ape.weight"]
    planned = plan(written(file))
    assert planned.helps, planned.faults
    assert values(planned)["glm5-next.attention.head_count_kv"] == (0, 0, 1)


def test_indexer_types_are_those_of_the_trunk(written: Written) -> None:
    file = old("glm5-next")
    file.values["glm5-next.attention.indexer.types"] = (True, False, True, True)
    planned = plan(written(file))
    assert planned.helps, planned.faults
    assert values(planned)["glm5-next.attention.indexer.types"] == (True, False, True)


@pytest.mark.parametrize(
    ("shapes", "top_k"),
    [((), 16), ((4, 8), 16), ((1,), 16), ((4,), 18), ((0,), 16)],
)
def test_a_pool_that_no_tensor_tells_is_refused(
    shapes: tuple[int, ...], top_k: int, written: Written
) -> None:
    file = old(attention__indexer__kpool=None)
    file.values["glm5next.attention.indexer.top_k"] = top_k
    file.tensors = {"token_embd.weight": file.tensors["token_embd.weight"]}
    file.tensors |= {
        f"blk.{number}.indexer_compressor_ape.weight": ((8, rows), "f32")
        for number, rows in enumerate(shapes)
    }
    planned = plan(written(file))
    assert "glm5-next.attention.indexer.kpool" in faults(planned)
    with pytest.raises(ModelError) as caught:
        accepted(planned)
    assert "index_kpool in config.json" in caught.value.next_step
    assert "--override-kv glm5-next.attention.indexer.kpool=int:N" in caught.value.next_step


def test_a_pool_is_the_rows_of_its_position_bias(written: Written) -> None:
    planned = plan(written(old(attention__indexer__kpool=None)))
    assert values(planned)["glm5-next.attention.indexer.kpool"] == KPOOL


def test_a_gate_that_only_the_configuration_tells_is_refused(written: Written) -> None:
    planned = plan(written(old(kda__gate_lower_bound=None)))
    assert list(faults(planned)) == ["glm5-next.kda.gate_lower_bound"]
    # Upstream's converter leaves it out where the model has none.
    assert plan(written(old("glm5-next", kda__gate_lower_bound=None))).faults == ()


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({}, ENDS),
        ({"eos": 2}, ENDS),
        ({"eos": 3}, {"eos": 3, "eot": None, "eom": 4}),
        ({"eos": 2, "eot": 4}, {"eos": 2, "eot": 4, "eom": 3}),
        ({"eos": 2, "eot": 2}, ENDS),
        ({"eos": 2, "eot": 2, "eom": 2}, ENDS),
        ({"eos": 2, "eot": 0, "eom": 3}, {"eos": 2, "eot": 0, "eom": 3}),
        ({"eot": 4}, {"eos": 2, "eot": 4, "eom": 3}),
    ],
)
def test_every_end_of_a_turn_gets_a_place(
    held: dict[str, int], expected: dict[str, int | None], written: Written
) -> None:
    file = old("glm5-next", **{f"tokenizer__ggml__{end}_token_id": None for end in ENDS})
    file.values |= {f"tokenizer.ggml.{end}_token_id": number for end, number in held.items()}
    found = values(plan(written(file)))
    assert {end: found.get(f"tokenizer.ggml.{end}_token_id") for end in ENDS} == expected


def test_ends_of_another_family_are_left_alone(written: Written) -> None:
    file = old("glm5-next", **{f"tokenizer__ggml__{end}_token_id": None for end in ENDS})
    file.values["tokenizer.ggml.tokens"] = tuple(f"t{i}" for i in range(len(TOKENS)))
    assert plan(written(file)).edits == ()


def fork_tower(written: Written, **values: Value) -> Model:
    model = tower("glm5-next")
    assert model is not None
    file = File.like(model)
    file.values = {
        ("clip.vision.swiglu_limit" if key == "clip.vision.swiglu_clamp" else key): value
        for key, value in file.values.items()
        if not key.endswith("_pixels")
    }
    file.values |= {key.replace("__", "."): value for key, value in values.items()}
    return written(file)


@pytest.mark.parametrize("name", ["glm5next", "glm5v"])
def test_an_mmproj_of_the_fork_becomes_upstreams(name: str, written: Written) -> None:
    planned = plan(fork_tower(written, clip__projector_type=name))
    assert planned.helps, planned.faults
    found = values(planned)
    assert found["clip.projector_type"] == "glm5v"
    assert found["clip.vision.swiglu_clamp"] == 4.0
    assert "clip.vision.swiglu_limit" not in found
    assert found["clip.vision.image_min_pixels"] == 16 * 28 * 28
    assert found["clip.vision.image_max_pixels"] == 8000 * 28 * 28
    kinds = [type(edit) for edit in planned.edits]
    assert kinds == [Put] * (name == "glm5next") + [Rename, Put, Put]


def test_an_mmproj_without_what_it_takes_is_refused(written: Written) -> None:
    model = fork_tower(written, clip__vision__patch_size=0)
    assert "image_min_pixels is missing" in faults(plan(model))["mmproj keys"]


def test_a_file_that_broke_off_is_refused(tmp_path: Path) -> None:
    path = old().write(tmp_path / "model.gguf", cut=100)
    planned = plan(read_model(path))
    assert planned.edits
    assert list(faults(planned)) == ["file sizes"]
    with pytest.raises(ModelError, match=r"model\.gguf has faults that no change") as caught:
        accepted(planned)
    assert "download" in caught.value.next_step


def test_shards_that_are_missing_are_refused(tmp_path: Path) -> None:
    file = old()
    file.values |= {"split.count": 2, "split.no": 0, "split.tensors.count": 5}
    path = file.write(tmp_path / "m-00001-of-00002.gguf")
    assert "m-00002-of-00002.gguf is missing" in faults(plan(read_model(path)))["shards"]


def test_what_is_no_model_has_nothing_to_mend_or_a_fault() -> None:
    for path in sorted(DATA.glob("*/*.gguf")):
        assert plan(read_model(path)).edits == (), path


def test_keys_are_those_that_llama_cpp_asks_for(written: Written) -> None:
    for key in KEYS:
        if key not in {"nextn_predict_layers", "kda.gate_lower_bound", "swiglu_clamp_exp",
                       "attention.indexer.types", "attention.indexer.kpool"}:  # fmt: skip
            planned = plan(written(old(**{key.replace(".", "__"): None})))
            assert planned.faults, key
