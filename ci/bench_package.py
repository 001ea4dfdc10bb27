"""Benchmark of packing: a wheel made twice and checked, against a plain zip of the same bytes."""

from __future__ import annotations

import shutil
import statistics
import time
import zipfile
from pathlib import Path
from typing import Any, Final

from sparkbuild.build.model import Binaries, BinaryFacts
from sparkbuild.files import DigestCache
from sparkbuild.manifest import find_recipes
from sparkbuild.package.compare import compare
from sparkbuild.package.make import package
from sparkbuild.package.model import Wheel
from sparkbuild.source.obtain import obtain
from sparkbuild.source.prepare import prepare
from sparkbuild.stages import read_record
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.choice.select import choose, settle
from sparkbuild.wheel_rebuild import read_recorded
from sparkbuild.workspace import Workspace

ROUNDS: Final = 5


class _Quiet:
    """An observer that looks away."""

    def started(self, stage: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finished(self, report: Any) -> None: ...


def bench_package(work: Path) -> dict[str, Any]:
    """The wheel of a finished ``make`` in ``work``, packed again, and compared with itself."""
    stages = next((work / "builds").glob("*/stages/package.json"), None)
    if stages is None:
        raise SystemExit(f"{work} has no finished build: sparkbuild make --work {work} makes one")
    folder = stages.parent
    wheel = read_record(folder / "package.json", Wheel)
    given = _given(work, folder, Path(wheel.path))
    place = work / "bench-package"
    pairs = []
    for _ in range(ROUNDS):
        shutil.rmtree(place, ignore_errors=True)
        began = time.perf_counter()
        made = package(**given, workdir=place, log=place / "log" / "package.log")
        packed = time.perf_counter() - began
        pairs.append((packed, _zip(Path(made.path), place / "plain.zip")))
    began = time.perf_counter()
    shutil.copyfile(made.path, place / "again.whl")
    if not compare(Path(made.path), place / "again.whl").identical:
        raise SystemExit("a copy differs from its original")
    compared = time.perf_counter() - began
    ours, plain = (statistics.median(pair[n] for pair in pairs) for n in (0, 1))
    return {
        "seconds": ours,
        "baseline": plain,
        "ratio": ours / plain,
        "bytes": made.size,
        "compare_equal_seconds": compared,
        "target": "1.5",
        "baseline_is": "python's zipfile over the same members, once, nothing checked",
        "rounds": ROUNDS,
    }


def _given(work: Path, folder: Path, wheel: Path) -> dict[str, Any]:
    recipes, workspace = find_recipes(None), Workspace(work)
    recorded = read_recorded(wheel)
    patchset, manifest = recipes.patchset(recorded.variant)
    source = obtain(patchset.source, manifest, workspace, _Quiet())
    tree = prepare(source, patchset, manifest, workspace, _Quiet())
    toolkit = settle(
        choose(recipes, recorded.toolchain.name),
        recorded.toolchain.architectures,
        DigestCache(workspace.digests),
        book=read_book(recipes),
        provisioned=workspace.toolkits,
    )
    return {
        "binaries": read_record(folder / "build.json", Binaries),
        "facts": read_record(folder / "inspect.json", BinaryFacts),
        "tree": tree,
        "toolkit": toolkit,
        "variant": recorded.variant,
        "source_dir": Path(tree.directory),
    }


def _zip(wheel: Path, target: Path) -> float:
    with zipfile.ZipFile(wheel) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    began = time.perf_counter()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return time.perf_counter() - began
