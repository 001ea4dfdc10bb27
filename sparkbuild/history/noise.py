"""Is a figure another one, or is it noise? Judged by what the control itself did on other nights.

The control is the same build night after night: what its figures do is the noise of machine and
method, and every bound here comes from it. The unit is the restart of the server (for a build: the
build). Numbers of one restart are not independent, so they count as one.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from sparkbuild.history.model import (
    Band,
    Difference,
    Judgement,
    Noise,
    Reading,
    Told,
)
from sparkbuild.history.student import quantile

CONFIDENCE: Final = 0.99
"""Of a prediction interval. A night looks at about 30 figures: 14 nights in 100 then have one that
is worse by chance, which is a note; the same one on two nights in a row comes once in 1,300."""

FEWEST: Final = 6
"""Nights: with 6 the interval is half as wide again as with ever so many (t 4.03 against 2.58),
with 3 it is four times as wide and would tell nothing."""

MATTERS: Final = 0.01
"""Share of the control's figure. Where the control has no noise at all, as the size of a wheel,
a smaller difference is true and of no consequence: it is shown, and no note."""

WINDOW: Final = 60
"""Newest restarts that count: an old machine's noise is not today's."""


def noise(readings: Sequence[Reading]) -> Noise | None:
    """Of the newest restarts of the control; None where they are of fewer than ``FEWEST`` nights.

    What a night does to the machine, all its restarts share: the degrees of freedom are those of
    the nights.
    """
    restarts = _restarts(readings)[-WINDOW:]
    values = [value for _, value in restarts]
    nights = len({night for night, _ in restarts})
    if nights < FEWEST:
        return None
    return Noise(
        mean=statistics.fmean(values),
        sd=statistics.stdev(values),
        df=nights - 1,
        n=len(values),
        nights=nights,
    )


def noise_within(readings: Sequence[Reading]) -> Noise | None:
    """The same of restarts of one night among themselves: a slow night is not in it.

    None where no nights have several restarts, ``FEWEST`` in all beyond the first of each.
    """
    by_night: dict[str, list[float]] = defaultdict(list)
    for night, value in _restarts(readings)[-WINDOW:]:
        by_night[night].append(value)
    groups = [values for values in by_night.values() if len(values) > 1]
    df = sum(len(values) - 1 for values in groups)
    if df < FEWEST - 1:
        return None
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in groups)
    return Noise(
        mean=statistics.fmean(value for values in groups for value in values),
        sd=math.sqrt(squares / df),
        df=df,
        n=sum(map(len, groups)),
        nights=len(groups),
        over="one night",
    )


def band(found: Noise, *, restarts: int = 1) -> Band:
    """Student's prediction interval for the mean of so many new restarts."""
    half = _t(found) * found.sd * math.sqrt(1 / restarts + 1 / found.n)
    return Band(
        mean=found.mean,
        low=found.mean - half,
        high=found.mean + half,
        n=found.n,
        nights=found.nights,
        restarts=restarts,
    )


def difference(
    candidate: Sequence[Reading], control: Sequence[Reading], history: Sequence[Reading]
) -> Difference:
    """One figure of candidate and control, or of any two runs or nights.

    Of the same night, a slow machine moves both and cancels: the margin is t times the deviation of
    restarts within nights, where the control has had several, times sqrt(1/m + 1/k) for m and k
    restarts. Otherwise the difference between nights is in it, and each night counts once; for
    one restart of each of the same night it is then wider than it need be, never narrower.
    ``history`` is the control's, of the same base.
    """
    one = candidate[0]
    theirs, ours = _restarts(candidate), _restarts(control)
    new = statistics.fmean(value for _, value in theirs)
    old = statistics.fmean(value for _, value in ours)
    nights = {night for night, _ in theirs}, {night for night, _ in ours}
    paired = nights[0] == nights[1]
    found = (noise_within(history) if paired else None) or noise(history)
    margin = None
    if found is not None:
        within = found.over == "one night"
        counts = (len(theirs), len(ours)) if within else (len(nights[0]), len(nights[1]))
        margin = _t(found) * found.sd * math.sqrt(1 / counts[0] + 1 / counts[1])
    value = new - old
    return Difference(
        name=one.name,
        unit=one.unit,
        control=old,
        candidate=new,
        value=value,
        share=value / old if old else None,
        margin=margin,
        n=found.n if found else len(_restarts(history)),
        nights=found.nights if found else len({night for night, _ in _restarts(history)}),
        state=_state(value, old, margin, one.more_is),
    )


def _state(
    value: float, old: float, margin: float | None, more_is: Literal["better", "worse", "neither"]
) -> Told:
    if margin is None:
        return "not enough nights to tell"
    if abs(value) <= max(margin, MATTERS * abs(old)):
        return "noise"
    if more_is == "neither":
        return "other"
    return "better" if (value > 0) == (more_is == "better") else "worse"


def differences(
    candidate: Mapping[str, Sequence[Reading]],
    control: Mapping[str, Sequence[Reading]],
    night: str,
) -> dict[str, Difference]:
    """Every figure that candidate and control both have of a night; noise is that before it."""
    found = {}
    for name, readings in candidate.items():
        new = [one for one in readings if one.night == night]
        theirs = control.get(name, ())
        old = [one for one in theirs if one.night == night]
        if not new or not old:
            continue
        began = min(one.started for one in old)
        past = [one for one in theirs if one.started < began and one.base == old[0].base]
        found[name] = difference(new, old, past)
    return found


def judged(tonight: Difference, before: Difference | None) -> Judgement:
    """One slow night is a note, a repeated one a fault; ``before`` is of the last night with it."""
    told = said(tonight)
    if tonight.margin is None:
        few = f"{told}; {tonight.nights} nights of the control are known, {FEWEST} are needed"
        return Judgement(
            name=tonight.name, state="not enough nights to tell", text=few, tonight=tonight
        )
    if tonight.state not in {"worse", "other"}:
        return Judgement(name=tonight.name, state="well", text=told, tonight=tonight)
    again = before is not None and before.state == tonight.state and _same_way(before, tonight)
    state: Literal["fault", "note"] = "fault" if again and tonight.state == "worse" else "note"
    told += ", as on the night before" if again else ", the first night of it"
    return Judgement(name=tonight.name, state=state, text=told, tonight=tonight)


def night_judged(
    candidate: Mapping[str, Sequence[Reading]],
    control: Mapping[str, Sequence[Reading]],
    night: str,
) -> list[Judgement]:
    """A night's figures of a candidate against the control, by name."""
    tonight = differences(candidate, control, night)
    before: dict[str, dict[str, Difference]] = {}
    result = []
    for name in sorted(tonight):
        earlier = [
            one
            for one in candidate[name]
            if one.night is not None
            and one.night != night
            and one.started < min(r.started for r in candidate[name] if r.night == night)
        ]
        last = earlier[-1].night if earlier else None
        if last is not None and last not in before:
            before[last] = differences(candidate, control, last)
        result.append(judged(tonight[name], before[last].get(name) if last else None))
    return result


def said(found: Difference) -> str:
    """A difference in words, with its n and interval."""
    share = "" if found.share is None else f" ({found.share:+.1%})"
    text = f"{found.name}: {found.candidate:.4g} {found.unit} against {found.control:.4g}{share}"
    if found.margin is None:
        return text
    return f"{text}, noise explains {found.margin:.2g} either way (n {found.n}, {CONFIDENCE:.0%})"


def _same_way(one: Difference, other: Difference) -> bool:
    return (one.value > 0) == (other.value > 0)


def _restarts(readings: Sequence[Reading]) -> list[tuple[str, float]]:
    """The night and the mean of each restart, in order; a run by hand is a night of its own."""
    found: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for one in readings:
        found[one.night or one.run, one.run, one.restart].append(one.value)
    return [(night, statistics.fmean(values)) for (night, _, _), values in found.items()]


def _t(found: Noise) -> float:
    return quantile(CONFIDENCE, found.df)
