"""Which of a row of points is asked next, and what is known of the culprit: nothing else.

Points are numbered from the good end, 0, to the bad end. What cannot be tested is skipped, and
stays a suspect as long as nothing rules it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["good", "bad", "skip"]


@dataclass(frozen=True, kw_only=True)
class Range:
    """What is known: ``good`` is the last good point, ``bad`` the first bad one after it.

    The culprit is one of ``suspects``: ``bad`` itself, and what was skipped right before it.
    """

    good: int
    bad: int

    @property
    def suspects(self) -> range:
        """Points that may have brought the change, the bad one included."""
        return range(self.good + 1, self.bad + 1)

    @property
    def found(self) -> bool:
        """Whether it is one point alone."""
        return self.bad - self.good == 1


def narrowed(known: Mapping[int, Verdict]) -> Range:
    """The smallest range that the verdicts leave; both ends must be among them.

    The first bad point counts that has a good one somewhere before it and none after that.
    """
    good_points = [point for point, verdict in known.items() if verdict == "good"]
    good = max(good_points)
    bad = min(point for point, verdict in known.items() if verdict == "bad" and point > good)
    return Range(good=good, bad=bad)


def next_point(known: Mapping[int, Verdict]) -> int | None:
    """The point to ask next; None where the range cannot be made smaller.

    It is the middle of what is open. After a skip it moves away, by ever finer fractions of the
    range, since what breaks one commit's build often breaks its neighbours'.
    """
    here = narrowed(known)
    between = range(here.good + 1, here.bad)
    still = [point for point in between if point not in known]
    if not still:
        return None
    skips = sum(known.get(point) == "skip" for point in between)
    return still[int(_fraction(skips + 1) * len(still))]


def steps_left(known: Mapping[int, Verdict]) -> int:
    """How many more points are asked where none is skipped."""
    here = narrowed(known)
    still = sum(point not in known for point in range(here.good + 1, here.bad))
    return still.bit_length()


def _fraction(number: int) -> float:
    """1/2, 1/4, 3/4, 1/8, 5/8 ...: the binary digits of ``number``, mirrored at the point."""
    value, place = 0.0, 0.5
    while number:
        value += place * (number & 1)
        number >>= 1
        place /= 2
    return value
