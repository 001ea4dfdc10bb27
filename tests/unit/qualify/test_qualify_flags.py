"""The flags that are judged are the flags of the build: against a real CMake's own words."""

import json
from pathlib import Path

import pytest

from sparkbuild.manifest import find_recipes
from sparkbuild.qualify.flags import differences, foretold

PIECES = json.loads((Path(__file__).parents[2] / "data/qualify/ggml-cuda-pieces.json").read_text())[
    "pieces"
]


def options(**more: str) -> dict[str, str]:
    recipes = find_recipes(None)
    patchset, _ = recipes.patchset("vision")
    toolchain, _ = recipes.toolchain("cuda-13.0")
    return {**patchset.build.cmake, **toolchain.options(), **more}


def test_foretold_flags_are_those_of_a_real_build() -> None:
    assert differences(foretold(options()), PIECES) == ()


def test_what_code_depends_on_is_in_them() -> None:
    flags = foretold(options())
    assert {"-O3", "-DNDEBUG", "-std=c++17", "-use_fast_math", "-extended-lambda"} <= set(flags)


@pytest.mark.parametrize(
    ("name", "piece"),
    [("GGML_CUDA_FORCE_MMQ", "-DGGML_CUDA_FORCE_MMQ"), ("CMAKE_CUDA_FLAGS", "-Xcicc=-O1")],
)
def test_an_option_that_changes_code_has_to_be_foretold(name: str, piece: str) -> None:
    value = piece if name == "CMAKE_CUDA_FLAGS" else "ON"
    flags = foretold(options(**{name: value}))
    assert differences(flags, [*PIECES, piece]) == ()
    assert differences(flags, PIECES) == (f"qualification had {piece}, the build has not",)
    assert differences(foretold(options()), [*PIECES, piece]) == (
        f"the build has {piece}, qualification had not",
    )


def test_an_option_that_is_off_adds_nothing() -> None:
    assert foretold(options(GGML_CUDA_FORCE_MMQ="OFF")) == foretold(options())


@pytest.mark.parametrize(
    "piece",
    ["-Xcompiler=-fPIC", '-Xcompiler "-Wall -use_slow_math"', "-DGGML_CUDA_FA_F16_F16=1",
     "--generate-code=arch=compute_90,code=[sm_90]", "-compress-mode=speed"],
)  # fmt: skip
def test_what_device_code_never_sees_makes_no_difference(piece: str) -> None:
    assert differences(foretold(options()), [*PIECES, piece]) == ()


@pytest.mark.parametrize("piece", ["-G", "-maxrregcount=32", "--fmad=false", "-DQK_K=64"])
def test_an_unknown_flag_of_the_build_is_told(piece: str) -> None:
    assert differences(foretold(options()), [*PIECES, piece]) == (
        f"the build has {piece}, qualification had not",
    )
