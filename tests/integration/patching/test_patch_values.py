"""Numbers and names that model files hold: a patch may add behind them, and not move them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkbuild.errors import PatchError

if TYPE_CHECKING:
    from patching.conftest import Kit

TYPES = """enum ggml_type {
    GGML_TYPE_F32 = 0,
    GGML_TYPE_F16 = 1,
    // GGML_TYPE_GONE = 2, support has been removed
    GGML_TYPE_Q8_0 = 8,
    GGML_TYPE_Q8_1,
    GGML_TYPE_COUNT,
};
enum ggml_op { GGML_OP_ADD, GGML_OP_MUL };
enum llama_ftype {
    LLAMA_FTYPE_ALL_F32 = 0,
    LLAMA_FTYPE_MOSTLY_F16 = 1,
    LLAMA_FTYPE_GUESSED = 1024,
};
"""
NAMES = """static const std::map<llm_arch, const char *> LLM_ARCH_NAMES = {
    { LLM_ARCH_LLAMA, "llama" }, // the first
    { LLM_ARCH_GLM,   "glm" },
};
static std::map<projector_type, std::string> PROJECTOR_TYPE_NAMES = {
    { PROJECTOR_TYPE_MLP, "mlp" },
};
#define KEY_FTYPE "general.file_type"
"""
FILES = {"src/types.h": TYPES, "src/names.cpp": NAMES}
Q8_1, COUNT = "    GGML_TYPE_Q8_1,\n", "    GGML_TYPE_COUNT,\n"
GUESSED = "    LLAMA_FTYPE_GUESSED"
LLAMA = '{ LLM_ARCH_LLAMA, "llama" }, // the first\n'
T, N = "src/types.h", "src/names.cpp"
REFUSED = [
    ("in the middle", T, Q8_1, f"    GGML_TYPE_NEW,\n{Q8_1}", "GGML_TYPE_Q8_1 was '9' and is '10'"),
    ("a removed number", T, "    // GGML_TYPE_GONE = 2,", "    GGML_TYPE_NEW = 2, //",
     "GGML_TYPE_NEW is new, '2'"),
    ("somebody's number", T, COUNT, f"    GGML_TYPE_NEW = 8,\n{COUNT}",
     "that is the value of GGML_TYPE_Q8_0"),
    ("renumbered", T, "MOSTLY_F16 = 1,", "MOSTLY_F16 = 7,",
     "LLAMA_FTYPE_MOSTLY_F16 was '1' and is '7'"),
    ("gone", T, Q8_1, "", "GGML_TYPE_Q8_1 was '9' and is gone"),
    ("fewer", T, COUNT, COUNT.replace(",", " = 5,"), "there are fewer"),
    ("other branch", T, Q8_1, f"#ifdef NEW\n    GGML_TYPE_NEW,\n#endif\n{Q8_1}", "is '9 or 10'"),
    ("arch renamed", N, '"glm"', '"glm5"', "LLM_ARCH_NAMES[LLM_ARCH_GLM] was 'glm'"),
    ("projector gone", N, '    { PROJECTOR_TYPE_MLP, "mlp" },\n', "",
     "PROJECTOR_TYPE_NAMES[PROJECTOR_TYPE_MLP] was 'mlp' and is gone"),
    ("key renamed", N, "general.file_type", "general.ftype", "KEY_FTYPE was"),
]  # fmt: skip
FINE = [
    ("at the end", T, COUNT, f"    GGML_TYPE_NEW,\n{COUNT}", ["GGML_TYPE_COUNT", "GGML_TYPE_NEW"]),
    ("below the flag", T, GUESSED, f"    LLAMA_FTYPE_NEW = 2,\n{GUESSED}", ["LLAMA_FTYPE_NEW"]),
    ("written otherwise", T, "GGML_TYPE_Q8_0 = 8,", "GGML_TYPE_Q8_0 = 1 << 3, /* = 9 */", []),
    ("dead lines", T, Q8_1, f"#if 0\n    GGML_TYPE_NEW,\n#endif\n{Q8_1}", []),
    ("no file holds it", T, "GGML_OP_ADD,", "GGML_OP_SUB, GGML_OP_ADD,", []),
    ("a second arch", N, LLAMA, f'{{ LLM_ARCH_NEW, "new" }},\n    {LLAMA}',
     ["LLM_ARCH_NAMES[LLM_ARCH_NEW]"]),
    ("order", N, LLAMA + '    { LLM_ARCH_GLM,   "glm" },',
     '{ LLM_ARCH_GLM, "g" "lm" },\n    ' + LLAMA, []),
    ("key renamed, name kept", N, "LLM_ARCH_GLM", "LLM_ARCH_GLM4",
     ["LLM_ARCH_NAMES[LLM_ARCH_GLM4]", "LLM_ARCH_NAMES[LLM_ARCH_GLM]"]),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "told"), [r[1:] for r in REFUSED],
                         ids=[r[0] for r in REFUSED])  # fmt: skip
def test_a_moved_value_is_refused_by_check_and_by_make(
    kit: Kit, file: str, old: str, new: str, told: str
) -> None:
    kit.pin(FILES)
    assert FILES[file].count(old) == 1
    kit.commit("one", {file: FILES[file].replace(old, new)})
    found = kit.check()
    assert found.patches[0].state == "applies"
    assert not found.passed
    with pytest.raises(PatchError, match="move values that model files hold") as refusal:
        kit.make()
    assert told in "\n".join(refusal.value.problems)


@pytest.mark.parametrize(("file", "old", "new", "names"), [r[1:] for r in FINE],
                         ids=[r[0] for r in FINE])  # fmt: skip
def test_a_new_value_at_the_end_is_fine_and_told(
    kit: Kit, file: str, old: str, new: str, names: list[str]
) -> None:
    kit.pin(FILES)
    assert FILES[file].count(old) == 1
    kit.commit("one", {file: FILES[file].replace(old, new)})
    found = kit.check()
    assert found.passed
    assert sorted(value.name for value in found.values) == sorted(names)
    kit.make()


def test_values_move_with_a_file_that_is_renamed(kit: Kit) -> None:
    kit.pin(FILES)
    kit.commit("one", {"src/types.h": None, "src/other.h": TYPES})
    assert kit.check().passed
    assert kit.check().values == ()


def test_make_tells_a_new_value(kit: Kit) -> None:
    from sparkbuild.source.obtain import obtain
    from sparkbuild.source.prepare import prepare

    kit.pin(FILES)
    kit.commit("one", {"src/names.cpp": NAMES.replace('"glm" },', '"glm" },\n    { A, "a" },')})
    for _ in range(2):  # made, then remembered
        source = obtain(kit.patchset.source, kit.manifest, kit.work, kit.live)
        tree = prepare(source, kit.patchset, kit.manifest, kit.work, kit.live)
        assert tree.notes == ("LLM_ARCH_NAMES[A] is new, 'a' (src/names.cpp)",)


def test_the_writers_own_table_counts_too(kit: Kit) -> None:
    kit.paths = ("gguf-py",)
    table = (
        "class GGMLQuantizationType(IntEnum):\n    F32 = 0\n    F16 = 1\nclass K:\n    A = 'a.b'\n"
    )
    table += "MODEL_ARCH_NAMES: dict = {\n    MODEL_ARCH.LLAMA: 'llama',\n}\n"
    kit.pin({"gguf-py/gguf/constants.py": table})
    new = table.replace("F16 = 1", "F16 = 2").replace("'a.b'", "'a.c'").replace("'llama'", "'ll'")
    kit.commit("one", {"gguf-py/gguf/constants.py": new})
    moved = {value.name: value.refused for value in kit.check().values}
    assert set(moved) == {
        "GGMLQuantizationType.F16", "K[A]", "MODEL_ARCH_NAMES[MODEL_ARCH.LLAMA]"
    }  # fmt: skip
    assert all(moved.values())
