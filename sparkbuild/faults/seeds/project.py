"""A small project that is built for real, in seconds: what only a build shows."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.edit import AnyEdit
from sparkbuild.faults.model import ProjectSeed
from sparkbuild.faults.seeds.changes import Words, change
from sparkbuild.faults.seeds.farm import copied
from sparkbuild.faults.seeds.ground import asked, own_recipes, own_work, words
from sparkbuild.files import files_below, write_atomic

PROJECT: Final = "project"
NAME: Final = "small"
_BUILDS: Final = f"{NAME}-cpu-*"
_NO_DIGEST: Final = "0" * 64
_FOUND: Final = re.compile(r"found content digest ([0-9a-f]{64})")


@contextmanager
def plant_project(seed: ProjectSeed, place: Place) -> Iterator[Planted]:
    """The project with its changes, and a recipe that takes it as it is.

    Its makes before the last one are run here; they end with a refusal at the latest in smoke, for
    its llama-server is none. Raises NotPlantedError where one of them left no build.
    """
    known = words(place)
    recipes, work = own_recipes(place), own_work(place)
    tools = place.scratch / "tools"
    for tool in seed.tools:
        change(tools, (tool,), known)
    search = os.pathsep.join([str(tools)] * bool(seed.tools) + [os.environ.get("PATH", "")])
    arguments = (
        "make", "--variant", NAME, "--toolkit", "cpu", "--recipes", str(recipes),
        "--work", str(work), "--out", str(place.scratch / "out"), *seed.arguments, "--json",
    )  # fmt: skip
    run = _Runs(arguments=arguments, work=work, log=place.log, search=search)
    if seed.earlier:
        _version(recipes, place, seed, seed.earlier, known)
        known["earlier"] = run.built()
    _version(recipes, place, seed, seed.edits, known)
    if seed.between:
        change(run.built(), seed.between, known)
    yield Planted(arguments=arguments, stage="build", environment={"PATH": search})


@dataclass(kw_only=True)
class _Runs:
    """Makes before the last one."""

    arguments: tuple[str, ...]
    work: Path
    log: Path
    search: str
    seen: set[Path] = field(default_factory=set)

    def built(self) -> Path:
        """The build folder of a make that was not there before. Raises NotPlantedError."""
        done = asked(self.arguments, self.log, PATH=self.search)
        found = set((self.work / "builds").glob(f"{_BUILDS}/stages/build.json"))
        folders = {path.parent.parent for path in found} - self.seen
        if len(folders) != 1:
            raise NotPlantedError(f"a make of the project left no new build: {done.tail[-300:]}")
        self.seen |= folders
        return folders.pop()


def _version(
    recipes: Path, place: Place, seed: ProjectSeed, edits: tuple[AnyEdit, ...], known: Words
) -> None:
    """A version of the project, and the recipe that pins it."""
    source = recipes / PROJECT
    shutil.rmtree(source, ignore_errors=True)
    copied(place.catalogue / PROJECT, source)
    change(source, edits, known)
    recipe = recipes / "patchsets" / NAME / "patchset.toml"
    write_atomic(recipe, _recipe(source, seed.options, _NO_DIGEST))
    # The digest of a source is the product's own affair: its refusal of a wrong one names it.
    work = place.scratch / "digest"
    ask = ("source", "fetch", "--variant", NAME, "--recipes", str(recipes), "--work", str(work))
    log = place.scratch / "digest.log"
    log.unlink(missing_ok=True)
    asked((*ask, "--json"), log)
    found = set(_FOUND.findall(log.read_text(encoding="utf-8")))
    if len(found) != 1:
        raise NotPlantedError(f"the product names no digest of the project: {log.read_text()}")
    write_atomic(recipe, _recipe(source, seed.options, found.pop()))


def _recipe(source: Path, options: dict[str, str], digest: str) -> str:
    paths = sorted({path.relative_to(source).parts[0] for path in files_below(source)})
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    return "\n".join([
        "schema = 1",
        f'name = "{NAME}"',
        'summary = "a small project"',
        "[source]",
        "build = 7",
        f'digest = "{digest}"',
        f"paths = {json.dumps(paths)}",
        "[[source.origins]]",
        'kind = "path"',
        f'path = "{source}"',
        "[build]",
        'targets = ["llama-server", "llama-quantize"]',
        "[build.cmake]",
        *lines,
        "[smoke]",
        'suite = "tiny"',
        "",
    ])  # fmt: skip
