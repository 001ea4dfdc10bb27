"""Run one step of a night as a person would: the product's commands, a time limit, one retry."""

from __future__ import annotations

import datetime as dt
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkbuild import process
from sparkbuild.errors import EXIT_INTERRUPTED, DiskFullError, HostError, PatchError
from sparkbuild.files import write_atomic
from sparkbuild.history.figures import figures_of
from sparkbuild.history.model import Figure, State
from sparkbuild.nightly.argv import Places, commands, model_of
from sparkbuild.nightly.judge import MACHINE_FAULTS
from sparkbuild.nightly.model import Outcome, Step
from sparkbuild.nightly.plan import Plan
from sparkbuild.nightly.read import Told, document_in, read

_POLL: Final = 0.1
_GRACE: Final = 60.0
"""Seconds that a command has to end its own children: a server on GB10 must not be killed hard."""

_TAIL: Final = 4000
"""Characters of a log that stand for the message where a command printed no JSON."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended: ``code`` None where it was ended for its time."""

    code: int | None
    seconds: float


def run_step(step: Step, plan: Plan, places: Places, base: str, wheels: Mapping[str, str],
             *, pause: float = 30.0) -> Outcome:  # fmt: skip
    """Run a step, once more where the machine proved at fault; ``pause`` is in seconds.

    Raises KeyboardInterrupt where the night itself is cancelled.
    """
    first = _attempt(step, plan, places, base, wheels)
    if first.state != "failed" or first.exit_code not in MACHINE_FAULTS:
        return first
    time.sleep(pause)
    second = _attempt(step, plan, places, base, wheels)
    return msgspec.structs.replace(
        second,
        attempts=2,
        first_message=first.message,
        started=first.started,
        seconds=first.seconds + second.seconds,
    )


def not_run(step: Step, why: str, *, code: int | None = None) -> Outcome:
    """A step that was asked for and did not run, which is a failure as any other."""
    return Outcome(
        step=step, state="did not run", exit_code=code, started=now(), seconds=0.0, message=why
    )


def now() -> str:
    """UTC, ISO 8601."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _attempt(
    step: Step, plan: Plan, places: Places, base: str, wheels: Mapping[str, str]
) -> Outcome:
    lacks = _lacks(step, plan, places)
    if lacks is not None:
        return lacks
    started, log = now(), places.night
    seconds, told = 0.0, Told()
    state: State = "passed"
    code: int | None = 0
    document: dict[str, Any] | None = None
    deadline = time.monotonic() + step.minutes * 60
    _clear(step, places)
    for number, argv in enumerate(commands(step, plan, places, base, wheels), 1):
        log = places.night / "logs" / f"{step.id.replace(':', '_')}-{number}.log"
        ended = command(argv, log, deadline)
        seconds += ended.seconds
        text = log.read_text(encoding="utf-8", errors="replace")
        document = document_in(text)
        told = read(step.kind, document or {})
        state, code, message = _verdict(step, ended, told, document, text)
        if state != "passed":
            told = _with_message(told, message)
            break
    return _outcome(step, state, code, told, started, seconds, log, document, places)


def command(argv: Sequence[str], log: Path, deadline: float) -> Ended:
    """Run one command until it ends or its time is over; on Ctrl-C it is ended first."""
    started = time.monotonic()
    child = process.start(argv, log=log, env=process.environment(network=True))
    try:
        while child.poll() is None:
            if time.monotonic() > deadline:
                process.stop_session(child, grace=_GRACE)
                return Ended(code=None, seconds=time.monotonic() - started)
            time.sleep(_POLL)
    except BaseException:
        process.stop_session(child, grace=_GRACE)
        raise
    return Ended(code=child.returncode, seconds=time.monotonic() - started)


def _verdict(
    step: Step, ended: Ended, told: Told, document: Mapping[str, Any] | None, text: str
) -> tuple[State, int | None, str]:
    """State, exit code and message of a command: a zero alone is no proof, its JSON must agree."""
    code = ended.code
    if code is None:
        return "timed out", None, f"no end within {step.minutes:g} minutes"
    if code in {EXIT_INTERRUPTED, -signal.SIGINT, -signal.SIGTERM}:
        return "cancelled", code, told.wrong or "it was interrupted"
    if step.kind == "patches" and document and not told.wrong and code == PatchError.exit_code:
        code = 0  # an offset on a newer base is no fault; a refresh takes it away
    wrong = told.wrong
    if code == -signal.SIGKILL:
        wrong = "it was killed (SIGKILL): out of memory, or by a person"
    elif code != 0 and not wrong:
        wrong = " ".join(text[-_TAIL:].strip().splitlines()[-3:])
    elif code == 0 and document is None:
        wrong = "it ended with 0 and printed no JSON: nothing shows what it did"
    failed = bool(wrong) or code != 0
    return ("failed" if failed else "passed"), code, wrong


def _with_message(told: Told, message: str) -> Told:
    return replace(told, wrong=message)


def _outcome(  # noqa: PLR0913, PLR0917 - what came together in one attempt
    step: Step,
    state: State,
    code: int | None,
    told: Told,
    started: str,
    seconds: float,
    log: Path,
    document: Mapping[str, Any] | None,
    places: Places,
) -> Outcome:
    kept = ""
    if document is not None:
        file = log.with_suffix(".json")
        write_atomic(file, msgspec.json.format(msgspec.json.encode(document), indent=2))
        kept = str(file)
    wheel = _wheel(step, told, places) if state == "passed" else ""
    figures = _figures(document, wheel) if state == "passed" and document else ()
    if places.cache is not None:
        # A cache knows the pinned base by heart and a newer one not at all.
        figures = tuple(one for one in figures if one.name != "build.seconds")
    return Outcome(
        step=step,
        state=state,
        exit_code=code,
        started=started,
        seconds=round(seconds, 3),
        toolchain=told.toolchain or step.toolkit,
        source=told.source,
        key=told.key,
        stage=told.stage if state != "passed" else "",
        check=told.check if state != "passed" else "",
        message=told.wrong if state != "passed" else told.note,
        document=kept,
        log=str(log),
        wheel=wheel,
        figures=figures,
        machine=dict(told.machine or {}),
        evidence=told.evidence,
    )


def _figures(document: Mapping[str, Any], wheel: str) -> tuple[Figure, ...]:
    """What a passed command measured, with what smoke counted beside its report."""
    checks = document.get("smoke_checks") or ()
    places = [Path(one) for check in checks[:1] for one in check["evidence"]]
    smoke = next((one for one in places if one.name == "canaries.json" and one.is_file()), None)
    return figures_of(
        msgspec.json.encode(document),
        smoke=smoke.read_bytes() if smoke else None,
        wheel_bytes=Path(wheel).stat().st_size if wheel else None,
    )


def _wheel(step: Step, told: Told, places: Places) -> str:
    """The wheel in the step's own folder, beside which its report and signatures are."""
    if step.kind != "make" or not told.wheel:
        return ""
    wheel = places.out(step) / Path(told.wheel).name
    return str(wheel) if wheel.is_file() else ""


def _lacks(step: Step, plan: Plan, places: Places) -> Outcome | None:
    """Why a step cannot even begin: no room on the disk, or no such model."""
    least = plan.limits.free_gigabytes * 1e9
    place = places.work or places.night
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < least:
        why = f"{free / 1e9:.1f} GB are free at {place}, the plan wants {least / 1e9:g}"
        return not_run(step, why, code=DiskFullError.exit_code)
    if step.kind == "smoke":
        model = model_of(step, plan)
        files = [places.home / name for name in (model.path, model.mmproj) if name]
        gone = [str(file) for file in files if not file.is_file()]
        if gone:
            why = f"the plan's model {model.name} is not there: {', '.join(gone)}"
            return not_run(step, why, code=HostError.exit_code)
    return None


def _clear(step: Step, places: Places) -> None:
    """Take away what a killed attempt left and a command would refuse to write over."""
    if step.kind == "refresh":
        shutil.rmtree(places.refresh(step), ignore_errors=True)
