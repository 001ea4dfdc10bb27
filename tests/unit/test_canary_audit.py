"""What an audit keeps, counts and goes on from."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import msgspec
import numpy as np
import pytest

from sparkbuild.canary.audit import probe as probe_module
from sparkbuild.canary.audit.audit import probes
from sparkbuild.canary.audit.probe import Bench, Worker
from sparkbuild.canary.audit.reasons import load_reasons
from sparkbuild.canary.audit.records import Probe, append, moved, read, unfinished
from sparkbuild.canary.audit.summary import noticing, summarise
from sparkbuild.canary.gguf.layout import layout
from sparkbuild.canary.gguf.weights import weights
from sparkbuild.canary.model import Acceptance, CanaryReport, Group, Item
from sparkbuild.canary.numbers import encode_numbers
from sparkbuild.canary.run import Setup
from sparkbuild.canary.suite import Bound, Limits, Numbers, Reference, Suite, encode_suite
from sparkbuild.errors import ManifestError, SmokeError
from sparkbuild.files import sha256_bytes, sha256_file
from sparkbuild.llama.log import LogReport

LIMITS = Limits(
    schema=1,
    bounds=(
        Bound(backend="cpu", worst=1e-6, median=1e-8, reason="x"),
        Bound(backend="cuda", worst=1e-2, median=1e-3, reason="x"),
    ),
)
NUMBERS = encode_numbers({"r": np.log(np.full((1, 4), 0.25, np.float32))})


def found(target: str, **rest: Any) -> Probe:
    values = {"key": target, "role": "model", "kind": "rolled", "detail": ""} | rest
    numbers = values.get("nmse", {})
    return Probe(target=target, moved=moved(numbers, dict.fromkeys(numbers, 0.0)), **values)


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "a/audit.jsonl"
    first, second, third = found("x", nmse={"r": None}), found("y"), found("z", failed=("g",))
    append(path, first)
    append(path, second)
    path.write_bytes(path.read_bytes()[:-9])
    append(path, third)
    known = read(path)
    assert known == {"x": first, "z": third}
    assert unfinished([first, second, third], known) == [second]
    assert read(tmp_path / "nothing") == {}


@pytest.mark.parametrize(
    ("nmse", "rest", "changed", "noticed"),
    [
        ({"r": 0.0, "s": 1e-12}, {}, False, False),
        ({"r": 0.0, "s": 2e-7}, {}, True, False),
        ({"r": 0.0, "s": None}, {"failed": ("references",)}, True, True),
        ({"r": 0.0}, {"missed": {"words": 0.1}}, True, False),
        ({"r": 0.0}, {"missed": {"words": 0.0}}, False, False),
        ({}, {"refused": "no"}, True, True),
    ],
)
def test_what_changed_and_what_was_noticed(
    nmse: dict[str, float | None], rest: dict[str, Any], *, changed: bool, noticed: bool
) -> None:
    probe = found("x", nmse=nmse, **rest)
    assert (probe.changed, probe.noticed) == (changed, noticed)


def test_a_summary_counts_by_tensor_by_kind_and_by_check() -> None:
    listed = [
        found("blk.0.attn_q.weight", nmse={"r": 0.1}, failed=("references", "words")),
        found("blk.7.attn_q.weight", nmse={"r": 1e-5}, failed=("references",)),
        found("blk.7.attn_q.weight", kind="scaled", nmse={"r": 1e-9 * 2}),
        found("v.blk.1.ln1.weight", role="vision", nmse={"r": 0.0}),
        found("toy.epsilon", kind="changed", refused="exit status 1"),
    ]
    summary = summarise(listed, LIMITS)
    assert (summary.total.made, summary.total.counted, summary.total.noticed) == (5, 5, 3)
    rows = {row.name: row for row in summary.by_tensor}
    assert rows.keys() == {"blk.attn_q.weight", "v.blk.ln1.weight", "toy.epsilon"}
    assert rows["blk.attn_q.weight"].share == 2 / 3
    assert rows["blk.attn_q.weight"].checks == {
        "words": 1,
        "log-probabilities (cpu, KV *, *)": 2,
        "log-probabilities (cuda, KV *, *)": 1,
    }
    assert rows["toy.epsilon"].checks == {"start": 1}
    # Nothing that was asked changed, and nobody knows why: it counts.
    assert rows["v.blk.ln1.weight"].share == 0.0
    assert [one.probe for one in summary.unnoticed] == [listed[2], listed[3]]
    assert summary.unexplained == 2
    assert {row.name: row.made for row in summary.by_kind} == {
        "rolled": 3, "scaled": 1, "changed": 1,
    }  # fmt: skip


def test_a_bound_notices_by_the_median_where_no_prompt_is_bad() -> None:
    probe = found("x", nmse={"a": 5e-7, "b": 5e-7, "c": 0.0})
    assert noticing(probe, LIMITS) == ["log-probabilities (cpu, KV *, *)"]
    assert found("x", nmse={"a": None}).worst == math.inf


def test_recorded_reasons_say_what_counts(tmp_path: Path) -> None:
    (tmp_path / "unnoticed.toml").write_text(
        """schema = 1
[[reasons]]
match = 'blk\\.9\\..*'
alters = false
reason = "no graph uses it"
[[reasons]]
match = 'blk\\.1\\.x rolled'
alters = true
reason = "too small"
"""
    )
    listed = [
        found("blk.9.x", nmse={"r": 0.0}),
        found("blk.1.x", nmse={"r": 0.0}),
        found("blk.1.xy", nmse={"r": 1e-8}),
        # A reason why nothing changes does not outweigh that something did.
        found("blk.9.y", nmse={"r": 2e-7}),
        found("blk.9.z", nmse={"r": 1.0}, failed=("references",)),
    ]
    summary = summarise(listed, LIMITS, load_reasons(tmp_path))
    assert (summary.total.made, summary.total.counted, summary.total.noticed) == (5, 4, 1)
    assert [(one.probe.target, one.alters, one.reason) for one in summary.unnoticed] == [
        ("blk.9.y", True, "no graph uses it"),
        ("blk.1.xy", True, ""),
        ("blk.1.x", True, "too small"),
        ("blk.9.x", False, "no graph uses it"),
    ]
    assert summary.unexplained == 1


def test_a_reason_that_is_no_expression_is_refused(tmp_path: Path) -> None:
    assert load_reasons(tmp_path).reasons == ()
    (tmp_path / "unnoticed.toml").write_text(
        'schema = 1\n[[reasons]]\nmatch = "("\nalters = true\nreason = "x"\n'
    )
    with pytest.raises(ManifestError, match="not valid") as caught:
        load_reasons(tmp_path)
    assert "no regular expression" in caught.value.problems[0]


def test_what_moved_is_measured_from_the_healthy_files_own_numbers() -> None:
    healthy = {"a": 5e-7, "b": 0.0}
    assert moved({"a": 5e-7, "b": 0.0}, healthy) == 0.0
    assert moved({"a": 5e-7, "b": 3e-9}, healthy) == 3e-9
    assert moved({"a": 1e-7}, healthy) == pytest.approx(4e-7)
    assert moved({"a": None}, healthy) is None
    assert moved({}, healthy) == 0.0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "n.npz").write_bytes(NUMBERS)
    (suite / "suite.json").write_bytes(
        encode_suite(
            Suite(
                schema=1, canary="toy", vocabulary=4, context=256, answers=(),
                references=(Reference(name="r", prompt=(1,), tokens=(2,)),),
                numbers=Numbers(file="n.npz", sha256=sha256_bytes(NUMBERS)),
            )
        )
    )  # fmt: skip
    (suite / "limits.toml").write_text(
        'schema = 1\n[[bounds]]\nworst = 1e-6\nmedian = 1e-6\nreason = "x"\n'
    )
    for name in ("model", "vision"):
        writer = gguf.GGUFWriter(tmp_path / f"{name}.gguf", "toy")
        writer.add_float32("toy.expert_weights_scale", 2.0)
        writer.add_tensor(f"{name}.weight", np.arange(512, dtype=np.float32).reshape(2, 256))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    (tmp_path / "llama-server").touch()
    return Bench(
        suite=suite,
        workdir=tmp_path / "work",
        setup=Setup(
            executable=tmp_path / "llama-server", model=tmp_path / "model.gguf",
            vision=tmp_path / "vision.gguf", form="f32", backend="cpu", cache="f32",
            scratch=tmp_path / "s", log=tmp_path / "l",
        ),
    )  # fmt: skip


def test_every_file_is_perturbed_and_keys_tell_what_of(bench: Bench, tmp_path: Path) -> None:
    listed = probes(bench)
    assert [(p.role, p.target, p.kind) for p in listed[:5]] == [
        ("model", "model.weight", "rolled"),
        ("model", "model.weight", "scaled"),
        ("model", "model.weight", "zeroed"),
        ("model", "model.weight", "negated"),
        ("model", "toy.expert_weights_scale", "changed"),
    ]
    assert [p.role for p in listed[5:]] == ["vision"] * 5
    keys = {p.key for p in listed}
    assert len(keys) == 10
    assert {p.key for p in probes(bench)} == keys
    limits = bench.suite / "limits.toml"
    limits.write_text(limits.read_text().replace("1e-6", "1e-5"))
    assert not keys & {p.key for p in probes(bench)}


def report(nmse: float, *, right: int) -> CanaryReport:
    item = Item(
        name="r",
        group="references",
        passed=nmse < 1e-6,
        expected="",
        found="",
        seconds=0,
        nmse=nmse,
    )
    groups = (
        Group(name="references", right=int(nmse < 1e-6), of=1, minimum=1.0, reason="x"),
        Group(name="words", right=right, of=4, minimum=0.5, reason="x"),
    )
    return CanaryReport(
        canary="toy", form="f32", backend="cpu", cache="f32", load_seconds=0, seconds=0,
        items=(item,), groups=groups, log=LogReport(lines=1),
    )  # fmt: skip


def patched(monkeypatch: pytest.MonkeyPatch, run: Callable[[Setup], CanaryReport]) -> None:
    monkeypatch.setattr(probe_module, "canary", lambda _suite, setup, quick: run(setup))


def test_the_suite_sees_the_perturbed_copy_and_the_original_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    originals = [sha256_file(bench.setup.model), sha256_file(bench.setup.model)]

    def run(setup: Setup) -> CanaryReport:
        assert setup.model != bench.setup.model
        assert setup.vision not in {None, bench.setup.vision}
        read_now = layout(setup.model)
        total = float(weights(read_now, read_now.tensors["model.weight"]).sum())
        return report(abs(total / 130816 - 1), right=3)

    patched(monkeypatch, run)
    worker = Worker(bench)
    assert not worker.healthy().changed or worker.healthy().missed == {"words": 0.25}
    results = {p.kind: worker.probe(p) for p in probes(bench) if p.role == "model"}
    assert results["scaled"].worst == pytest.approx(0.1, rel=1e-5)
    assert results["negated"].worst == pytest.approx(2.0)
    assert results["negated"].failed == ("references",)
    assert results["rolled"].worst == results["changed"].worst == 0.0
    assert worker.healthy().worst == 0.0
    assert originals == [sha256_file(bench.setup.model), sha256_file(bench.setup.model)]


def test_a_reason_that_is_written_better_keeps_what_was_found(bench: Bench) -> None:
    keys = [probe.key for probe in probes(bench)]
    limits = bench.suite / "limits.toml"
    text = limits.read_text()
    limits.write_text(text.replace('reason = "', 'reason = "better: '))
    assert text != limits.read_text()
    assert [probe.key for probe in probes(bench)] == keys
    limits.write_text(text.replace("worst = ", "worst = 1"))
    assert {probe.key for probe in probes(bench)}.isdisjoint(keys)


def test_a_draft_block_is_asked_drafts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = bench.suite / "limits.toml"
    limits.write_text(
        limits.read_text() + '[[drafts]]\ndepth = 3\nhealthy = 0.8\ndamaged = 0.2\nreason = "x"\n'
    )
    writer = gguf.GGUFWriter(bench.setup.model, "toy")
    for name in ("blk.1.nextn.eh_proj.weight", "blk.1.x.weight", "blk.10.x.weight"):
        writer.add_tensor(name, np.arange(512, dtype=np.float32).reshape(2, 256))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    listed = [p for p in probes(bench) if p.role == "model" and p.kind == "scaled"]
    assert [(p.target, p.drafts) for p in listed] == [
        ("blk.1.nextn.eh_proj.weight", True),
        ("blk.1.x.weight", True),
        ("blk.10.x.weight", False),
    ]
    few, late = {"a": (50, 45)}, {"a": (50, 45), "b": (50, 45)}
    accepted = iter([late, {"a": (50, 35)}, few, late, few, late | {"b": (50, 44)}])
    lines = iter(range(50, 60))

    def acceptance(_: Path, setup: Setup, *, depth: int, skip: object) -> Acceptance:
        del setup, skip
        counts = next(accepted)
        return Acceptance(
            depth=depth,
            drafted=sum(drafted for drafted, _ in counts.values()),
            accepted=sum(good for _, good in counts.values()),
            log=LogReport(lines=next(lines)),  # never twice the same, which changes nothing
            counts=counts,
        )

    monkeypatch.setattr(probe_module, "acceptance", acceptance)
    worker = Worker(bench)
    # The healthy block is asked once, before the first perturbation; of one that changes none of
    # some answers' drafts, those of all are asked.
    bad, same, fewer = (worker.probe(listed[0]) for _ in range(3))
    assert (bad.changed, bad.noticed, bad.missed) == (True, True, {"drafts": 0.3})
    assert (same.changed, same.noticed) == (False, False)
    assert (fewer.changed, fewer.noticed, fewer.missed) == (True, False, {"drafts": 0.11})
    file = bench.suite / "suite.json"
    told = msgspec.json.decode(file.read_bytes())
    told["drafted"] = {"depth": 3, "counts": late}
    file.write_bytes(msgspec.json.encode(told))
    accepted = iter([late, few, late | {"b": (50, 44)}])
    assert Worker(bench).probe(listed[0]).noticed, "no count may be another than that recorded"


def test_a_server_that_does_not_come_up_has_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: Setup) -> CanaryReport:
        raise SmokeError("llama-server did not come up", problems=["exit status 1"])

    patched(monkeypatch, run)
    result = Worker(bench).probe(probes(bench)[0])
    assert result.refused == "llama-server did not come up; exit status 1"
    assert result.noticed
    assert result.changed


def test_a_machine_without_memory_has_noticed_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: Setup) -> CanaryReport:
        error = SmokeError("llama-server was not started", evidence=[Path("/gone")])
        error.short_of_memory = True
        raise error

    patched(monkeypatch, run)
    with pytest.raises(SmokeError, match="not started") as caught:
        Worker(bench).probe(probes(bench)[0])
    assert caught.value.evidence == ()
