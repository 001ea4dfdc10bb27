"""Rules that ninja will go by, as CMake 4.4.5 wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.build.rules import cuda_object, rule_problems

RULES = r"""
# Rule for compiling unscanned CUDA files.

rule CUDA_COMPILER__ggml-cuda_unscanned_Release
  depfile = $DEP_FILE
  deps = gcc
  command = ${LAUNCHER}${CODE_CHECK}/opt/cuda/bin/nvcc -forward-unknown-to-host-compiler -ccbin=/usr/bin/c++ $DEFINES $INCLUDES $FLAGS -MD -MT $out -MF $DEP_FILE --frandom-seed=$out -Xcudafe --orig_src_path_name=$out -x cu -c $in -o $out && objcopy --wildcard --strip-symbol='*.cudafe1.cpp' $out
  description = Building CUDA object $out


#############################################
# Rule for linking CUDA shared library.

rule CUDA_SHARED_LIBRARY_LINKER__ggml-cuda_Release
  command = $PRE_LINK && /usr/bin/c++ -fPIC -o $TARGET_FILE $in $LINK_LIBRARIES && $POST_BUILD
"""  # noqa: E501 - one line as it was written


def problems(place: Path, text: str) -> list[str]:
    (place / "CMakeFiles").mkdir()
    (place / "CMakeFiles" / "rules.ninja").write_text(text)
    return list(rule_problems(place))


def test_the_rule_got_through(tmp_path: Path) -> None:
    assert problems(tmp_path, RULES) == []


@pytest.mark.parametrize(
    "part",
    [
        "--frandom-seed=$out",
        "-Xcudafe --orig_src_path_name=$out",
        "--strip-symbol='*.cudafe1.cpp' $out",
    ],
)
def test_each_part_that_is_missing_is_told(part: str, tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, RULES.replace(part, ""))
    assert problem.startswith("rule CUDA_COMPILER__ggml-cuda_unscanned_Release: ")
    assert part in problem


def test_one_rule_of_several_is_enough_to_be_wrong(tmp_path: Path) -> None:
    rules = RULES.split("#####", maxsplit=1)[0]
    other = rules.replace("ggml-cuda", "other").replace("--frandom-seed=$out ", "")
    (problem,) = problems(tmp_path, RULES + other)
    assert problem.startswith("rule CUDA_COMPILER__other_unscanned_Release: ")


def test_no_rule_at_all(tmp_path: Path) -> None:
    assert "found none" in problems(tmp_path, "rule CXX_COMPILER__x\n  command = c++\n")[0]


def test_a_host_compiler_in_a_folder_with_a_space_is_one_word() -> None:
    assert "'-ccbin=/my tools/c++'" in cuda_object("/my tools/c++")
