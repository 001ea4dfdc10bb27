"""A wheel made again from its recipes, in a process and an environment of its own.

``wheel_rebuild`` starts this module's ``main``; nothing that an earlier build made is used here but
fetched sources and installed toolkits, which are checked by digest.
"""

from __future__ import annotations

import stat
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.build.compile import build
from sparkbuild.build.configure import configure
from sparkbuild.build.inspect import inspect
from sparkbuild.build.model import Binaries, BinaryFacts
from sparkbuild.errors import SparkbuildError
from sparkbuild.files import DigestCache, disk_full_refused, write_atomic
from sparkbuild.job import Job
from sparkbuild.manifest import find_recipes
from sparkbuild.package.make import package
from sparkbuild.report.model import Failure, StageReport
from sparkbuild.source.model import PatchedTree
from sparkbuild.stages import Runner, defect, failure_of
from sparkbuild.toolkit.book import Book, read_book
from sparkbuild.toolkit.choice.select import choose
from sparkbuild.toolkit.model import Toolkit
from sparkbuild.toolkit.wheels import requirements
from sparkbuild.tree_stages import patches_stage, source_stage, toolkit_stage
from sparkbuild.workspace import Workspace

PROGRESS: Final = "progress"
NOTE: Final = "note"
STARTED: Final = "started"
"""First words of the lines that tell the parent how far it is."""

_SOURCE: Final = "the-source-in-another-place"
_CMAKE: Final = "cmake-of-the-second-build"
_INSTALL: Final = "install"
SCRATCH: Final = (_SOURCE, _CMAKE, _INSTALL)
"""Folders of an order's place that hold neither logs nor the wheel."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made, and where."""

    variant: str
    toolkit: str
    architectures: tuple[str, ...]
    accept: tuple[str, ...]
    recipes: str | None
    work: str
    """Sources and toolkits."""
    place: str
    """Everything that is made; an empty folder."""
    jobs: int | None
    original: str
    """The wheel whose statements are carried over: they tell of one run and are not made again."""
    carried: tuple[str, ...]
    """Their paths in it."""


class Remade(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: a wheel, or why there is none."""

    toolkit: str = ""
    """Identity of the toolkit and host compiler that were used."""
    tree: str = ""
    wheel: str = ""
    failure: Failure | None = None
    evidence: tuple[str, ...] = ()


class _Teller:
    """An ``Observer`` whose words are lines on standard output."""

    def started(self, stage: str) -> None:
        self._say(STARTED, stage)

    def progress(self, done: int, total: int, text: str) -> None:
        self._say(PROGRESS, str(done), str(total), text)

    def note(self, text: str) -> None:
        self._say(NOTE, text)

    def finished(self, report: StageReport) -> None: ...

    @staticmethod
    def _say(*words: str) -> None:
        sys.stdout.write(" ".join(words).replace("\n", " ") + "\n")
        sys.stdout.flush()


def main(order_file: str, result_file: str) -> None:
    """Carry an order out; the result is written to a file, a refusal too."""
    order = msgspec.json.decode(Path(order_file).read_bytes(), type=Order)
    try:
        result = remake(order)
    except SparkbuildError as error:
        result = _refused(error)
    except Exception as error:  # noqa: BLE001 - the parent tells it
        result = _refused(defect(error))
    write_atomic(Path(result_file), msgspec.json.encode(result))


def _refused(error: SparkbuildError) -> Remade:
    return Remade(failure=failure_of(error), evidence=tuple(map(str, error.evidence)))


def remake(order: Order) -> Remade:
    """Toolkit, source and patches as ``make`` has them; the rest anew in ``order.place``.

    Qualification and smoke add nothing to the bytes and are left out.
    """
    teller = _Teller()
    place = Path(order.place)
    job = _job(order, teller)
    toolkit = toolkit_stage(job)
    tree = patches_stage(job, source_stage(job))
    tree = msgspec.structs.replace(
        tree, directory=str(_moved(Path(tree.directory), place / _SOURCE))
    )
    binaries, facts = _binaries(order, job, toolkit, tree)
    teller.started("package")
    carried = read_members(Path(order.original), order.carried)
    wheel = package(
        binaries=binaries,
        facts=facts,
        tree=tree,
        toolkit=toolkit,
        variant=job.patchset.name,
        source_dir=Path(tree.directory),
        workdir=place / "package",
        log=place / "package.log",
        requires=requirements(toolkit, job.book),
        extra=(lambda _digests: carried) if carried else None,
    )
    return Remade(toolkit=toolkit.identity, tree=tree.tree, wheel=wheel.path)


def read_members(wheel: Path, names: tuple[str, ...]) -> Mapping[str, bytes]:
    """Members of a wheel by path; without names no wheel is opened."""
    if not names:
        return {}
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in names}


def _job(order: Order, teller: _Teller) -> Job:
    recipes = find_recipes(Path(order.recipes) if order.recipes else None)
    patchset, manifest = recipes.patchset(order.variant)
    choice = choose(recipes, order.toolkit)
    work = Workspace(Path(order.work))
    work.prepare()
    return Job(
        patchset=patchset,
        manifest=manifest,
        choice=choice,
        architectures=order.architectures,
        accept=order.accept,
        book=read_book(recipes) if choice.toolchain.cuda or order.accept else Book.empty(),
        jobs=order.jobs,
        cache=None,
        work=work,
        folder=Path(order.place) / "run",
        runner=Runner(teller),
    )


def _moved(tree: Path, place: Path) -> Path:
    """The same files elsewhere, written in the opposite order and with this process's umask."""
    with disk_full_refused(place):
        for file in sorted(tree.rglob("*"), reverse=True):
            if file.is_dir() and not file.is_symlink():
                continue
            target = place / file.relative_to(tree)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.is_symlink():
                target.symlink_to(file.readlink())
            else:
                target.write_bytes(file.read_bytes())
                if file.stat().st_mode & stat.S_IXUSR:
                    target.chmod(target.stat().st_mode | stat.S_IXUSR)
    return place


def _binaries(
    order: Order, job: Job, toolkit: Toolkit, tree: PatchedTree
) -> tuple[Binaries, BinaryFacts]:
    """Configure, build and inspect."""
    teller, place = job.runner.observer, Path(order.place)
    teller.started("configure")
    configuration = configure(
        job.patchset,
        toolkit,
        tree,
        binary_dir=place / _CMAKE,
        log=place / "configure.log",
        progress=teller.progress,
    )
    teller.started("build")
    binaries = build(
        configuration,
        job.patchset.build.targets,
        install_dir=place / _INSTALL,
        log=place / "build.log",
        jobs=order.jobs,
        progress=teller.progress,
    )
    teller.started("inspect")
    facts = inspect(
        binaries,
        toolkit,
        tree,
        log=place / "inspect.log",
        digest=DigestCache(job.work.digests).sha256,
    )
    return binaries, facts
