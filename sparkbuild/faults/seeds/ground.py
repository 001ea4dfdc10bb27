"""What a planter finds in a place: the clean build, its wheel, a small work folder of its own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import sparkbuild
from sparkbuild import process
from sparkbuild.faults.contract import NotPlantedError, Place
from sparkbuild.faults.seeds.farm import copied
from sparkbuild.manifest import Recipes, current_platform, find_recipes

_STORE: Final = "store.git"
_SOURCES: Final = "sources"
VARIANT: Final = "vision"
TOOLCHAIN: Final = "cpu"
"""What the clean product in a work folder is a build of."""
NOWHERE: Final = dict.fromkeys(
    ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"),
    "http://127.0.0.1:9",
)
"""No network: what the product should have refused before it fetches ends at once, and is late."""


def words(place: Place) -> dict[str, object]:
    """What names in a seed's texts stand for."""
    sources = sorted(path for path in (place.work / _SOURCES).glob("*") if path.is_dir())
    return {
        **({"source": sources[0]} if sources else {}),
        "scratch": place.scratch,
        "work": place.work,
        "toolkits": place.work / "toolkits",
        "catalogue": place.catalogue,
        "platform": current_platform(),
        "python": sys.executable,
    }


def build_of(work: Path) -> Path:
    """The folder of the newest finished build. Raises NotPlantedError where there is none."""
    records = (work / "builds").glob(f"{VARIANT}-{TOOLCHAIN}-*/stages/package.json")
    found = max(records, key=lambda path: path.stat().st_mtime_ns, default=None)
    if found is None:
        raise NotPlantedError(f"there is no finished build in {work / 'builds'}")
    return found.parent.parent


def programs_of(work: Path) -> Path:
    """The folder with the clean build's llama-server. Raises NotPlantedError where it is not."""
    folder = build_of(work) / "install" / "bin"
    if not (folder / "llama-server").is_file():
        raise NotPlantedError(f"there is no llama-server in {folder}")
    return folder


def wheel_of(work: Path) -> tuple[Path, Path]:
    """The clean build's wheel, and the report of the run that made it."""
    wheels = sorted((build_of(work) / "package").rglob("*.whl"))
    report = work / "runs" / f"{VARIANT}-{TOOLCHAIN}" / "report.json"
    if not wheels or not report.is_file():
        raise NotPlantedError(f"no wheel with its report in {work}")
    return wheels[0], report


def own_work(place: Place, *, store: bool = False, sources: bool = False) -> Path:
    """A work folder for the product, below scratch.

    ``store``: with the pinned sources, so that none is fetched; ``sources``: also on disk.
    """
    work = place.scratch / "work"
    work.mkdir(parents=True, exist_ok=True)
    for name in (_STORE,) * store + (_SOURCES,) * sources:
        copied(place.work / name, work / name)
    return work


def asked(arguments: Sequence[str], log: Path, **environment: str) -> process.Finished:
    """Run the sparkbuild that runs, in a process of its own, from ``/``."""
    package = Path(sparkbuild.__file__).parent.parent
    argv = [sys.executable, "-m", "sparkbuild", *arguments]
    env = process.environment(extra={"PYTHONPATH": str(package), **environment})
    return process.run(argv, log=log, env=env, cwd=Path("/"))


def own_recipes(place: Place) -> Path:
    """A copy of the recipes that the product uses by default."""
    found: Recipes = find_recipes(None)
    target = place.scratch / "recipes"
    for name in ("patchsets", "toolchains"):
        shutil.copytree(found.root / name, target / name)
    return target
