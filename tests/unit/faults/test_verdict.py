"""What a command's ending says of a fault."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sparkbuild.canary.model import CanaryReport, DraftCheck, Group, Item
from sparkbuild.faults.model import Fault, SourceSeed, Stage
from sparkbuild.faults.verdict import Ending, Refusal, refusal, verdict
from sparkbuild.llama.log import Line, LogReport, Seen


def fault(says: tuple[str, ...] = ("nmse",), latest: Stage = "smoke") -> Fault:
    return Fault(
        id="one", kind="source", summary="s", imitates="i", reach="everything", subtle=False,
        latest=latest, says=says, seed=SourceSeed(patch="one.patch"),
    )  # fmt: skip


def said(message: str, stage: Stage = "smoke") -> Refusal:
    return Refusal(stage=stage, check="c", message=message)


def read(document: dict[str, Any], code: int = 14, stage: Stage = "smoke") -> Refusal:
    return refusal(Ending(exit_code=code, stdout=json.dumps(document), stderr="lines"), stage)


@pytest.mark.parametrize("code", [0, 2, 70, 130, 124, -9])
def test_such_endings_are_no_refusal(code: int) -> None:
    assert verdict(fault(), code, said("NMSE")) == "missed"


@pytest.mark.parametrize("code", [17, 18])
def test_where_nothing_was_asked_nothing_was_caught(code: int) -> None:
    assert verdict(fault(), code, said("NMSE")) == "not run"


def test_words_and_stage_decide() -> None:
    assert verdict(fault(), 14, said("references: nmse 0.4")) == "caught"
    assert verdict(fault(("nmse", "Fiets")), 14, said("NMSE of the fiets")) == "caught"
    assert verdict(fault(("nmse", "colour")), 14, said("NMSE")) == "other words"
    assert verdict(fault(latest="build"), 14, said("NMSE")) == "late"
    assert verdict(fault(latest="smoke"), 20, said("NMSE", "model")) == "caught"


def test_a_failure_tells_its_problems_and_not_the_log() -> None:
    failure = {
        "title": "smoke", "message": "it is wrong", "problems": ["expected 1, found 2"],
        "detail": "a line of a log", "next_step": "read it",
    }  # fmt: skip
    found = read({"result": "failed", "failure": failure})
    assert found.stage == "smoke"
    assert "it is wrong" in found.message
    assert "expected 1, found 2" in found.message
    assert "a line of a log" not in found.message


def test_the_stage_of_a_make_is_the_one_that_failed() -> None:
    stages = [
        {"name": "toolkit", "state": "done"},
        {"name": "qualify", "state": "failed", "failure": {"message": "iq1_s is wrong"}},
        {"name": "build", "state": "not reached"},
    ]
    found = read({"stages": stages, "failure": None}, 10, "package")
    assert (found.stage, found.message) == ("qualify", "iq1_s is wrong")


def test_without_json_the_words_on_standard_error_count() -> None:
    found = refusal(Ending(exit_code=9, stdout="", stderr=" parts disagree \n"), "toolkit")
    assert found == Refusal(stage="toolkit", check="", message="parts disagree")


def test_checks_that_failed_are_found_anywhere() -> None:
    document = {
        "facts": {"files": [{"name": "a", "state": "ok", "found": "fine"}]},
        "findings": [{"name": "tokenizer", "state": "fault", "expected": "glm4", "found": "gpt2"}],
        "checks": [{"name": "RECORD", "passed": False, "expected": "e", "found": "other bytes"}],
    }
    found = read(document, 20, "smoke")
    assert found.stage == "model"
    assert found.check == "tokenizer"
    assert "expected glm4; found gpt2" in found.message
    assert "other bytes" in found.message
    assert "fine" not in found.message


def item(name: str, group: str, *, passed: bool) -> Item:
    return Item(
        name=name, group=group, passed=passed, expected="four", found=f"{name} found", seconds=0.1
    )


def ran(*items: Item, minimum: float) -> dict[str, Any]:
    groups = tuple(
        Group(
            name=name,
            right=sum(one.passed for one in items if one.group == name),
            of=sum(one.group == name for one in items),
            minimum=minimum,
            reason="r",
        )
        for name in dict.fromkeys(one.group for one in items)
    )
    report = CanaryReport(
        canary="llama", form="f32", backend="cpu", cache="f32", load_seconds=0.1, seconds=1.0,
        items=items, groups=groups, log=LogReport(lines=1),
    )  # fmt: skip
    return dict(msgspec.to_builtins(report))


def smoked(*reports: dict[str, Any], drafts: tuple[DraftCheck, ...] = ()) -> dict[str, Any]:
    result = {
        "canary": "llama", "ran": list(reports), "failures": {},
        "drafts": [msgspec.to_builtins(one) for one in drafts],
    }  # fmt: skip
    return {"suite": "canary", "fitting": [], "basics": None,
            "parts": [{"name": "llama", "result": result}]}  # fmt: skip


def test_an_answer_that_may_miss_is_no_words_of_a_refusal() -> None:
    allowed = ran(item("a", "held out", passed=True), item("b", "held out", passed=False),
                  minimum=0.5)  # fmt: skip
    wrong = ran(item("c", "answers", passed=False), minimum=1.0)
    found = read(smoked(allowed, wrong))
    assert found.check == "llama f32, answers"
    assert "c found" in found.message
    assert "b found" not in found.message


def test_drafts_tell_what_was_accepted_and_changed() -> None:
    check = DraftCheck(
        depth=2, head="healthy", state="failed", drafted=100, accepted=7, wrong=3, share=0.07,
        bound=0.8, reason="measured",
    )  # fmt: skip
    found = read(smoked(drafts=(check, msgspec.structs.replace(check, state="passed", depth=9))))
    assert found.check == "llama drafts"
    assert "accepted 7 of 100, 7.0%, expected at least 80.0%" in found.message
    assert "3 answers changed" in found.message
    assert "drafts of 9" not in found.message


def test_a_fault_in_the_log_is_told_with_its_first_line() -> None:
    line = Line(number=7, text="E decode: failed", reason="a batch failed")
    seen = Seen(kind="decode error", severity="fault", count=9, lines=(line,))
    noted = msgspec.structs.replace(seen, kind="odd", severity="note")
    report = {
        **ran(minimum=1.0),
        "log": msgspec.to_builtins(LogReport(lines=9, seen=(seen, noted))),
    }
    found = read(smoked(report))
    assert found.check == "llama f32, log"
    assert "decode error: 9 times, the first time in line 7: E decode: failed" in found.message
    assert "odd" not in found.message


def test_what_does_not_fit_is_of_the_stage_before_smoke() -> None:
    finding = {"name": "architecture", "state": "fault", "expected": "known", "found": "unknown"}
    document = {**smoked(), "fitting": [{"canary": "llama", "findings": [finding]}]}
    assert read(document, 20).stage == "model"
