"""Carry a variant's patches to another base: commits in a folder, conflicts left to a person.

Each patch is first a commit on the base that it was made for. It is then picked onto the new base
by git's three-way merge, which knows whole files, and looked at: a change that merged cleanly into
another function stops the run as a conflict does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparkbuild.errors import PatchError, UsageError
from sparkbuild.files import write_atomic
from sparkbuild.manifest import Patchset
from sparkbuild.source.gitdoor import Repository
from sparkbuild.source.patching.bases import Ground
from sparkbuild.source.patching.bench import Bench
from sparkbuild.source.patching.check import read_patches
from sparkbuild.source.patching.drift import moved
from sparkbuild.source.patching.export import make_patch_commit
from sparkbuild.source.patching.mail import read_mail
from sparkbuild.source.patching.reading import Patch
from sparkbuild.source.patching.worktree import NOTE, Worktree
from sparkbuild.source.store import Store


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One patch of a refresh."""

    file: str
    made: str | None
    """Its commit on the base that it was made for; None where it does not apply even there."""
    commit: str | None = None
    """Its commit on the new base."""
    dropped: str = ""
    """Why it has none and is done all the same."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.commit is not None or bool(self.dropped)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Where a refresh is; beside git's own files in the folder."""

    variant: str
    manifest: str
    base: str
    base_commit: str
    steps: tuple[Step, ...]
    waiting: str = ""
    """Why a person is asked; empty where nobody is."""
    head: str = ""
    """What was checked out before the patch that waits."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How far a refresh came."""

    state: State
    finished: bool


def prepare(
    store: Store, patchset: Patchset, manifest: Path, base: Ground, own: Ground, folder: Path
) -> Reached:
    """Make a repository in ``folder`` with the base, and pick every patch that merges.

    ``own`` is the base that the patches were made for. Raises UsageError where the folder holds
    something, GitFailedError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is not empty",
            next_step="name a folder that does not exist yet, or go on with the refresh there: "
            f"sparkbuild patch refresh --continue {folder}",
        )
    patches = read_patches(store, patchset, manifest)
    tree = Worktree(folder)
    tree.create()
    with store.writing("the patched source"), store.scratch() as scratch:
        made = _made(store, patches, own, Bench(store, scratch), tree)
    for name, commit in (("own", own.source.commit), ("base", base.source.commit)):
        _fetch(tree.repository, store, commit, f"refs/sparkbuild/{name}")
    tree.must("checkout", "--quiet", "-B", "refreshed", base.source.commit)
    state = State(
        variant=patchset.name,
        manifest=str(manifest.absolute()),
        base=base.name,
        base_commit=base.source.commit,
        steps=tuple(Step(file=file, made=commit) for file, commit in made),
    )
    return _go_on(tree, state)


def _made(
    store: Store, patches: Sequence[Patch], own: Ground, bench: Bench, tree: Worktree
) -> list[tuple[str, str | None]]:
    """Each patch as a commit on the base that it was made for, in the folder's repository."""
    parent, held = own.source.commit, own.source.tree
    made: list[tuple[str, str | None]] = []
    for patch in patches:
        name = patch.entry.file
        bench.set(held)
        if patch.problems or not bench.apply(patch.file).done or bench.tree() == held:
            made.append((name, None))
            continue
        held = bench.tree()
        mail = read_mail(patch.file.read_bytes())
        parent = make_patch_commit(bench.repository, held, parent, mail)
        made.append((name, parent))
    if parent != own.source.commit:
        ref = "refs/checked/refresh"
        bench.repository.must("update-ref", ref, parent)
        _fetch(tree.repository, store, parent, "refs/sparkbuild/made")
        bench.repository.must("update-ref", "-d", ref)
    return made


def _fetch(repository: Repository, store: Store, commit: str, ref: str) -> None:
    repository.must(
        "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", str(store.root),
        f"+{commit}:{ref}",
    )  # fmt: skip


def go_on(folder: Path) -> Reached:
    """Take what a person merged as the waiting patch's commit, and pick the patches behind it.

    Raises UsageError where no refresh is there, PatchError where marks of a conflict are left,
    GitFailedError.
    """
    tree = Worktree(folder)
    state = read_state(folder)
    if state.waiting:
        state = _merged(tree, state)
    return _go_on(tree, state)


def read_state(folder: Path) -> State:
    """Where a refresh is. Raises UsageError where none is there."""
    try:
        return msgspec.json.decode(_record(folder).read_bytes(), type=State)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{folder} holds no refresh of patches",
            problems=[f"expected {_record(folder)}"],
            next_step="sparkbuild patch refresh --variant NAME --base REF --out DIR makes one",
        ) from error


def _record(folder: Path) -> Path:
    return folder.absolute() / ".git" / "sparkbuild.json"


def _go_on(tree: Worktree, state: State) -> Reached:
    for number, step in enumerate(state.steps):
        if step.done:
            continue
        head = tree.head
        done, waiting = _pick(tree, step)
        steps = (*state.steps[:number], done, *state.steps[number + 1 :])
        state = msgspec.structs.replace(state, steps=steps, waiting=waiting, head=head)
        _keep(tree, state)
        if waiting:
            return Reached(state=state, finished=False)
    _keep(tree, state)
    return Reached(state=state, finished=True)


def _pick(tree: Worktree, step: Step) -> tuple[Step, str]:
    """One patch onto what is checked out; the step with it, and why a person is asked."""
    if step.made is None:
        return step, "it does not apply to the base that it was made for: make its change by hand"
    answer = tree.git("cherry-pick", "--allow-empty", step.made)
    if answer.status != 0 and tree.unmerged():
        return step, f"conflicts in {', '.join(tree.unmerged())}"
    if answer.status != 0 and tree.picking and not tree.dirty():
        tree.must("cherry-pick", "--skip")
        return msgspec.structs.replace(step, dropped="the base has all of it"), ""
    if answer.status != 0:
        return step, f"git could not pick it: {answer.err.strip()}"
    done = msgspec.structs.replace(step, commit=tree.head)
    elsewhere = moved(tree.repository, step.made, tree.head)
    if elsewhere:
        text = "; ".join(elsewhere)
        return msgspec.structs.replace(step, commit=None), f"merged cleanly, and elsewhere: {text}"
    return done, ""


def _merged(tree: Worktree, state: State) -> State:
    """The waiting step with the commit that a person made, or that is made of their files now."""
    number = next(n for n, step in enumerate(state.steps) if not step.done)
    step = state.steps[number]
    left = tree.marked(sorted({*tree.unmerged(), *_changed(tree)}))
    if left:
        raise PatchError(
            f"{step.file} is not merged yet",
            problems=[f"marks of a conflict are left in {name}" for name in left],
            evidence=[tree.root / NOTE],
            next_step=f"edit them away in {tree.root}, then run the same command again",
        )
    if tree.picking or tree.dirty():
        _commit(tree, step, state)
    new = tree.repository.must("rev-list", f"{state.head}..HEAD").text.split()
    if len(new) > 1:
        raise PatchError(
            f"{len(new)} commits came where {step.file} waits for one",
            problems=[f"expected one commit on top of {state.head[:12]}"],
            next_step=f"make one of them: git -C {tree.root} reset --soft {state.head[:12]}",
        )
    if new:
        done = msgspec.structs.replace(step, commit=tree.head)
    else:
        done = msgspec.structs.replace(step, dropped="nothing of it was left to do")
    steps = (*state.steps[:number], done, *state.steps[number + 1 :])
    state = msgspec.structs.replace(state, steps=steps, waiting="")
    _keep(tree, state)
    return state


def _commit(tree: Worktree, step: Step, state: State) -> None:
    """Commit the files as they are, with the patch's own author and message."""
    tree.must("add", "--all")
    if not tree.must("status", "--porcelain", "-z").out:
        if tree.picking:
            tree.must("cherry-pick", "--skip")
        return
    if tree.head != state.head:  # the pick itself, looked at and corrected
        tree.must("commit", "--quiet", "--amend", "--no-verify", "--reuse-message=HEAD")
        return
    if step.made is not None:
        tree.must("commit", "--quiet", "--no-verify", f"--reuse-message={step.made}")
        return
    mail = read_mail((Path(state.manifest).parent / step.file).read_bytes())
    parent = tree.head
    commit = make_patch_commit(
        tree.repository, tree.repository.must("write-tree").text, parent, mail
    )
    tree.must("reset", "--quiet", "--soft", commit)


def _changed(tree: Worktree) -> Sequence[str]:
    answer = tree.must("diff", "--name-only", "-z", "HEAD").out.split(b"\0")[:-1]
    return [name.decode(errors="surrogateescape") for name in answer]


def _keep(tree: Worktree, state: State) -> None:
    write_atomic(_record(tree.root), msgspec.json.format(msgspec.json.encode(state)))
    write_atomic(tree.root / NOTE, _note(tree, state))


def _note(tree: Worktree, state: State) -> str:
    lines = [f"Patches of {state.variant}, carried to {state.base}.", ""]
    waiting = next((step for step in state.steps if not step.done), None)
    for step in state.steps:
        word = "done" if step.commit else f"dropped: {step.dropped}" if step.dropped else "open"
        if step is waiting and state.waiting:
            word = f"WAITS FOR YOU: {state.waiting}"
        lines.append(f"  {step.file}: {word}")
    lines += ["", "What to do:"]
    if state.waiting:
        lines += [
            "  1. Edit the files named above until they say what the patch means here, and take",
            "     out the lines with <<<<<<<, =======, >>>>>>>. `git diff` shows what is open.",
            "     To give a patch up as not needed, restore the files: git checkout HEAD -- .",
            "  2. Do not commit (one commit of your own is taken as the patch, if you do).",
        ]
    lines += [f"  Then: sparkbuild patch refresh --continue {tree.root}", ""]
    return "\n".join(lines)
