"""One record for each fault: opened once, updated while it lasts, closed when it is cured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from sparkbuild.files import digest_of
from sparkbuild.history.model import Blame, Run, Trouble

AGAIN: Final = ".again"
"""In a run's id: its step was run once more, in a night that was gone on with."""

KEPT_NIGHTS: Final = 60
"""Nights that a record names; two months say enough of a fault that lasts."""


def key_of(run: Run) -> str:
    """What makes two failures the same fault: never the message, which has paths and times."""
    return digest_of({"cell": cell_of(run), "stage": run.stage, "check": run.check})[:32]


def title_of(run: Run) -> str:
    """A fault's name for a person."""
    who = " ".join(part for part in (run.variant, run.toolchain) if part)
    where = " ".join(part for part in (run.stage, run.check) if part) or run.state
    base = "pinned base" if run.role == "control" else "newer base"
    return f"{f'{run.what} {who}'.strip()}: {where} ({base})"


def updated(
    known: Iterable[Trouble],
    runs: Sequence[Run],
    *,
    night: str,
    blames: Mapping[str, Blame],
    now: str,
) -> tuple[Trouble, ...]:
    """Every record that this night changes: opened, opened again, updated or closed.

    ``blames`` tells by run whom a failure alone points to; a night may have several faults.
    A fault is cured where the same step of the plan passed: not where it was not run. One that
    comes back after its cure is the same record, opened again.
    """
    before = {one.key: one for one in known}
    failed = {key_of(run): run for run in runs if run.state != "passed"}
    changed = [
        _opened(
            before.get(key), run, key, night=night, blame=blames.get(run.id, "machine"), now=now
        )
        for key, run in failed.items()
    ]
    cured = _cells(run for run in runs if run.state == "passed")
    still = _cells(failed.values())
    for trouble in before.values():
        cell = trouble.cell
        if trouble.closed is None and trouble.key not in failed and cell in cured - still:
            changed.append(msgspec.structs.replace(trouble, closed=now, updated=now))
    return tuple(changed)


def _opened(
    old: Trouble | None, run: Run, key: str, *, night: str, blame: Blame, now: str
) -> Trouble:
    nights = (*(old.nights if old else ()), night)
    return Trouble(
        key=key,
        title=title_of(run),
        opened=old.opened if old else now,
        updated=now,
        closed=None,
        nights=tuple(dict.fromkeys(nights))[-KEPT_NIGHTS:],
        blame=blame,
        first_run=old.first_run if old else run.id,
        last_run=run.id,
        message=run.message,
        cell=cell_of(run),
    )


def cell_of(run: Run) -> str:
    """What is to pass for a fault to be cured: the step of the plan, the same every night.

    A run that ended early does not know its toolchain's full name, so that is no part of it.
    """
    name = run.id.removeprefix(f"{run.night}-") if run.night else run.id
    return name.partition(AGAIN)[0]


def _cells(runs: Iterable[Run]) -> set[str]:
    return {cell_of(run) for run in runs}


def as_file(trouble: Trouble, evidence: Mapping[str, Sequence[str]]) -> str:
    """A record as Markdown: what a person or an issue gets to read."""
    state = f"closed {trouble.closed}" if trouble.closed else "open"
    logs = evidence.get(trouble.last_run, ())
    lines = [
        f"# {trouble.title}",
        "",
        f"- state: {state}",
        f"- opened: {trouble.opened}, last seen or changed: {trouble.updated}",
        f"- points to: {trouble.blame}",
        f"- nights ({len(trouble.nights)}): {', '.join(trouble.nights)}",
        f"- first run: {trouble.first_run}, last run: {trouble.last_run}",
        *(f"- evidence: {path}" for path in logs),
        "",
        "```",
        trouble.message.replace("```", "'''"),
        "```",
        "",
    ]
    return "\n".join(lines)
