"""What a model is: blocks, roles and their weights, vision; every tensor counted once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkbuild.canary.catalogue import DATA
from sparkbuild.model.facts import Blocks, Experts, Facts, Token, facts
from sparkbuild.model.header import padded
from sparkbuild.model.read import Model, read_model
from sparkbuild.model.roles import ROLES, role_of

from .conftest import CANARIES, File, canary, tower

Changed = Callable[..., Model]
ENDS = (
    Token(task="eos", number=488, text="<|endoftext|>"),
    Token(task="eot", number=493, text="<|user|>"),
    Token(task="eom", number=495, text="<|observation|>"),
)
BLOCKS = {
    "glm5-next": Blocks(
        total=10, nextn=1, attention=4, latent=True, sparse=4, recurrent=5, dense=1, experts=8
    ),
    "qwen35": Blocks(
        total=5, nextn=1, attention=1, latent=False, sparse=0, recurrent=3, dense=4, experts=0
    ),
    "glm47-flash": Blocks(
        total=4, nextn=1, attention=3, latent=True, sparse=0, recurrent=0, dense=1, experts=2
    ),
    "llama": Blocks(
        total=3, nextn=0, attention=3, latent=False, sparse=0, recurrent=0, dense=3, experts=0
    ),
}
TENSORS = {
    "glm5-next": {
        "routed experts": 24, "shared expert": 24, "dense feed-forward": 3, "attention": 24,
        "linear attention": 75, "indexer": 28, "hyper-connections": 54, "norms and rest": 43,
        "embeddings": 1, "head": 1, "NextN block": 29,
    },
    "qwen35": {
        "dense feed-forward": 12, "attention": 4, "linear attention": 27, "norms and rest": 11,
        "embeddings": 1, "head": 1, "NextN block": 15,
    },
    "glm47-flash": {
        "routed experts": 6, "shared expert": 6, "dense feed-forward": 3, "attention": 18,
        "norms and rest": 17, "embeddings": 1, "head": 1, "NextN block": 22,
    },
    "llama": {
        "dense feed-forward": 9, "attention": 12, "norms and rest": 7, "embeddings": 1, "head": 1,
    },
}  # fmt: skip


def found(name: str) -> Facts:
    return facts(canary(name), tower(name))


@pytest.mark.parametrize("name", CANARIES)
def test_a_canary_is_what_it_was_made_as(name: str) -> None:
    it = found(name)
    assert it.architecture == ("deepseek2" if name == "glm47-flash" else name)
    assert it.blocks == BLOCKS[name]
    assert {role.role: role.tensors for role in it.roles} == TENSORS[name]
    assert it.experts == (Experts(count=4, used=2, shared=1) if it.blocks.experts else None)
    assert it.context == (16384 if name == "glm5-next" else 8192)
    assert (it.vocabulary, it.tokenizer, it.pre) == (512, "gpt2", "glm4")
    assert it.ends == ENDS
    assert it.template == len(canary(name).text("tokenizer.chat_template") or "")


@pytest.mark.parametrize("name", CANARIES)
def test_roles_weigh_what_the_file_holds(name: str) -> None:
    it = found(name)
    tensors = canary(name).tensors.values()
    assert sum(role.bytes for role in it.roles) == it.total.bytes
    assert sum(role.weights for role in it.roles) == it.total.weights
    assert sum(role.tensors for role in it.roles) == it.total.tensors == len(tensors)
    shard = canary(name).shards[0]
    padding = sum(padded(t.bytes or 0, 32) - (t.bytes or 0) for t in tensors)
    assert it.total.bytes + padding == shard.size - shard.header.data
    for role in (*it.roles, it.total):
        assert sum(role.types.values()) == role.tensors
        assert role.bits == pytest.approx(8 * role.bytes / role.weights)
    assert [role.role for role in it.roles] == [r for r in ROLES if r in TENSORS[name]]


@pytest.mark.parametrize("name", [name for name, sees in CANARIES.items() if sees])
def test_a_tower_is_told(name: str) -> None:
    it = found(name).vision
    assert it is not None
    assert (it.projector, it.width, it.least, it.most) == ("glm5v", 256, 1, 1024)
    assert it.blocks == (3 if name == "glm5-next" else 2)
    assert [(token.number, token.text) for token in it.around] == [
        (496, "<|begin_of_image|>"), (497, "<|end_of_image|>"),
    ]  # fmt: skip
    assert it.total.types == ({"f16": 22, "f32": 32} if it.blocks == 3 else {"f16": 17, "f32": 23})


def test_types_stand_by_the_weights_that_they_hold() -> None:
    types = {role.role: list(role.types) for role in found("glm5-next").roles}
    assert types["attention"] == ["f16", "q8_0"]
    assert types["linear attention"] == ["q8_0", "f16", "f32"]
    assert types["NextN block"] == ["q8_0", "f16", "f32"]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("blk.0.attn_q.weight", "attention"),
        ("blk.1.attn_q.weight", "linear attention"),
        ("blk.1.attn_norm.weight", "norms and rest"),
        ("blk.2.attn_q.weight", "NextN block"),
        ("blk.2.nextn.eh_proj.weight", "NextN block"),
        ("nextn.pre_projection.weight", "NextN block"),
        ("blk.0.attn_q_a_norm.weight", "norms and rest"),
        ("blk.0.attn_norm_2.weight", "norms and rest"),
        ("blk.0.ffn_norm_exps.weight", "norms and rest"),
        ("blk.0.post_ffw_norm_1.weight", "norms and rest"),
        ("blk.0.ffn_gate_up_exps.weight", "routed experts"),
        ("blk.0.ffn_down_exps.bias", "routed experts"),
        ("blk.0.ffn_gate.7.weight", "routed experts"),
        ("blk.0.ffn_gate.weight", "dense feed-forward"),
        ("blk.0.ffn_gate_inp.weight", "norms and rest"),
        ("blk.0.ffn_gate_inp_shexp.weight", "shared expert"),
        ("blk.0.indexer.k_norm.bias", "indexer"),
        ("blk.0.indexer_compressor_ape.weight", "indexer"),
        ("blk.0.hc_attn_norm.weight", "hyper-connections"),
        ("output_hc_fn.weight", "hyper-connections"),
        ("blk.0.ssm_norm.weight", "linear attention"),
        ("blk.0.shortconv.conv.weight", "linear attention"),
        ("dec.blk.0.cross_attn_q.weight", "attention"),
        ("token_embd_norm.weight", "norms and rest"),
        ("rope_freqs.weight", "norms and rest"),
        ("per_layer_token_embd.weight", "embeddings"),
        ("cls.output.weight", "head"),
        ("blk.0.laurel_l.weight", "other"),
        ("blk.0.attention.weight", "other"),
        ("outputs.weight", "other"),
        ("v.blk.0.attn_q.weight", "other"),
        ("\x1b[31m", "other"),
        ("", "other"),
    ],
)
def test_a_tensor_is_for_what_its_name_says(name: str, role: str) -> None:
    assert role_of(name, nextn=frozenset({2}), linear=frozenset({1})) == role


def test_every_name_of_the_canaries_has_a_role() -> None:
    names = {name for each in CANARIES for name in canary(each).tensors}
    other = [n for n in names if role_of(n, nextn=frozenset(), linear=frozenset()) == "other"]
    assert [name for name in other if ".nextn." not in name] == []


def test_unknown_names_and_types_are_counted(changed: Changed) -> None:
    def change(file: File) -> None:
        file.tensors["blk.0.surprise.weight"] = ((32, 4), "f32")
        file.tensors["strange"] = ((8,), "type 137")

    it = facts(changed(canary("llama"), change))
    other = it.roles[-1]
    assert (other.role, other.tensors, other.weights, other.bytes) == ("other", 2, 136, 512)
    assert (other.bits, other.types) == (None, {"f32": 1, "type 137": 1})
    assert it.total.bits is None
    assert it.total.bytes == facts(canary("llama")).total.bytes + 512


def test_nextn_tensors_that_nothing_announces_are_nextn(changed: Changed) -> None:
    model = changed(canary("qwen35"), lambda file: file.values.pop("qwen35.nextn_predict_layers"))
    it = facts(model)
    assert it.blocks.nextn == 1
    assert {role.role: role.tensors for role in it.roles} == TENSORS["qwen35"]


def test_a_file_that_says_nothing_has_facts(tmp_path: Path) -> None:
    it = facts(read_model(File().write(tmp_path / "empty.gguf")))
    assert (it.architecture, it.name, it.template, it.roles) == ("", "", None, ())
    assert (it.total.tensors, it.total.bits, it.context) == (0, None, 0)


def test_end_tokens_outside_the_vocabulary_have_no_text(changed: Changed) -> None:
    model = changed(
        canary("llama"), lambda f: f.values.update({"tokenizer.ggml.eos_token_id": 9999})
    )
    assert facts(model).ends[0] == Token(task="eos", number=9999, text=None)


def test_arrays_of_experts_are_told_by_their_largest(changed: Changed) -> None:
    model = changed(
        canary("glm47-flash"),
        lambda file: file.values.update({"deepseek2.expert_used_count": (0, 2, 3, 2)}),
    )
    assert facts(model).experts == Experts(count=4, used=3, shared=1)


def test_shards_that_are_there_and_those_that_are_not(tmp_path: Path) -> None:
    model = canary("llama")
    names = list(model.tensors)
    for number, half in enumerate((names[:15], names[15:])):
        file = File.like(model)
        file.tensors = {name: file.tensors[name] for name in half}
        file.values |= {"split.count": 3, "split.no": number, "split.tensors.count": len(names)}
        file.write(tmp_path / f"m-{number + 1:05d}-of-00003.gguf")
    it = facts(read_model(tmp_path / "m-00002-of-00003.gguf"))
    assert [Path(file.path).name for file in it.files] == [
        "m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
    ]  # fmt: skip
    assert it.missing == (str(tmp_path / "m-00003-of-00003.gguf"),)
    assert {role.role: role.tensors for role in it.roles} == TENSORS["llama"]


def test_the_file_that_ships_ready_made_is_read_too() -> None:
    it = facts(read_model(DATA / "glm5-next" / "premade-mix.gguf"))
    assert [role.role for role in it.roles] == ["routed experts", "shared expert"]
    assert all(re.fullmatch(r"iq[12]_\w+", kind) for kind in it.total.types)
