"""The variant that carries patches, built by the command: its proofs, and what they bring."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.build.jobs import usable_cores
from sparkbuild.manifest import find_recipes
from sparkbuild.patch_proof import check_proofs, prove
from sparkbuild.report.patches import Proven
from sparkbuild.source.model import Compiled

pytestmark = pytest.mark.real

PATCHSET, MANIFEST = find_recipes(None).patchset("vision-mtp")
PROOFS = [(patch.file, proof) for patch in PATCHSET.patches for proof in patch.proof]
LONG = {"eagle3", "embedding_rows", "mtp_blocks", "pictures", "positions"}
"""Proofs that take a minute and more against a build without the patches."""
PLAN = """schema = 1
name = "drafts"
summary = "what only the patches bring, in float32"
passes = [
  { canary = "glm5-next", forms = ["f32"], drafts = true },
  { canary = "glm47-flash", forms = ["f32"], drafts = true },
]
"""


@pytest.fixture(scope="module")
def patched(real_work: Path, run_sparkbuild: Callable[..., Any]) -> Compiled:
    """A build of every patch on the pin, by ``patch check --build``."""
    done = run_sparkbuild(
        "patch", "check", "--variant", "vision-mtp", "--build", "--json", "--work", str(real_work)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert {patch["state"] for patch in answer["patches"]} == {"applies"}
    assert PATCHSET.patched is not None
    assert answer["tree"] == PATCHSET.patched.tree
    made = answer["compiled"]
    return Compiled(**made)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What proofs write to, each below its name, since two run at a time."""
    return tmp_path_factory.mktemp("proofs")


Proofs = dict[str, Future[Proven]]


@contextmanager
def proved(wanted: set[str], made: Compiled, scratch: Path, logs: Path) -> Iterator[Proofs]:
    """Proofs of one build, as many at a time as there are cores: a server of theirs uses one.

    A process started anew cannot import this file (pytest's import mode), so it runs the product's.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, int(usable_cores())), mp_context=context) as pool:
        yield {
            proof: pool.submit(
                prove,
                MANIFEST,
                scratch / Path(proof).stem,
                proof,
                made,
                logs / f"{Path(proof).stem}.log",
            )
            for proof in dict.fromkeys(proof for _, proof in PROOFS)
            if proof in wanted
        }
        pool.shutdown(wait=False, cancel_futures=True)


def wanted(request: pytest.FixtureRequest, test: Callable[..., None]) -> set[str]:
    """Proofs that were selected of a test."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    chosen = [item for item in items if item.originalname == test.__name__]
    return {str(item.callspec.params["proof"]) for item in chosen}


@pytest.fixture(scope="module")
def with_patches(
    request: pytest.FixtureRequest, patched: Compiled, scratch: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proofs]:  # fmt: skip
    logs = tmp_path_factory.mktemp("with-patches")
    chosen = wanted(request, test_a_proof_holds_with_the_patches)
    with proved(chosen, patched, scratch, logs) as running:
        yield running


@pytest.fixture(scope="module")
def without_patches(
    request: pytest.FixtureRequest, real_build: Any, real_source: Path, scratch: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proofs]:  # fmt: skip
    stock = Compiled(
        passed=True, summary="", directory=str(real_build.bin), source=str(real_source)
    )
    chosen = wanted(request, test_a_proof_fails_on_the_base_for_a_fault_that_it_names)
    if not os.environ.get("SPARKBUILD_TEST_PROOFS"):
        chosen = {proof for proof in chosen if Path(proof).stem not in LONG}
    logs = tmp_path_factory.mktemp("without-patches")
    with proved(chosen, stock, scratch, logs) as running:
        yield running


def test_every_patch_has_a_proof_that_is_there() -> None:
    assert {file for file, _ in PROOFS} == {patch.file for patch in PATCHSET.patches}
    check_proofs(MANIFEST, tuple(proof for _, proof in PROOFS))


@pytest.mark.parametrize(("file", "proof"), PROOFS, ids=lambda text: Path(text).stem)
def test_a_proof_holds_with_the_patches(with_patches: Proofs, file: str, proof: str) -> None:
    found = with_patches[proof].result()
    assert found.passed, f"{file}: {found.summary}\n{Path(found.log).read_text()}"


@pytest.mark.parametrize(("file", "proof"), PROOFS, ids=lambda text: Path(text).stem)
def test_a_proof_fails_on_the_base_for_a_fault_that_it_names(
    without_patches: Proofs, file: str, proof: str
) -> None:
    """By a look at the build, not by an error of its own. Which patch cures it says drop-check."""
    if Path(proof).stem in LONG and not os.environ.get("SPARKBUILD_TEST_PROOFS"):
        pytest.skip("long runs against the base: SPARKBUILD_TEST_PROOFS is not set")
    found = without_patches[proof].result()
    told = Path(found.log).read_text()
    assert not found.passed, f"{file}: {found.summary}"
    assert "\nWRONG " in told
    assert "Traceback" not in told


def test_what_the_patches_bring_is_asked_and_right(
    patched: Compiled, real_work: Path, tmp_path: Path, run_sparkbuild: Callable[..., Any]
) -> None:
    plan = tmp_path / "drafts.toml"
    plan.write_text(PLAN)
    asked = ("smoke", patched.directory, "--suite", str(plan), "--work", str(real_work), "--json")
    done = run_sparkbuild(*asked, "--variant", "vision-mtp")
    assert done.returncode == 0, done.stdout + done.stderr
    parts = {part["name"]: part["result"]["drafts"] for part in json.loads(done.stdout)["parts"]}
    for name, checks in parts.items():
        assert {check["state"] for check in checks} == {"passed"}, name
    assert any(check["pictures"] for check in parts["glm47-flash"])


def test_a_build_that_lacks_what_its_variant_promises_is_refused(
    real_build: Any, real_work: Path, tmp_path: Path, run_sparkbuild: Callable[..., Any]
) -> None:
    plan = tmp_path / "drafts.toml"
    plan.write_text("\n".join(line for line in PLAN.splitlines() if "glm47" not in line))
    asked = ("smoke", str(real_build.bin), "--suite", str(plan), "--work", str(real_work), "--json")
    done = run_sparkbuild(*asked)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_sparkbuild(*asked, "--variant", "vision-mtp")
    assert done.returncode == 14, done.stdout + done.stderr
    drafts = json.loads(done.stdout)["parts"][0]["result"]["drafts"]
    assert {check["state"] for check in drafts} == {"failed"}
    assert all("not implemented yet" in check["reason"] for check in drafts)
