"""The search alone: whatever is skipped, the culprit is among the suspects, and they are few."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.nightly.search import Verdict, narrowed, next_point, steps_left


def run(count: int, culprit: int, skipped: frozenset[int]) -> tuple[dict[int, Verdict], int]:
    known: dict[int, Verdict] = {0: "good", count - 1: "bad"}
    asked = 0
    while (point := next_point(known)) is not None:
        assert point not in known
        assert 0 < point < count - 1
        asked += 1
        known[point] = "skip" if point in skipped else "bad" if point >= culprit else "good"
    return known, asked


@st.composite
def rows(draw: st.DrawFn) -> tuple[int, int, frozenset[int]]:
    count = draw(st.integers(2, 120))
    culprit = draw(st.integers(1, count - 1))
    skipped = draw(st.frozensets(st.integers(1, max(1, count - 2)), max_size=count))
    return count, culprit, skipped - {0, count - 1}


@given(rows())
def test_the_range_is_the_smallest_that_can_be_had(row: tuple[int, int, frozenset[int]]) -> None:
    count, culprit, skipped = row
    known, _ = run(count, culprit, skipped)
    here = narrowed(known)
    assert culprit in here.suspects
    testable = [point for point in range(count) if point not in skipped]
    assert here.good == max(point for point in testable if point < culprit)
    assert here.bad == min(point for point in testable if point >= culprit)
    assert here.found == (len(here.suspects) == 1)


@given(st.integers(2, 5000), st.data())
def test_without_skips_it_asks_no_more_than_the_logarithm(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(1, count - 1))
    known, asked = run(count, culprit, frozenset())
    assert narrowed(known).found
    assert narrowed(known).bad == culprit
    assert asked <= steps_left({0: "good", count - 1: "bad"})


@given(st.integers(50, 400), st.data())
def test_a_block_that_does_not_build_is_left_quickly(count: int, data: st.DataObject) -> None:
    """Skips lie together in practice; where the culprit is not beside them, few are asked."""
    culprit = data.draw(st.integers(1, count - 1))
    middle = count // 2
    block = frozenset(range(middle - count // 8, middle + count // 8))
    _, asked = run(count, culprit, block)
    near = range(min(block) - count // 10, max(block) + count // 10)
    assert culprit in near or asked <= 20


def test_two_points_need_no_question() -> None:
    assert next_point({0: "good", 1: "bad"}) is None
    assert narrowed({0: "good", 1: "bad"}).found
