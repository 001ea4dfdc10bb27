"""Every patch lands where it was made for; what those of CUDA code change compiles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess  # noqa: TID251 - tests run tools from outside
from pathlib import Path

import pytest

from sparkbuild.faults.catalogue import PATCHES, load_faults, on_gpu
from sparkbuild.faults.lane import Lane, patch
from sparkbuild.faults.model import Fault, SourceSeed
from sparkbuild.manifest import current_platform

pytestmark = [pytest.mark.real, pytest.mark.network]

CATALOGUE = Path(__file__).parents[2] / "faults"
FAULTS = [one for one in load_faults(CATALOGUE).every if isinstance(one.seed, SourceSeed)]
CUDA = Path("ggml") / "src" / "ggml-cuda"


def changed(file: Path) -> list[str]:
    return re.findall(r"^\+\+\+ b/(\S+)", file.read_text(), re.MULTILINE)


def seed_of(fault: Fault) -> SourceSeed:
    assert isinstance(fault.seed, SourceSeed)
    return fault.seed


def patched(fault: Fault, source: Path, tree: Path, log: Path) -> list[str]:
    """The files that a fault's patch changes, changed below ``tree``."""
    file = CATALOGUE / PATCHES / seed_of(fault).patch
    names = changed(file)
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, tree / name)
    patch(Lane(root=tree, source=tree, binary=tree), file, log)
    return names


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_patch_lands_where_it_was_made_for(
    fault: Fault, real_source: Path, tmp_path: Path
) -> None:
    names = patched(fault, real_source, tmp_path / "tree", tmp_path / "log")
    assert names
    for name in names:
        assert (tmp_path / "tree" / name).read_bytes() != (real_source / name).read_bytes()


@pytest.mark.cuda_toolkit
@pytest.mark.skipif(
    not os.environ.get("SPARKBUILD_TEST_FAULTS_CUDA"),
    reason="SPARKBUILD_TEST_FAULTS_CUDA is not set: all files take a core a quarter of an hour",
)
@pytest.mark.parametrize(
    "fault", [one for one in FAULTS if on_gpu(one)], ids=lambda fault: fault.id
)
def test_what_a_patch_of_cuda_code_changes_compiles(
    fault: Fault, real_source: Path, real_work: Path, tmp_path: Path
) -> None:
    root = real_work / "toolkits" / "cuda-13.0" / current_platform()
    if not (root / "bin" / "nvcc").is_file():
        pytest.skip("sparkbuild toolkit install cuda-13.0 was not done in this work folder")
    tree = tmp_path / "tree"
    shutil.copytree(real_source / "ggml", tree / "ggml")
    names = patched(fault, real_source, tree, tmp_path / "log")
    units = list(seed_of(fault).units) or [Path(name).name for name in names]
    for unit in units:
        (file,) = (tree / CUDA).rglob(unit)
        done = subprocess.run(
            [
                root / "bin" / "nvcc", "-std=c++17", "-O3", "-use_fast_math", "-extended-lambda",
                "-gencode=arch=compute_90,code=sm_90", "-DGGML_CUDA_USE_GRAPHS",
                "-DGGML_SCHED_MAX_COPIES=4", f"-I{tree / 'ggml' / 'src'}",
                f"-I{tree / 'ggml' / 'include'}", "-c", file, "-o", tmp_path / "unit.o",
            ],
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
