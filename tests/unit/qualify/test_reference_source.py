"""Types, constants and functions read from the text of headers."""

from pathlib import Path

import pytest

from sparkbuild.errors import QualificationIncompleteError
from sparkbuild.qualify.reference.source import HEADERS, SourceFacts, evaluate, read_source

API = """
enum ggml_type {
    GGML_TYPE_F32 = 0, // comments, with commas
    GGML_TYPE_OLD = 7,
    // GGML_TYPE_GONE = 8,
    GGML_TYPE_NEW_K,
    GGML_TYPE_COUNT,
};
enum ggml_prec {
    GGML_PREC_LOW = 0x10,
    GGML_PREC_SAME = GGML_PREC_LOW,
};
"""
COMMON = """
#define QK_K 256
#define QKOLD 32
#define QIOLD (QKOLD / (4 * QROLD))
#define QROLD 2
#define NOT_A_NUMBER some(thing)
#define WITH_PARAMETERS(x) (x)
#define SUB QK_K/64
typedef struct {
    GGML_EXTENSION union {
        struct {
            ggml_half d;    /* one
                               scale */
            ggml_half m;
        } GGML_COMMON_AGGR_S;
        ggml_half2 dm;
    } GGML_COMMON_AGGR_U;
    uint8_t qs[QKOLD / 2]; // nibbles
} block_old;
typedef struct {
    uint8_t  scales[SUB];
    uint8_t  x;
    uint16_t high;
    ggml_half d;
    float    sum;
} block_new_K;
typedef struct {
    strange_t d;
} block_odd;
"""
CUDA = """
template<>
struct ggml_cuda_type_traits<GGML_TYPE_OLD> {
    static constexpr int qk = QKOLD;
    static constexpr int qi = QIOLD;
    static constexpr int bs = sizeof(block_old);
};
"""
DOT = """
#define VDR_OLD_Q8_1_MMVQ 2
static __device__ __forceinline__ int helper(const int & x) {
    if (x) { return 1; }
    return 0;
}
static __device__ __forceinline__ int unused(int x);
static __device__ __forceinline__ float vec_dot_old_q8_1(const void * v) {
    return helper(1) + unused(2);
}
constexpr int FROM_CONSTEXPR = 2*VDR_OLD_Q8_1_MMVQ + 1;
"""


@pytest.fixture
def facts(tmp_path: Path) -> SourceFacts:
    texts = {"ggml-common.h": COMMON, "ggml-cuda/common.cuh": CUDA, "ggml-cuda/vecdotq.cuh": DOT}
    for name, text in texts.items():
        path = tmp_path / "ggml/src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "ggml/include").mkdir()
    (tmp_path / "ggml/include/ggml.h").write_text(API)
    return read_source(tmp_path)


def test_types_are_those_of_the_enum_that_have_a_block(facts: SourceFacts) -> None:
    assert [(kind.name, kind.number) for kind in facts.types.values()] == [("old", 7), ("new_K", 8)]
    assert facts.types["new_K"].enumerator == "GGML_TYPE_NEW_K"


def test_a_union_has_its_plain_members(facts: SourceFacts) -> None:
    old = facts.types["old"]
    assert [(f.name, f.offset, f.size) for f in old.fields] == [
        ("d", 0, 2),
        ("m", 2, 2),
        ("qs", 4, 16),
    ]
    assert old.size == 20
    assert old.field("dm") is None


def test_members_are_aligned_as_in_c(facts: SourceFacts) -> None:
    new = facts.types["new_K"]
    assert [(f.name, f.offset) for f in new.fields] == [
        ("scales", 0), ("x", 4), ("high", 6), ("d", 8), ("sum", 12),
    ]  # fmt: skip
    assert new.size == 16


def test_traits_are_numbers_where_there_are_some(facts: SourceFacts) -> None:
    assert (facts.types["old"].elements, facts.types["old"].ints) == (32, 4)
    assert (facts.types["new_K"].elements, facts.types["new_K"].ints) == (0, 0)


def test_constants(facts: SourceFacts) -> None:
    assert facts.constant("VDR_OLD_Q8_1_MMVQ") == 2
    assert facts.constant("FROM_CONSTEXPR") == 5
    assert facts.constant("SUB") == 4
    assert facts.has("QIOLD")
    for name in ("NOT_A_NUMBER", "WITH_PARAMETERS", "NOWHERE"):
        assert not facts.has(name)


def test_enums_count_on_and_take_names(facts: SourceFacts) -> None:
    assert facts.enums["ggml_type"]["GGML_TYPE_COUNT"] == 9
    assert "GGML_TYPE_GONE" not in facts.enums["ggml_type"]
    assert dict(facts.enums["ggml_prec"]) == {"GGML_PREC_LOW": 16, "GGML_PREC_SAME": 16}


def test_a_function_is_its_definition_to_the_last_brace(facts: SourceFacts) -> None:
    body = facts.body("ggml-cuda/vecdotq.cuh", "helper")
    assert body.startswith("helper(const int & x) {")
    assert body.endswith("return 0;\n}")
    assert facts.body("ggml-cuda/vecdotq.cuh", "unused") == ""


def test_callees_are_functions_of_the_header(facts: SourceFacts) -> None:
    found = facts.callees("ggml-cuda/vecdotq.cuh", "vec_dot_old_q8_1")
    assert found == ("vec_dot_old_q8_1", "helper", "unused")


def test_headers_that_a_source_lacks_are_empty(facts: SourceFacts) -> None:
    assert facts.text["ggml-cuda/mmvq.cu"] == ""
    assert set(facts.text) == set(HEADERS)


def test_what_is_no_source_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QualificationIncompleteError) as refusal:
        read_source(tmp_path)
    assert str(tmp_path / "ggml/include/ggml.h") in refusal.value.problems[0]


@pytest.mark.parametrize(
    ("text", "value"), [("1 + 2*3", 7), ("(7 / 2)", 3), ("1 << A", 16), ("A - 1", 3)]
)
def test_expressions(text: str, value: int) -> None:
    assert evaluate(text, {"A": 4}.__getitem__) == value


@pytest.mark.parametrize("text", ["sizeof(int)", "B", "1 +", "1.5", "a ? b : c"])
def test_what_is_no_expression_of_integers_is_named(text: str) -> None:
    with pytest.raises(KeyError):
        evaluate(text, {"A": 4}.__getitem__)
