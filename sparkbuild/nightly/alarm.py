"""Is the last good night too old? Asked by any monitor, and answered even if nothing ever ran."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from sparkbuild.history.model import Night

CLOCKS_DIFFER = dt.timedelta(minutes=5)
"""A night that much in the future was dated by another clock than this one."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How nights stand: ``alarm`` is empty where all is well."""

    last: Night | None
    last_good: Night | None
    hours: float | None
    """Since the last good night ended, where there was one and it is not in the future."""
    alarm: tuple[str, ...]
    notes: tuple[str, ...] = ()


def standing(nights: Iterable[Night], *, now: dt.datetime, limit_hours: float) -> Standing:
    """What ``nightly status`` says. ``now`` has a time zone."""
    ordered = sorted(nights, key=lambda one: one.started)
    last = ordered[-1] if ordered else None
    future = [one for one in ordered if when(one.ended or one.started) > now + CLOCKS_DIFFER]
    good = [one for one in ordered if one.state == "green" and one not in future]
    last_good = good[-1] if good else None
    hours = None
    alarm = [
        f"night {one.id} is dated {one.ended or one.started}, which is to come: a clock was wrong, "
        "and its age says nothing"
        for one in future[-1:]
    ]
    if last_good is None:
        alarm.append("no good night is known" if ordered else "no night is known: nothing ever ran")
    else:
        age = now - when(last_good.ended or last_good.started)
        hours = max(0.0, age.total_seconds() / 3600)
        if hours > limit_hours:
            alarm.append(
                f"the last good night, {last_good.id}, ended {hours:.1f} hours ago; at most "
                f"{limit_hours:g} are allowed"
            )
    notes = [f"night {last.id} is red: {last.reason}"] if last and last.state == "red" else []
    if last and last.state == "running":
        notes.append(f"night {last.id} began {last.started} and has not ended")
    return Standing(
        last=last, last_good=last_good, hours=hours, alarm=tuple(alarm), notes=tuple(notes)
    )


def when(text: str) -> dt.datetime:
    """A time of the history; one without a zone is UTC."""
    moment = dt.datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
