"""Stages 1 to 4: from a recipe to a toolkit and a patched tree; cheap to repeat, never skipped."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.errors import ToolkitMiscompilesError
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
            lifted=job.patchset.lifts,
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
            notes=(
                *toolkit.notes,
                *(
                    f"{one.id}: a patch works around it, if qualification is right"
                    for one in toolkit.lifted
                ),
            ),
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
    """Stage 4: the compiler's code for these very sources, executed and compared."""

    def action() -> Qualification:
        if toolkit.kind != "cuda":
            return Qualification(verdict="not applicable", reason="no CUDA compiler takes part")
        from sparkbuild.qualify.verdict import merged, refusal
        from sparkbuild.qualify_work import qualify, subject_of

        folder = job.work.qualifications
        found = merged(
            [
                qualify(
                    subject_of(toolkit, job.patchset, tree, target),
                    folder=folder,
                    live=job.runner.observer,
                    at_once=job.jobs,
                )
                for target in toolkit.architectures
            ]
        )
        if found.verdict == "wrong" and not _excused(job, toolkit, found):
            raise refusal(found, _records(job, found))
        if toolkit.lifted:
            _refuse_unproven(job, toolkit, found)
        return found

    def describe(found: Qualification) -> Outcome:
        notes = []
        if found.verdict in {"wrong", "incomplete"}:
            notes.append(f"{found.verdict}: {found.reason}")
        if found.uncovered:
            notes.append(f"no probe is there for: {', '.join(found.uncovered)}")
        known = " (known from before)" if found.cached else ""
        return Outcome(
            summary=f"{found.reason}{known}",
            notes=tuple(notes),
            evidence=_records(job, found),
            state="not applicable" if found.verdict == "not applicable" else "done",
        )

    return job.runner.always(
        "qualify",
        action,
        describe,
        inputs={"toolkit": toolkit.identity, "tree": tree.commit},
    )


def _records(job: Job, found: Qualification) -> tuple[Path, ...]:
    return tuple(job.work.qualifications / f"{key[:16]}.json" for key in found.key.split())


def _refuse_unproven(job: Job, toolkit: Toolkit, found: Qualification) -> None:
    """A compiler that is known to be bad is taken only where the work-around was executed.

    Raises ToolkitMiscompilesError where a struck tensor type has no right probe, or a wrong one.
    """
    right = {name for probe in found.probes if probe.outcome == "right" for name in probe.types}
    open_ones = {name for probe in found.probes if probe.outcome != "right" for name in probe.types}
    lifted = {one.id for one in toolkit.lifted}
    problems = [
        f"{advisory.id}: {name} was not shown to be right"
        for advisory in job.book.known_bad.advisory
        if advisory.id in lifted
        for name in advisory.tensor_types
        if name not in right or name in open_ones
    ]
    if problems:
        raise ToolkitMiscompilesError(
            f"{toolkit.toolchain} is known to be bad, and its work-around could not be shown",
            problems=problems,
            evidence=_records(job, found),
            next_step="choose another release: `sparkbuild toolkit list`",
        )


def _excused(job: Job, toolkit: Toolkit, found: Qualification) -> bool:
    """Whether all that is wrong are tensor types that the user took upon himself."""
    accepted = {one.id for one in toolkit.accepted}
    types = {
        name
        for advisory in job.book.known_bad.advisory
        if advisory.id in accepted
        for name in advisory.tensor_types
    }
    return all(probe.types and set(probe.types) <= types for probe in found.wrong)
