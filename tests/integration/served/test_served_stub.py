"""A whole suite against a server with one fault: the right check finds it, and no other does."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from junitparser import JUnitXml
from rich.console import Console

from sparkbuild import smoke_served
from sparkbuild.errors import UsageError
from sparkbuild.files import sha256_file
from sparkbuild.llama.server import Limits
from sparkbuild.model.finding import Finding
from sparkbuild.report.model import StageReport
from sparkbuild.report.served import Served, served_junit, served_view
from sparkbuild.smoke import tiny
from sparkbuild.smoke.served import arm
from sparkbuild.smoke.served.before import Fits
from sparkbuild.smoke.suite import load_suite as load_tiny
from sparkbuild.smoke_served import Request, exit_code, run_served

DATA = Path(__file__).parents[2] / "data/served"
FINE = Finding(name="memory", state="ok", expected="little", found="less")
Run = Callable[..., Served]


class Watcher:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.ended: list[StageReport] = []

    def started(self, stage: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finished(self, report: StageReport) -> None:
        self.ended.append(report)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.ensure(tmp_path_factory.mktemp("tiny"), sha256=load_tiny("tiny")[0].model.sha256)


@pytest.fixture
def run(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    children: Callable[[], list[psutil.Process]],
) -> Any:
    """The function ``run(fault, **changes of the request)``; no server is left after any run."""
    # A folder with a script has no libraries, and the tiny model no NextN block.
    monkeypatch.setattr(smoke_served, "read_build", lambda _: None)
    monkeypatch.setattr(
        smoke_served, "fits", lambda *_, **__: Fits(findings=(), checks=1, memory=FINE)
    )

    def ran(fault: str, **changes: Any) -> Served:
        program = tmp_path / "bin/llama-server"
        program.parent.mkdir(exist_ok=True)
        script = DATA / "fake_server.py"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {script} {fault} "$@"\n')
        program.chmod(0o755)
        request = {
            "build": tmp_path, "model": model, "mmproj": None, "suite": DATA / "stub.toml",
            "root": tmp_path / "served", "live": Watcher(), **changes,
        }  # fmt: skip
        found = run_served(Request(**request))
        assert children() == []
        assert not (tmp_path / "served/stub/server").exists()
        return found

    return ran


def shown(found: Served) -> str:
    screen = Console(width=200, file=io.StringIO())
    screen.print(served_view(found))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def failed(found: Served) -> set[tuple[str, str]]:
    return {(one.way, one.group) for one in found.failed}


def test_a_healthy_server_passes_every_check(run: Run, tmp_path: Path) -> None:
    live = Watcher()
    found = run("healthy", live=live)
    assert failed(found) == set()
    assert (found.passed, exit_code(found)) == (True, 0)
    assert [one.name for one in live.ended] == [
        "before the start", "first", "flash attention off", "drafts, depth 2",
    ]  # fmt: skip
    groups = {one.group for one in found.checks}
    assert groups == {
        "start", "alive", "answers: languages", "answers: arithmetic", "long prompt",
        "the same again", "at the same time", "long run", "numbers", "drafts", "speed", "after",
        "log",
    }  # fmt: skip
    assert found.build == "b11434, commit 0123456789ab"
    junit = tmp_path / "x.xml"
    junit.write_text(served_junit(found))
    read = JUnitXml.fromfile(str(junit))
    assert (read.tests, read.failures, read.skipped) == (len(found.checks) + 1, 0, 0)


def test_what_was_asked_is_kept_with_its_digests(run: Run) -> None:
    found = run("healthy")
    folder = Path(found.folder)
    kept = {one.file: one.sha256 for one in found.kept}
    assert set(kept) == {
        "answers.jsonl", "prompts/needle-12.txt", "prompts/needle-88.txt", "prompts/numbers-1.txt",
    }  # fmt: skip
    assert {file: sha256_file(folder / file) for file in kept} == kept
    needle = next(one for one in found.checks if one.name == "needle at 12%")
    assert kept["prompts/needle-12.txt"] in needle.found
    assert (folder / "report.json").is_file()
    assert '"reasoning_effort": "low"' in (folder / "answers.jsonl").read_text()


@pytest.mark.parametrize(
    ("fault", "groups"),
    [
        ("sees", {"alive"}),
        ("other-build", {"alive"}),
        ("wrong", {"answers: languages", "at the same time"}),
        ("thinks", {"no answer", "at the same time"}),
        ("garbled", {"garbled", "at the same time"}),
        ("loops", {"garbled", "at the same time"}),
        ("forgets", {"long prompt"}),
        ("cuts-prompts", {"long prompt"}),
        ("wavers", {"the same again", "drafts"}),
        ("company", {"at the same time"}),
        ("nan", {"no numbers", "numbers"}),
        ("short-run", {"long run"}),
        ("kernel", {"numbers"}),
        ("parts", {"numbers"}),
        ("fast", {"speed"}),
        ("slow", {"speed"}),
        ("no-counters", {"drafts"}),
        ("blind", {"drafts"}),
        ("logs", {"log"}),
        ("deaf", {"after"}),
        ("no-start", {"start", "log"}),
    ],
)
def test_a_fault_is_found_by_the_check_that_is_there_for_it(
    run: Run, fault: str, groups: set[str], tmp_path: Path
) -> None:
    suite = DATA / "stub.toml"
    if "drafts" not in groups:  # a start less
        text = suite.read_text()
        suite = tmp_path / "stub.toml"
        suite.write_text(text[: text.index("[drafts]")])
    found = run(fault, suite=suite)
    assert {group for _, group in failed(found)} == groups
    assert exit_code(found) == 14
    assert all(one.likely and one.next_step and one.evidence for one in found.failed)
    assert "likely: " in shown(found)


def test_a_server_that_dies_is_asked_no_more(run: Run) -> None:
    found = run("dies")
    assert ("first", "alive") in failed(found)
    told = [one.found for one in found.failed if one.way == "first"]
    assert "killed by SIGSEGV" in told[0]
    assert sum("not asked, the server has ended" in text for text in told) > 5
    assert any("it ended by itself" in text for text in told)


def test_an_error_of_the_server_is_a_finding(run: Run) -> None:
    found = run("error-500")
    assert "answered 500: " in found.failed[0].found


def test_what_a_build_cannot_draft_is_named_and_counted(run: Run, tmp_path: Path) -> None:
    found = run("no-graph")
    assert failed(found) == set()
    (one,) = found.unsupported
    assert (one.way, one.found) == ("drafts, depth 2", "NextN graph not implemented yet")
    assert exit_code(found) == 0
    (tmp_path / "x.xml").write_text(served_junit(found))
    assert JUnitXml.fromfile(str(tmp_path / "x.xml")).skipped == 1
    assert "unsupported: NextN graph not implemented yet" in shown(found)


def test_without_room_in_memory_nothing_more_is_started(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(start=5, request=5, stop=1, memory=0, missing=0, floor=1 << 60, settle=0.1)
    monkeypatch.setattr(arm, "_limits", lambda _: limits)
    found = run("healthy")
    told = [(one.way, one.group, one.found[:11]) for one in found.failed if one.group != "log"]
    assert [group for _, group, _ in told] == ["memory guard"] * 3
    assert [text for *_, text in told][1:] == ["not started"] * 2
    assert not list(Path(found.folder).glob("logs/*"))


def test_nothing_is_started_where_the_model_does_not_fit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Finding(name="memory", state="fault", expected="at most 1", found="2", next_step="x")
    fits = Fits(findings=(fault,), checks=3, memory=fault)
    monkeypatch.setattr(smoke_served, "fits", lambda *_, **__: fits)
    found = run("healthy")
    assert (found.checks, exit_code(found)) == ((), 20)
    assert not (Path(found.folder) / "logs").exists()
    assert "nothing was started" in shown(found)
    assert 'failures="1"' in served_junit(found)


def test_a_context_beyond_the_suites_limit_is_refused_before_anything_is_read(run: Run) -> None:
    with pytest.raises(UsageError, match="a context of 1,048,576 tokens") as error:
        run("healthy", context=1 << 20, model=Path("/nowhere.gguf"))
    assert "small enough" in error.value.problems[0]
    assert error.value.next_step.startswith("--ctx-size 2048")
