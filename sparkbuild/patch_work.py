"""What ``sparkbuild patch`` does: judge on one base or all, compile, ask what is still needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from sparkbuild.errors import SparkbuildError
from sparkbuild.manifest import PatchEntry, Patchset
from sparkbuild.patch_proof import Prover
from sparkbuild.report.patches import Answer, DropChecked, Dropped, OnBases, Proven
from sparkbuild.source.model import Checked, Compiled, PatchFinding
from sparkbuild.source.patching.bases import PIN, Ground, base_table, ground
from sparkbuild.source.patching.check import check, commit_tree
from sparkbuild.source.store import Store
from sparkbuild.stages import Observer
from sparkbuild.workspace import Workspace

Builder = Callable[[Store, str, Path], Compiled]
"""Makes programs of a commit of the store; the last argument is where the log goes."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """One variant, where its patches are tried, and who watches."""

    patchset: Patchset
    manifest: Path
    work: Workspace
    live: Observer

    @property
    def store(self) -> Store:
        """The store of the work folder."""
        return Store(self.work.store)

    def ground(self, ref: str) -> Ground:
        """A base, fetched where it is not here. Raises as ``bases.ground``."""
        return ground(ref, self.patchset, self.manifest, self.work, self.live)


def check_on(desk: Desk, ref: str) -> tuple[Checked, Ground]:
    """Every patch on a base; beside it the variant's own, which says where hunks belong.

    Raises what ``ground`` and ``check`` raise.
    """
    desk.live.started(f"patches on {ref}")
    base = desk.ground(ref)
    own = base if ref == PIN else desk.ground(PIN)
    found = check(desk.store, desk.patchset, desk.manifest, base, own, desk.live.progress)
    return found, base


def applied_commit(desk: Desk, found: Checked, base: Ground) -> str:
    """The commit of what applied."""
    digests = [
        entry.sha256
        for entry, patch in zip(desk.patchset.patches, found.patches, strict=True)
        if patch.applied
    ]
    return commit_tree(desk.store, base, found.tree, digests)


def on_bases(desk: Desk, refs: Sequence[str]) -> OnBases:
    """Every patch on every base; a base that cannot be had is told, and the others go on."""
    checked, failures = [], {}
    for ref in refs:
        try:
            checked.append(check_on(desk, ref)[0])
        except SparkbuildError as error:
            failures[ref] = "; ".join([error.message, *error.problems])
    return OnBases(variant=desk.patchset.name, checked=tuple(checked), failures=failures)


def all_bases(desk: Desk) -> tuple[str, ...]:
    """The variant's own base, then those of the table."""
    table = base_table(desk.manifest.absolute().parent.parent.parent)
    return (PIN, *(base.name for base in table.bases))


def drop_check(
    desk: Desk, ref: str, build: Builder, prove: Prover, logs: Path
) -> tuple[DropChecked, Checked]:
    """For each patch: does its proof hold with all patches, and without it and those needing it.

    ``logs`` is the folder for what builds and proofs print.
    """
    found, base = check_on(desk, ref)
    states = {patch.file: patch for patch in found.patches}
    there = frozenset(patch.file for patch in found.patches if patch.applied)
    trial = _Try(desk=desk, ref=ref, build=build, prove=prove, logs=logs, applied=there)
    full = trial.made(desk, found, base, "all")
    with_it = {
        entry.file: trial.proven(entry, full, "all")
        for entry in desk.patchset.patches
        if entry.file in there and full.passed
    }
    answers = [
        trial.answer(entry, states[entry.file], with_it.get(entry.file, ()), full)
        for entry in desk.patchset.patches
    ]
    return DropChecked(variant=desk.patchset.name, base=ref, patches=tuple(answers)), found


@dataclass(frozen=True, kw_only=True)
class _Try:
    """Builds of one base with and without patches; ``applied`` are files of those that apply."""

    desk: Desk
    ref: str
    build: Builder
    prove: Prover
    logs: Path
    applied: frozenset[str]

    def made(self, desk: Desk, found: Checked, base: Ground, name: str) -> Compiled:
        """Build what applied."""
        commit = applied_commit(desk, found, base)
        desk.live.started(f"build on {self.ref}: {name}")
        return self.build(desk.store, commit, self.logs / f"{_plain(name)}-build.log")

    def proven(self, entry: PatchEntry, made: Compiled, name: str) -> tuple[Proven, ...]:
        """Run every proof of a patch on a build."""
        self.desk.live.started(f"proof of {entry.file}: {name}")
        return tuple(
            self.prove(
                proof,
                made,
                self.logs / f"{_plain(name)}-{_plain(entry.file)}-{number}.log",
            )
            for number, proof in enumerate(entry.proof)
        )

    def answer(
        self, entry: PatchEntry, patch: PatchFinding, with_it: tuple[Proven, ...], full: Compiled
    ) -> Dropped:
        """Whether one patch is needed."""
        without: tuple[Proven, ...] = ()
        verdict = _at_once(entry, patch, with_it, full)
        if verdict is None:
            verdict, without = self._by_build(entry, patch)
        answer, reason = verdict
        return Dropped(
            file=entry.file,
            answer=answer,
            reason=reason,
            state=patch.state,
            with_it=with_it,
            without_it=without,
        )

    def _by_build(
        self, entry: PatchEntry, patch: PatchFinding
    ) -> tuple[tuple[Answer, str], tuple[Proven, ...]]:
        left, reason = self._without(entry)
        if left is None:
            return ("cannot tell", reason), ()
        without = self.proven(entry, left, f"without {entry.file}")
        return _by_proof(patch, without), without

    def _without(self, entry: PatchEntry) -> tuple[Compiled | None, str]:
        """The build without a patch and those that need it, or why there is none."""
        out = dependents(self.desk.patchset.patches, entry.file)
        rest = tuple(one for one in self.desk.patchset.patches if one.file not in out)
        desk = replace(
            self.desk,
            patchset=msgspec.structs.replace(self.desk.patchset, patches=rest, patched=None),
        )
        found, base = check_on(desk, self.ref)
        lost = [one.file for one in found.patches if one.file in self.applied and not one.applied]
        if lost:
            names = ", ".join(lost)
            return None, f"without it these do not apply: {names}; say so in their `needs`"
        made = self.made(desk, found, base, f"without {entry.file}")
        if not made.passed:
            return None, f"without it the rest does not compile: {made.summary}"
        return made, ""


def _at_once(
    entry: PatchEntry, patch: PatchFinding, with_it: Sequence[Proven], full: Compiled
) -> tuple[Answer, str] | None:
    """The answer where no build without the patch is needed for it."""
    if not entry.proof:
        return "no proof given", "the manifest names no `proof` for it"
    if patch.applied and not full.passed:
        return "cannot tell", f"with all patches it does not compile: {full.summary}"
    if not all(proof.passed for proof in with_it):
        return "proof fails with it too", _failed(with_it)
    return None


def _by_proof(patch: PatchFinding, without: Sequence[Proven]) -> tuple[Answer, str]:
    """The answer where the proof was run on a build without the patch."""
    if all(proof.passed for proof in without):
        return "not needed", "its proof holds without it"
    if patch.state == "already upstream":
        return "cannot tell", "the base has its lines, and its proof fails there"
    failed = f"without it: {_failed(without)}"
    if not patch.applied:
        return "needed", f"{failed}; here its state is: {patch.state} (sparkbuild patch refresh)"
    return "needed", failed


def dependents(patches: Sequence[PatchEntry], file: str) -> frozenset[str]:
    """A patch, and all that need it, directly or through others."""
    found = {file}
    for patch in patches:  # in order: what is needed stands before
        if found & set(patch.needs):
            found.add(patch.file)
    return frozenset(found)


def _failed(proofs: Sequence[Proven]) -> str:
    failed = [f"{one.proof}: {one.summary}" for one in proofs if not one.passed]
    return "; ".join(failed)


def _plain(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name)


def document(found: msgspec.Struct, code: int) -> Mapping[str, object]:
    """Everything, for ``--json``."""
    plain = msgspec.to_builtins(found)
    return {"result": "failed" if code else "passed", "exit_code": code, **plain}
