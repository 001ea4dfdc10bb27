"""Blocks that reach everything a type can hold, taken apart into scales and whole numbers."""

import numpy as np
import pytest

from sparkbuild.qualify.probes.inputs import (
    Blocks,
    Partner,
    bounded_blocks,
    random_blocks,
    random_halves,
    random_partner,
)
from sparkbuild.qualify.reference.source import Field, TensorType

from .kinds import KINDS, NUMPY


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_scale_times_unit_plus_offset_is_the_value(kind: TensorType) -> None:
    blocks = random_blocks(kind, 64, rng())
    values = NUMPY.values(kind.name, blocks.data)
    assert np.isfinite(values).all()
    scales = blocks.scales().reshape(64, -1)
    rebuilt = NUMPY.values(kind.name, blocks.unit().data)
    rebuilt = rebuilt * np.repeat(scales, kind.elements // scales.shape[1], 1)
    offset = blocks.offset()
    assert (offset is None) == (kind.field("m") is None and kind.field("dmin") is None)
    if offset is not None:
        added = blocks.half("m") + blocks.half("dmin")
        rebuilt += NUMPY.values(kind.name, offset.data) * added[:, None]
    # Only what is added may be rounded, by f32.
    np.testing.assert_allclose(values, rebuilt, rtol=0, atol=2.0**-23 * np.abs(values).max())


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_first_half_has_powers_of_two_and_all_bytes_are_random(kind: TensorType) -> None:
    blocks = random_blocks(kind, 512, rng())
    plain, rough = (np.abs(np.frexp(half)[0]) for half in np.split(blocks.scales(), 2))
    assert set(plain.ravel()) == {0.5}
    if kind.name != "mxfp4":  # its scales are powers of two
        assert len(set(rough.ravel())) > 4
    quants = blocks.field("ql" if kind.name == "q6_K" else "qs")
    assert min(len(np.unique(column)) for column in quants.T) > 200


@pytest.mark.parametrize(
    ("name", "table"),
    [("iq1_s", 2048), ("iq1_m", 2048), ("iq2_xs", 512), ("iq2_s", 1024), ("iq3_s", 512)],
)
def test_every_index_of_a_table_is_looked_up(name: str, table: int) -> None:
    kind = KINDS[name]
    blocks = random_blocks(kind, table // 32, rng())
    low = blocks.field("qs").astype(np.int64)
    match name:
        case "iq2_xs":
            found = blocks.words("qs") & 511
        case "iq1_s":
            groups = np.arange(32)
            found = low | (blocks.words("qh")[:, groups // 4] >> 3 * (groups % 4) & 7) << 8
        case "iq1_m":
            groups = np.arange(32)
            high = blocks.field("qh").astype(np.int64)[:, groups // 2] >> 4 * (groups % 2)
            found = low | (high & 7) << 8
        case "iq2_s":
            groups = np.arange(32)
            high = blocks.field("qh").astype(np.int64)[:, groups // 4] >> 2 * (groups % 4)
            found = low[:, :32] | (high & 3) << 8
        case _:
            groups = np.arange(64)
            high = blocks.field("qh").astype(np.int64)[:, groups // 8] >> groups % 8
            found = low | (high & 1) << 8
    assert set(found.ravel()) == set(range(table))


def test_ends_of_f16_are_among_the_scales_where_they_are_asked_for() -> None:
    wild = random_blocks(KINDS["q8_0"], 64, rng()).half("d")
    tame = random_blocks(KINDS["q8_0"], 64, rng(), wild=False).half("d")
    assert {0.0, 65504.0, 2.0**-24} <= set(wild)
    assert 2.0**-9 < np.abs(tame).min() <= np.abs(tame).max() < 8


def test_partner_lies_in_memory_as_q8_1_does() -> None:
    partner = Partner(np.array([[0.5, 2.0]]), np.array([[-1.0, 4.0]]), np.arange(64.0)[None] - 32)
    data = partner.data()
    assert data.shape == (1, 72)
    assert data[0, :4].view("<f2").tolist() == [0.5, -1.0]
    assert data[0, 36:40].view("<f2").tolist() == [2.0, 4.0]
    assert data[0, 4:36].view("i1").tolist() == list(range(-32, 0))
    assert data[0, 40:].view("i1").tolist() == list(range(32))


def test_partner_takes_all_256_bytes_and_unrelated_sums() -> None:
    partner = random_partner(KINDS["iq3_s"], 16, rng())
    assert np.abs(partner.q[:8]).max() == 7
    assert len(np.unique(partner.q[8:])) == 256
    real = partner.d * partner.q.reshape(16, 8, 32).sum(-1)
    assert not np.isclose(real, partner.s).any()


def test_halves_have_the_mantissa_that_was_asked_for() -> None:
    halves = random_halves(2000, rng(), mantissa=2).astype(np.float64)
    assert set(np.abs(np.frexp(halves)[0])) == {0.5, 0.625, 0.75, 0.875}


def test_blocks_of_an_unknown_type_hold_numbers() -> None:
    # As q8_0 is laid out, with no member that anyone here knows for a scale.
    strange = TensorType("q8_0", "GGML_TYPE_Q8_0", 8, (Field("x", "uint8_t", 0, 34),), 34, 32, 8)
    blocks = bounded_blocks(strange, 100, rng(), NUMPY)
    values = NUMPY.values("q8_0", blocks.data)
    assert values.shape == (100, 32)
    assert np.isfinite(values).all()
    assert Blocks(strange, blocks.data).half("d").tolist() == [0.0] * 100


def test_a_member_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="q8_0 has no qh"):
        random_blocks(KINDS["q8_0"], 2, rng()).field("qh")
