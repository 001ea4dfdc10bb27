"""The shipped canaries fit; a copy with one thing wrong is told by the check that looks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.model.asked import Asked, Machine
from sparkbuild.model.build import Build, read_build
from sparkbuild.model.fit import CHECKS
from sparkbuild.model.read import Model, read_model

from .conftest import (
    CANARIES,
    GRAPHS,
    File,
    canary,
    findings,
    graph_names,
    library,
    patterns,
    tower,
    wrong,
)

Changed = Callable[..., Model]
Change = Callable[[File], object]
DRAFTS = Asked(context=4096, speculation=("draft-mtp",))


@pytest.mark.parametrize("name", CANARIES)
def test_a_canary_fits(name: str, build: Build) -> None:
    found = findings(canary(name), tower(name), build)
    assert wrong(found) == {}
    assert len(found) == len(CHECKS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("glm5-next", {"MTP graph": "fault", "drafts and pictures": "warning"}),
        ("qwen35", {}),
        ("glm47-flash", {"drafts and pictures": "warning"}),
        ("llama", {"MTP graph": "fault"}),
    ],
)
def test_a_canary_with_drafts(name: str, expected: dict[str, str], build: Build) -> None:
    assert wrong(findings(canary(name), tower(name), build, DRAFTS)) == expected


def key(name: str, value: object) -> Change:
    def change(file: File) -> None:
        architecture = str(file.values["general.architecture"])
        full = name.replace("*", architecture)
        if value is None:
            del file.values[full]
        else:
            file.values[full] = value  # type: ignore[assignment]

    return change


def retype(name: str, kind: str, shape: tuple[int, ...] | None = None) -> Change:
    def change(file: File) -> None:
        assert name in file.tensors
        file.tensors[name] = (shape or file.tensors[name][0], kind)

    return change


def rename(old: str, new: str) -> Change:
    def change(file: File) -> None:
        file.tensors = {n.replace(old, new): tensor for n, tensor in file.tensors.items()}

    return change


def without(part: str) -> Change:
    def change(file: File) -> None:
        kept = {name: tensor for name, tensor in file.tensors.items() if part not in name}
        assert len(kept) < len(file.tensors)
        file.tensors = kept

    return change


def named(architecture: str) -> Change:
    """Another architecture's name, keys included."""

    def change(file: File) -> None:
        old = str(file.values["general.architecture"])
        file.values = {
            k.replace(f"{old}.", f"{architecture}.", 1) if k.startswith(f"{old}.") else k: v
            for k, v in file.values.items()
        }
        file.values["general.architecture"] = architecture

    return change


MODEL_FAULTS: dict[str, tuple[str, Change, dict[str, str], str]] = {
    # What the fork wrote before the merge, on a build of upstream.
    "fork's name": (
        "glm5-next", named("glm5next"), {"architecture": "fault"}, "it knows glm5-next"),
    "unknown": ("llama", named("llama9"), {"architecture": "fault"}, "'llama9'"),
    "no name": ("llama", named(""), {"architecture": "fault"}, "none stated in changed.gguf"),
    "name with colours": (
        "llama", named("\x1b[31mred"), {"architecture": "fault"}, r"'\x1b[31mred'"),
    "adapter": (
        "llama", key("general.type", "adapter"), {"architecture": "fault"}, "--lora"),
    "fork's type": (
        "llama", retype("blk.0.attn_q.weight", "type 137"), {"tensor types": "fault"}, "type 137"),
    "fork's tensor": (
        "glm47-flash", rename("nextn.hnorm", "nextn.hidden_norm"), {"tensor names": "fault"},
        "'blk.3.nextn.hidden_norm.weight'"),
    "no epsilon": (
        "llama", key("*.attention.layer_norm_rms_epsilon", None), {"required keys": "fault"},
        "llama.attention.layer_norm_rms_epsilon is missing"),
    "no pool": (
        "glm5-next", key("*.attention.indexer.kpool", None), {"required keys": "fault"},
        "glm5-next.attention.indexer.kpool is missing"),
    "three streams": (
        "glm5-next", key("*.hyper_connection.count", 3), {"required keys": "fault"},
        "hyper_connection.count: expected 4, found 3"),
    "text for a number": (
        "llama", key("*.embedding_length", "256"),
        {"required keys": "fault", "vocabulary": "fault"},
        "llama.embedding_length: expected a number, found '256'"),
    "46 of 45": (
        "glm5-next", key("*.attention.head_count_kv", (0, 0, 1, 0, 1, 0, 1, 0, 1)),
        {"array lengths": "fault"}, "attention.head_count_kv: expected 10 entries, found 9"),
    "indexer types for all": (
        "glm5-next", key("*.attention.indexer.types", (1,) * 10), {"array lengths": "fault"},
        "attention.indexer.types: expected 9 entries, found 10"),
    "short vocabulary": (
        "llama", key("tokenizer.ggml.tokens", tuple(f"t{i}" for i in range(500))),
        {"vocabulary": "fault"}, "token_embd.weight: expected 256 x 500, found 256 x 512"),
    "no tokenizer": (
        "llama", key("tokenizer.ggml.model", None), {"vocabulary": "fault"},
        "tokenizer.ggml.model is missing"),
    "one end of three": (
        "glm47-flash", key("tokenizer.ggml.eot_token_id", None), {"end tokens": "warning"},
        "--override-kv tokenizer.ggml.eot_token_id=int:493"),
    "end outside": (
        "llama", key("tokenizer.ggml.eos_token_id", 154820), {"end tokens": "fault"},
        "eos 154820 (no token)"),
    "no end of a text": (
        "glm5-next", key("tokenizer.ggml.eos_token_id", None), {"end tokens": "warning"},
        "llama.cpp takes token 11"),
    "no template": (
        "llama", key("tokenizer.chat_template", None), {"chat template": "warning"}, "ChatML"),
    "broken template": (
        "llama", key("tokenizer.chat_template", "{% if x %}\n{{ y }"), {"chat template": "fault"},
        "line 2: unexpected '}'"),
    "deep template": (
        "llama", key("tokenizer.chat_template", "{{ " + "(" * 100_000), {"chat template": "fault"},
        "nested too deeply"),
    "broken tool template": (
        "llama", key("tokenizer.chat_template.tool_use", "{% for %}"), {"chat template": "warning"},
        "tool_use: line 1"),
    "nextn split off": (
        "qwen35", without(".nextn."), {"NextN blocks": "fault"}, "none"),
    "nextn split off, which this loader takes": (
        "glm47-flash", without("blk.3."), {"NextN blocks": "warning"}, "none"),
    "nextn without its key": (
        "qwen35", key("*.nextn_predict_layers", None), {"NextN blocks": "fault"}, "in blocks 4"),
    "more nextn than blocks": (
        "qwen35", key("*.nextn_predict_layers", 9),
        {"required keys": "fault", "NextN blocks": "fault"}, "at most block_count, found 9"),
    "coarse head": (
        "qwen35", retype("blk.4.nextn.eh_proj.weight", "q2_K"), {"NextN precision": "warning"},
        "blk.4.nextn.eh_proj.weight q2_K"),
    "no blocks": (
        "llama", key("*.block_count", 1 << 31), {"required keys": "fault"},
        "block_count: expected 1 to 512, found 2147483648"),
}  # fmt: skip


@pytest.mark.parametrize("case", MODEL_FAULTS)
def test_what_is_wrong_with_a_model_is_told(case: str, changed: Changed, build: Build) -> None:
    name, change, expected, words = MODEL_FAULTS[case]
    found = findings(changed(canary(name), change), None, build)
    assert wrong(found) == expected
    told = [f for f in found.values() if f.name in expected]
    assert any(words in f"{f.expected} {f.found} {f.reason} {f.next_step}" for f in told), told
    assert all((f.next_step and f.reason) or f.name == "vocabulary" for f in told), told


VISION_FAULTS: dict[str, tuple[Change, dict[str, str], str]] = {
    "fork's projector": (
        key("clip.projector_type", "glm5next"), {"projector": "fault"}, "it knows glm5v"),
    "unknown projector": (
        key("clip.projector_type", "glm9v"), {"projector": "fault"}, "'glm9v'"),
    "no clamp": (
        key("clip.vision.swiglu_clamp", None), {"mmproj keys": "fault"},
        "clip.vision.swiglu_clamp is missing"),
    "one colour": (
        key("clip.vision.image_std", (0.5,)), {"mmproj keys": "fault"},
        "clip.vision.image_std: expected 3 numbers"),
    "no merger": (
        without("mm.patch_merger.bias"), {"mmproj keys": "fault"},
        "mm.patch_merger.bias is missing"),
    "other model's": (
        retype("mm.down.weight", "f16", (256, 4096)), {"projector width": "fault"},
        "4096, mm.down.weight of changed.gguf"),
    "another projector's width": (
        lambda file: file.values.update(
            {"clip.projector_type": "gemma3", "clip.vision.projection_dim": 4096}),
        {"projector width": "warning"}, "4096, clip.vision.projection_dim"),
    "audio": (
        key("clip.has_vision_encoder", None), {"mmproj": "fault"},
        "clip.has_vision_encoder None"),
}  # fmt: skip


@pytest.mark.parametrize("case", VISION_FAULTS)
def test_what_is_wrong_with_an_mmproj_is_told(case: str, changed: Changed, build: Build) -> None:
    change, expected, words = VISION_FAULTS[case]
    vision = tower("glm5-next")
    assert vision is not None
    found = findings(canary("glm5-next"), changed(vision, change), build)
    assert wrong(found) == expected
    told = [f for f in found.values() if f.name in expected]
    assert any(words in f"{f.expected} {f.found} {f.reason} {f.next_step}" for f in told), told


def test_what_is_no_model_is_told(tmp_path: Path, build: Build) -> None:
    vision = tower("qwen35")
    assert vision is not None
    found = findings(vision, None, build)["architecture"]
    assert (found.state, found.found) == ("fault", "general.type mmproj")
    assert "--mmproj" in found.next_step
    matrix = File(values={"general.type": "imatrix"}).write(tmp_path / "matrix.gguf")
    found = findings(read_model(matrix), None, build)["architecture"]
    assert (found.state, found.found) == ("fault", "general.type imatrix")


def test_a_model_as_mmproj_is_told(build: Build) -> None:
    found = findings(canary("glm5-next"), canary("llama"), build)
    assert wrong(found)["mmproj"] == "fault"
    assert "llama-q8_0.gguf: 'llama'" in found["mmproj"].found


def test_an_mmproj_that_broke_off_is_told(tmp_path: Path, build: Build) -> None:
    vision = tower("qwen35")
    assert vision is not None
    short = read_model(File.like(vision).write(tmp_path / "mmproj.gguf", cut=4096))
    found = findings(canary("qwen35"), short, build)
    assert wrong(found) == {"mmproj file": "fault"}
    assert "lack" in found["mmproj file"].found


def test_a_picture_needs_its_tokens(changed: Changed, build: Build) -> None:
    def change(file: File) -> None:
        tokens = file.values["tokenizer.ggml.tokens"]
        assert isinstance(tokens, tuple)
        file.values["tokenizer.ggml.tokens"] = tuple(
            f"{token}!" if token == "<|begin_of_image|>" else token for token in tokens
        )

    found = findings(changed(canary("qwen35"), change), tower("qwen35"), build)
    assert wrong(found) == {"picture tokens": "warning"}
    assert found["picture tokens"].found == "no <|begin_of_image|>"


def test_offsets_that_are_no_sum_are_told(changed: Changed, build: Build) -> None:
    model = changed(canary("llama"), lambda file: file.offsets.update({"blk.0.attn_q.weight": 64}))
    found = findings(model, None, build)
    assert wrong(found)["tensor table"] == "fault"
    assert "'blk.0.attn_q.weight': expected offset" in found["tensor table"].found


def test_bytes_after_the_last_tensor_are_a_note(tmp_path: Path, build: Build) -> None:
    path = File.like(canary("llama")).write(tmp_path / "long.gguf", cut=-100)
    found = findings(read_model(path), None, build)
    assert wrong(found) == {}
    assert found["file sizes"].state == "note"
    assert "100 bytes too many" in found["file sizes"].found


def test_a_build_of_the_fork_wants_the_fork_s_name(tmp_path: Path) -> None:
    library(tmp_path / "libllama.so", ["glm5next", *patterns()])
    library(tmp_path / "libmtmd.so", ["glm5next"])
    fork = read_build(tmp_path)
    found = findings(canary("glm5-next"), tower("glm5-next"), fork)
    assert wrong(found) == {"architecture": "fault", "projector": "fault"}
    assert "it knows glm5next" in found["architecture"].expected
    assert found["tensor types"].state == "note"


def test_a_build_older_than_both_names_knows_neither(changed: Changed, tmp_path: Path) -> None:
    library(tmp_path / "libllama.so", ["llama", *patterns()])
    model = changed(canary("glm5-next"), named("glm5next"))
    found = findings(model, None, read_build(tmp_path))["architecture"]
    assert found.expected == "an architecture that libllama.so knows"
    assert found.next_step.startswith("build a newer llama.cpp")


def test_names_out_of_a_file_cannot_write_to_a_terminal(changed: Changed, build: Build) -> None:
    def change(file: File) -> None:
        named("\x1b[2J")(file)
        del file.values["\x1b[2J.context_length"]

    model = changed(canary("qwen35"), change)
    found = findings(model, None, build, DRAFTS)
    assert wrong(found)["required keys"] == "fault"
    for finding in found.values():
        assert all(part.isprintable() for part in (finding.expected, finding.found, finding.reason))


def test_a_build_without_vision_says_so(tmp_path: Path) -> None:
    library(tmp_path / "libllama.so", ["qwen35", *patterns()])
    found = findings(canary("qwen35"), tower("qwen35"), read_build(tmp_path))
    assert wrong(found) == {"projector": "fault"}
    assert found["projector"].next_step == "build the variant vision"


def drafting(tmp_path: Path, *texts: str) -> dict[str, Any]:
    names = ["glm5-next", "qwen35", *patterns()]
    library(tmp_path / "libllama.so", [*names, *texts])
    return findings(canary("glm5-next"), None, read_build(tmp_path), DRAFTS)


def test_a_build_with_the_graph_drafts(tmp_path: Path) -> None:
    assert drafting(tmp_path, *graph_names(["glm5_next"]))["MTP graph"].state == "ok"


def test_a_build_with_other_graphs_alone_does_not_draft(tmp_path: Path) -> None:
    found = drafting(tmp_path, *graph_names(GRAPHS))["MTP graph"]
    assert (found.state, found.found) == ("fault", "graphs for deepseek2, glm4moe, qwen35")


def test_a_build_that_names_no_graph_is_not_known(tmp_path: Path) -> None:
    assert drafting(tmp_path)["MTP graph"].state == "note"


def test_an_architecture_may_use_another_one_s_graph(changed: Changed, tmp_path: Path) -> None:
    library(tmp_path / "libllama.so", ["mistral4", *patterns(), *graph_names(["deepseek2"])])
    model = changed(canary("glm47-flash"), named("mistral4"))
    assert findings(model, None, read_build(tmp_path), DRAFTS)["MTP graph"].state == "ok"


def test_drafts_need_the_nextn_tensors(changed: Changed, build: Build) -> None:
    model = changed(canary("qwen35"), without(".nextn."))
    assert wrong(findings(model, None, build, DRAFTS)) == {"NextN blocks": "fault"}


def test_a_drafter_of_its_own_needs_no_nextn_tensors_in_the_model(
    changed: Changed, build: Build
) -> None:
    trunk = changed(canary("glm47-flash"), without("blk.3."), "trunk.gguf")
    own = Asked(context=4096, speculation=("draft-mtp",), drafter=canary("glm47-flash"))
    assert wrong(findings(trunk, None, build, own)) == {"NextN blocks": "warning"}
    assert wrong(findings(trunk, None, build, DRAFTS)) == {"NextN blocks": "fault"}


def test_an_mtp_head_is_asked_as_one(changed: Changed, build: Build) -> None:
    head = changed(canary("qwen35"), named("gemma4-assistant"), "head.gguf")
    simple = Asked(context=4096, speculation=("draft-simple",), drafter=head)
    found = findings(canary("llama"), None, build, simple)
    assert wrong(found) == {"speculation": "fault"}
    assert found["speculation"].next_step == "--spec-type draft-mtp"
    right = Asked(context=4096, speculation=("draft-mtp",), drafter=head)
    assert wrong(findings(canary("llama"), None, build, right)) == {}


def test_two_ways_of_speculation_are_warned_of(build: Build) -> None:
    both = Asked(context=4096, speculation=("ngram-mod", "draft-mtp"))
    assert wrong(findings(canary("qwen35"), None, build, both)) == {"speculation": "warning"}


@pytest.mark.parametrize(
    ("name", "asked", "expected", "words"),
    [
        ("llama", Asked(context=20_000), {"context": "warning"}, "--ctx-size 8192"),
        ("llama", Asked(context=16_000, slots=2), {}, ""),
        (
            "llama",
            Asked(cache_v="q8_0", flash_attention=False),
            {"cache types": "fault"},
            "values in q8_0 need flash attention",
        ),
        (
            "glm5-next",
            Asked(cache_k="q8_0"),
            {"cache types": "fault"},
            "q8_0 and f16 differ, latents (MLA) have one type",
        ),
        ("llama", Asked(cache_k="q9"), {"cache types": "fault"}, "q9: expected one of f32"),
        (
            "llama",
            Asked(
                load_mode="mmap", machine=Machine(available=1 << 40, total=1 << 40, unified=True)
            ),
            {"load mode": "warning"},
            "224 s instead of 22 s",
        ),
        (
            "llama",
            Asked(load_mode="mmap", machine=Machine(available=1 << 40, total=1 << 40)),
            {},
            "",
        ),
    ],
)
def test_flags_that_do_not_suit_the_model_are_told(
    name: str, asked: Asked, expected: dict[str, str], words: str, build: Build
) -> None:
    found = findings(canary(name), None, build, asked)
    assert wrong(found) == expected
    told = [f"{f.found} {f.reason} {f.next_step}" for f in found.values() if f.name in expected]
    assert all(words in each for each in told), told


def test_a_template_may_use_what_transformers_added(changed: Changed, build: Build) -> None:
    text = (
        "{% for m in messages %}{% generation %}{{ m }}{% endgeneration %}{% break %}{% endfor %}"
    )
    model = changed(canary("llama"), key("tokenizer.chat_template", text))
    assert wrong(findings(model, None, build)) == {}


def test_a_family_s_ends_are_asked_of_that_family_alone(changed: Changed, build: Build) -> None:
    def change(file: File) -> None:
        tokens = file.values["tokenizer.ggml.tokens"]
        assert isinstance(tokens, tuple)
        file.values["tokenizer.ggml.tokens"] = tuple(
            "<other>" if token == "<|observation|>" else token for token in tokens
        )
        del file.values["tokenizer.ggml.eot_token_id"]

    assert wrong(findings(changed(canary("llama"), change), None, build)) == {}
