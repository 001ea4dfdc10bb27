"""Tiles of MMQ: the source's tables, how y lies in memory, and what each dot product adds up to."""

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkbuild.qualify.probes.inputs import Blocks, random_blocks
from sparkbuild.qualify.probes.tiles import cut_product, random_columns, tile_entry
from sparkbuild.qualify.probes.tiles_config import (
    MMQ,
    PARAMETERS,
    TileConfig,
    always_fp4,
    has_fp4,
    tile_config,
)
from sparkbuild.qualify.probes.tiles_fp4 import fp4_columns, fp4_sum
from sparkbuild.qualify.probes.tiles_launch import Shape, tile_launch
from sparkbuild.qualify.probes.tiles_split import ROUNDS, split_case
from sparkbuild.qualify.probes.tiles_sums import Columns, combine_tile, make_tile
from sparkbuild.qualify.reference.source import HEADERS, SourceFacts

from .kinds import KINDS, NUMPY, facts

MMQ_TEXT = """
#define QI8_0 8
#define TILE_K 32
#define ROUND 256
static mmq_q8_1_ds_layout mmq_get_q8_1_ds_layout(const ggml_type type_x) {
    switch (type_x) {
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q4_1:
            return MMQ_Q8_1_DS_LAYOUT_DS4;
        case GGML_TYPE_Q8_0:
            return MMQ_Q8_1_DS_LAYOUT_D4;
    }
}
static constexpr int ggml_cuda_mmq_get_sram_stride(layout sram_layout) {
    switch (sram_layout) {
        case SOME_LAYOUT:
            return 2*TILE_K +
                2*TILE_K/QI8_0 + 4;
    }
}
static constexpr funcs ggml_cuda_mmq_get_util_funcs() {
    switch (type) {
        case GGML_TYPE_Q8_0:
            return ggml_cuda_mmq_util_funcs(
                8, old_loader<type, J, fallback>, old_dot<type, J, fallback>, old_write<type>);
    }
    switch (type) {
        case GGML_TYPE_Q4_0:
            if (prec_src1 == GGML_PREC_Q4) {
                return ggml_cuda_mmq_util_funcs(
                    -1, load_four<type, J, fallback>, dot_fp4_fp4<type, J>, write<type, J>);
            }
            break;
    }
    switch (type) {
        case GGML_TYPE_Q8_0:
            return ggml_cuda_mmq_util_funcs(
                -1, load_q8_0<type, J, fallback>, dot_q8_0<type, J, D4>, write<type, J>);
        case GGML_TYPE_Q4_0:
            return ggml_cuda_mmq_util_funcs(
                -1, load_q4_0<type, J, fallback>, dot_q8_0<type, J, DS4>, write<type, J>);
    }
}
template <ggml_type type, int J, bool fallback, ggml_prec prec_src1 = GGML_PREC_Q8>
__launch_bounds__(1, 1)
static __global__ void mul_mat_q(
    PARAMETERS) {
}
""".replace("PARAMETERS", ",\n    ".join(f"const int {name}" for name in PARAMETERS))
CONFIG_TEXT = """
    CASE(GGML_TYPE_Q8_0, 256, 1, 128,   8, SOME_LAYOUT, ROUND, true, true);
    CASE(GGML_TYPE_Q8_0, 128, 1, 128,   8, SOME_LAYOUT, ROUND, true, false);
    CASE(GGML_TYPE_Q4_0, 256, 1, 64,   16, SOME_LAYOUT, ROUND, true, false);
"""


def source(mmq: str = MMQ_TEXT) -> SourceFacts:
    text = dict.fromkeys(HEADERS, "")
    text[MMQ] = mmq
    text["ggml-cuda/mmq-config-ampere.cuh"] = CONFIG_TEXT
    text["ggml-cuda/mmq-config-blackwell.cuh"] = CONFIG_TEXT
    return SourceFacts(
        facts().root, text, {"ggml_prec": {"GGML_PREC_Q8": 30, "GGML_PREC_Q4": 40}}, KINDS
    )


def config(name: str, dot: str, layout: str = "D4") -> TileConfig:
    return TileConfig(
        kind=KINDS[name], threads=256, rows=128, columns=8, depth=256, stride=76, fallback=False,
        fp4=False, load="load", dot=dot, write="write", layout=layout,
    )  # fmt: skip


def test_config_is_read_from_the_tensor_core_path() -> None:
    found = tile_config(source(), KINDS["q8_0"], 8)
    assert found is not None
    assert (found.threads, found.rows, found.depth, found.stride) == (128, 128, 256, 76)
    assert (found.load, found.dot, found.write) == ("load_q8_0", "dot_q8_0", "write")
    assert found.layout == "D4"
    assert found.instance == "GGML_TYPE_Q8_0, 8, false, GGML_PREC_Q8"
    assert found.shared == 4 * 8 + 4 * 128 * 76 + 1536  # y is filled up to whole loads
    assert tile_entry(source(), found) == "_Z9mul_mat_qIL9ggml_type8ELi8ELb0EL9ggml_prec30EE*"


def test_config_of_other_instances() -> None:
    assert tile_config(source(), KINDS["q8_0"], 8, fallback=True).threads == 256  # type: ignore[union-attr]
    four = tile_config(source(), KINDS["q4_0"], 16, fp4=True)
    assert four is not None
    assert (four.load, four.rows, four.layout) == ("load_four", 64, "DS4")
    assert four.instance.endswith("GGML_PREC_Q4")
    assert tile_config(source(), KINDS["q4_0"], 16).load == "load_q4_0"  # type: ignore[union-attr]


@pytest.mark.parametrize(("name", "columns"), [("q8_0", 16), ("q4_1", 8), ("iq3_s", 8)])
def test_what_the_source_lacks_has_no_config(name: str, columns: int) -> None:
    assert tile_config(source(), KINDS[name], columns) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bool fallback, ggml_prec prec_src1", "bool fallback, int other"),
        ("ggml_prec prec_src1 = GGML_PREC_Q8", "ggml_prec prec_src1 = GGML_PREC_Q4"),
        ("const int y_scale", "const int something_else"),
        ("const int ntx)", "const int ntx, const int more)"),
    ],
)
def test_another_kernel_is_not_taken_for_this_one(old: str, new: str) -> None:
    assert old in MMQ_TEXT
    assert tile_config(source(MMQ_TEXT.replace(old, new)), KINDS["q8_0"], 8) is None


def test_a_template_without_a_precision_leaves_nothing_to_choose() -> None:
    older = source(MMQ_TEXT.replace(", ggml_prec prec_src1 = GGML_PREC_Q8", ""))
    found = tile_config(older, KINDS["q8_0"], 8)
    assert found is not None
    assert found.instance == "GGML_TYPE_Q8_0, 8, false"
    assert tile_entry(older, found) == "_Z9mul_mat_qIL9ggml_type8ELi8ELb0EE*"
    assert [always_fp4(older, KINDS[name]) for name in ("q4_0", "q8_0")] == [True, False]
    assert not always_fp4(source(), KINDS["q4_0"])


@pytest.mark.parametrize(
    ("arch", "has"),
    [("121a", True), ("120a", True), ("110a", False), ("100a", False), ("90", False)],
)
def test_archs_with_four_bit_tensor_cores(arch: str, *, has: bool) -> None:
    assert has_fp4(arch) is has


def columns(layout: str) -> Columns:
    q = np.arange(256 * 2).reshape(256, 2) % 127.0
    groups = 16 if layout == "D2S6" else 8
    d = np.arange(1.0, 17).reshape(8, 2)
    if layout == "D2S6":
        d = np.repeat(d[::2], 2, 0)
    s = np.arange(100.0, 100 + groups * 2).reshape(groups, 2)
    return Columns(q.astype(np.float64), d.astype(np.float64), s)


@pytest.mark.parametrize("layout", ["D4", "DS4", "D2S6"])
def test_columns_lie_in_memory_as_the_kernel_copies_them(layout: str) -> None:
    some = columns(layout)
    data = some.data(layout)
    assert data.shape == (2, 2, 144)  # two times 128 elements, two columns
    block = data[1, 0]  # elements 128 to 255 of the first column
    assert block[16:].view("i1").tolist() == some.q[128:, 0].tolist()
    head = block[:16]
    match layout:
        case "D4":
            assert head.view("<f4").tolist() == some.d[4:, 0].tolist()
        case "DS4":
            assert head.view("<f2")[::2].tolist() == some.d[4:, 0].tolist()
            assert head.view("<f2")[1::2].tolist() == some.s[4:, 0].tolist()
        case _:
            assert head.view("<f2")[:2].tolist() == [some.d[4, 0], some.d[6, 0]]
            assert head.view("<f2")[2:].tolist() == some.s[8:14, 0].tolist()


DOTS = {
    "q8_0": ("ggml_cuda_mmq_vec_dot_q8_0_q8_1_mma", "D4"),
    "iq3_s": ("ggml_cuda_mmq_vec_dot_q8_0_q8_1_mma", "D4"),
    "q4_0": ("ggml_cuda_mmq_vec_dot_q8_0_q8_1_mma", "DS4"),
    "q3_K": ("ggml_cuda_mmq_vec_dot_q8_0_16_q8_1_mma", "D4"),
    "nvfp4": ("ggml_cuda_mmq_vec_dot_q8_0_16_q8_1_mma", "D4"),
    "q4_1": ("ggml_cuda_mmq_vec_dot_q8_1_q8_1_mma", "DS4"),
    "q4_K": ("ggml_cuda_mmq_vec_dot_q8_1_q8_1_mma", "DS4"),
    "q5_K": ("ggml_cuda_mmq_vec_dot_q8_1_q8_1_mma", "DS4"),
    "iq1_s": ("ggml_cuda_mmq_vec_dot_q8_1_q8_1_mma", "DS4"),
    "q6_K": ("ggml_cuda_mmq_vec_dot_q6_K_q8_1_mma", "D4"),
    "q2_K": ("ggml_cuda_mmq_vec_dot_q2_K_q8_1_mma", "D2S6"),
}


def product(name: str, rows: int, depth: int) -> tuple[Blocks, Columns, NDArray[np.float64]]:
    """Both sides, the sums being those of the quants, and the product in float64."""
    kind = KINDS[name]
    rng = np.random.default_rng(3)
    # Scales of three bits, so that a loader's products in f16 are exact.
    blocks = random_blocks(kind, rows * depth // kind.elements, rng, mantissa=2, wild=False)
    some = random_columns(config(name, *DOTS[name]), depth, 4, rng)
    group = 16 if DOTS[name][1] == "D2S6" else 32
    d = np.repeat(some.d, 32, 0)
    s = (some.q * d).reshape(-1, group, 4).sum(1)
    x = NUMPY.values(name, blocks.data).reshape(rows, depth)
    return blocks, Columns(some.q, some.d, s), (some.q * d).T @ x.T


@pytest.mark.parametrize("name", DOTS)
def test_each_dot_product_is_the_product_of_both_sides(name: str) -> None:
    blocks, some, right = product(name, 16, 512)
    found = combine_tile(config(name, *DOTS[name]), make_tile(NUMPY, blocks, some, 16))
    assert found is not None
    np.testing.assert_allclose(found.value, right, rtol=0, atol=1e-5 * np.abs(right).max())
    assert (found.error <= 1e-5 * np.abs(right).max()).all()


def test_a_dot_product_without_a_rule_is_not_judged() -> None:
    blocks, some, _ = product("q8_0", 16, 256)
    assert combine_tile(config("q8_0", "a_new_one"), make_tile(NUMPY, blocks, some, 16)) is None


def test_small_numbers_and_powers_of_two_leave_no_room() -> None:
    name = "q4_K"
    blocks, some, _ = product(name, 16, 256)
    found = combine_tile(config(name, *DOTS[name]), make_tile(NUMPY, blocks, some, 16))
    assert found is not None
    assert not found.error[:2, :8].any()
    assert found.error[2:, 8:].any()


@pytest.mark.parametrize("name", ["q8_0", "q2_K"])
def test_parts_of_the_inner_dimension_add_up(name: str) -> None:
    blocks, some, right = product(name, 8, 512)
    parts = [cut_product(blocks, some, 8, start, start + 256) for start in (0, 256)]
    values = [combine_tile(config(name, *DOTS[name]), make_tile(NUMPY, *part, 8)) for part in parts]
    total = sum(value.value for value in values if value is not None)
    np.testing.assert_allclose(total, right, rtol=0, atol=1e-5 * np.abs(right).max())


def test_the_first_block_leaves_a_third_and_the_second_writes_the_rest() -> None:
    found = config("q8_0", *DOTS["q8_0"])
    blocks, some, _ = product("q8_0", 128, ROUNDS * 256)
    asked = []

    def values(start: int, end: int) -> object:
        asked.append((start, end))
        return combine_tile(
            found, make_tile(NUMPY, *cut_product(blocks, some, 128, start, end), 128)
        )

    case = split_case("entry", found, blocks.data, some.data("D4"), values, why="")  # type: ignore[arg-type]
    assert sorted(asked) == [(0, 256), (256, 768)]
    assert case.launch.grid == (2, 1, 1)
    assert case.expected["fixup"].defined is not None
    assert case.expected["fixup"].defined.any((1, 2)).tolist() == [True, False]


def test_launch_has_what_lies_behind_y_and_the_experts_tables() -> None:
    found = config("q8_0", *DOTS["q8_0"])
    y = np.zeros((2, 8, 144), np.uint8)
    shape = Shape(128, 8, 256, bounds=(0, 3, 8), ids=(1, 0, 2, 3, 4, 5, 6, 7))
    launch = tile_launch("entry", found, shape, np.zeros(1, np.uint8), y)
    assert launch.grid == (2, 1, 1)
    assert launch.block == (32, 8, 1)
    sizes = [len(part.data) for part in launch.arguments[1:4]]  # type: ignore[union-attr]
    assert sizes == [y.size + 128 * 144, 8 + 64, 3]


def test_fp4_columns_hold_scales_and_quants_by_256() -> None:
    blocks = random_blocks(KINDS["mxfp4"], 2 * 16, np.random.default_rng(2))
    data = fp4_columns(blocks, 2)
    assert data.shape == (2, 2, 144)
    block, some = data[1, 0], blocks.data[8:16]  # the first column's second 256 elements
    assert block[:16].reshape(4, 4)[:, :2].ravel().tolist() == some[:, 0].tolist()
    assert not block[:16].reshape(4, 4)[:, 2:].any()
    assert block[16:].tolist() == some[:, 1:].ravel().tolist()
    four = random_blocks(KINDS["nvfp4"], 2 * 8, np.random.default_rng(2))
    block = fp4_columns(four, 2)[0, 1]
    assert block[:16].tolist() == four.data[8:12, :4].ravel().tolist()
    assert block[16:].tolist() == four.data[8:12, 4:].ravel().tolist()


def test_fp4_sums_are_exact_while_f32_holds_every_part() -> None:
    terms = np.array([[0.25, 2.0**21], [0.25, 2.0**22], [3.0, -3.0]])
    found = fp4_sum(np.pad(terms, ((0, 0), (0, 126))))
    assert found.value.tolist() == [2.0**21 + 0.25, 2.0**22 + 0.25, 0.0]
    assert (found.error == 0).tolist() == [True, False, True]
