"""Conversions, rows and matrix times vector: what is read from the source, and what is right."""

import numpy as np
import pytest

from sparkbuild.qualify.probes import dequantize, matmul, matmul_config, quants
from sparkbuild.qualify.probes.entries import (
    FLOAT,
    HALF,
    Enum,
    Function,
    find_entry,
    template_entry,
)
from sparkbuild.qualify.probes.inputs import random_blocks
from sparkbuild.qualify.probes.vec_dot_sums import HEADER
from sparkbuild.qualify.reference.source import HEADERS, SourceFacts, TensorType

from .kinds import KINDS, NUMPY, facts

CONVERT = """
#define QK_K 256
#define QK5_0 32
#define QR5_0 2
static void dequantize_row_q4_0_cuda(const void * vx, dst_t * y, const int64_t k) {
    const int nb32 = k / 32;
    const int nb = (k + 255) / 256;
    dequantize_block_q4_0<<<nb, 32, 0, stream>>>(vx, y, nb32);
}
static void dequantize_row_q4_K_cuda(const void * vx, dst_t * y, const int64_t k) {
    const int nb = k / QK_K;
    dequantize_block_q4_K<<<nb, 64, 0, stream>>>(vx, y);
}
to_fp32_cuda_t ggml_get_to_fp32_cuda(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q5_0:
            return dequantize_block_cont_cuda<QK5_0, QR5_0, dequantize_q5_0>;
        case GGML_TYPE_Q4_0:
            return dequantize_row_q4_0_cuda;
        case GGML_TYPE_Q4_K:
            return dequantize_row_q4_K_cuda;
        case GGML_TYPE_IQ3_S:
            return somewhere_else;
    }
}
"""
CONVERT += """
static __global__ void dequantize_block(const void * vx, T * y, int ne00, int ne01, int ne0203,
    uint3 ne02, int s01, int s02, int s03) {}
"""
TAKEN = """(const void * src0, const int32_t * src1, T * dst, int ne00, int ne11, uint3 ne12_fdv,
    int s1, int s2, int s3, int nb01, int nb02, int nb03, int s10, int s11, int s12) {}
"""
ROWS = f"""
static __global__ void k_get_rows{TAKEN}
static __global__ void k_get_rows_kq{TAKEN}
"""
ROWS += """
static void ggml_cuda_get_rows_switch_src0_type(const void * src0_d) {
    switch (src0_type) {
        case GGML_TYPE_Q5_0:
            get_rows_cuda_q<QK5_0, QR5_0, dequantize_q5_0>(src0_d, src1_d, dst_d);
            break;
        case GGML_TYPE_Q4_K:
            get_rows_cuda_kq<32, dst_t, dequantize_q4_K<dst_t>>(src0_d, src1_d, dst_d);
            break;
    }
}
"""
MMVQ = """
template <ggml_type type, int ncols_dst, bool has_fusion, bool small_k = false,
    bool halve_iters = false>
static __global__ void mul_mat_vec_q(
    PARAMETERS) {}
template <ggml_type type, int c_rows_per_block, bool has_fusion = false>
static __global__ void mul_mat_vec_q_moe(
    EXPERTS) {}
static constexpr int calc_nwarps(ggml_type type, int ncols_dst, int table_id) {
    if (table_id == GENERIC) {
        switch (ncols_dst) {
            case 1:
            case 2:
            case 3:
            case 4:
                return 4;
            default:
                return 1;
        }
    } else if (table_id == OTHER) {
        switch (ncols_dst) {
            case 1:
                return 2;
        }
    }
}
static constexpr int calc_rows_per_block(int ncols_dst) {
    switch (ncols_dst) {
        case 1:
            return small_k ? nwarps : 1;
        case 2:
        case 4:
            return 2;
    }
}
"""
PARAMETERS, EXPERTS = (
    ", ".join(f"const int {name}" for name in names)
    for names in (matmul_config.PARAMETERS, matmul_config.EXPERT_PARAMETERS)
)
MMVQ = MMVQ.replace("PARAMETERS", PARAMETERS).replace("EXPERTS", EXPERTS)
COMMON = """
struct ggml_cuda_mm_fusion_args_device {
    const void * x_bias = nullptr;
    const void * gate = nullptr;
    ggml_glu_op glu_op;
    float glu_limit = 0.0f;
    uint32_t alone = 0;
    float * shared_dst = nullptr;
    uint32_t shared_stride_col_dst = 0;
};
"""
DOTS = "#define VDR_Q8_0_Q8_1_MMVQ 2\nfloat vec_dot_q8_0_q8_1(\n const void * x) { return 0; }\n"


def source(**text: str) -> SourceFacts:
    headers = dict.fromkeys(HEADERS, "")
    headers["ggml-cuda/convert.cu"] = text.get("convert", CONVERT)
    headers["ggml-cuda/getrows.cu"] = ROWS
    headers["ggml-cuda/mmvq.cu"] = text.get("mmvq", MMVQ)
    headers["ggml-cuda/common.cuh"] = COMMON
    headers[HEADER] = DOTS
    enums = {"ggml_glu_op": {"GGML_GLU_OP_SWIGLU": 2}}
    return SourceFacts(facts().root, headers, enums, KINDS)


def test_entries_follow_the_abi() -> None:
    kernel = template_entry("k", Enum("ggml_type", 21), 8, False, -3, Function("read"), HALF)
    assert kernel == "_Z1kIL9ggml_type21ELi8ELb0ELin3EXadL*4read*E6__halfE*"
    assert template_entry("plain") == "_Z5plain*"
    assert template_entry("k", FLOAT, scope="rows") == "_ZN4rows1kIfE*"


def test_an_entry_is_found_only_where_one_matches() -> None:
    names = ["_Z1kILi8EEvPKc", "_Z1kILi16EEvPKc", "exact"]
    assert find_entry(names, "exact") == "exact"
    assert find_entry(names, "_Z1kILi8EE*") == "_Z1kILi8EEvPKc"
    assert find_entry(names, "_Z1k*") is None
    assert find_entry(names, "_Z2k*") is None


def test_conversions_are_launched_as_the_source_has_it() -> None:
    probes = {probe.name: probe for probe in dequantize.dequantize_probes(source(), NUMPY)}
    assert sorted(probes) == sorted(
        [f"dequantize {name} to {to}" for name in ("q4_0", "q5_0", "q4_K")
         for to in ("f32", "f16", "bf16")] + ["get_rows q5_0", "get_rows q4_K"]
    )  # fmt: skip
    (checked,) = probes["dequantize q4_0 to f32"].cases(1)
    assert checked.launch.entry == "_Z21dequantize_block_q4_0IfE*"
    assert (checked.launch.grid, checked.launch.block) == ((64, 1, 1), (32, 1, 1))
    assert checked.launch.arguments[2] == 16384 // 32 - 3
    (whole,) = probes["dequantize q4_K to f16"].cases(1)
    assert (whole.launch.grid, whole.launch.block) == ((64, 1, 1), (64, 1, 1))
    assert len(whole.launch.arguments) == 2
    assert whole.expected["dst"].values.dtype == np.float16
    (small,) = probes["dequantize q5_0 to bf16"].cases(1)
    assert small.launch.entry == (
        "_Z16dequantize_blockILi32ELi2EXadL*15dequantize_q5_0*E13__nv_bfloat16E*"
    )


@pytest.mark.parametrize(
    ("lost", "names"),
    [
        ("int ne0203,", ["dequantize q4_0 to f32", "get_rows q4_K", "get_rows q5_0"]),
        ("int ne11,", ["dequantize q4_0 to f32", "dequantize q5_0 to f32"]),
    ],
)
def test_kernels_that_take_something_else_are_not_launched(lost: str, names: list[str]) -> None:
    text = dict(source().text)
    for file in ("ggml-cuda/convert.cu", "ggml-cuda/getrows.cu"):
        text[file] = text[file].replace(lost, "")
    changed = SourceFacts(source().root, text, source().enums, KINDS)
    found = [probe.name for probe in dequantize.dequantize_probes(changed, NUMPY)]
    kept = [name for name in found if not name.endswith(("f16", "q4_K to f32"))]
    assert sorted(kept) == names


def test_rows_are_those_of_the_switch() -> None:
    text = dequantize.unit_text(source())
    assert "SMALL(QK5_0, QR5_0, dequantize_q5_0)\n    SUPER(dequantize_q4_K)\n};" in text.replace(
        "    SMALL", "SMALL"
    )
    probe = next(
        p for p in dequantize.dequantize_probes(source(), NUMPY) if p.name == "get_rows q4_K"
    )
    assert probe.entry == "_ZN4rows13k_get_rows_kqIfXadL*15dequantize_q4_K*EE*"
    (case,) = probe.cases(1)
    blocks = case.launch.arguments[0].data  # type: ignore[union-attr]
    ids = case.launch.arguments[1].data  # type: ignore[union-attr]
    values = NUMPY.values("q4_K", blocks).reshape(3, 2, 8, 1024)  # type: ignore[arg-type]
    right = case.expected["dst"]
    for outer, inner, row in np.ndindex(3, 2, 5):
        wanted = values[outer, inner, ids[outer, inner, row]]
        away = np.abs(right.values[outer, inner, row] - wanted)
        assert (away <= right.bound[outer, inner, row] + 2.0**-22 * np.abs(wanted)).all()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_values_of_blocks_are_exact_but_for_what_is_added(kind: TensorType) -> None:
    blocks = random_blocks(kind, 16, np.random.default_rng(8))
    found = dequantize.block_values(NUMPY, blocks)
    right = NUMPY.values(kind.name, blocks.data)
    assert (np.abs(found.value - right) <= 2.0**-23 * np.abs(right).max()).all()
    if blocks.offset() is None:
        assert not found.error.any()
        assert (found.value == right).all()


def test_warps_and_rows_are_those_of_any_gpu() -> None:
    one, several, fused, experts = matmul_config.instances(source())
    assert (one.warps, one.rows, one.columns) == (4, 1, 1)
    assert (several.warps, several.rows, several.columns) == (4, 2, 4)
    assert fused.fused
    assert experts.line == "    EXPERTS(GGML_TYPE_Q8_0, 2, false)"
    assert one.entry == "_Z13mul_mat_vec_qIL9ggml_type8ELi1ELb0ELb0ELb0EE*"
    assert one.blocks == 2 * 32 + 16  # a round of 128 threads takes 32 blocks


@pytest.mark.parametrize("lost", ["bool halve_iters = false", "const int ids_stride"])
def test_another_kernel_is_not_taken_for_this_one(lost: str) -> None:
    assert lost in MMVQ
    assert not matmul_config.instances(source(mmvq=MMVQ.replace(lost, "")))


def test_experts_without_fusion_are_another_instance() -> None:
    older = MMVQ.replace(", bool has_fusion = false>", ">")
    kept, moe = older.split("mul_mat_vec_q_moe(")
    older = f"{kept}mul_mat_vec_q_moe({moe.replace('const int fusion, ', '')}"
    *_, experts = matmul_config.instances(source(mmvq=older))
    assert experts.line == "    EXPERTS(GGML_TYPE_Q8_0, 2)"
    assert experts.entry == "_Z17mul_mat_vec_q_moeIL9ggml_type8ELi2EE*"
    (probe,) = [p for p in matmul.matmul_probes(source(mmvq=older), NUMPY) if "experts" in p.name]
    assert len(probe.cases(1)[0].launch.arguments) == len(matmul_config.EXPERT_PARAMETERS) - 1
    other = MMVQ.replace("int c_rows_per_block", "int rows")
    assert not any(instance.experts for instance in matmul_config.instances(source(mmvq=other)))


def test_the_struct_of_what_is_fused_is_laid_out_as_in_c() -> None:
    assert matmul_config.fusion_offsets(source()) == {
        "x_bias": 0, "gate": 8, "glu_op": 16, "glu_limit": 20, "alone": 24, "shared_dst": 32,
        "shared_stride_col_dst": 40, "size": 48,
    }  # fmt: skip


def test_products_are_those_of_both_sides() -> None:
    for probe in matmul.matmul_probes(source(), NUMPY):
        if "fused" in probe.name:
            continue
        (case,) = probe.cases(1)
        x = NUMPY.values("q8_0", case.launch.arguments[0].data)  # type: ignore[union-attr,arg-type]
        y = case.launch.arguments[1].data.reshape(-1, 36)  # type: ignore[union-attr]
        q = y[:, 4:].view(np.int8) * y[:, :2].copy().view("<f2").astype(float)
        right = case.expected["dst"]
        vectors, rows = right.values.shape
        if "experts" in probe.name:
            ids = np.asarray(case.launch.arguments[2].data)  # type: ignore[union-attr]
            x = x.reshape(4, rows, -1)[ids.ravel()]
        else:
            x = np.repeat(x.reshape(2, rows, -1), vectors // 2, 0)
        wanted = np.einsum("vrk,vk->vr", x, q.reshape(vectors, -1))
        size = np.abs(wanted).max()
        assert (np.abs(right.values - wanted) <= right.bound + 1e-6 * size).all(), probe.name
        assert (right.bound < 1e-4 * size).all()
        # The last product may be fused with the sum that it goes into, so it is not certain.
        assert right.bound[-1, -1] > 0
        assert right.bound[0, 0] == 0


def test_what_no_probe_is_there_for_is_named() -> None:
    lines = quants.not_covered(source(), NUMPY, "121a")
    assert "q4_K: no probe of mul_mat_vec, vec_dot" in lines
    assert any(line.startswith("q8_0: no probe of dequantize") for line in lines)


def test_units_hold_what_the_source_has() -> None:
    units = quants.quant_units(source(convert=""), "121a")
    assert sorted(units) == ["matmul_vec", "vec_dot"]
    names = {probe.unit for probe in quants.quant_probes(source(), NUMPY, "121a")}
    assert {"matmul_vec", "vec_dot", "dequantize"} <= names
