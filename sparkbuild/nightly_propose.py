"""What a green night proposes: the re-pin as a branch and a patch, for a person to take."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkbuild.errors import HostError
from sparkbuild.files import write_atomic
from sparkbuild.manifest import Patchset, Recipes
from sparkbuild.nightly.model import Release
from sparkbuild.nightly.read import document_in
from sparkbuild.nightly.steps import variants
from sparkbuild.nightly_order import Ended, Order
from sparkbuild.nightly_step import command
from sparkbuild.source.gitdoor import GitFailedError, Repository
from sparkbuild.source.objects import create_repository

FOLDER: Final = "proposals"
"""Below the history's root, one folder for each base."""

_WHO: Final = {
    "GIT_AUTHOR_NAME": "sparkbuild nightly", "GIT_AUTHOR_EMAIL": "sparkbuild@localhost",
    "GIT_COMMITTER_NAME": "sparkbuild nightly", "GIT_COMMITTER_EMAIL": "sparkbuild@localhost",
}  # fmt: skip


class Repin(msgspec.Struct, frozen=True, kw_only=True):
    """One variant's pin before and after; ``patches`` are digests, empty where one was dropped."""

    variant: str
    build: tuple[int | None, int | None]
    digest: tuple[str | None, str | None]
    tree: tuple[str | None, str | None]
    patches: dict[str, tuple[str, str]]
    needed: dict[str, str] = {}
    """By patch: what ``patch drop-check`` answered on the new base; empty where nobody asked."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A re-pin of the recipes, with the night that stands for it."""

    base: str
    commit: str
    night: str
    branch: str
    repository: str
    patch: str
    variants: tuple[Repin, ...]


def propose(order: Order, ended: Ended) -> Proposal | None:
    """Write the re-pin below the history's folder; None where there is nothing to propose.

    Only a green night with a newer base proposes. Raises HostError where git cannot work.
    """
    release = ended.release
    if ended.night.state != "green" or release is None or not order.plan.proposal.write:
        return None
    names = variants(order.plan, "candidate")
    renewed = Recipes(ended.folder / "recipes")
    place = order.root.absolute() / FOLDER / release.tag
    place.mkdir(parents=True, exist_ok=True)
    asked = {name: _needed(order, name, renewed.root, place) for name in names}
    known = Recipes(order.recipes)
    pins = tuple(
        _repin(known.patchset(name)[0], renewed.patchset(name)[0], asked[name]) for name in names
    )
    branch = f"repin-{release.tag}"
    text = _message(release, ended, pins)
    try:
        patch = _branch(order.recipes, renewed.root, place / "recipes.git", branch, text)
    except GitFailedError as error:
        raise HostError(
            f"git cannot write the proposal in {place}",
            problems=[str(error)],
            next_step="see to that folder; the next green night proposes again",
        ) from error
    write_atomic(place / "repin.patch", patch)
    write_atomic(place / "PROPOSAL.md", text)
    proposal = Proposal(
        base=release.tag,
        commit=release.commit,
        night=ended.night.id,
        branch=branch,
        repository=str(place / "recipes.git"),
        patch=str(place / "repin.patch"),
        variants=pins,
    )
    write_atomic(
        place / "proposal.json", msgspec.json.format(msgspec.json.encode(proposal), indent=2)
    )
    return proposal


def waiting(ended: Ended) -> list[str]:
    """Where a person's merge is needed: the worktree that is ready, and what conflicts in it."""
    folder = ended.folder / "refresh"
    return [
        f"patches of {one.step.variant} wait in {folder / one.step.variant}: {one.message}"
        for one in ended.outcomes
        if one.step.kind == "refresh" and one.state == "failed"
    ]


def _needed(order: Order, variant: str, recipes: Path, place: Path) -> dict[str, str]:
    """Which patches the new base still needs, by their proofs."""
    settings = order.plan.proposal
    if not settings.drop_check or not Recipes(recipes).patchset(variant)[0].patches:
        return {}
    work = ["--work", str(order.work.absolute())] if order.work else []
    words = ["patch", "drop-check", "--variant", variant, "--recipes", str(recipes), *work]
    log = place / f"drop-check-{variant}.log"
    ended = command(
        [*order.program, *words, "--json"],
        log,
        time.monotonic() + settings.drop_check_minutes * 60,
    )
    document = document_in(log.read_text(encoding="utf-8", errors="replace")) or {}
    answers = {
        str(one["file"]): f"{one['answer']}: {one['reason']}" if one["reason"] else one["answer"]
        for one in document.get("patches", ())
    }
    names = [patch.file for patch in Recipes(recipes).patchset(variant)[0].patches]
    how = "ran out of time" if ended.code is None else f"ended with {ended.code}"
    return {name: answers.get(name, f"not answered: drop-check {how}") for name in names}


def _repin(old: Patchset, new: Patchset, needed: Mapping[str, str]) -> Repin:
    after = {one.file: one.sha256 for one in new.patches}
    return Repin(
        variant=old.name,
        build=(old.source.build, new.source.build),
        digest=(old.source.digest, new.source.digest),
        tree=(old.patched.tree if old.patched else None, new.patched.tree if new.patched else None),
        patches={one.file: (one.sha256, after.get(one.file, "")) for one in old.patches},
        needed=dict(needed),
    )


def _branch(recipes: Path, renewed: Path, place: Path, branch: str, message: str) -> bytes:
    """Commit the renewed recipes on what the recipes' checkout holds; gives the patch's bytes.

    The user's own repository is read, never written.
    """
    shutil.rmtree(place, ignore_errors=True)
    create_repository(place)
    plain = Repository(place)
    if (recipes / ".git").exists():
        plain.must("fetch", "--quiet", "--no-tags", "--", str(recipes), "+HEAD:refs/heads/as-is")
        base = plain.must("rev-parse", "refs/heads/as-is").text
    else:
        base = _commit(place, recipes, None, "recipes as they are", "as-is")
    commit = _commit(place, renewed, base, message, branch)
    answer = plain.must("format-patch", "--stdout", "--full-index", "--binary", "-1", commit)
    return answer.out


def _commit(place: Path, tree: Path, parent: str | None, message: str, branch: str) -> str:
    """Commit ``patchsets`` of a folder; all else is as in ``parent``."""
    index = place / "index"
    index.unlink(missing_ok=True)
    repository = Repository(place, index=index, home=_WHO)
    if parent is not None:
        repository.must("read-tree", parent)
    repository.must(f"--work-tree={tree}", "add", "--all", "--force", "--", "patchsets")
    made = repository.must("write-tree").text
    parents = ["-p", parent] if parent else []
    commit = repository.must("commit-tree", made, *parents, "-m", message).text
    repository.must("update-ref", f"refs/heads/{branch}", commit)
    index.unlink(missing_ok=True)
    return commit


def _message(release: Release, ended: Ended, pins: tuple[Repin, ...]) -> str:
    """The commit's message, and what a person reads first."""
    lines = [
        f"recipes: base {release.tag}",
        "",
        f"Upstream commit {release.commit}. Night {ended.night.id} was green on both bases:",
        ended.night.reason + ".",
    ]
    for pin in pins:
        lines += ["", f"{pin.variant}: build {_change(*pin.build)}"]
        lines.append(f"  source {_change(*pin.digest)}")
        if any(pin.tree):
            lines.append(f"  patched tree {_change(*pin.tree)}")
        for file, (before, after) in pin.patches.items():
            what = "dropped" if not after else "unchanged" if before == after else "made anew"
            needed = f"; {pin.needed[file]}" if file in pin.needed else ""
            lines.append(f"  {file}: {what}{needed}")
    return "\n".join([*lines, ""])


def _change(before: Any, after: Any) -> str:
    return f"{before or 'unknown'} -> {after or 'unknown'}"
