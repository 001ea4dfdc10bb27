"""Stages 5 to 9: from a patched tree to a wheel; each is reused while its inputs are the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from sparkbuild.build.model import Binaries, BinaryFacts, Configuration
from sparkbuild.errors import ConfigureError
from sparkbuild.files import DigestCache, digest_of
from sparkbuild.job import Held, Job, Known
from sparkbuild.package.model import Made, Wheel
from sparkbuild.qualify.model import Compiler, Qualification
from sparkbuild.smoke.model import SmokeReport
from sparkbuild.source.model import PatchedTree
from sparkbuild.stages import Outcome, paths
from sparkbuild.toolkit.model import Toolkit
from sparkbuild.workspace import BuildFolder

if TYPE_CHECKING:
    from sparkbuild.smoke.model import Check


_CMAKE: Final = "CMAKE_COMMAND:INTERNAL="


def configure_stage(
    job: Job,
    held: Held,
    toolkit: Toolkit,
    tree: PatchedTree,
    judged: Qualification | None = None,
) -> Configuration:
    """Stage 5: CMake in a fresh directory, its facts enforced.

    ``judged`` is the qualification: the flags that it judged are those that the build has, or the
    build is refused.
    """
    place = held.place

    def action() -> Configuration:
        from sparkbuild.build.configure import configure

        configuration = configure(
            job.patchset,
            toolkit,
            tree,
            tools=held.tools,
            binary_dir=place.cmake,
            log=place.log("configure"),
            progress=job.runner.observer.progress,
        )
        if judged and judged.compiler:
            _refuse_other_flags(judged.compiler, configuration, place.log("configure"))
        return configuration

    def describe(configuration: Configuration) -> Outcome:
        found = ", ".join(f"{c.language} {c.identification}" for c in configuration.compilers)
        archs = " ".join(configuration.cuda_architectures)
        return Outcome(
            summary=f"CMake {configuration.cmake_version}, {found}{archs and f', {archs}'}",
            outputs=(place.cmake / "CMakeCache.txt", place.cmake / "build.ninja"),
            evidence=(place.log("configure"),),
            notes=configuration.warnings,
        )

    if cmake_is_gone(place.cmake / "CMakeCache.txt"):
        place.record("configure").unlink(missing_ok=True)
    return job.runner.resumable(
        "configure",
        place.record("configure"),
        Configuration,
        action,
        describe,
        inputs={
            "key": held.key,
            # What was configured before its flags were read is configured again.
            **({"flags": " ".join(judged.compiler.flags)} if judged and judged.compiler else {}),
        },
    )


def _refuse_other_flags(judged: Compiler, configuration: Configuration, log: Path) -> None:
    """Code made with other flags is code that nobody judged. Raises ConfigureError."""
    from sparkbuild.qualify.flags import differences

    found = differences(judged.flags, configuration.cuda_flags)
    if found:
        raise ConfigureError(
            "the compiler was judged with other flags than the build would use",
            problems=found,
            evidence=[log],
            next_step="report this: sparkbuild has to foretell the flags of these options",
        )


def cmake_is_gone(cache: Path) -> bool:
    """Whether the CMake that configured a folder is no more: ninja would call it at any time.

    It goes with the virtual environment that sparkbuild was installed in.
    """
    try:
        lines = cache.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False  # nothing was configured yet
    named = (line.removeprefix(_CMAKE) for line in lines if line.startswith(_CMAKE))
    return any(not Path(path).is_file() for path in named)


def build_stage(job: Job, held: Held, configuration: Configuration) -> Binaries:
    """Stage 6: ninja, then the install tree."""
    place = held.place

    def action() -> Binaries:
        from sparkbuild.build.compile import build

        return build(
            configuration,
            job.patchset.build.targets,
            tools=held.tools,
            install_dir=place.install,
            log=place.log("build"),
            jobs=job.jobs,
            keep_open=(held.lock,),
            progress=job.runner.observer.progress,
        )

    def describe(binaries: Binaries) -> Outcome:
        names = (*binaries.executables, *binaries.libraries)
        return Outcome(
            summary=f"{', '.join(binaries.executables)}; the last run took {binaries.edges} steps"
            f"{_from_cache(binaries)}",
            outputs=tuple(Path(binaries.directory) / name for name in names),
            evidence=(place.log("build"),),
        )

    return job.runner.resumable(
        "build",
        place.record("build"),
        Binaries,
        action,
        describe,
        inputs={"key": held.key, "configuration": _digest(configuration)},
    )


def inspect_stage(
    job: Job, place: BuildFolder, binaries: Binaries, toolkit: Toolkit, tree: PatchedTree
) -> BinaryFacts:
    """Stage 7: every ELF file read, one of them asked for its version."""

    def action() -> BinaryFacts:
        from sparkbuild.build.inspect import inspect

        return inspect(
            binaries,
            toolkit,
            tree,
            log=place.log("inspect"),
            digest=DigestCache(job.work.digests).sha256,
        )

    def describe(facts: BinaryFacts) -> Outcome:
        targets = sorted({target for binary in facts.binaries for target in binary.sm_targets})
        gpu = f", {' '.join(targets)}" if targets else ""
        return Outcome(
            summary=f"{len(facts.binaries)} files, {facts.version_line}{gpu}",
            evidence=(place.log("inspect"),),
            notes=facts.notes,
        )

    return job.runner.resumable(
        "inspect",
        place.record("inspect"),
        BinaryFacts,
        action,
        describe,
        inputs=_outputs(job, "build"),
    )


def smoke_stage(
    job: Job,
    place: BuildFolder,
    binaries: Binaries,
    facts: BinaryFacts,
    toolkit: Toolkit,
    tree: PatchedTree,
    known: Known,
) -> SmokeReport:
    """Stage 8: the suite that the patch set names."""
    suite, abilities = job.patchset.smoke.suite, job.patchset.smoke.abilities
    checks: list[Check] = []

    def on_check(check: Check) -> None:
        checks.append(check)
        job.runner.observer.progress(len(checks), 0, check.name)
        known.smoke = SmokeReport(suite=suite, model_sha256="", checks=tuple(checks))

    def action() -> SmokeReport:
        from sparkbuild.smoke_make import Asked, smoke_build

        asked = Asked(
            binaries=Path(binaries.directory),
            suite=suite,
            build=tree.build,
            identity=tree.identity,
            cuda=toolkit.kind == "cuda",
            workdir=place.smoke,
            log=place.log("smoke"),
            variant=job.patchset.name,
            abilities=frozenset(abilities),
        )
        return smoke_build(asked, on_check=on_check, observer=job.runner.observer)

    def describe(report: SmokeReport) -> Outcome:
        return Outcome(
            summary=f"suite {report.suite}: {len(report.checks)} checks passed",
            evidence=(place.log("smoke"),),
        )

    return job.runner.resumable(
        "smoke",
        place.record("smoke"),
        SmokeReport,
        action,
        describe,
        inputs={
            "binaries": _digest(facts),
            "suite": suite,
            # Only where something is promised: a record without it stays what it was.
            **({"abilities": " ".join(sorted(abilities))} if abilities else {}),
        },
    )


def package_stage(
    job: Job,
    held: Held,
    configuration: Configuration,
    binaries: Binaries,
    facts: BinaryFacts,
    made: Made,
) -> Wheel:
    """Stage 9: the wheel, its provenance inside, installed into an empty environment and run."""
    from sparkbuild.package.provenance import definition, judgements

    place = held.place

    def action() -> Wheel:
        from sparkbuild.package.inside import inside
        from sparkbuild.package.install import install_and_run
        from sparkbuild.package.make import package
        from sparkbuild.toolkit import wheels

        job.runner.observer.progress(0, 0, "packing")
        wheel = package(
            binaries=binaries,
            facts=facts,
            tree=made.tree,
            toolkit=made.toolkit,
            variant=job.patchset.name,
            source_dir=Path(made.tree.directory),
            workdir=place.package,
            log=place.log("package"),
            requires=wheels.requirements(made.toolkit, job.book),
            keep_open=(held.lock,),
            extra=inside(made, facts, configuration, ninja=held.tools.ninja),
        )
        job.runner.observer.progress(0, 0, "installing into an empty environment")
        install_and_run(
            wheel, facts=facts, workdir=place.package, log=place.log("package"),
            beside=wheels.libraries(made.toolkit), keep_open=(held.lock,),
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
        action,
        describe,
        inputs={
            "binaries": _digest(facts),
            "smoke": _digest(made.smoke),
            "made": _digest(definition(made)),
            "judged": digest_of({"value": msgspec.to_builtins(tuple(judgements(made)))}),
        },
    )


def _from_cache(binaries: Binaries) -> str:
    asked = binaries.cache_hits + binaries.cache_misses
    return f", {binaries.cache_hits} of {asked} compiles from the cache" if asked else ""


def _digest(value: msgspec.Struct) -> str:
    return digest_of({"value": msgspec.to_builtins(value)})


def _outputs(job: Job, stage: str) -> dict[str, str]:
    report = next(report for report in job.runner.reports if report.name == stage)
    return {Path(file.path).name: file.sha256 for file in report.outputs}
