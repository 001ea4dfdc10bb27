"""The rules of the dot products against the product of what both sides stand for."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkbuild.qualify.fault import DeviceFault
from sparkbuild.qualify.judge import judge
from sparkbuild.qualify.probes import vec_dot
from sparkbuild.qualify.probes.inputs import Blocks, Partner, random_blocks, random_partner
from sparkbuild.qualify.probes.model import Probe
from sparkbuild.qualify.probes.vec_dot_sums import RULES, make_sums
from sparkbuild.qualify.ptx.read import read_module
from sparkbuild.qualify.simt.launch import execute

from .kinds import KINDS, NUMPY, facts

PTX = Path(__file__).parents[3] / "data/ptx"
BLOCKS = 32

DECLARED = """
static __device__ float vec_dot_{name}_q8_1(
    const void * __restrict__ vbq, const block_q8_1 * __restrict__ bq8_1, const int & kbx) {{
    return shared_helper(vbq);
}}
"""


def per(name: str) -> int:
    return RULES[name].ints // RULES[name].step


@pytest.mark.parametrize("name", [name for name in RULES if name in KINDS])
def test_values_of_iqs_share_out_the_elements(name: str) -> None:
    elements = RULES[name].elements(per(name))
    assert elements.shape[0] == per(name)
    assert sorted(elements.ravel()) == list(range(KINDS[name].elements))


@pytest.mark.parametrize("name", [name for name in RULES if name in KINDS])
def test_all_of_a_block_is_the_product_of_its_values(name: str) -> None:
    kind, rule = KINDS[name], RULES[name]
    rng = np.random.default_rng(5)
    blocks = random_blocks(kind, BLOCKS, rng, wild=False)
    some = random_partner(kind, BLOCKS, rng)
    partner = Partner(some.d, some.d * some.q.reshape(BLOCKS, -1, 32).sum(-1), some.q)
    sums = make_sums(facts(), NUMPY, blocks, partner, rule.elements(per(name)))
    found = rule.combine(sums)
    y = np.repeat(partner.d, 32, 1) * partner.q
    right = (NUMPY.values(name, blocks.data) * y).sum(1)
    off = np.abs(found.value.sum(1) - right)
    size = np.abs(NUMPY.values(name, blocks.data) * y).sum(1)
    assert (off <= found.error.sum(1) + 1e-6 * size).all()
    assert (found.error.sum(1) < 1e-2 * size).all()


def _per_sum(name: str, blocks: Blocks) -> NDArray[np.float64]:
    """What one more in y's sum must add to a block's (n,) or chunk's (n, chunks) result."""
    match name:
        case "q4_0" | "q5_0":
            return -{"q4_0": 8, "q5_0": 16}[name] * blocks.half("d")[:, None]
        case "q4_1" | "q5_1":
            return blocks.half("m")[:, None]
        case "iq1_s":
            high = blocks.words("qh")
            factor = 2 * (high >> 12 & 7) + 1
            return blocks.half("d")[:, None] * factor * np.where(high & 0x8000, -1.125, -0.875)
        case _:
            return np.zeros((len(blocks.data), 1))


@pytest.mark.parametrize("name", [name for name in RULES if name in KINDS])
def test_the_sum_that_y_carries_stands_for_what_is_added_to_each_quant(name: str) -> None:
    kind, rule = KINDS[name], RULES[name]
    rng = np.random.default_rng(9)
    blocks, one = random_blocks(kind, BLOCKS, rng, wild=False), random_partner(kind, BLOCKS, rng)
    more = Partner(one.d, one.s + rng.integers(-3, 4, one.s.shape), one.q)
    values = [
        rule.combine(make_sums(facts(), NUMPY, blocks, some, rule.elements(per(name)))).value
        for some in (one, more)
    ]
    moved = (values[1] - values[0]).reshape(BLOCKS, one.s.shape[1], -1).sum(-1)
    right = _per_sum(name, blocks) * (more.s - one.s)
    np.testing.assert_allclose(moved, right, atol=1e-5 * np.abs(values[0]).max())


@pytest.mark.parametrize("name", [name for name in RULES if name in KINDS])
def test_small_numbers_and_powers_of_two_leave_no_room(name: str) -> None:
    kind, rule = KINDS[name], RULES[name]
    rng = np.random.default_rng(6)
    blocks = random_blocks(kind, BLOCKS, rng, wild=False)
    partner = random_partner(kind, BLOCKS, rng)
    source = facts(vec_dot=f"vec_dot_{name}_q8_1(int a) {{ {CUTS.get(name, '')} }}")
    found = rule.combine(make_sums(source, NUMPY, blocks, partner, rule.elements(per(name))))
    assert not found.error[: BLOCKS // 2].any()


CUTS = {
    "iq2_xxs": "sumi = sumi * ls / 8;",
    "iq2_xs": "sumi = (sumi0*ls0 + sumi1*ls1 + (sumi0 + sumi1)/2)/4;",
    "iq2_s": "sumi = (sumi0*ls0 + sumi1*ls1 + (sumi0 + sumi1)/2)/4;",
    "iq3_xxs": "sumi = (ls*sumi + sumi/2)/2;",
}


@pytest.mark.parametrize("name", CUTS)
def test_a_division_that_is_put_another_way_may_cut_otherwise(name: str) -> None:
    kind, rule = KINDS[name], RULES[name]
    rng = np.random.default_rng(7)
    blocks, partner = (
        random_blocks(kind, BLOCKS, rng, wild=False),
        random_partner(kind, BLOCKS, rng),
    )
    elements = rule.elements(per(name))
    known = facts(vec_dot=f"vec_dot_{name}_q8_1(int a) {{ {CUTS[name]} }}")
    sure = rule.combine(make_sums(known, NUMPY, blocks, partner, elements))
    free = rule.combine(make_sums(facts(), NUMPY, blocks, partner, elements))
    assert (np.abs(sure.value - free.value) <= free.error).all()
    assert (sure.value != free.value).any()
    assert (free.error > sure.error).all()


def test_a_new_type_is_judged_by_whole_blocks() -> None:
    source = facts(vec_dot="".join(DECLARED.format(name=name) for name in ("q8_0", "q4_K")))
    assert [kind.name for kind in vec_dot.types_of(source)] == ["q8_0", "q4_K"]
    # VDR is named nowhere here, so it is 1, which no rule was written for.
    text = vec_dot.unit_text(source)
    assert text.endswith("WHOLE(q8_0, GGML_TYPE_Q8_0, 1)\nWHOLE(q4_K, GGML_TYPE_Q4_K, 1)\n")
    probe = vec_dot.vec_dot_probes(source, NUMPY)[0]
    assert (probe.entry, probe.types) == ("vec_dot_whole_q8_0", ("q8_0",))
    (case,) = probe.cases(1)
    right = case.expected["dst"]
    x, y = case.launch.arguments[0].data, case.launch.arguments[1].data  # type: ignore[union-attr]
    q = y.reshape(len(y), 36)[:, 4:].view(np.int8)  # type: ignore[union-attr]
    d = y.reshape(len(y), 36)[:, :2].copy().view("<f2").astype(float)  # type: ignore[union-attr]
    wanted = (NUMPY.values("q8_0", x) * q * d).sum(1)  # type: ignore[arg-type]
    assert (np.abs(right.values - wanted) <= right.bound).all()


def test_a_type_with_the_constants_of_its_rule_is_judged_by_each_iqs() -> None:
    source = facts(vec_dot="#define VDR_Q8_0_Q8_1_MMVQ 2\n" + DECLARED.format(name="q8_0"))
    assert vec_dot.unit_text(source).endswith("EACH(q8_0, GGML_TYPE_Q8_0, 2)\n")


def test_functions_are_told_with_what_they_call() -> None:
    helper = "static __device__ int shared_helper(int x) { return x; }\n"
    source = facts(vec_dot=helper + DECLARED.format(name="q8_0"))
    assert vec_dot.vec_dot_probes(source, NUMPY)[0].functions == (
        "vec_dot_q8_0_q8_1",
        "shared_helper",
    )


def _iq3_s() -> tuple[Probe, ...]:
    text = "#define VDR_IQ3_S_Q8_1_MMVQ 2\n" + DECLARED.format(name="iq3_s")
    return vec_dot.vec_dot_probes(facts(vec_dot=text), NUMPY)


def test_recorded_code_of_a_right_compiler_is_right() -> None:
    module = read_module((PTX / "vec_dot_iq3_s-13.0.88.ptx").read_text())
    (probe,) = _iq3_s()
    assert probe.urgent
    judged = judge(probe, module).probed
    assert (judged.outcome, judged.mistake) == ("right", None)


def test_recorded_code_of_13_2_51_reads_beyond_its_table() -> None:
    module = read_module((PTX / "vec_dot_iq3_s-13.2.51.ptx").read_text())
    (probe,) = _iq3_s()
    with pytest.raises(DeviceFault, match="iq3s_grid") as caught:
        execute(module, probe.cases(1)[0].launch)
    assert caught.value.kind == "out of bounds"
