"""Commands about canaries: acceptance against its bands, what is shown, what starts quickly."""

from __future__ import annotations

import io
import subprocess  # noqa: TID251 - a fresh interpreter shows what is imported
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from junitparser import Failure as FailureElement
from junitparser import JUnitXml, Skipped
from rich.console import Console

from sparkbuild import canary_maker_commands
from sparkbuild.canary import forms
from sparkbuild.canary.catalogue import Canary, Shipped
from sparkbuild.canary.drafts import compared, judged
from sparkbuild.canary.gguf.derive import FORMS, FormRecord
from sparkbuild.canary.model import Acceptance, CanaryReport, DraftCheck, Group, Head, Item
from sparkbuild.canary.suite import Band
from sparkbuild.canary_answers import worst_code
from sparkbuild.canary_commands import CACHES, derive_forms
from sparkbuild.canary_work import chosen_forms
from sparkbuild.errors import HostError, UsageError
from sparkbuild.llama.log import Line, LogReport, Seen, Severity
from sparkbuild.report.canaries import Result, result_view, wrong_items
from sparkbuild.report.junit_canaries import canaries_junit
from sparkbuild.report.model import Failure

BANDS = tuple(Band(depth=depth, healthy=0.9, damaged=0.2, reason="seen so") for depth in (1, 2, 3))


def logged(severity: Severity, count: int = 1) -> LogReport:
    line = Line(number=12, text="E spec draft: x", reason="so it is")
    seen = Seen(kind="draft decode error", severity=severity, count=count, lines=(line,))
    return LogReport(lines=99, seen=(seen,))


def counted(accepted: int, drafted: int = 100, **rest: Any) -> Acceptance:
    return Acceptance(depth=1, drafted=drafted, accepted=accepted, **rest)


@pytest.mark.parametrize(
    ("found", "head", "state"),
    [
        (counted(90), "healthy", "passed"),
        (counted(89), "healthy", "failed"),
        (counted(20), "damaged", "passed"),
        (counted(21), "damaged", "failed"),
        (counted(100, wrong=1), "healthy", "failed"),
        (counted(0, wrong=1), "damaged", "failed"),
        (counted(0, 0), "healthy", "failed"),
        (counted(0, 0), "damaged", "failed"),
        (counted(0, 0, unsupported="no graph"), "healthy", "unsupported"),
        (counted(95, log=logged("warning")), "healthy", "passed"),
        (counted(95, log=logged("fault")), "healthy", "failed"),
        (counted(0, log=logged("fault")), "damaged", "failed"),
        (counted(95, log=LogReport(lines=0)), "healthy", "failed"),
    ],
)
def test_acceptance_is_judged_by_its_band(found: Acceptance, head: Head, state: str) -> None:
    check = judged(found, BANDS[0], head)
    assert check.state == state
    assert check.passed == (state != "failed")
    assert check.bound == (0.9 if head == "healthy" else 0.2)
    assert check.reason == ("no graph" if state == "unsupported" else "seen so")
    assert check.log is found.log


def test_counts_that_are_recorded_have_to_be_met_to_the_token() -> None:
    found = counted(95, counts={"a": (60, 58), "b": (40, 37), "new": (0, 0)})
    same = judged(found, BANDS[0], "healthy", recorded={"a": (60, 58), "b": (40, 37), "c": (1, 1)})
    assert (same.state, same.exact, same.others) == ("passed", True, ())
    other = judged(found, BANDS[0], "healthy", recorded={"a": (60, 59), "b": (40, 37)})
    assert (other.state, other.others) == ("failed", ("a",))
    assert not judged(found, BANDS[0], "healthy").exact


def test_both_heads_are_asked_at_every_depth_and_nobody_after_unsupported() -> None:
    asked: list[tuple[Head, int]] = []

    def measure(head: Head, depth: int) -> Acceptance:
        asked.append((head, depth))
        return Acceptance(depth=depth, drafted=10, accepted=10 if head == "healthy" else 0)

    checks = list(compared(BANDS, measure))
    assert asked == [(head, depth) for head in ("healthy", "damaged") for depth in (1, 2, 3)]
    assert [(c.head, c.depth) for c in checks] == asked
    assert {c.state for c in checks} == {"passed"}

    asked.clear()

    def none(head: Head, depth: int) -> Acceptance:
        asked.append((head, depth))
        return Acceptance(depth=depth, unsupported="no graph")

    checks = list(compared(BANDS, none))
    assert asked == [("healthy", 1)]
    assert [(c.state, c.depth) for c in checks] == [("unsupported", d) for d in (1, 2, 3)] * 2


def item(name: str, group: str, *, passed: bool = True, nmse: float | None = None) -> Item:
    bound = (1e-4 if name.startswith("median") else 1e-3) if group == "references" else None
    return Item(name=name, group=group, passed=passed, expected=f"right {name}",
                found=f"seen {name}", seconds=0.5, nmse=nmse, bound=bound)  # fmt: skip


def group(name: str, right: int, of: int, minimum: float = 1.0) -> Group:
    return Group(name=name, right=right, of=of, minimum=minimum, reason=f"why {name}")


def ran(
    form: str, items: list[Item], groups: list[Group], log: LogReport | None = None
) -> CanaryReport:
    return CanaryReport(
        canary="toy", form=form, backend="cpu", cache="f16", load_seconds=0.25, seconds=3.0,
        items=tuple(items), groups=tuple(groups), log=log or LogReport(lines=1),
    )  # fmt: skip


MEDIAN = item("median of references", "references", nmse=2e-5)
WELL = ran(
    "q8_0",
    [item("r", "references", nmse=1e-5), MEDIAN, item("a", "words"),
     item("b", "hard", passed=False), item("c", "hard")],
    [group("references", 2, 2), group("words", 1, 1), group("hard", 1, 2, 0.5)],
)  # fmt: skip
WRONG = ran(
    "mix",
    [item("r", "references", passed=False), MEDIAN, item("a", "words", passed=False)],
    [group("references", 1, 2), group("words", 0, 1)],
)
REFUSED = Failure(title="canary", exit_code=19, message="made a wrong file", problems=("q4_0: x",),
                  next_step="do not", detail="tail")  # fmt: skip
UNSUPPORTED = DraftCheck(depth=1, head="healthy", state="unsupported", drafted=0, accepted=0,
                         wrong=0, share=0, bound=0.9, reason="no graph")  # fmt: skip


def test_exit_codes_tell_wrong_answers_from_what_could_not_be_asked() -> None:
    assert Result(canary="t", ran=(WELL,)).exit_code == 0
    assert Result(canary="t", ran=(WELL,), drafts=(UNSUPPORTED,)).passed
    failed = msgspec.structs.replace(UNSUPPORTED, state="failed")
    assert Result(canary="t", ran=(WELL,), drafts=(failed,)).exit_code == 14
    refused = Result(canary="t", ran=(WELL,), failures={"mix": REFUSED})
    assert refused.exit_code == 19
    wrong = Result(canary="t", ran=(WELL, WRONG), failures={"f16": REFUSED})
    assert wrong.exit_code == 14
    assert Result(canary="t").exit_code == 19, "nothing asked is nothing proved"
    assert worst_code([refused, wrong]) == 14
    assert worst_code([Result(canary="t", ran=(WELL,)), refused]) == 19
    assert worst_code([Result(canary="t", ran=(WELL,))]) == 0


def shown(result: Result, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(result_view(result), crop=False)
    return out.getvalue()


def test_a_person_sees_what_is_wrong_and_what_was_allowed() -> None:
    text = shown(Result(canary="toy", ran=(WELL, WRONG), drafts=(UNSUPPORTED,),
                        failures={"f16": REFUSED}))  # fmt: skip
    for words in (
        "toy failed", "1/2 (at least 50%)", "0/1 failed", "1e-05 <= 0.001", "no numbers", "0.25 s",
        "f16: made a wrong file", "q4_0: x", "mix words: a", "right a", "seen a", "unsupported",
        "no graph", "q8_0 hard: 1 wrong, allowed: why hard",
    ):  # fmt: skip
        assert words in text, words
    assert "hard: b" not in text, "what a rate allows is no failure"
    assert [one.name for one in wrong_items(WRONG)] == ["r", "a"]
    assert "toy passed" in shown(Result(canary="toy", ran=(WELL,)))


def test_a_person_sees_each_kind_of_fault_once_and_every_warning() -> None:
    drafts = tuple(
        msgspec.structs.replace(
            UNSUPPORTED,
            state="failed",
            depth=depth,
            accepted=9,
            drafted=9,
            log=logged("fault", 2661),
        )
        for depth in (1, 2)
    )
    warned = ran("f32", [], [group("log", 99, 99)], logged("warning"))
    silent = ran("q8_0", [], [group("log", 0, 0)], LogReport(lines=0))
    text = " ".join(
        shown(Result(canary="toy", ran=(warned, silent), drafts=drafts), width=500).split()
    )
    told = "draft decode error: {}line 12: E spec draft: x (so it is)"
    many = told.format("2661 times, the first time in ")
    assert f"- log of drafts of 1, healthy head and 1 more: {many}" in text
    assert f"! log of f32: {told.format('')}" in text
    assert "- log of q8_0: the server wrote nothing" in text
    assert "99/99" in text
    assert "0/0 failed" in text
    assert "changed" not in text


def test_junit_says_what_the_log_tells() -> None:
    faulty = ran("f32", [], [group("log", 98, 99)], logged("fault"))
    warned = ran("q8_0", [], [group("log", 99, 99)], logged("warning"))
    draft = msgspec.structs.replace(UNSUPPORTED, state="failed", log=logged("fault", 3))
    text = canaries_junit([Result(canary="toy", ran=(faulty, warned), drafts=(draft,))])
    one, other, last = (case for suite in JUnitXml.fromstring(text.encode()) for case in suite)
    ((failure,), (drafts,)) = (one.result, last.result)
    assert failure.message == "log failed"
    assert "98 of 99 right" in failure.text
    assert "log: 99 lines: 1 fault (draft decode error 1), 0 warnings" in failure.text
    assert "line 12: E spec draft: x" in failure.text
    assert other.result == []
    assert "draft decode error: line 12" in other.system_out
    assert drafts.message == "3 faults in the log"


def test_junit_fails_what_fails_and_skips_what_is_unsupported() -> None:
    text = canaries_junit([
        Result(canary="toy", ran=(WELL, WRONG), drafts=(UNSUPPORTED,), failures={"f16": REFUSED})
    ])  # fmt: skip
    cases = [case for suite in JUnitXml.fromstring(text.encode()) for case in suite]
    failed = {
        (case.classname.rpartition(".")[2], case.name)
        for case in cases
        if any(isinstance(result, FailureElement) for result in case.result)
    }
    assert failed == {
        ("f16", "start"), ("mix", "references: r"), ("mix", "words: a"),
        ("mix", "group references"), ("mix", "group words"),
    }  # fmt: skip
    skipped = [case for case in cases if any(isinstance(r, Skipped) for r in case.result)]
    assert [case.name for case in skipped] == ["depth 1, healthy head"]
    assert len(cases) == 1 + 5 + 3 + 3 + 2 + 1


def entry(**rest: Any) -> Canary:
    file = Shipped(file="m", sha256="0" * 64, bytes=1)
    return Canary(name="toy", architecture="toy", summary="x", model="m", suite="s",
                  files=(file,), **rest)  # fmt: skip


def test_forms_are_those_asked_for_that_a_canary_has() -> None:
    plain, mixed = entry(), entry(forms={"mix": FormRecord(), "f16": FormRecord()})
    assert chosen_forms(plain, (), named=True) == ("q8_0",)
    assert chosen_forms(mixed, (), named=False) == ("f16", "q8_0", "mix")
    assert chosen_forms(plain, (), named=True, exact=True) == ("f32", "q8_0")
    assert chosen_forms(plain, ("mix", "f32", "f32"), named=False) == ("f32",)
    assert chosen_forms(mixed, ("mix",), named=True) == ("mix",)
    with pytest.raises(UsageError, match="toy has no form mix"):
        chosen_forms(plain, ("mix",), named=True)


def test_a_build_is_a_folder_of_programs_or_has_them_in_bin(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/llama-server").touch()
    with pytest.raises(UsageError, match="holds no build") as caught:
        forms.programs(tmp_path)
    assert f"{tmp_path}/bin/llama-quantize is missing" in caught.value.problems
    assert len(caught.value.problems) == 3
    (tmp_path / "bin/llama-quantize").touch()
    assert forms.programs(tmp_path) == forms.programs(tmp_path / "bin")


def test_a_server_that_sees_no_gpu_is_not_asked_as_cuda(tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    server.write_text("#!/bin/sh\necho Available devices:; echo '  (none)'\n")
    server.chmod(0o755)
    with pytest.raises(HostError, match="sees no CUDA device"):
        forms.backend_flags(server, "cuda")
    server.write_text("#!/bin/sh\necho '  CUDA0: NVIDIA GB10 (1 MiB, 1 MiB free)'\n")
    assert forms.backend_flags(server, "cuda") == ()
    assert "none" in forms.backend_flags(Path("/nothing"), "cpu")


def test_options_name_what_the_rooms_know() -> None:
    option = next(param for param in derive_forms.params if param.name == "wanted")
    assert tuple(option.type.choices) == FORMS  # type: ignore[attr-defined]
    assert set(CACHES) == {"f32", "f16", "q8_0"}


def test_training_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_maker_commands, "_EXTRA", ("json", "no_such_module_here"))
    with pytest.raises(HostError) as caught:
        canary_maker_commands.train_canary.main(["toy", "--out", "x"], standalone_mode=False)
    assert caught.value.problems == ("the Python module no_such_module_here is missing",)
    assert caught.value.next_step == "pip install 'sparkbuild[canary]'"


def test_the_command_line_starts_without_anything_heavy() -> None:
    heavy = ("torch", "transformers", "numpy", "gguf", "httpx", "PIL", "junitparser", "msgspec")
    code = f"import sys, sparkbuild.cli\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
