"""One run of the operator tests: a small real program stands for upstream's."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sparkbuild import process
from sparkbuild.errors import HostError
from sparkbuild.smoke.ops.console import Case
from sparkbuild.smoke.ops.session import Ran, Session

Children = Callable[[], list[psutil.Process]]
CASE = """printf '[runs ADD f32 f32]   ADD(ne=%s): OK\\n' 1; """
END = """echo '1/1 backends passed'; echo OK"""
Runs = Callable[..., Ran]


@pytest.fixture
def runs(tmp_path: Path, children: Children) -> Iterator[Runs]:
    def run(script: str, *, silence: float = 60, seconds: float = 60) -> Ran:
        program = tmp_path / "test-backend-ops"
        program.write_text(f"#!/bin/sh\necho 'Backend 1/1: CPU'\n{script}\n")
        program.chmod(0o755)
        session = Session(
            program=program,
            environment=process.environment(),
            log=tmp_path / "logs/cpu.log",
            silence=silence,
            deadline=time.monotonic() + seconds,
        )
        heard: list[Case] = []
        ran = session.run(("-b", "CPU"), heard.append)
        assert tuple(heard) == ran.cases
        assert (tmp_path / "logs/cpu-01.log").read_text().startswith("$ ")
        return ran

    yield run
    assert not children()


def test_a_run_that_comes_to_its_end_has_its_cases(runs: Runs) -> None:
    ran = runs(CASE + END)
    assert [case.name for case in ran.cases] == ["ADD(ne=1)"]
    assert (ran.devices, ran.crash) == (("CPU",), None)


def test_a_run_that_stops_short_of_its_end_is_no_pass(runs: Runs) -> None:
    crash = runs(CASE + "exit 0").crash
    assert crash is not None
    assert crash.kind == "exit status 0 before its end"


def test_a_signal_has_its_name_and_what_was_running(runs: Runs) -> None:
    crash = runs(CASE + "printf '[runs MUL_MAT q4_K f32] '; kill -SEGV $$").crash
    assert crash is not None
    assert (crash.kind, crash.running) == ("SIGSEGV", "MUL_MAT q4_K f32")


def test_a_case_that_never_ends_is_ended_and_named(runs: Runs) -> None:
    crash = runs(CASE + "printf '[runs TOP_K f32] '; sleep 600", silence=1).crash
    assert crash is not None
    assert (crash.kind, crash.running) == ("no case ended for 1 s", "TOP_K f32")
    assert not crash.over


def test_the_suites_own_time_is_no_crash(runs: Runs) -> None:
    crash = runs(f"while :; do {CASE} sleep 0.1; done", seconds=1).crash
    assert crash is not None
    assert crash.over


def test_a_kill_from_outside_says_nothing_about_the_build(runs: Runs) -> None:
    with pytest.raises(HostError, match="not by sparkbuild"):
        runs(CASE + "kill -KILL $$")
