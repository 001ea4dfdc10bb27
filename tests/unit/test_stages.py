"""A stage is reused only while its inputs, its files and its code are what they were."""

from pathlib import Path

import msgspec
import pytest

from sparkbuild import stages
from sparkbuild.errors import BuildError, DiskFullError, InternalError, SparkbuildError
from sparkbuild.report.model import StageReport
from sparkbuild.stages import Outcome, Runner


class Result(msgspec.Struct, frozen=True, kw_only=True):
    value: int
    seconds: float = 0
    """As a sum of nothing is, which comes back as 0.0."""


class Watcher:
    def __init__(self) -> None:
        self.events: list[str] = []

    def started(self, stage: str) -> None:
        self.events.append(f"started {stage}")

    def progress(self, done: int, total: int, text: str) -> None:
        self.events.append(f"progress {done}/{total} {text}")

    def note(self, text: str) -> None:
        self.events.append(f"note {text}")

    def finished(self, report: StageReport) -> None:
        self.events.append(f"{report.name} {report.state}")


class Bench:
    """One resumable stage that writes a file and counts its runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output = root / "output"
        self.runs = 0

    def go(self, **inputs: str) -> tuple[Result, StageReport]:
        runner = Runner(Watcher())
        result = runner.resumable(
            "build",
            self.root / "stages" / "build.json",
            Result,
            self._action,
            lambda result: Outcome(summary=f"value {result.value}", outputs=(self.output,)),
            inputs=inputs or {"key": "a"},
        )
        return result, runner.reports[0]

    def _action(self) -> Result:
        self.runs += 1
        self.output.write_text(str(self.runs))
        return Result(value=self.runs)


def test_a_finished_stage_is_reused_and_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    _, first = bench.go()
    result, second = bench.go()
    assert (result.value, bench.runs) == (1, 1)
    assert (first.state, second.state) == ("done", "reused")
    assert second.outputs == first.outputs
    assert second.result == first.result
    assert bench.go(key="other")[1].result != first.result
    assert second.summary == "value 1"


def test_other_inputs_an_edited_file_or_a_lost_file_run_it_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.go()
    bench.go(key="b")
    assert bench.runs == 2
    bench.output.write_text("edited")
    bench.go(key="b")
    assert bench.runs == 3
    bench.output.unlink()
    assert bench.go(key="b")[1].state == "done"
    assert bench.runs == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": 99}', "\0"])
def test_a_damaged_record_is_not_believed(tmp_path: Path, damage: str) -> None:
    bench = Bench(tmp_path)
    bench.go()
    (tmp_path / "stages" / "build.json").write_text(damage)
    assert bench.go()[1].state == "done"
    assert bench.runs == 2


def test_changed_code_runs_the_stage_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    bench.go()
    monkeypatch.setattr(stages, "code_digest", lambda stage: "other")
    bench.go()
    assert bench.runs == 2
    monkeypatch.undo()
    digests = {stage: stages.code_digest(stage) for stage in stages.STAGES}
    assert digests["configure"] == digests["build"] == digests["inspect"]
    assert len(set(digests.values())) == len(stages.STAGES) - 2


def test_a_failed_run_leaves_no_record_of_an_older_success(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.go()
    runner = Runner(Watcher())

    def fail() -> Result:
        raise BuildError("no", next_step="x")

    for _ in range(2):
        with pytest.raises(BuildError):
            runner.resumable(
                "build", tmp_path / "stages" / "build.json", Result, fail,
                lambda result: Outcome(summary=""), inputs={"key": "new"},
            )  # fmt: skip
    assert not (tmp_path / "stages" / "build.json").exists()
    assert bench.go()[1].state == "done"


@pytest.mark.parametrize(
    ("raised", "expected", "code"),
    [
        (BuildError("no"), BuildError, 12),
        (OSError(28, "No space left on device", "/x"), DiskFullError, 17),
        (ValueError("oops"), InternalError, 70),
    ],
)
def test_every_exception_becomes_a_report(
    raised: Exception, expected: type[SparkbuildError], code: int
) -> None:
    watcher = Watcher()
    runner = Runner(watcher)

    def fail() -> Result:
        raise raised

    with pytest.raises(expected):
        runner.always("toolkit", fail, lambda result: Outcome(summary=""), inputs={})
    report = runner.reports[0]
    assert report.state == "failed"
    assert report.failure is not None
    assert report.failure.exit_code == code
    assert watcher.events == ["started toolkit", "toolkit failed"]
    assert [stage.name for stage in runner.not_reached()] == list(stages.STAGES[1:])
    if expected is InternalError:
        assert "oops" in report.failure.detail


def test_an_interrupt_is_reported_and_passed_on() -> None:
    runner = Runner(Watcher())

    def stop() -> Result:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.always("toolkit", stop, lambda result: Outcome(summary=""), inputs={})
    assert runner.reports[0].summary == "interrupted"
    assert runner.reports[0].failure is not None
    assert runner.reports[0].failure.exit_code == 130
