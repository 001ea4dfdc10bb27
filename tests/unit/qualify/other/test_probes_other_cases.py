"""Every probe's launches and what is right for them, as far as it shows without a compiler."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.probes.other import other_probes, other_units
from sparkbuild.qualify.simt.contract import Buffer

PROBES = {probe.name: probe for probe in other_probes()}
UNITS = Path(__file__).parents[4] / "sparkbuild/qualify/probes/units"
SEED = 20261130
EXACT = {"copy", "kv"}
"""Kinds of which every element is equal to the bit."""
SETTLED = {"fill_kernel f16", "arange_f32", "flash_attn_mask_to_KV_max"}
"""What is right does not depend on the seed."""


def buffers(case: Case) -> dict[str, Buffer]:
    found = {id(one): one for one in case.launch.arguments if isinstance(one, Buffer)}
    named = {one.name: one for one in found.values()}
    assert len(named) == len(found), "two buffers of one name"
    return named


def written(buffer: Buffer, right: Expected) -> NDArray[np.bool_]:
    """Which elements must be other than they were."""
    size = right.values.dtype.itemsize
    before, after = (
        np.ascontiguousarray(data).view(np.uint8).reshape(-1, size)
        for data in (buffer.data, right.values)
    )
    judged = np.ones(right.values.shape, bool) if right.defined is None else right.defined
    return np.asarray((before != after).any(-1) & judged.ravel())


def test_names_are_unique_and_units_are_there() -> None:
    assert len(PROBES) == len(other_probes())
    assert set(other_units()) == {probe.unit for probe in PROBES.values()}
    for name, text in other_units().items():
        assert text == (UNITS / f"{name}.cu").read_text()
        assert '#include "ggml-cuda/' in text


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_cases_say_what_their_buffers_must_hold(probe: Probe) -> None:
    cases = probe.cases(SEED)
    assert len({case.label for case in cases}) == len(cases) > 0
    for case in cases:
        given = buffers(case)
        assert case.launch.entry == probe.entry
        writable = {name for name, one in given.items() if one.writable}
        assert set(case.expected) <= writable
        assert case.expected
        for name, right in case.expected.items():
            assert right.values.dtype == given[name].data.dtype
            assert right.values.size == given[name].data.size
            assert right.why
            bound = np.broadcast_to(right.bound, right.values.shape)
            assert np.isfinite(bound).all()
            assert (bound >= 0).all()
            if probe.kind in EXACT:
                assert not bound.any()


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_cases_change_what_the_kernel_finds(probe: Probe) -> None:
    values: set[float] = set()
    for case in probe.cases(SEED):
        changes = []
        for name, right in case.expected.items():
            changed = written(buffers(case)[name], right)
            changes.append(changed.mean())
            values.update(right.values.ravel()[changed].tolist())
        assert max(changes) > 0.04, "next to nothing is written"
    assert len(values) > (0 if probe.name.startswith("fill") else 1), "one value everywhere"


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_bounds_are_small_beside_the_values(probe: Probe) -> None:
    for case in probe.cases(SEED):
        for right in case.expected.values():
            if right.values.dtype.kind != "f":
                continue
            values, bound = np.broadcast_arrays(right.values.astype(np.float64), right.bound)
            finite = np.isfinite(values) & (values != 0)
            if right.defined is not None:
                finite &= right.defined
            coarse = 2e-2 if probe.kind == "attention" else 2e-3  # some sums are f16's there
            assert np.median(bound[finite] / np.abs(values[finite])) < coarse, case.label


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_a_seed_gives_the_same_again_and_another_one_others(probe: Probe) -> None:
    first, again, other = probe.cases(SEED), probe.cases(SEED), probe.cases(7)
    assert [case.label for case in first] == [case.label for case in again]
    same = []
    for one, two, three in zip(first, again, other, strict=True):
        for name, buffer in buffers(one).items():
            np.testing.assert_array_equal(buffer.data, buffers(two)[name].data)
        for name, right in one.expected.items():
            np.testing.assert_array_equal(right.values, two.expected[name].values)
            same.append(np.array_equal(right.values, three.expected[name].values))
    if probe.name not in SETTLED:
        assert not all(same)
