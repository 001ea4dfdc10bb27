"""Thresholds from data: Student's t against the printed table, bands that hold what they say."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.history.model import Difference, Reading
from sparkbuild.history.noise import (
    CONFIDENCE,
    FEWEST,
    band,
    difference,
    differences,
    judged,
    night_judged,
    noise,
    noise_within,
)
from sparkbuild.history.student import quantile, within

TABLE = {
    # Degrees of freedom: t for 90 %, 95 %, 99 % and 99.9 % on both sides, from the printed tables.
    1: (6.314, 12.706, 63.657, 636.619),
    2: (2.920, 4.303, 9.925, 31.599),
    3: (2.353, 3.182, 5.841, 12.924),
    4: (2.132, 2.776, 4.604, 8.610),
    5: (2.015, 2.571, 4.032, 6.869),
    9: (1.833, 2.262, 3.250, 4.781),
    10: (1.812, 2.228, 3.169, 4.587),
    29: (1.699, 2.045, 2.756, 3.659),
    30: (1.697, 2.042, 2.750, 3.646),
    120: (1.658, 1.980, 2.617, 3.373),
}
SHARES = (0.90, 0.95, 0.99, 0.999)


@pytest.mark.parametrize("df", TABLE)
def test_quantiles_are_those_of_the_table(df: int) -> None:
    assert [round(quantile(share, df), 3) for share in SHARES] == list(TABLE[df])


@given(st.integers(1, 400), st.floats(0.01, 0.9999))
def test_quantile_and_probability_are_each_others_inverse(df: int, share: float) -> None:
    assert within(quantile(share, df), df) == pytest.approx(share, abs=1e-9)


@given(st.integers(1, 400), st.floats(0, 50), st.floats(0, 50))
def test_probability_grows_with_t_and_stays_below_one(df: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= within(low, df) <= within(high, df) + 1e-12 <= 1 + 1e-9


def test_with_many_degrees_it_is_the_normal_distribution() -> None:
    normal = statistics.NormalDist().inv_cdf(0.995)
    assert quantile(0.99, 100_001) == pytest.approx(normal, abs=1e-3)


def reading(value: float, night: int, *, restart: int = 0, base: str = "b1") -> Reading:
    return Reading(
        name="speed.plain", value=value, unit="tokens/s", more_is="better", restart=restart,
        run=f"r{night}", night=f"n{night}", started=f"2026-01-{night + 1:02d}T00:00:00+00:00",
        base=base,
    )  # fmt: skip


def nights(values: list[float], *, first: int = 0, base: str = "b1") -> list[Reading]:
    return [reading(value, first + at, base=base) for at, value in enumerate(values)]


def test_fewer_nights_than_stated_tell_nothing() -> None:
    assert noise(nights([1.0] * (FEWEST - 1))) is None
    assert noise(nights([1.0] * FEWEST)) is not None
    assert noise(restarts(1, [1.0] * 20)) is None


def test_a_band_is_students_prediction_interval() -> None:
    """By hand: 10 values 1..10, mean 5.5, deviation 3.0277, t(9) 3.250, one new value."""
    found = noise(nights([float(value) for value in range(1, 11)]))
    assert found is not None
    half = 3.2498 * 3.02765 * math.sqrt(1 + 1 / 10)
    made = band(found)
    assert (made.mean, made.n, made.nights) == (5.5, 10, 10)
    assert (made.low, made.high) == pytest.approx((5.5 - half, 5.5 + half), rel=1e-4)
    of_three = band(found, restarts=3)
    assert of_three.high - 5.5 == pytest.approx(half * math.sqrt((1 / 3 + 0.1) / 1.1), rel=1e-4)


def test_a_band_holds_as_many_new_values_as_it_says() -> None:
    chance = random.Random(11434)  # noqa: S311 - the same every time
    inside = 0
    turns = 4000
    for _ in range(turns):
        found = noise(nights([chance.gauss(50, 3) for _ in range(8)]))
        assert found is not None
        made = band(found)
        inside += made.low <= chance.gauss(50, 3) <= made.high
    assert inside / turns == pytest.approx(CONFIDENCE, abs=0.006)


@settings(max_examples=60)
@given(
    st.lists(st.floats(1, 100), min_size=FEWEST, max_size=20),
    st.floats(-1000, 1000),
    st.floats(0.1, 10),
)
def test_a_band_moves_and_grows_with_its_values(
    values: list[float], shift: float, scale: float
) -> None:
    one = noise(nights(values))
    other = noise(nights([value * scale + shift for value in values]))
    assert one is not None
    assert other is not None
    before, after = band(one), band(other)
    assert after.low == pytest.approx(before.low * scale + shift, rel=1e-6, abs=1e-6)
    assert after.high == pytest.approx(before.high * scale + shift, rel=1e-6, abs=1e-6)
    assert before.low <= before.mean <= before.high


def test_numbers_of_one_restart_count_as_one() -> None:
    thrice = [one for night in range(8) for one in [reading(float(night), night)] * 3]
    assert noise(thrice) == noise(nights([float(night) for night in range(8)]))
    assert noise_within(thrice) is None


def restarts(night: int, values: list[float], base: str = "b1") -> list[Reading]:
    return [reading(value, night, restart=at, base=base) for at, value in enumerate(values)]


def test_noise_within_nights_leaves_slow_nights_out() -> None:
    """Nights differ by 20, restarts of a night by 1 either way: deviation 1, three nights, df 6."""
    many = [
        one
        for night in range(3)
        for one in restarts(night, [night * 20.0 + at for at in (-1, 0, 1)])
    ]
    found = noise_within(many)
    assert found is not None
    assert found.sd == pytest.approx(1.0)
    assert (found.df, found.n, found.nights) == (6, 9, 3)
    assert noise(many) is None  # three nights tell nothing of what nights do
    assert noise_within(nights([1.0] * 20)) is None


def test_a_slow_machine_cancels_out() -> None:
    """Both are 15 % slower tonight: alone it is outside the band, against each other it is not."""
    chance = random.Random(1)  # noqa: S311 - the same every time
    history = [
        one
        for night in range(10)
        for one in restarts(night, [chance.gauss(60, 0.4) for _ in range(3)])
    ]
    slow = restarts(11, [51.2, 51.0, 50.8])
    candidate = restarts(11, [51.1, 50.9, 51.3])
    found = noise(history)
    assert found is not None
    assert band(found, restarts=3).low > 51.0
    assert difference(candidate, slow, history).state == "noise"
    worse = difference(restarts(11, [49.1, 49.0, 48.9]), slow, history)
    assert (worse.state, worse.n) == ("worse", 30)
    assert difference(restarts(11, [53.1, 53.0, 52.9]), slow, history).state == "better"


def test_between_nights_nothing_cancels() -> None:
    """Nights differ by more than restarts do: of two nights the whole difference is noise."""
    history = [
        one
        for night, machine in enumerate([60.0, 62.0, 59.0, 61.0, 58.0, 60.5, 61.5, 59.5])
        for one in restarts(night, [machine - 0.1, machine, machine + 0.1])
    ]
    here, there = restarts(20, [62.0, 62.1, 61.9]), restarts(21, [59.0, 59.1, 58.9])
    assert difference(there, here, history).state == "noise"
    assert difference(restarts(20, [59.0, 59.1, 58.9]), here, history).state == "worse"
    within, between = (difference(one, here, history) for one in (here, there))
    assert within.margin is not None
    assert between.margin is not None
    deviation = statistics.stdev(one.value for one in history)
    assert between.margin == pytest.approx(3.499 * deviation * math.sqrt(2), rel=1e-3)
    assert within.margin < between.margin / 10


def test_too_few_nights_are_said_and_no_note_is_made_of_them() -> None:
    found = difference(nights([40.0]), nights([60.0]), nights([60.0, 61.0]))
    assert (found.state, found.margin, found.nights) == ("not enough nights to tell", None, 2)
    verdict = judged(found, None)
    assert verdict.state == "not enough nights to tell"
    assert f"2 nights of the control are known, {FEWEST} are needed" in verdict.text


def test_without_noise_only_what_matters_is_a_note() -> None:
    """The size of a wheel is the same every night: a byte more is true, and no note."""
    past = nights([6_700_000.0] * 10)
    assert difference(nights([6_700_001.0]), nights([6_700_000.0]), past).state == "noise"
    assert difference(nights([6_600_000.0]), nights([6_700_000.0]), past).state == "worse"


def seen(state: str, value: float) -> Difference:
    return Difference(
        name="f", unit="s", control=10.0, candidate=10.0 + value, value=value, share=value / 10,
        margin=1.0, n=20, nights=20, state=state,  # type: ignore[arg-type]
    )  # fmt: skip


def test_one_slow_night_is_a_note_a_repeated_one_a_fault() -> None:
    slow = seen("worse", 3.0)
    assert judged(slow, None).state == "note"
    assert judged(slow, seen("noise", 0.1)).state == "note"
    assert judged(slow, seen("better", -3.0)).state == "note"
    assert judged(slow, slow).state == "fault"
    assert judged(seen("other", 3.0), seen("other", 3.0)).state == "note"
    assert judged(seen("better", -3.0), slow).state == "well"
    other = judged(seen("other", 3.0), seen("other", -3.0))
    assert "as on the night before" not in other.text
    text = judged(slow, slow).text
    assert "n 20, 99%" in text
    assert "as on the night before" in text


def cell(candidate: list[float]) -> tuple[dict[str, list[Reading]], dict[str, list[Reading]]]:
    chance = random.Random(2)  # noqa: S311 - the same every time
    control = nights([chance.gauss(60, 0.3) for _ in candidate])
    new = [reading(value, at, base="b2") for at, value in enumerate(candidate)]
    return {"speed.plain": new}, {"speed.plain": control}


@pytest.mark.parametrize(
    ("last", "verdict"),
    [([60.0, 60.0], "well"), ([60.0, 50.0], "note"), ([50.0, 50.0], "fault"),
     ([50.0, 60.0], "well"), ([70.0, 50.0], "note")],
)  # fmt: skip
def test_a_night_is_judged_with_the_one_before(last: list[float], verdict: str) -> None:
    candidate, control = cell([60.0] * 10 + last)
    (found,) = night_judged(candidate, control, "n11")
    assert found.state == verdict


def test_the_future_and_other_bases_are_no_noise_of_tonight() -> None:
    candidate, control = cell([60.0] * 20)
    other = [*nights([500.0] * 7, base="b0"), *control["speed.plain"][7:]]
    found = differences(candidate, {"speed.plain": other}, "n12")["speed.plain"]
    assert found.n == 5
    assert found.state == "not enough nights to tell"
    assert differences(candidate, control, "n99") == {}
    assert differences(candidate, {}, "n12") == {}
