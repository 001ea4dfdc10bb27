"""The step that asks upstream: which release is tried tonight, kept for a night that goes on."""

from __future__ import annotations

import time

import msgspec

from sparkbuild.errors import SourceUnavailableError
from sparkbuild.files import write_atomic
from sparkbuild.nightly.model import Outcome, Release, Step
from sparkbuild.nightly.steps import variants
from sparkbuild.nightly_order import State, newest
from sparkbuild.nightly_step import now
from sparkbuild.nightly_upstream import ask, renewed_recipes


def ask_upstream(step: Step, state: State) -> Outcome:
    """Ask upstream, once more where it did not answer; keep which release is tried."""
    started, clock, attempts, message = now(), time.monotonic(), 0, ""
    while attempts < 2:
        attempts += 1
        try:
            release = _chosen(state)
        except SourceUnavailableError as error:
            if attempts == 1:
                message = "; ".join([error.message, *error.problems])
                time.sleep(state.order.pause)
            continue
        write_atomic(state.folder / "candidate.json", msgspec.json.encode(release))
        state.release = release
        seconds = time.monotonic() - clock
        return Outcome(step=step, state="passed", exit_code=0, started=started, seconds=seconds,
                       attempts=attempts, first_message=message)  # fmt: skip
    return Outcome(
        step=step, state="failed", exit_code=SourceUnavailableError.exit_code, started=started,
        seconds=time.monotonic() - clock, stage="upstream", message=message, attempts=attempts,
        first_message=message,
    )  # fmt: skip


def _chosen(state: State) -> Release | None:
    order = state.order
    upstream = order.plan.upstream
    assert upstream is not None  # noqa: S101 - the step is there because it is
    pins = order.pins
    pinned = newest({name: pins[name] for name in variants(order.plan, "candidate")})
    asked = ask(upstream, order.home, pinned=pinned)
    for text in asked.moved:
        state.note(text)
    for tag in asked.chosen.future:
        state.note(f"upstream's {tag} is of a time to come: a clock is wrong; it is not taken")
    state.note(f"upstream: {asked.chosen.reason}")
    if asked.chosen.release is not None:
        renewed = state.folder / "recipes"
        renewed_recipes(order.recipes, renewed, asked.chosen.release, upstream)
    return asked.chosen.release


def kept_release(state: State) -> Release | None:
    """The release that was chosen before the night was killed; it is not chosen again."""
    text = (state.folder / "candidate.json").read_bytes()
    return msgspec.json.decode(text, type=Release | None)
