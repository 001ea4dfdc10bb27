"""A patch that is somebody's commit: by full id, of the named PR, mirrored, its diff pinned."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkbuild.errors import ManifestError, SourceMismatchError, SourceUnavailableError
from sparkbuild.source.patching.remote import mirror_ref

if TYPE_CHECKING:
    from patching.conftest import Kit

TEXT = "".join(f"line {number}\n" for number in range(1, 21))
PULL = "refs/pull/7/head"


class Fork:
    """A repository on a server, with a pull request of two commits, and a stranger's commit."""

    def __init__(self, kit: Kit) -> None:
        self.place = kit.root / "upstream"
        self.place.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")
        # as the big hosts do: any commit that is there can be fetched by its id
        self._git("config", "uploadpack.allowAnySHA1InWant", "true")
        self._git("config", "uploadpack.allowFilter", "true")
        self.base = self.commit("src/a.txt", TEXT)
        self._git("checkout", "--quiet", "-b", "pr")
        self.first = self.commit("src/a.txt", TEXT.replace("line 5\n", "five\n"))
        self.second = self.commit("src/b.txt", "new\n")
        self._git("update-ref", PULL, self.second)
        self._git("checkout", "--quiet", "-b", "stranger", self.base)
        self.stranger = self.commit("src/a.txt", TEXT.replace("line 5\n", "evil\n"))

    def _git(self, *arguments: str) -> str:
        from patching.conftest import git

        return git(*arguments, at=self.place)

    def commit(self, path: str, text: str) -> str:
        file = self.place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", f"change {path}")
        return self._git("rev-parse", "HEAD")

    def force_push(self) -> None:
        """The pull request becomes another, and what it was is collected."""
        self._git("update-ref", PULL, self.stranger)
        self._git("branch", "--quiet", "-D", "pr")
        self._git("reflog", "expire", "--expire=now", "--all")
        self._git("gc", "--quiet", "--prune=now")

    def declare(self, kit: Kit, commit: str, sha256: str, *, base: str | None = None) -> None:
        kit.tail = "\n".join(
            ["[[patches]]", 'file = "pr.patch"', f'sha256 = "{sha256}"', 'reason = "r"',
             "[patches.remote]", f'url = "{self.place}"', f'commit = "{commit}"',
             f'ref = "{PULL}"', *([f'base = "{base}"'] if base else [])]
        )  # fmt: skip
        kit.write()

    def digest(self, kit: Kit, commit: str, *, base: str | None = None) -> str:
        """What the tool says that the diff's digest is."""
        self.declare(kit, commit, "0" * 64, base=base)
        with pytest.raises(SourceMismatchError) as refusal:
            kit.make()
        found = refusal.value.problems[1]
        assert found.startswith("found sha256 ")
        return found.removeprefix("found sha256 ")


@pytest.fixture
def fork(kit: Kit) -> Fork:
    kit.pin({"src/a.txt": TEXT})
    return Fork(kit)


def test_a_commit_of_the_pull_request_is_a_patch(kit: Kit, fork: Fork) -> None:
    fork.declare(kit, fork.first, fork.digest(kit, fork.first))
    assert kit.only().state == "applies"
    tree = kit.make()
    (text,) = kit.work.sources.glob("*/src/a.txt")
    assert text.read_text() == TEXT.replace("line 5\n", "five\n")
    assert tree == kit.check().tree


def test_a_whole_pull_request_is_one_against_its_base(kit: Kit, fork: Fork) -> None:
    digest = fork.digest(kit, fork.second, base=fork.base)
    fork.declare(kit, fork.second, digest, base=fork.base)
    kit.make()
    assert next(kit.work.sources.glob("*/src/b.txt")).read_text() == "new\n"
    assert "five\n" in next(kit.work.sources.glob("*/src/a.txt")).read_text()


def test_a_commit_that_anybody_may_have_pushed_is_refused(kit: Kit, fork: Fork) -> None:
    """It can be fetched by its id; it is not in the pull request."""
    fork.declare(kit, fork.stranger, "0" * 64)
    with pytest.raises(SourceMismatchError, match=f"is not in {PULL}") as refusal:
        kit.make()
    assert fork.second in refusal.value.problems[1]
    found = kit.only()
    assert found.state == "refused"
    assert f"is not in {PULL}" in found.problems[0]


def test_once_mirrored_a_force_push_takes_nothing_away(kit: Kit, fork: Fork) -> None:
    from patching.conftest import git

    digest = fork.digest(kit, fork.first)
    fork.declare(kit, fork.first, digest)
    fork.force_push()
    shutil.rmtree(kit.work.store / "sparkbuild" / "patches", ignore_errors=True)
    kit.make()
    ref = mirror_ref(fork.first)
    assert git("rev-parse", ref, at=kit.work.store) == fork.first
    git("gc", "--quiet", "--prune=now", at=kit.work.store)
    shutil.rmtree(kit.work.store / "sparkbuild" / "patches")
    shutil.rmtree(fork.place)
    assert kit.only().state == "applies"


def test_a_pull_request_that_was_pushed_anew_is_refused_elsewhere(kit: Kit, fork: Fork) -> None:
    digest = fork.digest(kit, fork.first)
    shutil.rmtree(kit.work.root)
    kit.work.prepare()
    fork.force_push()
    fork.declare(kit, fork.first, digest)
    with pytest.raises(SourceMismatchError, match="is not in"):
        kit.make()


def test_a_repository_that_does_not_answer_is_unavailable(kit: Kit, fork: Fork) -> None:
    fork.declare(kit, fork.first, "0" * 64)
    shutil.rmtree(fork.place)
    with pytest.raises(SourceUnavailableError, match="cannot get commit"):
        kit.make()


def test_the_diff_does_not_depend_on_the_user_s_git(
    kit: Kit, fork: Fork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    digest = fork.digest(kit, fork.first)
    config = tmp_path / "gitconfig"
    config.write_text("[diff]\n\tcontext = 9\n\tnoprefix = true\n\talgorithm = patience\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    shutil.rmtree(kit.work.root)
    kit.work.prepare()
    assert fork.digest(kit, fork.first) == digest
    assert len(hashlib.sha256().hexdigest()) == len(digest)


@pytest.mark.parametrize(
    ("commit", "ref"), [("abc1234", PULL), ("f" * 40, "pull/7"), ("f" * 40, "refs/../x y")]
)
def test_an_abbreviated_commit_and_a_loose_ref_are_no_pins(
    kit: Kit, fork: Fork, commit: str, ref: str
) -> None:
    fork.declare(kit, "f" * 40, "0" * 64)
    text = kit.manifest.read_text().replace("f" * 40, commit).replace(PULL, ref)
    kit.manifest.write_text(text)
    with pytest.raises(ManifestError):
        _ = kit.patchset
