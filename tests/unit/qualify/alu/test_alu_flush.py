"""The processor's own flushing of subnormal numbers, and the bounds for what GPUs do otherwise."""

import platform
import sys
import threading

import numpy as np
import pytest

from sparkbuild.qualify.alu import flush
from sparkbuild.qualify.alu.contract import LaneOp
from sparkbuild.qualify.alu.decode import decode
from sparkbuild.qualify.alu.errors import TENSOR_CORES, mma_bound
from sparkbuild.qualify.alu.flush import UNIT, flush_mode

from .lanes import instruction

TINY = np.array([2.0**-140, -(2.0**-140), 2.0**-126], np.float32)


def halved() -> list[float]:
    return [float(each) for each in TINY * np.float32(0.5)]


def test_the_mode_works_where_it_is_known_to() -> None:
    known = sys.platform == "linux" and platform.machine() == "x86_64"
    assert (flush.CONTROL is not None) == known


def test_the_mode_ends_with_its_block_even_after_an_error() -> None:
    before = halved()
    assert all(before)
    with flush_mode() as works:
        assert works == (flush.CONTROL is not None) == UNIT.flushing
        if works:
            assert halved() == [0.0, 0.0, 0.0]
        with flush_mode() as again:
            assert again == works
        assert works == UNIT.flushing
    assert halved() == before
    with pytest.raises(ZeroDivisionError), flush_mode():
        raise ZeroDivisionError
    assert halved() == before
    assert not UNIT.flushing


def test_instructions_without_ftz_keep_subnormal_numbers_inside_and_restore_the_mode() -> None:
    op = decode(instruction("mul.f32 %f0, %f1, %f2"))
    assert isinstance(op, LaneOp)
    words = TINY.view(np.uint32), np.full(3, 0x3F000000, np.uint32)
    outside = op.run(*words)[0].tolist()
    with flush_mode() as works:
        assert op.run(*words)[0].tolist() == outside
        assert works == UNIT.flushing
        if works:
            assert halved() == [0.0, 0.0, 0.0]


def test_another_thread_is_not_told_that_it_flushes() -> None:
    seen: list[bool] = []
    with flush_mode():
        thread = threading.Thread(target=lambda: seen.append(UNIT.flushing))
        thread.start()
        thread.join()
    assert seen == [False]


def test_without_the_processors_help_all_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    op = decode(instruction("fma.rn.ftz.f32 %f0, %f1, %f2, %f3"))
    assert isinstance(op, LaneOp)
    generator = np.random.default_rng(16)
    words = [generator.integers(0, 1 << 32, 4000, dtype=np.uint32) for _ in range(3)]
    with np.errstate(all="ignore"):
        with flush_mode():
            with_help = op.run(*words)[0]
        monkeypatch.setattr(flush, "CONTROL", None)
        with flush_mode() as works:
            assert not works
            without = op.run(*words)[0]
    assert np.array_equal(with_help, without)


def cut(value: float, unit: float) -> float:
    return float(np.trunc(value / unit) * unit)


@pytest.mark.parametrize("core", TENSOR_CORES)
def test_the_bound_holds_for_a_tensor_core_as_it_was_found_to_add(core: str) -> None:
    """Addends cut at so many bits below the largest exponent, the sum cut to 24 bits."""
    generator = np.random.default_rng(17)
    kind, worst = TENSOR_CORES[core], 0.0
    for _ in range(300):
        products = generator.standard_normal(16) * 2.0 ** generator.integers(-12, 12, 16)
        addend = float(generator.standard_normal())
        total = addend
        for part in np.split(products, kind.steps):
            addends = [*part, total]
            unit = 2.0 ** (np.floor(np.log2(np.abs(addends).max())) - kind.bits)
            total = sum(cut(each, unit) for each in addends)
            total = cut(total, 2.0 ** (np.floor(np.log2(abs(total))) - 23)) if total else 0.0
        exact = np.float64(np.float32(products.sum() + addend))
        largest = max(np.abs(products).max(), abs(addend))
        bound = float(mma_bound(np.array(largest), 16, np.array(exact), core=core))
        assert abs(total - exact) <= bound
        worst = max(worst, abs(total - exact) / bound)
    # A bound that is never nearly met would let mistakes through.
    assert worst > 0.1
