"""A plan's findings as the checks of make's smoke stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.canary.model import CanaryReport, DraftCheck, Group, Item
from sparkbuild.llama.log import LogReport
from sparkbuild.model.finding import Finding
from sparkbuild.report.canaries import Result
from sparkbuild.report.model import Failure, StageReport
from sparkbuild.report.smoke import Fitting, Part, Smoked
from sparkbuild.smoke.model import SmokeReport
from sparkbuild.smoke_make import Asked, _Inside, _refusal, checks


def item(name: str, group: str, *, passed: bool = True) -> Item:
    return Item(name=name, group=group, passed=passed, expected=f"right {name}",
                found=f"seen {name}", seconds=0.5)  # fmt: skip


def smoked(*, well: bool) -> Smoked:
    report = CanaryReport(
        canary="toy", form="f16", backend="cpu", cache="f16", load_seconds=0.1, seconds=2.0,
        items=tuple(item(name, "words", passed=well) for name in ("a", "b", "c", "d")),
        groups=(
            Group(name="words", right=4 if well else 0, of=4, minimum=0.5, reason="so"),
            Group(name="log", right=9, of=9, minimum=1.0, reason="so"),
        ),
        log=LogReport(lines=9),
    )  # fmt: skip
    draft = DraftCheck(
        depth=3, head="healthy", state="passed" if well else "failed", drafted=10, accepted=9,
        wrong=0, share=0.9, bound=0.8, reason="so", exact=True, others=() if well else ("a",),
    )  # fmt: skip
    none = DraftCheck(depth=1, head="damaged", state="unsupported", drafted=0, accepted=0, wrong=0,
                      share=0.0, bound=0.2, reason="no graph")  # fmt: skip
    refused = Failure(title="canary", exit_code=19, message="a wrong file", problems=("q4_0: x",),
                      next_step="do not", detail="")  # fmt: skip
    result = Result(canary="toy", ran=(report,), drafts=(draft, none),
                    failures={} if well else {"mix": refused})  # fmt: skip
    fault = Finding(name="architecture", state="fault", expected="known", found="unknown",
                    next_step="x")  # fmt: skip
    fitting = Fitting(canary="toy", checks=26, findings=() if well else (fault,))
    return Smoked(suite="canary", catalogue="0" * 64, backend="cpu", fitting=(fitting,),
                  parts=(Part(name="KV q8_0", reason="half", result=result),))  # fmt: skip


def test_a_healthy_plan_is_a_check_for_each_group() -> None:
    found = list(checks(smoked(well=True), Path("/k.json"), Path("/root")))
    assert [check.name for check in found] == [
        "toy fits the build", "KV q8_0 f16: words", "KV q8_0 f16: log",
        "KV q8_0 drafts: depth 3, healthy, exact", "KV q8_0 drafts: depth 1, damaged",
    ]  # fmt: skip
    assert all(check.passed for check in found)
    words = found[1]
    assert (words.expected, words.found, words.seconds) == ("at least 50% of 4", "4 of 4", 2.0)
    assert words.evidence == ("/k.json", "/root/toy/logs")
    assert found[-1].found == "unsupported: no graph"


def test_whatever_is_wrong_is_told_with_what_was_seen() -> None:
    found = {c.name: c for c in checks(smoked(well=False), Path("/k.json"), Path("/root"))}
    failed = {name for name, check in found.items() if not check.passed}
    assert failed == {
        "toy fits the build", "KV q8_0 mix", "KV q8_0 f16: words",
        "KV q8_0 drafts: depth 3, healthy, exact",
    }  # fmt: skip
    assert found["toy fits the build"].found == "architecture: unknown"
    assert found["KV q8_0 mix"].found == "a wrong file; q4_0: x"
    told = found["KV q8_0 f16: words"].found
    assert told.startswith("0 of 4; a: expected right a, found seen a; b: ")
    assert "seen d" not in told, "three are quoted, all are in the file"
    assert "not as recorded: a" in found["KV q8_0 drafts: depth 3, healthy, exact"].found


def test_a_stage_has_one_line_and_tells_of_what_failed_inside() -> None:
    told: list[tuple[object, ...]] = []

    class Seen:
        def started(self, stage: str) -> None:
            pytest.fail(stage)

        def progress(self, done: int, total: int, text: str) -> None:
            told.append((done, total, text))

        def note(self, text: str) -> None:
            told.append((text,))

        def finished(self, report: StageReport) -> None:
            pytest.fail(report.name)

    inside = _Inside(Seen())
    inside.started("toy f16")
    inside.progress(1, 3, "")
    inside.finished(StageReport(name="toy f16", state="done", seconds=1, summary="4/4 right"))
    inside.finished(StageReport(name="toy mix", state="failed", seconds=1, summary="0/4 right"))
    assert told == [(1, 3, "toy f16"), ("toy mix: 0/4 right",)]


@pytest.mark.parametrize(("backend", "where"), [("cuda", " --backend cuda"), ("cpu", "")])
def test_what_to_run_next_asks_where_it_failed(tmp_path: Path, backend: str, where: str) -> None:
    asked = Asked(binaries=Path("/b"), suite="canary", build=1, identity="x", cuda=True,
                  workdir=tmp_path, log=tmp_path / "smoke.log")  # fmt: skip
    found = tuple(checks(smoked(well=False), tmp_path / "canaries.json", tmp_path))
    report = SmokeReport(suite="canary", model_sha256="", checks=found)
    error = _refusal(report, asked, backend)
    assert error.next_step.startswith(f"sparkbuild smoke /b{where} --diagnose")
    assert error.report is report
    assert len(error.problems) == 4
