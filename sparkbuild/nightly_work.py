"""One night from its plan to its verdict: killed anywhere, the next call goes on with it."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Final

from msgspec import structs

from sparkbuild.errors import HostError
from sparkbuild.files import exclusive, sha256_file, write_atomic
from sparkbuild.history.model import Blame, Night, Run
from sparkbuild.history.store import History
from sparkbuild.nightly.alarm import CLOCKS_DIFFER, when
from sparkbuild.nightly.judge import causes, judge
from sparkbuild.nightly.model import Judgement, Outcome, Step
from sparkbuild.nightly.steps import UPSTREAM, steps
from sparkbuild.nightly_fresh import compared, forget, slower
from sparkbuild.nightly_keep import Records, keep, keep_troubles
from sparkbuild.nightly_order import Ended, Order, State, places_of, product_digest
from sparkbuild.nightly_release import ask_upstream, kept_release
from sparkbuild.nightly_step import not_run, now, run_step
from sparkbuild.stages import Observer

_CLOCK: Final = 120.0
"""Seconds by which the two clocks may part within a step: a night's NTP corrections are below."""


def run_night(order: Order, live: Observer) -> Ended:
    """Run the plan, or go on with a night that was killed.

    Raises BusyError where another nightly runs on this machine, KeyboardInterrupt where it is
    cancelled (the same command then goes on), HistoryError, DiskFullError.
    """
    _openable(order.lock)
    with exclusive(order.lock, what="the nightly of this machine", wait=0.5):
        history = History(order.root)
        state = _begun(order, history, live)
        for text in history.notes:
            state.note(text)
        for step in steps(order.plan):
            if _asked(step, state):
                _step(step, state)
        return _end(state)


def _openable(lock: Path) -> None:
    """Raise HostError where the lock cannot be opened: another user's, or no such folder."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise HostError(
            f"the lock of this machine's nightlies cannot be opened: {error.strerror}",
            evidence=[lock],
            next_step="run nightlies as the user who owns it, or name another: --lock FILE",
        ) from error


def _begun(order: Order, history: History, live: Observer) -> State:
    """The night to go on with, or a new one; one that nobody went on with in time is closed."""
    plan = sha256_file(order.plan_file)
    product = product_digest(order.recipes)
    moment = dt.datetime.now(dt.UTC)
    notes = []
    for known in history.nights(last=30):
        if when(known.started) > moment + CLOCKS_DIFFER:
            notes.append(f"night {known.id} is dated {known.started}, which is to come: a clock "
                         "was set back")  # fmt: skip
        if known.state != "running":
            continue
        age = abs((moment - when(known.started)).total_seconds()) / 3600
        same = known.plan == plan and known.product == product
        if same and age <= order.plan.limits.resume_hours:
            state = _state(order, history, live, known)
            state.notes.extend(known.notes)
            state.note(f"night {known.id} goes on: it was ended before its time")
            return state
        _abandon(order, history, live, known)
        notes.append(f"night {known.id} was not gone on with, and is red")
    name = f"{moment:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    night = Night(
        id=name,
        started=now(),
        ended=None,
        plan=plan,
        state="running",
        blame="nothing",
        reason="it runs",
        base=order.pin_name,
        candidate="",
        product=product,
    )
    state = _state(order, history, live, night)
    for text in notes:
        state.note(text)
    write_atomic(state.folder / "plan.toml", order.plan_file.read_bytes())
    history.night(night)
    return state


def _state(order: Order, history: History, live: Observer, night: Night) -> State:
    folder = order.home / night.id
    folder.mkdir(parents=True, exist_ok=True)
    return State(order=order, history=history, night=night, folder=folder, live=live)


def _abandon(order: Order, history: History, live: Observer, night: Night) -> None:
    """Close a night that was killed for good: what it did not come to is a failure."""
    state = _state(order, history, live, night)
    records = Records(state.folder)
    done = [known for step in steps(order.plan) if (known := records.read(step)) is not None]
    missing = [step.id for step in steps(order.plan) if step.id not in {x.step.id for x in done}]
    first = missing[0] if missing else "its end"
    reason = (
        f"it was ended by force before {first} and not gone on with in time, or plan or sparkbuild "
        f"are others now: {len(missing)} steps did not run"
    )
    closed = structs.replace(
        night, ended=night.ended or night.started, state="red", blame="machine", reason=reason
    )
    history.night(closed)


def _asked(step: Step, state: State) -> bool:
    """Whether a step is part of this night: nothing is built of a newer base where there is none.

    Where upstream did not answer, its steps stay: they are failures that did not run.
    """
    if step.role == "control" or step.id == UPSTREAM:
        return True
    upstream = next(one for one in state.outcomes if one.step.id == UPSTREAM)
    return state.release is not None or not upstream.passed


def _step(step: Step, state: State) -> None:
    """Take what a step came to before, or run it; either way it is in the history after."""
    records = Records(state.folder)
    state.live.started(step.id)
    outcome = records.final(step)
    wall, clock = time.time(), time.monotonic()
    if outcome is None:
        try:
            outcome = ask_upstream(step, state) if step.id == UPSTREAM else _run(step, state)
        except KeyboardInterrupt:
            records.write(
                Outcome(step=step, state="cancelled", exit_code=None, started=now(), seconds=0.0,
                        message="the night was interrupted")
            )  # fmt: skip
            raise
        records.write(outcome)
    elif step.id == UPSTREAM:
        state.release = kept_release(state)
    parted = (time.time() - wall) - (time.monotonic() - clock)
    if abs(parted) > _CLOCK:
        state.note(f"the clock jumped by {parted:.0f} s during {step.id}; durations are not of it")
    state.outcomes.append(outcome)
    state.runs.append(keep(state.history, state.night.id, outcome, _base(step, state)))
    if not outcome.passed:
        state.live.note(f"{step.id}: {outcome.state}: {outcome.message}")


def _base(step: Step, state: State) -> str:
    if step.role == "candidate":
        return state.release.tag if state.release else ""
    build = state.order.pins.get(step.variant)
    return state.night.base if build is None else f"b{build}"


def _run(step: Step, state: State) -> Outcome:
    bad = [one.step.id for one in state.outcomes if one.step.id in step.needs and not one.passed]
    bad += [name for name in step.needs if name not in {one.step.id for one in state.outcomes}]
    if bad:
        return not_run(step, f"it needs {', '.join(bad)}")
    if step.kind == "make":
        forget(state.history, state.order.work, step, state.folder)
    base = state.release.tag if state.release else "pin"
    places, plan = places_of(state), state.order.plan
    outcome = run_step(step, plan, places, base, state.wheels, pause=state.order.pause)
    if step.kind == "refresh" and outcome.state == "failed":
        said = [one.message for one in state.outcomes if _checks(one.step, step) and one.message]
        outcome = structs.replace(outcome, message="; ".join([outcome.message, *said]))
    return outcome


def _checks(one: Step, refresh: Step) -> bool:
    """Whether a step looked at the patches that another one carries: it knows which hunk."""
    return one.kind == "patches" and one.variant == refresh.variant


def _compare(state: State) -> None:
    """Figures of the newer base against the control's: a slow night is a note, a second a fault."""
    for run, judged in list(compared(state.history, state.runs, state.night.id)):
        for one in judged:
            if one.state == "note":
                state.note(f"{run.variant} {run.toolchain}: {one.text}")
        outcome = slower(run, judged)
        if outcome is not None:
            records = Records(state.folder)
            outcome = records.read(outcome.step) or outcome
            records.write(outcome)
            state.outcomes.append(outcome)
            state.runs.append(
                keep(state.history, state.night.id, outcome, _base(outcome.step, state))
            )


def _end(state: State) -> Ended:
    _compare(state)
    verdict = _verdict(state)
    published = [
        Path(wheel).name
        for one in state.outcomes
        if one.step.kind == "publish" and one.passed
        for name, wheel in state.wheels.items()
        if name in one.step.needs
    ]
    night = structs.replace(
        state.night,
        ended=now(),
        state=verdict.state,
        blame=verdict.blame,
        reason=verdict.reason,
        candidate=state.release.tag if state.release else "",
        published=tuple(published),
        notes=tuple(state.notes),
    )
    troubles = keep_troubles(
        state.history, _telling(state), night=night.id, blames=_blames(state), now=now()
    )
    state.history.night(night)
    _prune(state)
    return Ended(
        night=night,
        runs=tuple(state.runs),
        troubles=troubles,
        folder=state.folder,
        release=state.release,
        outcomes=tuple(state.outcomes),
    )


def _telling(state: State) -> list[Run]:
    """Runs that say something of a fault: not those that another failure kept from running."""
    roots = {one.step.id for one in causes([one for one in state.outcomes if not one.passed])}
    return [
        run
        for run, one in zip(state.runs, state.outcomes, strict=True)
        if one.passed or one.step.id in roots
    ]


def _prune(state: State) -> None:
    """Take away the oldest nights' wheels and logs; a night that still runs stays."""
    home = state.order.home
    running = {one.id for one in state.history.nights() if one.state == "running"}
    known = {one.id for one in state.history.nights()} - running
    folders = sorted(one for one in home.iterdir() if one.is_dir() and one.name in known)
    for folder in folders[: -state.order.plan.limits.keep_nights]:
        shutil.rmtree(folder, ignore_errors=True)


def _changed(state: State) -> bool:
    """Whether sparkbuild or its recipes are others than on the last good night."""
    good = [one for one in state.history.nights(last=60) if one.state == "green"]
    return bool(good) and good[-1].product != state.night.product


def _verdict(state: State) -> Judgement:
    return judge(state.outcomes, changed=_changed(state), patched=state.order.patched)


def _blames(state: State) -> dict[str, Blame]:
    """By run, whom a failure points to if it were the only one of the night."""
    well = [one for one in state.outcomes if one.passed]
    changed, patched = _changed(state), state.order.patched
    return {
        run.id: judge([*well, one], changed=changed, patched=patched).blame
        for run, one in zip(state.runs, state.outcomes, strict=True)
        if not one.passed
    }
