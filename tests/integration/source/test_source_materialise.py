"""The tree on disk: exact, made once, and never quietly changed."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkbuild.source.gitdoor import Repository
from sparkbuild.source.store import Store
from sparkbuild.source.verify import verify

if TYPE_CHECKING:
    from source.conftest import Lab, Upstream

Digest = Callable[..., str]


@pytest.fixture
def ready(lab: Lab, upstream: Upstream, tree: Digest, tiny: dict[str, bytes]) -> Lab:
    upstream.commit(tiny)
    upstream.tag("b1")
    lab.write({"kind": "git", "url": upstream.url, "tag": "b1"}, digest=tree(tiny))
    return lab


def _state(root: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for file in root.rglob("*"):
        if file.is_symlink():
            found[f"{file.relative_to(root)}@"] = (0, os.fsencode(file.readlink()))
        elif file.is_file():
            mode = file.stat().st_mode & 0o7777
            found[str(file.relative_to(root))] = (mode, file.read_bytes())
    return found


def _expected(tiny: dict[str, bytes]) -> dict[str, tuple[int, bytes]]:
    modes = {"*": 0o755, "@": 0}
    return {(name.rstrip("*")): (modes.get(name[-1], 0o644), data) for name, data in tiny.items()}


def test_bytes_and_modes_are_exact_whatever_attributes_and_umask_say(
    ready: Lab, tiny: dict[str, bytes]
) -> None:
    """The tree holds attributes that would change line ends and expand keywords."""
    before = os.umask(0o077)
    try:
        made = ready.prepare()
    finally:
        os.umask(before)
    assert _state(Path(made.directory)) == _expected(tiny)
    assert Path(made.directory) == ready.sources / made.commit


def test_times_are_fixed_so_that_a_tree_made_anew_rebuilds_nothing(ready: Lab) -> None:
    root = Path(ready.prepare().directory)
    times = {file.lstat().st_mtime for file in [root, *root.rglob("*")]}
    assert times == {946684800.0}


def test_an_untouched_tree_is_reused(ready: Lab) -> None:
    root = Path(ready.prepare().directory)
    before = (root / "src/a.c").stat().st_ino
    ready.prepare()
    assert (root / "src/a.c").stat().st_ino == before
    assert ready.watcher.notes == []


def _edit(file: Path) -> None:
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"1", b"2"))
    os.utime(file, ns=times)


def _link(file: Path, target: str) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to(target)


EDITS: dict[str, tuple[Callable[[Path], object], str]] = {
    "edited, size and time kept": (lambda root: _edit(root / "src/a.c"), "src/a.c"),
    "deleted": (lambda root: (root / "src/id.c").unlink(), "src/id.c (deleted)"),
    "added": (lambda root: (root / "src/x").write_bytes(b""), "src/x (added)"),
    "linked folder added": (lambda root: _link(root / "src/more", "deep"), "src/more (added)"),
    "mode": (lambda root: (root / "src/a.c").chmod(0o755), "src/a.c (mode)"),
    "file to link": (lambda root: _link(root / "src/a.c", "id.c"), "src/a.c (mode)"),
    "link moved": (lambda root: _link(root / "link", "run.sh"), "link"),
}


@pytest.mark.parametrize(("edit", "named"), EDITS.values(), ids=EDITS.keys())
def test_a_changed_tree_is_noticed_told_and_made_anew(
    ready: Lab, tiny: dict[str, bytes], edit: Callable[[Path], object], named: str
) -> None:
    root = Path(ready.prepare().directory)
    edit(root)
    changed = _state(root)
    assert Path(ready.prepare().directory) == root
    assert _state(root) == _expected(tiny)
    assert len(ready.watcher.notes) == 1
    assert ready.watcher.notes[0].endswith(f": {named}")
    aside = root.with_name(f"{root.name}.edited")
    assert str(aside) in ready.watcher.notes[0]
    assert _state(aside) == changed
    ready.prepare()
    assert len(ready.watcher.notes) == 1


def test_a_file_rewritten_with_the_same_bytes_is_no_change(ready: Lab) -> None:
    root = Path(ready.prepare().directory)
    file = root / "src/a.c"
    file.write_bytes(file.read_bytes())
    before = file.stat().st_ino
    ready.prepare()
    assert ready.watcher.notes == []
    assert file.stat().st_ino == before


def test_a_tree_without_its_completion_is_not_believed(ready: Lab, tiny: dict[str, bytes]) -> None:
    root = Path(ready.prepare().directory)
    root.with_name(f"{root.name}.json").unlink()
    (root / "src/a.c").write_bytes(b"half")
    ready.prepare()
    assert _state(root) == _expected(tiny)


def test_a_deleted_tree_is_made_anew_without_its_origin(
    ready: Lab, upstream: Upstream, tiny: dict[str, bytes]
) -> None:
    made = ready.prepare()
    shutil.rmtree(made.directory)
    shutil.rmtree(upstream.root)
    assert _state(Path(ready.prepare().directory)) == _expected(tiny)


def _in_a_child(action: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(1)
    return child


def _check_after_kill(lab: Lab, tiny: dict[str, bytes]) -> None:
    """Nothing that is believed is wrong, and the next run is good."""
    pin = lab.patchset.source
    if Store(lab.store).find(pin) is not None:
        verify(pin, lab.manifest, lab)
    made = lab.prepare()
    assert _state(Path(made.directory)) == _expected(tiny)
    assert not list(lab.store.rglob("tmp_*"))
    assert not list(lab.work.glob(".store.git.new-*"))
    assert not list(lab.sources.glob(".new-*"))
    assert lab.watcher.notes == []


class _Killer:
    """Ends this process as a power cut would, at the nth time something is about to happen."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _run_until_killed(lab: Lab, number: int) -> bool:
    """Run in a child that is killed before its nth step; False where it has fewer steps.

    Steps are git commands, renames and atomic writes: between two of them lies all that a killed
    run can leave behind.
    """

    def action() -> None:
        step = _Killer(number)
        run, rename, replace = Repository.run, Path.rename, Path.replace

        def counted_run(self: Repository, *arguments: str, **options: object) -> object:
            step()
            return run(self, *arguments, **options)  # type: ignore[arg-type]

        def counted_rename(self: Path, target: Path) -> Path:
            step()
            return rename(self, target)

        def counted_replace(self: Path, target: Path) -> Path:
            step()
            return replace(self, target)

        Repository.run = counted_run  # type: ignore[method-assign,assignment]
        Path.rename = counted_rename  # type: ignore[method-assign,assignment]
        Path.replace = counted_replace  # type: ignore[method-assign,assignment]
        lab.prepare()
        os._exit(0)

    _, status = os.waitpid(_in_a_child(action), 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_killed_before_every_single_step_then_a_good_run(
    ready: Lab, tiny: dict[str, bytes], tmp_path: Path
) -> None:
    number = 0
    while True:
        number += 1
        ready.work = tmp_path / f"work-{number}"
        if not _run_until_killed(ready, number):
            break
        _check_after_kill(ready, tiny)
    assert number > 15


def test_killed_again_and_again_in_one_place_then_a_good_run(
    ready: Lab, tiny: dict[str, bytes]
) -> None:
    """Leavings of several killed runs lie on top of each other."""
    for number in range(1, 12):
        _run_until_killed(ready, number)
    _check_after_kill(ready, tiny)


@pytest.mark.parametrize("part", range(1, 9))
def test_killed_at_any_moment_then_a_good_run(
    ready: Lab, tiny: dict[str, bytes], tmp_path: Path, part: int
) -> None:
    started = time.monotonic()
    ready.prepare()
    whole = time.monotonic() - started
    ready.work = tmp_path / "killed"
    child = _in_a_child(ready.prepare)
    time.sleep(whole * part / 9)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _check_after_kill(ready, tiny)


def test_two_processes_make_one_tree(ready: Lab, tiny: dict[str, bytes]) -> None:
    def action() -> None:
        ready.prepare()
        os._exit(0)

    children = [_in_a_child(action) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    _check_after_kill(ready, tiny)
