"""Nights by month: which days had one, what came of it, and which lack one."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from sparkbuild.history.model import Night

_WORST: Final = ("red", "running", "green")


@dataclass(frozen=True, kw_only=True)
class Day:
    """A day of the calendar. ``gap``: between the first night and today, and without one."""

    number: int
    night: Night | None
    gap: bool


@dataclass(frozen=True, kw_only=True)
class Month:
    """A month in weeks from Monday on; None stands for days of its neighbours."""

    name: str
    days: tuple[Day | None, ...]


def months(nights: Sequence[Night], today: date) -> list[Month]:
    """The months from the first night on, the newest first.

    Of several nights on a day the worst counts, so that none hides another. Days are those of UTC
    on which a night began. Today lacks none yet.
    """
    by_day: dict[date, Night] = {}
    for night in nights:
        began = date.fromisoformat(night.started[:10])
        known = by_day.get(began)
        if known is None or _WORST.index(night.state) <= _WORST.index(known.state):
            by_day[began] = night
    if not by_day:
        return []
    first, last = min(by_day), max(*by_day, today)
    made = []
    at = first.replace(day=1)
    while at <= last:
        made.append(_month(at, by_day, first, today))
        at = (at + timedelta(days=31)).replace(day=1)
    return made[::-1]


def _month(at: date, by_day: dict[date, Night], first: date, today: date) -> Month:
    weeks = calendar.Calendar().monthdatescalendar(at.year, at.month)
    days: list[Day | None] = []
    for one in (one for week in weeks for one in week):
        if one.month != at.month:
            days.append(None)
        else:
            gap = first < one < today and one not in by_day
            days.append(Day(number=one.day, night=by_day.get(one), gap=gap))
    return Month(name=f"{calendar.month_name[at.month]} {at.year}", days=tuple(days))
