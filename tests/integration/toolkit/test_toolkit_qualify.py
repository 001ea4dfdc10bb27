"""Real compilers on the pinned source: good ones are right, bad ones wrong in what they break."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.errors import HostError
from sparkbuild.manifest import current_platform
from sparkbuild.qualify.compile import STAND_IN, Nvcc, compile_unit
from sparkbuild.qualify.emulated import emulation
from sparkbuild.qualify.flags import foretold
from sparkbuild.toolkit.host import find_host_compiler

pytestmark = [
    pytest.mark.network,
    pytest.mark.cuda_toolkit,
    pytest.mark.skipif(current_platform() != "linux-x86_64", reason="roots for x86-64"),
]
BROKEN = ["iq1_s", "iq2_s", "iq3_s"]
BLACKWELL = ("121a", "120a", "110a", "100a")
OLDER = ("90", "86")
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def judge(run_sparkbuild: Run, real_work: Path) -> Callable[..., Any]:
    """``sparkbuild toolkit qualify``: exit status and what it says as JSON."""

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        done = run_sparkbuild(
            "toolkit", "qualify", *arguments, "--variant", "vision", "--work", str(real_work),
            "--json",
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def bad(run_sparkbuild: Run, real_work: Path) -> None:
    """The compilers of CUDA 13.2.0 are there, without cuBLAS."""
    done = run_sparkbuild("toolkit", "install", "13.2.0", "--compilers", "--work", str(real_work))
    assert done.returncode == 0, done.stderr


def wrong_types(found: dict[str, Any]) -> list[str]:
    wrong = [probe for probe in found["probes"] if probe["outcome"] == "wrong"]
    return sorted({name for probe in wrong for name in probe["types"]})


@pytest.mark.usefixtures("cuda_root")
def test_a_good_compiler_is_right_in_every_probe_and_known_the_second_time(
    judge: Callable[..., Any],
) -> None:
    status, answer = judge("13.0")
    (found,) = answer["qualifications"]
    outcomes = {probe["name"]: probe["outcome"] for probe in found["probes"]}
    assert {name for name, outcome in outcomes.items() if outcome != "right"} == set()
    assert (status, found["verdict"]) == (0, "right")
    assert not found["cached"]
    assert len(outcomes) > 100
    began = time.monotonic()
    status, again = judge("13.0")
    assert status == 0
    assert again["qualifications"][0]["cached"]
    assert time.monotonic() - began < 20, "it was judged again"


@pytest.mark.usefixtures("bad")
def test_the_bad_compiler_is_wrong_in_exactly_what_it_breaks(judge: Callable[..., Any]) -> None:
    status, answer = judge("13.2.0", "--arch", "121a", "--arch", "90", "--probe", "vec_dot")
    blackwell, hopper = answer["qualifications"]
    assert status == 10
    assert (blackwell["verdict"], hopper["verdict"]) == ("wrong", "right")
    assert wrong_types(blackwell) == BROKEN
    for probe in blackwell["probes"]:
        if probe["outcome"] == "wrong":
            assert "vecdotq.cuh" in probe["mistake"]["where"]["source"]
            assert probe["mistake"]["where"]["ptx_line"]


@pytest.mark.parametrize("release", ["13.1", "13.2.0", "13.2.1", "13.2.2", "13.3", "13.4", "13.5"])
def test_a_release_is_what_it_is_known_to_be_for_every_target(
    release: str, run_sparkbuild: Run, judge: Callable[..., Any], real_work: Path
) -> None:
    asked = os.environ.get("SPARKBUILD_TEST_RELEASES", "").split()
    if release not in asked and "all" not in asked:
        pytest.skip("SPARKBUILD_TEST_RELEASES does not name this release")
    done = run_sparkbuild("toolkit", "install", release, "--compilers", "--work", str(real_work))
    assert done.returncode == 0, done.stderr
    words = [word for target in (*BLACKWELL, *OLDER) for word in ("--arch", target)]
    status, answer = judge(release, *words, "--probe", "vec_dot", "--probe", "load_tiles")
    found = {one["compiler"]["architecture"]: one for one in answer["qualifications"]}
    assert list(found) == [*BLACKWELL, *OLDER]
    struck = BLACKWELL if release in {"13.2.0", "13.2.1"} else ()
    assert status == (10 if struck else 0)
    for target, one in found.items():
        assert wrong_types(one) == (BROKEN if target in struck else []), target
        assert {probe["outcome"] for probe in one["probes"]} <= {"right", "wrong"}
        assert len(one["probes"]) > 40


@pytest.mark.usefixtures("bad")
def test_the_first_wrong_probe_can_be_enough(judge: Callable[..., Any], real_work: Path) -> None:
    status, answer = judge("13.2.0", "--first", "--fresh")
    (found,) = answer["qualifications"]
    assert status == 10
    assert set(wrong_types(found)) <= set(BROKEN)
    assert len(found["probes"]) < 20, "the rest was judged too"
    kept = [json.loads(path.read_text()) for path in (real_work / "qualify").glob("*.json")]
    assert found["key"] not in {one["key"] for one in kept}, "half a verdict was kept"


@pytest.mark.usefixtures("bad")
def test_a_flag_that_avoids_the_defect_is_judged_by_what_it_makes(
    judge: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("patchsets", "toolchains"):
        shutil.copytree(Path(__file__).parents[3] / name, tmp_path / name)
    chain = tmp_path / "toolchains" / "cuda-13.2.0.toml"
    flag = 'CMAKE_CUDA_FLAGS = "-Xcicc -O1"'
    chain.write_text(chain.read_text().replace("[cmake]\n", f"[cmake]\n{flag}\n"))
    status, answer = judge(
        "13.2.0", "--arch", "121a", "--probe", "vec_dot", "--recipes", str(tmp_path)
    )
    (found,) = answer["qualifications"]
    assert (status, found["verdict"]) == (0, "right")
    assert found["compiler"]["flags"][:2] == ["-Xcicc", "-O1"]


@pytest.mark.usefixtures("cuda_root")
def test_seeded_faults_are_noticed(judge: Callable[..., Any]) -> None:
    status, answer = judge("13.0", "--seeded", "120", "--seed", "7")
    (sowed,) = answer["seeded"]
    fates = [one["fate"] for one in sowed["tried"]]
    caught, missed = fates.count("caught"), fates.count("within bounds")
    assert len(fates) == 120
    assert caught >= 60
    assert caught / (caught + missed) >= 0.95, [
        one for one in sowed["tried"] if one["fate"] == "within bounds"
    ]
    assert status == 0
    kinds = {one["kind"] for one in sowed["tried"]}
    assert len(kinds) >= 8, kinds


def nvcc(root: Path, source: Path, folder: Path) -> Nvcc:
    return Nvcc(
        root=str(root), host=find_host_compiler().cxx, source=str(source), architecture="121a",
        flags=foretold({}), folder=str(folder),
    )  # fmt: skip


@pytest.fixture(scope="module")
def source(real_tree: Any) -> Path:
    """The pinned tree on disk."""
    return Path(real_tree.directory)


def instructions(ptx: str) -> list[str]:
    """The text without where its lines come from."""
    text = re.split(r"\n\s*\.section\s", ptx)[0]
    return [
        line for line in text.splitlines() if line and not re.match(r"\s*(\.loc|\.file|//)", line)
    ]


UNIT = '#include "ggml-cuda/common.cuh"\n#include "ggml-cuda/vecdotq.cuh"\n' + "".join(
    f"""extern "C" __global__ void probe_{name}(const void * v, const block_q8_1 * y, float * o) {{
    o[threadIdx.x] = vec_dot_{name}_q8_1(v, y, threadIdx.x, 0);
}}
"""
    for name in ("iq3_s", "iq2_s", "iq1_s", "q2_K")
)


def test_line_info_and_stand_in_headers_change_no_instruction(
    cuda_root: Path, source: Path, tmp_path: Path
) -> None:
    made = nvcc(cuda_root, source, tmp_path / "made")
    unit = compile_unit(made, "unit", UNIT)
    assert unit.compiled, unit.error
    whole = instructions(Path(unit.ptx).read_text())
    assert len(whole) > 200
    bare = shutil.copytree(cuda_root, tmp_path / "bare", symlinks=True)
    for header in (bare / "include").glob("cublas*"):
        header.unlink()
    alone = nvcc(bare, source, tmp_path / "alone")
    assert str(STAND_IN) in alone.argv("unit")
    other = compile_unit(alone, "unit", UNIT)
    assert other.compiled, other.error
    assert instructions(Path(other.ptx).read_text()) == whole
    from sparkbuild import process

    plain = tmp_path / "made" / "plain.cu"
    plain.write_text(UNIT)
    argv = made.argv("plain", line_info=False)
    done = process.capture(argv, env=made.environment(), cwd=tmp_path / "made", timeout=300)
    assert done.returncode == 0, done.stderr
    assert instructions((tmp_path / "made" / "plain.ptx").read_text()) == whole


@pytest.mark.usefixtures("bad")
def test_a_sparks_own_compiler_emits_the_same_under_an_emulator(
    run_sparkbuild: Run, judge: Callable[..., Any], real_work: Path
) -> None:
    try:
        emulation("linux-aarch64")
    except HostError as error:
        pytest.skip(f"qemu-user or the aarch64 cross compiler is missing: {error.problems[0]}")
    done = run_sparkbuild(
        "toolkit", "install", "13.2.0", "--compilers", "--platform", "linux-aarch64",
        "--work", str(real_work),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    status, answer = judge("13.2.0", "--platform", "linux-aarch64", "--probe", "vec_dot")
    (found,) = answer["qualifications"]
    assert status == 10
    assert found["compiler"]["platform"] == "linux-aarch64"
    assert wrong_types(found) == BROKEN
    _, here = judge("13.2.0", "--probe", "vec_dot", "--fresh")
    texts = []
    for one in (found, here["qualifications"][0]):
        (unit,) = (unit for unit in one["units"] if unit["name"] == "vec_dot")
        texts.append(instructions(Path(unit["ptx"]).read_text()))
    assert texts[0] == texts[1]
