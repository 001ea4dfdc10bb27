"""Compile a patched tree on the CPU: as ``make`` does, or in a folder that is kept and renewed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sparkbuild.build.arguments import build_key, configure_arguments, places
from sparkbuild.build.compile import build
from sparkbuild.build.configure import configure
from sparkbuild.build.model import Configuration
from sparkbuild.build.tools import Tools, find_tools, with_cache
from sparkbuild.build_stages import build_stage, cmake_is_gone, configure_stage
from sparkbuild.errors import BuildError, ConfigureError
from sparkbuild.files import digest_of, exclusive, write_atomic
from sparkbuild.job import Held, Job
from sparkbuild.manifest import Patchset, Recipes
from sparkbuild.source import materialise
from sparkbuild.source.model import Compiled, PatchedTree
from sparkbuild.source.store import Store
from sparkbuild.stages import Observer, Runner
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.choice.select import choose
from sparkbuild.toolkit.model import Toolkit
from sparkbuild.tree_stages import toolkit_stage
from sparkbuild.workspace import Workspace

_CPU = "cpu"
_IDENTITY = "0" * 40
"""The commit that programs of a kept folder call themselves: it changes with no tree, so that
nothing is compiled anew for its sake."""


def compile_tree(job: Job, tree: PatchedTree) -> Compiled:
    """Configure and build a tree as ``make`` would; stages that are done already are reused."""
    toolkit = toolkit_stage(job)
    tools = with_cache(find_tools(), job.cache, toolkit)
    key = build_key(job.patchset, toolkit, tree, tools=tools)
    place = job.work.build(job.patchset.name, toolkit.toolchain, key)
    try:
        with exclusive(place.lock, what=f"build {key[:12]}") as lock:
            held = Held(place=place, key=key, tools=tools, lock=lock)
            configuration = configure_stage(job, held, toolkit, tree)
            binaries = build_stage(job, held, configuration)
    except (ConfigureError, BuildError) as error:
        log = place.log("build" if isinstance(error, BuildError) else "configure")
        summary = "; ".join([error.message, *error.problems[:1]])
        return Compiled(passed=False, summary=summary, log=str(log))
    return Compiled(
        passed=True,
        summary=", ".join(binaries.executables),
        directory=binaries.directory,
        source=tree.directory,
        log=str(place.log("build")),
    )


def cpu_job(
    patchset: Patchset,
    manifest: Path,
    recipes: Recipes,
    work: Workspace,
    observer: Observer,
    *,
    jobs: int | None,
    cache: Path | None,
) -> Job:
    """The surroundings of a CPU build of a variant."""
    choice = choose(recipes, _CPU)
    return Job(
        patchset=patchset,
        manifest=manifest,
        choice=choice,
        architectures=(),
        accept=(),
        book=Book.empty(),
        jobs=jobs,
        cache=cache,
        work=work,
        folder=work.run(patchset.name, choice.toolchain.name, ()),
        runner=Runner(observer),
    )


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One source folder and one build folder for many trees that differ in a few files.

    Only files that differ are written, so that only what depends on them is compiled again.
    """

    job: Job
    toolkit: Toolkit
    root: Path

    def build(self, store: Store, commit: str, log: Path) -> Compiled:
        """Renew the source to a commit of the store and build it; failure is an answer, too."""
        from sparkbuild.source.write_tree import renew

        source, binary = self.root / "source", self.root / "cmake"
        job = self.job
        self.root.mkdir(parents=True, exist_ok=True)
        with exclusive(self.root / "lock", what="the patches' build folder") as lock:
            renew(store, commit, source)
            tools = with_cache(find_tools(), job.cache, self.toolkit)
            try:
                configuration = self._configured(tools, source, binary, log)
                binaries = build(
                    configuration,
                    job.patchset.build.targets,
                    tools=tools,
                    install_dir=self.root / "install",
                    log=log,
                    jobs=job.jobs,
                    keep_open=(lock,),
                    progress=job.runner.observer.progress,
                )
            except (ConfigureError, BuildError) as error:
                summary = "; ".join([error.message, *error.problems[:1]])
                return Compiled(passed=False, summary=summary, log=str(log))
        return Compiled(
            passed=True,
            summary=", ".join(binaries.executables),
            directory=binaries.directory,
            source=str(source),
            log=str(log),
        )

    def _configured(self, tools: Tools, source: Path, binary: Path, log: Path) -> Configuration:
        """Configure once; ninja itself runs CMake again where a file that CMake read changes."""
        import msgspec

        where = places(
            self.toolkit,
            source=str(source),
            binary=str(binary),
            ninja=str(tools.ninja),
            cache=tools.cache,
        )
        arguments = configure_arguments(self.job.patchset, self.toolkit, where)
        key = digest_of({"arguments": arguments, "cmake": tools.cmake_version,
                         "toolkit": self.toolkit.identity,
                         "targets": self.job.patchset.build.targets})  # fmt: skip
        record = self.root / f"configured-{key[:16]}.json"
        if record.is_file() and not cmake_is_gone(binary / "CMakeCache.txt"):
            return msgspec.json.decode(record.read_bytes(), type=Configuration)
        for old in self.root.glob("configured-*.json"):
            old.unlink()
        tree = PatchedTree(
            source_digest="", commit=_IDENTITY, tree="", build=0, patches=(), directory=str(source)
        )
        configuration = configure(
            self.job.patchset,
            self.toolkit,
            tree,
            tools=tools,
            binary_dir=binary,
            log=log.with_name(f"configure-{log.name}"),
            progress=self.job.runner.observer.progress,
        )
        write_atomic(record, msgspec.json.encode(configuration))
        return configuration


def kept_build(job: Job, root: Path) -> Kept:
    """The folder below ``root`` in which trees of one variant are built one after another."""
    return Kept(job=job, toolkit=toolkit_stage(job), root=root)


def on_disk(store: Store, commit: str, tree: str, job: Job) -> PatchedTree:
    """A commit of the store as a tree that ``make``'s stages take."""
    place = materialise.ensure(store, commit, job.work.sources, job.runner.observer.note)
    return PatchedTree(
        source_digest="",
        commit=commit,
        tree=tree,
        build=None,
        patches=(),
        directory=os.fspath(place),
    )
