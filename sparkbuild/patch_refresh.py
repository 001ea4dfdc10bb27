"""What ``sparkbuild patch refresh`` does: begin in a folder, go on there, write what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from sparkbuild.errors import HostError, UsageError
from sparkbuild.manifest import Patchset, load
from sparkbuild.patch_work import Desk
from sparkbuild.source.gitdoor import GitFailedError
from sparkbuild.source.patching.bases import PIN
from sparkbuild.source.patching.finish import Finished, finish
from sparkbuild.source.patching.refresh import Reached, go_on, prepare, read_state
from sparkbuild.source.patching.worktree import NOTE
from sparkbuild.stages import Observer
from sparkbuild.workspace import Workspace


def refresh(desk: Desk, ref: str, folder: Path) -> Reached:
    """Begin to carry the patches to a base, in a folder of the user's. Raises as ``prepare``."""
    desk.live.started(f"patches onto {ref}")
    base = desk.ground(ref)
    own = base if ref == PIN else desk.ground(PIN)
    with _git_refused(folder):
        return prepare(desk.store, desk.patchset, desk.manifest, base, own, folder)


def refreshed(folder: Path, work: Workspace, live: Observer) -> tuple[Reached, Finished | None]:
    """Go on with a refresh; where no patch waits any more, write the patch files and manifest.

    Raises UsageError, PatchError, and ManifestError for a manifest broken meanwhile.
    """
    state = read_state(folder)
    manifest = Path(state.manifest)
    desk = Desk(patchset=load(manifest, Patchset), manifest=manifest, work=work, live=live)
    live.started(f"patches onto {state.base}")
    with _git_refused(folder):
        reached = go_on(folder)
        if not reached.finished:
            return reached, None
        base = desk.ground(state.base)
        if base.source.commit != state.base_commit:
            raise UsageError(
                f"the base {state.base} is another than when the refresh began",
                problems=[f"expected commit {state.base_commit}", f"found {base.source.commit}"],
                next_step="begin again in another folder: sparkbuild patch refresh --variant "
                f"{state.variant} --base {state.base} --out DIR",
            )
        done = finish(desk.store, desk.patchset, manifest, base, folder, reached.state)
    return reached, done


@contextlib.contextmanager
def _git_refused(folder: Path) -> Iterator[None]:
    try:
        yield
    except GitFailedError as error:
        raise HostError(
            f"git cannot work in {folder}",
            problems=[str(error)],
            evidence=[folder],
            next_step=f"git -C {folder} status; or begin again in another folder",
        ) from error


def told(reached: Reached, done: Finished | None, folder: Path, code: int) -> dict[str, object]:
    """How far a refresh came, for the terminal and for ``--json``."""
    patches = {
        step.file: f"dropped: {step.dropped}" if step.dropped else step.commit or "open"
        for step in reached.state.steps
    }
    facts: dict[str, object] = {
        "result": "waiting" if code else "written" if done else "ready",
        "folder": str(folder),
        "base": reached.state.base,
        "patches": patches,
    }
    if done is not None:
        written = list(done.written)
        return {**facts, "tree": done.tree, "written": written, "unchanged": list(done.unchanged)}
    step = f"sparkbuild patch refresh --continue {folder}"
    if reached.state.waiting:
        return {**facts, "waiting": reached.state.waiting, "next_step": f"{folder / NOTE}, {step}"}
    return {**facts, "next_step": step}
