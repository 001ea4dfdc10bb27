"""Student's t distribution for whole degrees of freedom: its probability and its quantile.

scipy would bring 100 MB for one number. For whole degrees of freedom the probability is a finite
sum of powers of a cosine (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and
26.7.4), and the quantile is found by halving; tests compare it with the printed table.
"""

from __future__ import annotations

import math
from typing import Final

_HALVINGS: Final = 200
"""More than a double has bits: the loop ends where the two ends meet."""


def within(t: float, df: int) -> float:
    """The probability that |T| is at most ``t``; ``df`` at least 1."""
    angle = math.atan2(t, math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2 == 1
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(1 if odd else 0, df - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    if odd:
        return 2 / math.pi * (angle + sine * total)
    return sine * total


def quantile(confidence: float, df: int) -> float:
    """The ``t`` within which a share ``confidence`` of values lies, on both sides of zero."""
    low, high = 0.0, 1.0
    while within(high, df) < confidence:
        low, high = high, high * 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (middle, high) if within(middle, df) < confidence else (low, middle)
    return high
