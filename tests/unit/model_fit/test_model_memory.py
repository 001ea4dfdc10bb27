"""The sum is what a real server's log shows, line by line, and what is estimated is never below."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkbuild.model.asked import GIB, Asked, Machine, this_machine
from sparkbuild.model.build import Build
from sparkbuild.model.header import Header, Tensor, Value
from sparkbuild.model.memory import RESERVE, Budget, budget, largest_context
from sparkbuild.model.read import Model, Shard

from .conftest import File, canary, findings, tower

DATA = Path(__file__).parents[2] / "data" / "model" / "b11434"
MIB = 1 << 20
Changed = Callable[..., Model]
FLAGS: dict[str, str] = {
    "-c": "context",
    "-np": "slots",
    "-ctk": "cache_k",
    "-ctv": "cache_v",
    "--spec-type": "speculation",
    "--spec-draft-n-max": "draft_depth",
}
LOGS = sorted(DATA.glob("*.log"))


@dataclass(frozen=True)
class Log:
    """A captured log: what was asked, and every size in MiB in the order of the lines."""

    name: str
    sees: bool
    asked: Asked
    sizes: dict[str, list[float]]


def read_log(path: Path) -> Log:
    first, *lines = path.read_text().splitlines()
    head = re.match(r"# llama-server b11434, CPU: canary (\S+?)( vision)?, flags (.*)$", first)
    assert head
    words = head[3].split()
    flags: dict[str, object] = {}
    for flag, value in itertools.pairwise(words):
        if flag in FLAGS:
            flags[FLAGS[flag]] = int(value) if value.isdigit() else value
        if flag == "--spec-type":
            flags["speculation"] = (value,)
        if flag == "-fa":
            flags["flash_attention"] = value == "on"
    if "-kvu" in words:
        flags["unified_cache"] = True
    return Log(
        name=head[1],
        sees=bool(head[2]),
        asked=Asked(**flags),  # type: ignore[arg-type]
        sizes={name: numbers(pattern, lines) for name, pattern in PATTERNS.items()},
    )


PATTERNS = {
    "weights": r"load_tensors: .* model buffer size = +([\d.]+) MiB",
    "cells": r"llama_kv_cache: size = .*\( *(\d+) cells",
    "keys": r"llama_kv_cache: size = .* K \(\w+\): +([\d.]+) MiB",
    "values": r"llama_kv_cache: size = .* V \(\w+\): +([\d.]+) MiB",
    "state": r"llama_memory_recurrent: size = +([\d.]+) MiB",
    "compute": r"sched_reserve: .* compute buffer size = +([\d.]+) MiB",
    "mmproj": r"load_hparams: model size: +([\d.]+) MiB",
    "picture": r"reserve_compute_meta: .* compute buffer size = +([\d.]+) MiB",
    "checkpoint": r"created context checkpoint 1 .* size = ([\d.]+) MiB",
    "context": r"llama_context: n_ctx +=\s+(\d+)",
}


def numbers(pattern: str, lines: list[str]) -> list[float]:
    return [float(match[1]) for line in lines if (match := re.search(pattern, line))]


def part(found: Budget, name: str) -> int:
    return sum(each.bytes for each in found.parts if each.name == name)


def summed(log: Log) -> Budget:
    return budget(canary(log.name), tower(log.name) if log.sees else None, log.asked)


def near(mib: float) -> object:
    """A size that a log prints with two decimals."""
    return pytest.approx(mib * MIB, abs=0.006 * MIB)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_caches_and_weights_are_what_the_server_says(path: Path) -> None:
    log = read_log(path)
    found = summed(log)
    keys, values = log.sizes["keys"], log.sizes["values"]
    indexed = canary(log.name).number("glm5-next.attention.indexer.key_length") is not None
    assert found.context == log.sizes["context"][0]
    assert part(found, "KV cache, keys") == near(keys[0])
    assert part(found, "KV cache, values") == near(values[0])
    assert part(found, "recurrent state") == near(sum(log.sizes["state"]))
    if indexed:
        assert part(found, "indexer keys") == near(keys[1])
    drafts = slice(2 if indexed else 1, None)
    assert part(found, "draft's KV cache, keys") + part(found, "draft's indexer keys") == near(
        sum(keys[drafts])
    )
    assert part(found, "draft's KV cache, values") == near(sum(values[drafts]))
    assert part(found, "weights") == near(log.sizes["weights"][0])
    assert part(found, "mmproj") == near(sum(log.sizes["mmproj"]))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_what_is_estimated_is_not_below_what_the_server_took(path: Path) -> None:
    log = read_log(path)
    found = summed(log)
    compute = log.sizes["compute"]
    assert part(found, "compute buffer") >= compute[0] * MIB
    if len(compute) > 1:
        assert part(found, "draft's compute buffer") >= max(compute[1:]) * MIB
    if log.sizes["picture"]:
        assert part(found, "mmproj's compute buffer") >= log.sizes["picture"][0] * MIB


@pytest.mark.parametrize(
    "line", (DATA / "compute-buffers.txt").read_text().splitlines()[2:], ids=str
)
def test_compute_buffers_grow_as_the_server_s(line: str) -> None:
    name, context, tokens, flash, mib = line.split()
    asked = Asked(context=int(context), micro_batch=int(tokens), flash_attention=flash == "on")
    found = part(budget(canary(name), None, asked), "compute buffer")
    assert 0.995 * float(mib) * MIB <= found <= 1.6 * float(mib) * MIB


@pytest.mark.parametrize("name", ["glm5-next", "qwen35"])
def test_checkpoints_are_a_slot_s_state_each(name: str) -> None:
    log = read_log(DATA / f"{name}.log")
    most = log.asked.checkpoints * log.asked.slots
    assert part(summed(log), "context checkpoints") / most == near(log.sizes["checkpoint"][0])


def test_a_model_without_states_has_no_checkpoints() -> None:
    log = read_log(DATA / "llama.log")
    assert not log.sizes["checkpoint"]
    assert part(summed(log), "context checkpoints") == 0


def flash() -> Model:
    """GLM-5.3-Flash in numbers: 45 blocks and one NextN, every fourth attends, 108.7 GB."""
    name = "glm5-next"
    heads = tuple(int(number % 4 == 3 or number == 45) for number in range(46))
    values: dict[str, Value] = {
        "general.architecture": name,
        "tokenizer.ggml.tokens": ("",) * 154_880,
        f"{name}.block_count": 46,
        f"{name}.nextn_predict_layers": 1,
        f"{name}.context_length": 1 << 20,
        f"{name}.embedding_length": 5120,
        f"{name}.attention.head_count": 64,
        f"{name}.attention.head_count_kv": heads,
        f"{name}.attention.key_length": 512,
        f"{name}.attention.value_length": 512,
        f"{name}.attention.key_length_mla": 256,
        f"{name}.attention.value_length_mla": 256,
        f"{name}.attention.kv_lora_rank": 512,
        f"{name}.attention.indexer.key_length": 128,
        f"{name}.hyper_connection.count": 4,
        f"{name}.ssm.conv_kernel": 4,
        f"{name}.kda.head_dim": 128,
    }
    tensor = Tensor(name="x", shape=(1,), type="q2_K", offset=0, bytes=108_720_071_427)
    header = Header(version=3, alignment=32, values=values, tensors=(tensor,), data=0)
    return Model(shards=(Shard(path=Path("GLM-5.3-Flash.gguf"), size=0, header=header),))


SPARK = Machine(available=118 * GIB, total=121 * GIB, unified=True)


def test_glm_5_3_flash_fits_a_spark_with_256_k() -> None:
    """Seen on one: UD-Q2_K_XL, 262,144 tokens, float16 cache, 117 of 119 GB in use."""
    found = budget(flash(), None, Asked(context=262_144))
    rows = part(found, "KV cache, keys") + part(found, "indexer keys")
    assert rows == 262_144 * 11 * (512 + 3 * 128) * 2
    assert 115e9 < found.needed - RESERVE < 119 * GIB
    assert found.needed < SPARK.available


def test_a_million_tokens_do_not_fit_and_what_does_is_told(build: Build) -> None:
    found = findings(flash(), None, build, Asked(machine=SPARK))["memory"]
    assert found.state == "fault"
    assert "KV cache, keys 11,811,160,064" in found.found
    context = int(found.next_step.removeprefix("--ctx-size "))
    assert 262_144 < context < 1 << 20
    for tokens, fits in ((context, True), (context + 256, False)):
        needed = budget(flash(), None, Asked(context=tokens)).needed
        assert (needed <= SPARK.available) is fits


def test_what_grows_while_it_serves_is_warned_of(build: Build) -> None:
    asked = Asked(context=262_144, machine=SPARK)
    found = findings(flash(), None, build, asked)["memory"]
    assert found.state == "warning"
    assert "context checkpoints 4,884,267,008" in found.reason
    assert "prompt cache 8,589,934,592 (up to --cache-ram)" in found.reason
    assert found.next_step == "--cache-ram 0 --ctx-checkpoints 4"
    small = Asked(context=262_144, machine=SPARK, prompt_cache=0, checkpoints=4)
    assert findings(flash(), None, build, small)["memory"].state == "ok"
    endless = Asked(context=4096, machine=SPARK, prompt_cache=-1)
    assert findings(canary("llama"), None, build, endless)["memory"].state == "warning"


def test_weights_alone_can_be_too_much(build: Build) -> None:
    machine = Machine(available=100 * GIB, total=121 * GIB)
    assert largest_context(flash(), None, Asked(), machine.available) == 0
    found = findings(flash(), None, build, Asked(context=4096, machine=machine))["memory"]
    assert (found.state, found.next_step) == (
        "fault",
        "end other programs, or take smaller weights",
    )


def test_every_summand_is_told_and_they_are_the_sum(build: Build) -> None:
    asked = Asked(context=4096, speculation=("draft-mtp",), machine=this_machine())
    total = budget(canary("qwen35"), tower("qwen35"), asked)
    found = findings(canary("qwen35"), tower("qwen35"), build, asked)["memory"]
    told = re.findall(r"[a-zA-Z' ,]+ ([\d,]+)(?:;|$)", found.found.split(": ", 1)[1])
    assert sum(int(number.replace(",", "")) for number in told) == total.needed
    assert found.found.startswith(f"{total.needed:,} bytes at 4,096 tokens")
    assert len(total.lines()) == len(total.parts)
    assert {p.kind for p in total.parts} == {"start", "margin", "growth"}


def test_an_interval_stands_for_the_list_of_recurrent_blocks(changed: Changed) -> None:
    model = changed(
        canary("qwen35"), lambda file: file.values.pop("qwen35.attention.recurrent_layers")
    )
    for asked in (Asked(context=4096), Asked(context=4096, speculation=("draft-mtp",))):
        assert budget(model, None, asked) == budget(canary("qwen35"), None, asked)


def uneven(file: File) -> None:
    """KV heads that differ from block to block."""
    file.values["llama.attention.head_count_kv"] = (2, 1, 2)
    for name in ("blk.1.attn_k.weight", "blk.1.attn_v.weight"):
        file.tensors[name] = ((256, 64), "q8_0")


@pytest.mark.parametrize(("fast", "values"), [(True, 2 + 1 + 2), (False, 3 * 2)])
def test_values_are_padded_where_flash_attention_is_off(
    fast: bool, values: int, changed: Changed
) -> None:
    model = changed(canary("llama"), uneven)
    found = budget(model, None, Asked(context=1024, flash_attention=fast))
    assert part(found, "KV cache, keys") == 1024 * 64 * 2 * (2 + 1 + 2)
    assert part(found, "KV cache, values") == 1024 * 64 * 2 * values


def test_what_is_not_known_is_said(changed: Changed, build: Build) -> None:
    def another(file: File) -> None:
        values = file.values
        for key in [key for key in values if key.startswith("llama.")]:
            values[key.replace("llama.", "deci.")] = values.pop(key)
        values["general.architecture"] = "deci"
        values["deci.attention.sliding_window"] = 1024

    model = changed(canary("llama"), another)
    found = findings(model, None, build)["memory"]
    assert found.state == "note"
    assert "deci was not compared with a server's log" in found.reason
    assert "sliding window are counted with the whole context" in found.reason


def test_what_is_not_counted_is_said(changed: Changed, build: Build) -> None:
    def strange(file: File) -> None:
        file.tensors["blk.0.attn_q.weight"] = ((256, 256), "type 137")

    model = changed(canary("llama"), strange)
    doubt = "1 tensors are of types without a size here, and are not counted"
    assert doubt in findings(model, None, build)["memory"].reason
    parted = Model(shards=canary("llama").shards, missing=(Path("llama-00002-of-00002.gguf"),))
    assert budget(parted, None, Asked()).doubts == ("1 shards are missing, and are not counted",)


def test_a_draft_model_is_counted() -> None:
    alone = budget(canary("llama"), None, Asked(context=4096))
    drafter = canary("qwen35")
    asked = Asked(context=4096, speculation=("draft-simple",), drafter=drafter)
    both = budget(canary("llama"), None, asked)
    names = {p.name for p in both.parts} - {p.name for p in alone.parts}
    assert names == {
        "draft model",
        "draft's KV cache, keys",
        "draft's KV cache, values",
        "draft's compute buffer",
    }
    assert part(both, "draft model") == sum(t.bytes or 0 for t in drafter.tensors.values())
