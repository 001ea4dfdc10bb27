"""The line that serves a model: what is chosen, what is left out, and that it fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkbuild.model.asked import GIB, Asked, Machine
from sparkbuild.model.build import Build, read_build
from sparkbuild.model.fit import fit
from sparkbuild.model.memory import budget, largest_context
from sparkbuild.model.read import Model
from sparkbuild.model.serve import START, Line, choose, line

from .conftest import File, canary, graph_names, library, tower

Changed = Callable[..., Model]
ROOM = Machine(available=100 * GIB, total=128 * GIB)
NOBODY: frozenset[str] = frozenset()


def served(
    model: Model,
    vision: Model | None = None,
    build: Build | None = None,
    asked: Asked | None = None,
    given: frozenset[str] = NOBODY,
) -> tuple[Asked, Line]:
    """What is chosen for a machine with room, and the line."""
    chosen, left_out = choose(model, vision, build, asked or Asked(machine=ROOM), given)
    return chosen, line(model, vision, build, chosen, left_out)


def words(found: Line) -> str:
    return " ".join(found.argv)


@pytest.fixture
def long(changed: Changed) -> Model:
    """A model that was trained for a million positions."""

    def change(file: File) -> None:
        file.values["glm5-next.context_length"] = 1 << 20

    return changed(canary("glm5-next"), change)


@pytest.fixture
def drawing(tmp_path: Path) -> Callable[..., Build]:
    """The function ``drawing(*texts)``: a build with every MTP graph, and these texts."""

    def make(*texts: str) -> Build:
        known = ["llama", "glm5-next", *graph_names(["qwen35", "deepseek2", "glm5_next"])]
        library(tmp_path / "libllama.so", [*known, *texts])
        library(tmp_path / "libmtmd.so", ["glm5v"])
        (tmp_path / "llama-server").write_bytes(b"\x7fELF" + bytes(60))
        return read_build(tmp_path)

    return make


def test_a_context_begins_small(long: Model) -> None:
    assert served(long)[0].context == START
    assert served(long, asked=Asked(slots=3, machine=ROOM))[0].context == 3 * START
    assert served(canary("glm5-next"))[0].context == 16_384
    assert "--ctx-size 32768 --parallel 1 --cache-type-k f16" in words(served(long)[1])


def test_what_a_person_chose_stays(long: Model) -> None:
    asked = Asked(
        context=500_000, cache_k="q4_0", cache_v="q4_0", speculation=("ngram-mod",),
        draft_depth=7, machine=Machine(available=GIB, total=GIB),
    )  # fmt: skip
    given = frozenset({"context", "cache_k", "speculation", "draft_depth"})
    chosen, found = served(long, asked=asked, given=given)
    for field in given:
        assert getattr(chosen, field) == getattr(asked, field), field
    assert "--spec-type ngram-mod --spec-draft-n-max 7" in words(found)
    assert "a third costs" not in found.flags[-1].reason


def test_a_smaller_cache_is_taken_where_only_that_holds_the_context(long: Model) -> None:
    whole = Asked(context=START, machine=ROOM)
    need = budget(long, None, whole).needed
    small = dataclasses.replace(whole, cache_k="q8_0", cache_v="q8_0")
    between = (need + budget(long, None, small).needed) // 2
    tight = Machine(available=between, total=between)
    chosen, found = served(long, asked=Asked(machine=tight))
    assert (chosen.context, chosen.cache_k, chosen.cache_v) == (START, "q8_0", "q8_0")
    assert "in f16 less context fits" in str(found.flags)
    fixed, _ = served(long, asked=Asked(machine=tight), given=frozenset({"cache_k"}))
    assert fixed.cache_k == "f16"
    assert fixed.context == largest_context(long, None, Asked(), between) < START


@pytest.mark.parametrize("available", [3 * GIB, 4 * GIB, 6 * GIB, 20 * GIB])
@pytest.mark.parametrize("slots", [1, 4])
def test_a_chosen_line_fits_with_all_that_grows(long: Model, available: int, slots: int) -> None:
    machine = Machine(available=available, total=available)
    chosen, found = served(long, asked=Asked(machine=machine, slots=slots))
    total = budget(long, None, chosen)
    assert total.needed + total.growth <= available
    if chosen.prompt_cache != Asked().prompt_cache:
        assert f"--cache-ram {chosen.prompt_cache >> 20}" in words(found)
    findings = {one.name: one.state for one in fit(long, None, None, chosen)}
    assert findings["memory"] in {"ok", "note"}
    assert findings["context"] == "ok"


def test_checkpoints_give_way_where_there_is_little_room(long: Model) -> None:
    least = budget(long, None, Asked(context=256)).needed
    machine = Machine(available=least + (20 << 20), total=least)
    asked = Asked(machine=machine, context=256)
    chosen, found = served(long, asked=asked, given=frozenset({"context"}))
    assert 0 < chosen.checkpoints < 32
    assert f"--ctx-checkpoints {chosen.checkpoints}" in words(found)
    assert f"--cache-ram {chosen.prompt_cache >> 20}" in words(found)


def test_drafts_are_two_deep_where_the_build_has_the_graph(
    drawing: Callable[..., Build], build: Build
) -> None:
    model = canary("glm5-next")
    chosen, found = served(model, build=drawing())
    assert (chosen.speculation, chosen.draft_depth) == (("draft-mtp",), 2)
    assert "--spec-type draft-mtp --spec-draft-n-max 2" in words(found)
    assert found.program.endswith("/llama-server")
    assert found.left_out == ()
    refusing, text = served(model, build=build)
    assert refusing.speculation == ()
    assert "throws" in text.left_out[0]
    unknown, text = served(model)
    assert unknown.speculation == ()
    assert "--build DIR" in text.left_out[0]
    assert text.program == "llama-server"
    assert served(canary("llama"), build=drawing())[1].left_out == ()


def test_drafts_after_pictures_need_axes_or_a_build_that_tells_them(
    drawing: Callable[..., Build],
) -> None:
    model, vision = canary("glm5-next"), tower("glm5-next")
    chosen, found = served(model, vision, drawing())
    assert chosen.speculation == ()
    assert found.left_out[0].startswith("drafts: with pictures, ")
    symbol = "_ZN15llama_batch_ext15set_token_stateEi10llama_embd"
    chosen, found = served(model, vision, drawing(symbol))
    assert chosen.speculation == ("draft-mtp",)
    assert found.left_out == ()
    assert served(canary("qwen35"), tower("qwen35"), drawing())[0].speculation == ("draft-mtp",)


def test_a_crushed_head_does_not_draft(drawing: Callable[..., Build], changed: Changed) -> None:
    def crush(file: File) -> None:
        shape, _ = file.tensors["blk.9.nextn.eh_proj.weight"]
        file.tensors["blk.9.nextn.eh_proj.weight"] = (shape, "q2_K")

    chosen, found = served(changed(canary("glm5-next"), crush), build=drawing())
    assert chosen.speculation == ()
    assert "Q2_K" in found.left_out[0]


def test_a_spark_maps_no_files_and_asks_cuda_nothing() -> None:
    spark = dataclasses.replace(ROOM, unified=True)
    text = words(served(canary("llama"), asked=Asked(machine=spark))[1])
    assert "--load-mode dio" in text
    assert "--n-gpu-layers all --fit off" in text
    plain = words(served(canary("llama"))[1])
    assert "--load-mode" not in plain
    assert "--fit" not in plain


def test_end_tokens_that_lack_are_named(changed: Changed) -> None:
    def lose(file: File) -> None:
        del file.values["tokenizer.ggml.eot_token_id"]

    found = served(changed(canary("glm5-next"), lose))[1]
    assert "--override-kv tokenizer.ggml.eot_token_id=int:493" in words(found)


def test_every_flag_has_a_reason(long: Model, drawing: Callable[..., Build]) -> None:
    spark = Machine(available=4 * GIB, total=GIB, unified=True)
    asked = Asked(machine=spark, micro_batch=256, flash_attention=False)
    _, found = served(long, tower("glm5-next"), drawing(), asked)
    assert all(flag.reason and flag.words for flag in found.flags)
    assert "--ubatch-size 256" in words(found)
    assert "--flash-attn off" in words(found)
