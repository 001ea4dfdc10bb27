"""The variant vision-132: sources that the compilers of CUDA 13.2.0 and 13.2.1 compile right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.qualify.compile import Nvcc, compile_unit
from sparkbuild.qualify.flags import foretold
from sparkbuild.source.obtain import obtain
from sparkbuild.source.prepare import prepare
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.workspace import Workspace

pytestmark = [
    pytest.mark.network,
    pytest.mark.cuda_toolkit,
    pytest.mark.skipif(current_platform() != "linux-x86_64", reason="roots for x86-64"),
]
BAD = {"13.2.0": "13.2.51", "13.2.1": "13.2.78"}
BROKEN = ["iq1_s", "iq2_s", "iq3_s"]
BLACKWELL = ("121a", "120a", "110a", "100a")
Run = Callable[..., Any]
UNIT = '#include "ggml-cuda/common.cuh"\n#include "ggml-cuda/vecdotq.cuh"\n' + "".join(
    f"""extern "C" __global__ void probe_{name}(const void * v, const block_q8_1 * y, float * o) {{
    o[threadIdx.x] = vec_dot_{name}_q8_1(v, y, threadIdx.x, 0);
}}
"""
    for name in (*BROKEN, "iq2_xxs", "iq3_xxs", "q2_K", "q4_K")
)


class Quiet:
    """An observer that looks away."""

    def started(self, stage: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finished(self, report: Any) -> None: ...


@pytest.fixture(scope="module")
def roots(run_sparkbuild: Run, real_work: Path) -> dict[str, Path]:
    """The two compilers, without cuBLAS."""
    for release in BAD:
        done = run_sparkbuild(
            "toolkit", "install", release, "--compilers", "--work", str(real_work)
        )
        assert done.returncode == 0, done.stderr
    folder = real_work / "toolkits"
    return {release: next(folder.glob(f"cuda-{release}*/{current_platform()}")) for release in BAD}


@pytest.fixture(scope="module")
def sources(real_work: Path) -> dict[str, Path]:
    """The tree without the patch and with it, by variant."""
    work, found = Workspace(real_work), {}
    work.prepare()
    for variant in ("vision", "vision-132"):
        patchset, manifest = find_recipes(None).patchset(variant)
        tree = obtain(patchset.source, manifest, work, Quiet())
        found[variant] = Path(prepare(tree, patchset, manifest, work, Quiet()).directory)
    return found


def judged(run: Run, work: Path, release: str, variant: str, *more: str) -> list[dict[str, Any]]:
    done = run(
        "toolkit", "qualify", release, "--variant", variant, "--work", str(work), "--json", *more
    )
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["qualifications"]
    return found


@pytest.mark.usefixtures("roots")
@pytest.mark.parametrize("release", BAD)
def test_products_are_wrong_without_the_patch_and_right_with_it(
    release: str, run_sparkbuild: Run, real_work: Path
) -> None:
    asked = [word for target in BLACKWELL for word in ("--arch", target)]
    asked += ["--probe", "vec_dot"]
    for variant in ("vision", "vision-132"):
        found = judged(run_sparkbuild, real_work, release, variant, *asked)
        assert [one["compiler"]["architecture"] for one in found] == list(BLACKWELL)
        for one in found:
            assert one["compiler"]["cicc"] == BAD[release]
            wrong = {p["types"][0] for p in one["probes"] if p["outcome"] == "wrong"}
            assert {p["outcome"] for p in one["probes"]} <= {"right", "wrong"}
            assert sorted(wrong) == (BROKEN if variant == "vision" else [])
            assert len(one["probes"]) > 20


@pytest.mark.usefixtures("roots")
def test_a_whole_qualification_is_right_with_the_patch(
    run_sparkbuild: Run, real_work: Path
) -> None:
    (found,) = judged(run_sparkbuild, real_work, "13.2.1", "vision-132", "--arch", "121a")
    assert found["verdict"] == "right"
    assert {probe["outcome"] for probe in found["probes"]} == {"right"}
    kinds = {probe["kind"] for probe in found["probes"]}
    assert {"vec_dot", "load_tiles", "mul_mat_vec"} <= kinds


def instructions(root: Path, source: Path, architecture: str, folder: Path) -> list[str]:
    """What a compiler makes of ``UNIT``, without where its lines come from."""
    made = compile_unit(
        Nvcc(
            root=str(root), host=find_host_compiler().cxx, source=str(source),
            architecture=architecture, flags=foretold({}), folder=str(folder),
        ),
        "unit", UNIT,
    )  # fmt: skip
    assert made.compiled, made.error
    text = re.split(r"\n\s*\.section\s", Path(made.ptx).read_text())[0]
    skipped = re.compile(r"\s*(\.loc|\.file|//|$)")
    return [line for line in text.splitlines() if not skipped.match(line)]


def test_every_other_compiler_and_target_gets_the_same_code(
    roots: dict[str, Path], cuda_root: Path, sources: dict[str, Path], tmp_path: Path
) -> None:
    def both(root: Path, architecture: str) -> list[list[str]]:
        return [
            instructions(root, source, architecture, tmp_path / f"{architecture}-{name}")
            for name, source in sources.items()
        ]

    plain, patched = both(cuda_root, "121a")
    assert plain == patched
    assert len(plain) > 400
    bad = roots["13.2.0"]
    plain, patched = both(bad, "90")
    assert plain == patched
    plain, patched = both(bad, "121a")
    assert plain != patched
    assert len(patched) <= len(plain) + 8, "it costs instructions"
