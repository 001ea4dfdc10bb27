"""Run a patch's proof on a build: a pytest test of the checkout, or a program beside the manifest.

A test finds the build's programs in ``SPARKBUILD_TEST_BUILD``. A program gets three folders as its
arguments: the build's programs, the sources that they were made of, and one to write to; one whose
name ends in ``.py`` is run by sparkbuild's own Python, and finds ``sparkbuild.patch_bench`` there.
Passed means: exit status 0, and for a test, at least one ran and none was skipped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import junitparser

from sparkbuild import process
from sparkbuild.errors import ManifestError
from sparkbuild.report.patches import Proven
from sparkbuild.source.model import Compiled

BUILD_VARIABLE: Final = "SPARKBUILD_TEST_BUILD"
_PYTHON: Final = ".py"
"""A wheel keeps no permission to execute, so these need none."""


class Prover(Protocol):
    """Whoever runs one proof on a build."""

    def __call__(self, proof: str, made: Compiled, log: Path) -> Proven:
        """The proof's answer; everything that it printed is in ``log``."""


def prover(
    manifest: Path, scratch: Path, on_line: Callable[[str], None] = lambda _: None
) -> Prover:
    """The runner for a manifest's proofs; only the main thread may call it.

    ``scratch`` is the folder that programs may write to; it is kept from one to the next.
    """

    def proven(proof: str, made: Compiled, log: Path) -> Proven:
        return prove(manifest, scratch, proof, made, log, on_line)

    return proven


def prove(
    manifest: Path, scratch: Path, proof: str, made: Compiled, log: Path,
    on_line: Callable[[str], None] = lambda _: None,
) -> Proven:  # fmt: skip
    """One proof of a manifest run on a build; another process can be asked for it by this name."""
    folder = manifest.absolute().parent
    log.unlink(missing_ok=True)
    if "::" in proof:
        return _test(proof, folder.parent.parent, Path(made.directory), log, on_line)
    scratch.mkdir(parents=True, exist_ok=True)
    places = [made.directory, made.source, str(scratch)]
    return _program(proof, folder, places, log, on_line)


def check_proofs(manifest: Path, proofs: tuple[str, ...]) -> None:
    """Raise ManifestError naming every proof that is not there: hours of building come first."""
    folder = manifest.absolute().parent
    missing = []
    for proof in proofs:
        place = folder.parent.parent if "::" in proof else folder
        file = place / proof.partition("::")[0]
        if not file.is_file():
            missing.append(f"{proof}: there is no file {file}")
        elif "::" not in proof and file.suffix != _PYTHON and not os.access(file, os.X_OK):
            missing.append(f"{proof}: {file} may not be executed")
    if missing:
        raise ManifestError(
            f"{manifest} names proofs that cannot be run",
            problems=missing,
            evidence=[manifest],
            next_step="name a test of the folder with patchsets/ (tests/file.py::test), or a "
            "program beside the manifest (proofs/file.py)",
        )


def _test(proof: str, root: Path, build: Path, log: Path, on_line: Callable[[str], None]) -> Proven:
    results = log.with_suffix(".xml")
    results.unlink(missing_ok=True)
    done = process.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         f"--junit-xml={results}", proof],
        log=log,
        env=process.environment(extra={BUILD_VARIABLE: str(build)}),
        cwd=root,
        on_line=on_line,
    )  # fmt: skip
    ran, skipped = _counted(results)
    passed = done.returncode == 0 and ran > 0 and not skipped
    summary = f"{ran} ran, {skipped} skipped, exit status {done.returncode}"
    return Proven(
        proof=proof, passed=passed, seconds=round(done.seconds, 3), summary=summary, log=str(log)
    )


def _counted(results: Path) -> tuple[int, int]:
    """Tests that ran and tests that were skipped."""
    if not results.is_file():
        return 0, 0
    suites = junitparser.JUnitXml.fromfile(str(results))
    total, skipped = int(suites.tests or 0), int(suites.skipped or 0)
    return total - skipped, skipped


def _program(
    proof: str, folder: Path, places: list[str], log: Path, on_line: Callable[[str], None]
) -> Proven:
    file = folder / proof
    # -B: the folder may not be ours to write to, and nothing but what ships belongs there.
    started = [sys.executable, "-B", str(file)] if file.suffix == _PYTHON else [str(file)]
    done = process.run(
        [*started, *places], log=log, env=process.environment(), cwd=folder, on_line=on_line
    )
    last = next((line for line in reversed(done.tail.splitlines()) if line.strip()), "")
    summary = f"exit status {done.returncode}" + (f", {last.strip()[:120]}" if last else "")
    return Proven(
        proof=proof,
        passed=done.returncode == 0,
        seconds=round(done.seconds, 3),
        summary=summary,
        log=str(log),
    )
