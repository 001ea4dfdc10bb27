"""Stages 1 to 4: from a recipe to a toolkit and a patched tree; cheap to repeat, never skipped."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.files import DigestCache, sha256_file
from sparkbuild.job import Job
from sparkbuild.qualify.model import Qualification
from sparkbuild.source.model import PatchedTree, SourceTree
from sparkbuild.stages import Outcome
from sparkbuild.toolkit.choice.select import settle
from sparkbuild.toolkit.model import Toolkit


def toolkit_stage(job: Job) -> Toolkit:
    """Stage 1: every part of the toolkit identified, then a small program compiled with it."""
    logs: list[Path] = []

    def action() -> Toolkit:
        toolkit = settle(
            job.choice,
            job.architectures,
            DigestCache(job.work.digests),
            book=job.book,
            provisioned=job.work.toolkits,
            accepted=job.accept,
        )
        if toolkit.kind == "cuda":
            from sparkbuild.toolkit.trial.trial import try_toolkit

            job.runner.observer.progress(0, 0, "compiling, linking and running a small program")
            trial = try_toolkit(toolkit, folder=job.work.trials)
            logs.append(Path(trial.folder) / "trial.log")
        return toolkit

    def describe(toolkit: Toolkit) -> Outcome:
        cuda = f"nvcc {toolkit.part('nvcc').version} at {toolkit.root}" if toolkit.root else "CPU"
        archs = f", {' '.join(toolkit.architectures)}" if toolkit.architectures else ""
        return Outcome(
            summary=f"{cuda}{archs}, host compiler {toolkit.host.identification}",
            notes=toolkit.notes,
            evidence=tuple(logs),
        )

    return job.runner.always(
        "toolkit", action, describe, inputs={"toolchain": sha256_file(job.choice.manifest)}
    )


def source_stage(job: Job) -> SourceTree:
    """Stage 2: the pinned source, from the store or from its origins."""
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


def patches_stage(job: Job, source: SourceTree) -> PatchedTree:
    """Stage 3: the patched tree, on disk."""
    from sparkbuild.source.prepare import prepare

    def describe(tree: PatchedTree) -> Outcome:
        count = len(tree.patches)
        text = "no patches" if not count else f"{count} patch{'es' if count > 1 else ''} applied"
        return Outcome(summary=f"{text}, tree {tree.tree[:12]}", notes=tree.notes)

    return job.runner.always(
        "patches",
        lambda: prepare(source, job.patchset, job.manifest, job.work, job.runner.observer),
        describe,
        inputs={
            "source": source.commit,
            **{patch.file: patch.sha256 for patch in job.patchset.patches},
            **({"tree": job.patchset.patched.tree} if job.patchset.patched else {}),
        },
    )


def qualify_stage(job: Job, toolkit: Toolkit, tree: PatchedTree) -> Qualification:
    """Stage 4: whether the compiler was tried on these sources; not yet for CUDA, and said so."""
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
