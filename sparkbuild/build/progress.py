"""A calm estimate of what is left of a build."""

from __future__ import annotations

from typing import Final

SMOOTHING: Final = 0.1
"""Weight of the newest guess. Edges differ a hundredfold (a C file, an MMQ instance)."""


def remaining_seconds(
    previous: float | None, *, finished: int, total: int, seconds: float, since: float
) -> float | None:
    """Estimate what is left from the mean pace so far, smoothed against the last estimate.

    ``since`` is the seconds that passed after ``previous`` was made. None until an edge has ended,
    never negative, zero when all is done.
    """
    if finished <= 0:
        return None
    guess = max(0.0, seconds) / finished * max(0, total - finished)
    if previous is None or finished >= total:
        return guess
    return (1 - SMOOTHING) * max(0.0, previous - since) + SMOOTHING * guess


def minutes(seconds: float) -> str:
    """``1:05`` for 65 seconds."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"
