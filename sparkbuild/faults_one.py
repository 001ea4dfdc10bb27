"""One fault: planted, the product run on it as a user runs it, taken out again, judged."""

from __future__ import annotations

import shutil
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sparkbuild
from sparkbuild import process
from sparkbuild.errors import SparkbuildError
from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.model import Fault, Found
from sparkbuild.faults.planters import PLANTERS
from sparkbuild.faults.verdict import NOT_JUDGED, TIMED_OUT, Ending, refusal, verdict

PATIENCE: Final = 3600.0
"""Seconds for one command of the product. All canaries take some minutes on two cores; a server
that does not end is waited for at every question."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A fault, where it may be planted, and where what is printed is kept."""

    fault: Fault
    place: Place
    log: Path


def product(
    arguments: tuple[str, ...], *, log: Path, environment: dict[str, str] | None = None
) -> Ending:
    """The sparkbuild that runs, in a process of its own, from ``/``; all that it says is kept."""
    package = Path(sparkbuild.__file__).parent.parent
    argv = [sys.executable, "-m", "sparkbuild", *arguments]
    env = process.environment(
        network=True, extra={"PYTHONPATH": str(package), "COLUMNS": "160", **(environment or {})}
    )
    with process.open_log(log, argv) as out:
        done = process.capture(argv, env=env, cwd=Path("/"), timeout=PATIENCE)
        out.write(f"{done.stdout}\n# standard error\n{done.stderr}\n")
        out.write(f"# exit status {done.returncode}\n")
    return Ending(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def run_fault(task: Task) -> Found:
    """Plant, ask, take out, judge; whatever keeps it from being planted is told as ``not run``."""
    fault, place = task.fault, task.place
    task.log.unlink(missing_ok=True)
    shutil.rmtree(place.scratch, ignore_errors=True)
    place.scratch.mkdir(parents=True)
    started = time.monotonic()
    try:
        with PLANTERS[type(fault.seed)](fault.seed, place) as planted:
            ready = time.monotonic()
            ending = product(planted.arguments, log=task.log, environment=planted.environment)
            ended = time.monotonic()
    except NotPlantedError as error:
        return not_run(fault, str(error), log=task.log, seconds=time.monotonic() - started)
    except (SparkbuildError, OSError, ValueError) as error:
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("a") as out:
            out.write("".join(traceback.format_exception(error)))
        reason = f"{type(error).__name__}: {error}"
        return not_run(fault, reason, log=task.log, seconds=time.monotonic() - started)
    finally:
        shutil.rmtree(place.scratch, ignore_errors=True)
    return _judged(task, planted, ending, (ready - started, ended - ready))


def not_run(fault: Fault, reason: str, *, log: Path | None = None, seconds: float = 0.0) -> Found:
    """What is told of a fault that nothing was asked about."""
    return Found(
        id=fault.id, kind=fault.kind, verdict="not run", stage=None, check="", message="",
        exit_code=None, command=(), planted_seconds=round(seconds, 3), seconds=0.0,
        log=str(log or ""), reason=reason,
    )  # fmt: skip


def _judged(task: Task, planted: Planted, ending: Ending, seconds: tuple[float, float]) -> Found:
    fault = task.fault
    found = refusal(ending, planted.stage)
    judged = verdict(fault, ending.exit_code, found)
    refused = judged not in {"missed", "not run"}
    reason = ""
    if ending.exit_code == TIMED_OUT:
        reason = f"no end within {PATIENCE:g} s"
    elif ending.exit_code in NOT_JUDGED:
        reason = found.message
    return Found(
        id=fault.id,
        kind=fault.kind,
        verdict=judged,
        stage=found.stage if refused else None,
        check=found.check if refused else "",
        message=found.message if ending.exit_code else "",
        exit_code=ending.exit_code,
        command=tuple(_short(argument, task.place) for argument in planted.arguments),
        planted_seconds=round(seconds[0], 3),
        seconds=round(seconds[1], 3),
        log=str(task.log),
        reason=reason,
    )


def _short(argument: str, place: Place) -> str:
    """An argument with the folders of the run as their names."""
    places = {"SCRATCH": place.scratch, "LANE": place.lane, "WORK": place.work}
    for name, folder in places.items():
        for spelled in (str(folder), str(folder.resolve())):
            argument = argument.replace(spelled, name)
    return argument
