"""f32 as a kernel may compute it lies within the bounds, and they are no wider than that."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, strategies
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import Bounded, contracted, exactly, expected
from sparkbuild.qualify.probes.launching import bfloat16, fastdiv, rough, short, whole

SEEDS = strategies.integers(0, 2**32 - 1)
F32 = np.float32


def away(rng: np.random.Generator, x: Bounded) -> NDArray[np.float64]:
    """Values that are as far from the right ones as they may be, either way."""
    return np.asarray(x.value + x.error * rng.choice([-1.0, 1.0], x.value.shape))


def within(found: NDArray[np.floating], right: Bounded) -> None:
    off = np.abs(found.astype(np.float64) - right.value)
    own = 1e-15 * np.abs(right.value)  # the test's own roundings
    assert (off <= right.error + own).all(), (off - right.error).max()


@given(SEEDS)
def test_fused_or_not_a_sum_of_products_is_within(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, z = rough(rng, 3, 50)
    right = exactly(x) * y + z
    fused = (x.astype(np.longdouble) * y + z).astype(F32)
    within(fused, right)
    within(x * y + z, right)
    assert (right.error <= 2.0**-23 * (np.abs(x * y) + np.abs(z)) + 1e-37).all()


@given(SEEDS)
def test_sums_of_exact_products_are_one_f32_in_the_blocks_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = short(rng, 2, 3, 150)
    right = (exactly(x) * y).block_sum(64)
    threads = np.zeros((3, 64), F32)
    for column in range(150):
        threads[:, column % 64] += x[:, column] * y[:, column]
    warps = threads.reshape(3, 2, 32)
    for half in (16, 8, 4, 2, 1):
        warps = warps[..., :half] + warps[..., half : 2 * half]
    assert not right.error.any()
    np.testing.assert_array_equal(right.value, warps[:, 0, 0] + warps[:, 1, 0])


@given(SEEDS)
def test_any_order_of_a_sum_is_within(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rough(rng, 40, scale=100.0)
    total = exactly(x).total(39)
    for _ in range(5):
        found = F32(0)
        for value in rng.permutation(x):
            found += value
        within(np.array([found]), total.spread())
    exact = exactly(whole(rng, 40)).total(39)
    assert exact.error == 0


@given(SEEDS)
def test_errors_of_operands_are_carried_on(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = Bounded(rng.uniform(0.5, 4, 40), rng.uniform(0, 1e-3, 40))
    two = Bounded(rng.uniform(0.5, 4, 40), rng.uniform(0, 1e-3, 40))
    x, y = away(rng, one), away(rng, two)
    within((x + y).astype(F32), one + two)
    within((x - y).astype(F32), one - two)
    within((x * y).astype(F32), one * two)
    within((x / y).astype(F32), one / two)
    within(np.maximum(x, y), bounded.largest(one, two))
    within(np.minimum(x, y), bounded.least(one, two))
    within(np.where(x > 2, x, y), bounded.where(x > 2, one, two))


Reals: TypeAlias = NDArray[np.float64]
FUNCTIONS: dict[str, tuple[Callable[[Bounded], Bounded], Callable[[Reals], Reals], float]] = {
    "exp": (bounded.exp, np.exp, bounded.EX2),
    "log": (bounded.log, np.log, bounded.LG2),
    "tanh": (bounded.tanh, np.tanh, bounded.TANH),
    "rsqrt": (bounded.rsqrt, lambda x: 1 / np.sqrt(x), bounded.RSQRT),
    "sqrt": (bounded.sqrt, np.sqrt, bounded.SQRT),
    "reciprocal": (bounded.reciprocal, lambda x: 1 / x, bounded.RECIPROCAL),
    "sine": (bounded.sine, np.sin, bounded.SINE),
    "cosine": (bounded.cosine, np.cos, bounded.SINE),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(SEEDS)
def test_approximations_are_within_also_of_inexact_operands(name: str, seed: int) -> None:
    rule, true, _ = FUNCTIONS[name]
    rng = np.random.default_rng(seed)
    x = Bounded(rng.uniform(0.05, 6, 60), rng.uniform(0, 1e-4, 60))
    within(true(away(rng, x)), rule(x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_approximations_have_the_manuals_error_and_little_more(name: str) -> None:
    rule, true, manual = FUNCTIONS[name]
    x = np.linspace(0.6, 1.9, 100).astype(F32)
    found, right = rule(exactly(x)), true(x.astype(np.float64))
    within(right, found)
    size = 1.0 if name in {"sine", "cosine", "log"} else np.abs(right)
    assert (found.error >= 0.6 * manual * size).all()
    assert (found.error <= 4 * manual * size + 1e-37).all()


def test_exp_as_fast_math_compiles_it() -> None:
    x = np.linspace(-80, 80, 1000).astype(F32)
    right = bounded.exp(exactly(x))
    product = x * F32(np.log2(np.e))
    for apart in (-bounded.EX2, 0.0, bounded.EX2):
        within(np.exp2(product.astype(np.float64)) * (1 + apart), right)
    assert (right.error <= right.value * (bounded.EX2 + 2.0**-22 * (np.abs(x) + 1)) + 1e-37).all()
    assert bounded.exp(exactly(0.0)).error == 0


def test_power_as_fast_math_compiles_it() -> None:
    base, exponent = exactly(F32(0.7943282)), np.arange(1.0, 64.0)
    right = bounded.power(base, exponent)
    for apart in (-bounded.LG2, 0.0, bounded.LG2):
        two = np.log2(base.value) + apart * 0.99
        raised = (exponent * two).astype(F32).astype(np.float64)
        within(np.exp2(raised) * (1 + bounded.EX2 * np.sign(apart)), right)
    assert bounded.power(base, 0.0).error == 0


def test_sines_of_far_angles_are_not_judged() -> None:
    found = bounded.sine(exactly(np.array([1.0, 300.0, 400.0])))
    assert list(found.error) == [bounded.SINE, bounded.FAR_SINE, np.inf]
    right = expected(found, "far")
    assert right.defined is not None
    assert list(right.defined) == [True, True, False]


@given(SEEDS)
def test_a_products_bound_holds_also_where_nothing_is_fused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rough(rng, 2, 40)
    found = exactly(x).once(y)
    assert not found.error.any()
    np.testing.assert_array_equal(found.value, x * y)


@given(SEEDS)
def test_contracted_sums_hold_the_order_of_any_hardware(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rough(rng, 2, 4, 48).astype(np.float16)
    right = contracted(x, y, 48)
    found = np.zeros((4, 4), F32)
    for column in rng.permutation(48):
        found += x[:, None, column].astype(F32) * y[None, :, column].astype(F32)
    within(found, right)
    exact = contracted(whole(rng, 3, 48), whole(rng, 3, 48), 48)
    assert not exact.error.any()


def test_f16_holds_either_neighbour_where_the_value_lies_between() -> None:
    step = 2.0**-10
    value, error = np.array([1 + step / 2, 1 + step / 4, 70000.0]), np.array([1e-6, 1e-6, 1.0])
    right = expected(Bounded(value, error), "halves", np.float16)
    assert list(right.bound) == [step, 0.0, 0.0]
    assert list(right.values) == [1.0, 1.0, np.inf]
    assert right.defined is None


def test_bf16_counts_units_in_the_last_place() -> None:
    value, error = np.array([1 + 2.0**-8, 3.0, 1e-3]), np.array([1e-4, 0.0, 1.0])
    right = bounded.expected_bfloat16(Bounded(value, error), "bits")
    assert list(right.bound) == [1.0, 0.0, 0.0]
    assert right.defined is not None
    assert list(right.defined) == [True, True, False]  # the last may have either sign
    np.testing.assert_array_equal(right.values[:2], bfloat16(value[:2].astype(F32)))


def test_small_sums_are_flushed_and_keep_their_sign() -> None:
    tiny = np.array([2.0**-126, -(2.0**-126)], F32)
    found = exactly(tiny * F32(1.5)) - tiny
    assert list(found.value) == [0.0, 0.0]
    assert list(np.signbit(found.value)) == [False, True]


@given(strategies.integers(1, 2**31 - 1), strategies.integers(0, 2**31 - 1))
def test_fastdiv_divides(divisor: int, number: int) -> None:
    multiplier, shift, kept = np.frombuffer(fastdiv(divisor), np.uint32).tolist()
    assert kept == divisor
    assert ((number * multiplier >> 32) + number) >> shift == number // divisor
