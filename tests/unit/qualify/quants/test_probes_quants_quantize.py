"""Quants of activations, worked out by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkbuild.qualify.probes import quantize
from sparkbuild.qualify.probes.quantize_values import (
    E2M1,
    Quants,
    nibbles,
    pack_bytes,
    to_e2m1,
    to_e8m0,
    to_half,
    to_int8,
    to_nvfp4,
    to_ue4m3,
    ue4m3_values,
)
from sparkbuild.qualify.probes.quantize_words import mmq_words, q8_1_words
from sparkbuild.qualify.reference.source import HEADERS, SourceFacts

from .kinds import KINDS, facts


def test_int8_is_rounded_away_from_zero_at_a_half_and_not_judged_there() -> None:
    x = np.zeros((1, 32))
    x[0, :6] = [127, -127, 2.5, -2.5, 2.4, 0]
    quants, scale = to_int8(x, 32)
    assert scale.tolist() == [[1.0]]
    assert quants.values[0, :6].tolist() == [127, -127, 3, -3, 2, 0]
    assert quants.sure[0, :6].tolist() == [True, True, False, False, True, True]


def test_a_group_of_zeros_is_zero() -> None:
    quants, scale = to_int8(np.zeros((1, 64)), 64)
    assert not quants.values.any()
    assert quants.sure.all()
    assert scale.tolist() == [[0.0]]


def test_half_is_not_judged_where_an_error_may_change_it() -> None:
    between = 1 + 2.0**-11  # half way from 1 to the next f16
    found = to_half(np.array([1.0, between]), np.array([1e-6, 1e-6]))
    assert found.values[0] == 0x3C00
    assert found.sure.tolist() == [True, False]


def test_e2m1_rounds_to_even_and_saturates() -> None:
    x = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 7, -0.3, -0.1, 0.0, 0.26])
    codes = to_e2m1(x, 0).values
    assert E2M1[codes & 7].tolist() == [0, 1, 1, 2, 2, 4, 4, 6, 0.5, 0, 0, 0.5]
    assert (codes >> 3).tolist() == [0] * 8 + [1, 1, 0, 0]


def test_e2m1_is_not_judged_at_a_border() -> None:
    assert to_e2m1(np.array([2.5, 2.6, 7.0]), 1e-6).sure.tolist() == [False, True, True]


def test_ue4m3_goes_through_its_own_values_and_to_even() -> None:
    values = ue4m3_values()
    assert (values[1], values[8], values[0x38], values[-1]) == (2.0**-9, 2.0**-6, 1.0, 448.0)
    assert (to_ue4m3(values, 0).values == np.arange(0x7F)).all()
    middle = (values[1:] + values[:-1]) / 2
    assert (to_ue4m3(middle, 0).values % 2 == 0).all()
    assert to_ue4m3(np.array([1e6]), 0).values.tolist() == [0x7E]
    assert not to_ue4m3(middle, 1e-6).sure.any()


def test_e8m0_brings_the_largest_near_four() -> None:
    found = to_e8m0(np.array([4.0, 6.0, 1.0, 0.0, 4 * 2**0.5]))
    assert found.values.tolist()[:4] == [127, 128, 125, 0]
    assert found.sure.tolist() == [True, True, True, True, False]


def test_nibbles_pair_the_halves_of_a_group() -> None:
    codes = Quants(np.arange(16)[None], np.ones((1, 16), bool))
    assert nibbles(codes, 16).values[0].tolist() == [i | (i + 8) << 4 for i in range(8)]
    assert nibbles(codes, 8).values[0, :4].tolist() == [i | (i + 4) << 4 for i in range(4)]


def test_bytes_are_packed_the_first_lowest() -> None:
    words, sure = pack_bytes(np.array([[1, -1, 2, 3]]), np.array([[True, True, False, True]]))
    assert words.tolist() == [[0x0302FF01]]
    assert sure.tolist() == [[False]]


def test_nvfp4_takes_the_scale_with_the_least_error() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2, 64))
    found = to_nvfp4(x)
    scale = ue4m3_values()[found.scales.values]
    codes = found.codes.values
    back = np.where(codes & 8, -1, 1) * E2M1[codes & 7] * np.repeat(scale, 16, 1)
    error = ((x / found.rows[:, None] - back) ** 2).reshape(2, 4, 16).sum(-1)
    for step in (-2, -1, 1, 2):
        other = ue4m3_values()[np.clip(found.scales.values + step, 0, 0x7E)][..., None]
        wide = (x / found.rows[:, None]).reshape(2, 4, 16) / other
        near = np.abs(np.abs(wide)[..., None] - E2M1).argmin(-1)
        tried = ((np.abs(wide) - E2M1[near]) ** 2).sum(-1) * other[..., 0] ** 2
        within = np.abs(found.scales.values + step - first(x, found.rows)) <= 2
        assert (tried >= error * (1 - 1e-9))[within].all()
    assert found.rows.tolist() == (np.abs(x).max(1) / 2688).tolist()


def first(x: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.int64]:
    largest = np.abs(x / rows[:, None]).reshape(2, 4, 16).max(-1)
    return to_ue4m3(largest / 6, 0).values


def test_nvfp4_of_zeros_is_zero() -> None:
    x = np.zeros((1, 32))
    x[0, 0] = 1
    found = to_nvfp4(x)
    assert found.scales.values[0, 1] == 0
    assert found.scales.sure[0, 1]
    assert not found.codes.values[0, 16:].any()


def row() -> NDArray[np.float64]:
    x = np.zeros((1, 1, 128))
    x[0, 0] = np.tile([127.0, -64, 3, 0], 32)
    x[0, 0, 64:] *= 4
    return x


def test_words_of_q8_1() -> None:
    words, sure = q8_1_words(row())
    assert words.shape == (1, 1, 4, 9)
    assert sure.all()
    d, s = words[0, 0, 2, :1].view("<f2").tolist()
    assert (d, s) == (4.0, 4.0 * 8 * 66)
    assert words[0, 0, 2, 1:].view("i1").tolist() == [127, -64, 3, 0] * 8


@pytest.mark.parametrize("layout", ["D4", "DS4", "D2S6"])
def test_words_of_the_layouts_of_mmq(layout: str) -> None:
    words, _, bound = mmq_words(row(), layout)
    assert words.shape == (1, 1, 1, 36)
    head = words[0, 0, 0, :4]
    assert words[0, 0, 0, 4:].view("i1").tolist() == [127, -64, 3, 0] * 32
    match layout:
        case "D4":
            assert head.view("<f4").tolist() == [1, 1, 4, 4]
            assert (bound[..., :4] > 0).all()
        case "DS4":
            assert head.view("<f2").tolist() == [1, 8 * 66, 1, 8 * 66, 4, 2112, 4, 2112]
        case _:
            assert head.view("<f2").tolist() == [1, 4, *[4 * 66] * 4, 1056, 1056]


def kernels(**changed: str) -> dict[str, str]:
    """A source with the quantisers, each with its parameters."""
    text = dict.fromkeys(HEADERS, "")
    text[quantize.SOURCE] = "".join(
        f"static __global__ void {kernel}("
        + changed.get(kernel, ", ".join(f"int {name}" for name in names))
        + ") {}\n"
        for kernel, names in quantize.PARAMETERS.items()
    )
    return text


def test_a_quantiser_that_takes_something_else_is_named_and_left_out() -> None:
    some = SourceFacts(facts().root, kernels(quantize_mmq_mxfp4="int x, int y"), {}, KINDS)
    assert quantize.unknown_kernels(some) == ("quantize_mmq_mxfp4",)
    found = {probe.functions[0] for probe in quantize.quantize_probes(some, "121a")}
    assert found == {"quantize_q8_1", "quantize_mmq_nvfp4"}


def test_probes_are_those_of_the_target() -> None:
    text = kernels()
    enums = {"mmq_q8_1_ds_layout": {"MMQ_Q8_1_DS_LAYOUT_D4": 0, "MMQ_Q8_1_DS_LAYOUT_D2S6": 2}}
    some = SourceFacts(facts().root, text, enums, KINDS)
    names = [probe.name for probe in quantize.quantize_probes(some, "90")]
    assert names == [
        "quantize q8_1", "quantize mmq D4", "quantize mmq D4 scattered", "quantize mmq D2S6",
        "quantize mmq D2S6 scattered",
    ]  # fmt: skip
    more = [probe for probe in quantize.quantize_probes(some, "121a") if probe.name not in names]
    assert {probe.functions for probe in more} == {("quantize_mmq_mxfp4",), ("quantize_mmq_nvfp4",)}
    assert "_Z18quantize_mmq_nvfp4ILb1ELb0EE*" in [probe.entry for probe in more]


def test_most_words_are_judged() -> None:
    some = SourceFacts(facts().root, kernels(), {}, KINDS)
    assert len(quantize.quantize_probes(some, "121a")) == 7
    for probe in quantize.quantize_probes(some, "121a"):
        for case in probe.cases(1):
            for right in case.expected.values():
                assert right.defined is None or right.defined.mean() > 0.9, probe.name
