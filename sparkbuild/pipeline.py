"""``make``: the nine stages in order; the only module that knows them all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sparkbuild.build.model import Binaries, BinaryFacts, Configuration
from sparkbuild.build.tools import Tools, find_tools
from sparkbuild.files import DigestCache, digest_of, exclusive, sha256_file
from sparkbuild.manifest import Patchset
from sparkbuild.package.model import Wheel
from sparkbuild.qualify.model import Qualification
from sparkbuild.smoke.model import SmokeReport
from sparkbuild.source.model import PatchedTree, SourceTree
from sparkbuild.stages import Outcome, Runner, paths
from sparkbuild.toolkit.model import Toolkit
from sparkbuild.toolkit.select import Choice, settle
from sparkbuild.workspace import BuildFolder, Workspace

if TYPE_CHECKING:
    from sparkbuild.smoke.model import Check


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run's fixed surroundings."""

    patchset: Patchset
    manifest: Path
    choice: Choice
    architectures: tuple[str, ...]
    jobs: int | None
    work: Workspace
    folder: Path
    runner: Runner


@dataclass(frozen=True, kw_only=True)
class _Held:
    """A build key's folder while its lock is held, and the tools that its key counts."""

    place: BuildFolder
    key: str
    tools: Tools
    lock: int


@dataclass(kw_only=True)
class Known:
    """What a run has found so far, for the report of a run that may end anywhere."""

    key: str | None = None
    smoke: SmokeReport | None = None
    wheel: Wheel | None = None


def run_stages(job: Job, known: Known) -> None:
    """Toolkit, source, patches, qualify, configure, build, inspect, smoke, package."""
    toolkit = _toolkit(job)
    source = _source(job)
    tree = _patches(job, source)
    _qualify(job, toolkit, tree)
    tools = find_tools()
    known.key = _key(job, toolkit, tree, tools)
    place = job.work.build(job.patchset.name, toolkit.toolchain, known.key)
    with exclusive(place.lock, what=f"build {known.key[:12]}") as lock:
        held = _Held(place=place, key=known.key, tools=tools, lock=lock)
        configuration = _configure(job, held, toolkit, tree)
        binaries = _build(job, held, configuration)
        facts = _inspect(job, place, binaries, toolkit, tree)
        known.smoke = _smoke(job, place, binaries, facts, tree, known)
        known.wheel = _package(job, held, binaries, facts, known.smoke, toolkit, tree)


def _toolkit(job: Job) -> Toolkit:
    def describe(toolkit: Toolkit) -> Outcome:
        cuda = f"nvcc {toolkit.part('nvcc').version} at {toolkit.root}" if toolkit.root else "CPU"
        archs = f", {' '.join(toolkit.architectures)}" if toolkit.architectures else ""
        return Outcome(summary=f"{cuda}{archs}, host compiler {toolkit.host.identification}")

    return job.runner.always(
        "toolkit",
        lambda: settle(job.choice, job.architectures, DigestCache(job.work.digests)),
        describe,
        inputs={"toolchain": sha256_file(job.choice.manifest)},
    )


def _source(job: Job) -> SourceTree:
    from sparkbuild.source.obtain import obtain

    def describe(source: SourceTree) -> Outcome:
        return Outcome(
            summary=f"{source.commit[:12]} from {source.origin}",
            notes=source.warnings,
            evidence=(job.manifest,),
        )

    return job.runner.always(
        "source",
        lambda: obtain(job.patchset.source, job.manifest, job.work, job.runner.observer),
        describe,
        inputs={"patchset": sha256_file(job.manifest)},
    )


def _patches(job: Job, source: SourceTree) -> PatchedTree:
    from sparkbuild.source.prepare import prepare

    def describe(tree: PatchedTree) -> Outcome:
        count = len(tree.patches)
        text = "no patches" if not count else f"{count} patch{'es' if count > 1 else ''} applied"
        return Outcome(summary=f"{text}, tree {tree.tree[:12]}")

    return job.runner.always(
        "patches",
        lambda: prepare(source, job.patchset, job.manifest, job.work, job.runner.observer),
        describe,
        inputs={
            "source": source.commit,
            **{patch.file: patch.sha256 for patch in job.patchset.patches},
        },
    )


def _qualify(job: Job, toolkit: Toolkit, tree: PatchedTree) -> Qualification:
    if toolkit.kind == "cpu":
        found = Qualification(verdict="not applicable", reason="no CUDA compiler takes part")
    else:
        found = Qualification(verdict="not tried", reason="no probe kernels exist yet")

    def describe(qualification: Qualification) -> Outcome:
        notes = () if toolkit.kind == "cpu" else (f"the compiler was not tried: {found.reason}",)
        return Outcome(summary=found.reason, notes=notes, state=qualification.verdict)

    return job.runner.always(
        "qualify",
        lambda: found,
        describe,
        inputs={"toolkit": toolkit.identity, "tree": tree.commit},
    )


def _key(job: Job, toolkit: Toolkit, tree: PatchedTree, tools: Tools) -> str:
    from sparkbuild.build.arguments import build_key

    return build_key(job.patchset, toolkit, tree, tools=tools)


def _configure(job: Job, held: _Held, toolkit: Toolkit, tree: PatchedTree) -> Configuration:
    from sparkbuild.build.configure import configure

    place = held.place

    def describe(configuration: Configuration) -> Outcome:
        found = ", ".join(f"{c.language} {c.identification}" for c in configuration.compilers)
        archs = " ".join(configuration.cuda_architectures)
        return Outcome(
            summary=f"CMake {configuration.cmake_version}, {found}{archs and f', {archs}'}",
            outputs=(place.cmake / "CMakeCache.txt", place.cmake / "build.ninja"),
            evidence=(place.log("configure"),),
            notes=configuration.warnings,
        )

    return job.runner.resumable(
        "configure",
        place.record("configure"),
        Configuration,
        lambda: configure(
            job.patchset,
            toolkit,
            tree,
            tools=held.tools,
            binary_dir=place.cmake,
            log=place.log("configure"),
            progress=job.runner.observer.progress,
        ),
        describe,
        inputs={"key": held.key},
    )


def _build(job: Job, held: _Held, configuration: Configuration) -> Binaries:
    from sparkbuild.build.compile import build

    place = held.place

    def describe(binaries: Binaries) -> Outcome:
        names = (*binaries.executables, *binaries.libraries)
        return Outcome(
            summary=f"{binaries.edges} steps, {', '.join(binaries.executables)}",
            outputs=tuple(Path(binaries.directory) / name for name in names),
            evidence=(place.log("build"),),
        )

    return job.runner.resumable(
        "build",
        place.record("build"),
        Binaries,
        lambda: build(
            configuration,
            job.patchset.build.targets,
            tools=held.tools,
            install_dir=place.install,
            log=place.log("build"),
            jobs=job.jobs,
            keep_open=(held.lock,),
            progress=job.runner.observer.progress,
        ),
        describe,
        inputs={"key": held.key, "configuration": _digest(configuration)},
    )


def _inspect(
    job: Job, place: BuildFolder, binaries: Binaries, toolkit: Toolkit, tree: PatchedTree
) -> BinaryFacts:
    from sparkbuild.build.inspect import inspect

    def describe(facts: BinaryFacts) -> Outcome:
        targets = sorted({target for binary in facts.binaries for target in binary.sm_targets})
        gpu = f", {' '.join(targets)}" if targets else ""
        return Outcome(
            summary=f"{len(facts.binaries)} files, {facts.version_line}{gpu}",
            evidence=(place.log("inspect"),),
        )

    return job.runner.resumable(
        "inspect",
        place.record("inspect"),
        BinaryFacts,
        lambda: inspect(binaries, toolkit, tree, log=place.log("inspect")),
        describe,
        inputs=_outputs(job, "build"),
    )


def _smoke(
    job: Job,
    place: BuildFolder,
    binaries: Binaries,
    facts: BinaryFacts,
    tree: PatchedTree,
    known: Known,
) -> SmokeReport:
    from sparkbuild.smoke.run import smoke

    suite = job.patchset.smoke.suite
    checks: list[Check] = []

    def on_check(check: Check) -> None:
        checks.append(check)
        job.runner.observer.progress(len(checks), 0, check.name)
        known.smoke = SmokeReport(suite=suite, model_sha256="", checks=tuple(checks))

    def describe(report: SmokeReport) -> Outcome:
        return Outcome(
            summary=f"suite {report.suite}: {len(report.checks)} checks passed",
            evidence=(place.log("smoke"),),
        )

    return job.runner.resumable(
        "smoke",
        place.record("smoke"),
        SmokeReport,
        lambda: smoke(
            Path(binaries.directory),
            suite=suite,
            build=tree.build,
            identity=tree.identity,
            workdir=place.smoke,
            log=place.log("smoke"),
            on_check=on_check,
        ),
        describe,
        inputs={"binaries": _digest(facts), "suite": suite},
    )


def _package(
    job: Job,
    held: _Held,
    binaries: Binaries,
    facts: BinaryFacts,
    smoke: SmokeReport,
    toolkit: Toolkit,
    tree: PatchedTree,
) -> Wheel:
    place = held.place

    def made() -> Wheel:
        from sparkbuild.package.install import install_and_run
        from sparkbuild.package.make import package

        job.runner.observer.progress(0, 0, "packing")
        wheel = package(
            binaries=binaries,
            facts=facts,
            tree=tree,
            toolkit=toolkit,
            variant=job.patchset.name,
            source_dir=Path(tree.directory),
            workdir=place.package,
            log=place.log("package"),
            keep_open=(held.lock,),
        )
        job.runner.observer.progress(0, 0, "installing into an empty environment")
        install_and_run(
            wheel, facts=facts, workdir=place.package, log=place.log("package"),
            keep_open=(held.lock,),
        )  # fmt: skip
        return wheel

    def describe(wheel: Wheel) -> Outcome:
        return Outcome(
            summary=f"{Path(wheel.path).name}, {wheel.size / 1e6:.1f} MB",
            outputs=paths([wheel.path]),
            evidence=(place.log("package"),),
        )

    return job.runner.resumable(
        "package",
        place.record("package"),
        Wheel,
        made,
        describe,
        inputs={
            "binaries": _digest(facts),
            "smoke": _digest(smoke),
            "tree": tree.commit,
            "toolkit": toolkit.identity,
        },
    )


def _digest(value: msgspec.Struct) -> str:
    return digest_of({"value": msgspec.to_builtins(value)})


def _outputs(job: Job, stage: str) -> dict[str, str]:
    report = next(report for report in job.runner.reports if report.name == stage)
    return {Path(file.path).name: file.sha256 for file in report.outputs}
