"""A variant on a user's machine: a source that grows, patches made with git, bases in folders."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess  # noqa: TID251 - tests make repositories as people do
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkbuild.manifest import Patchset, load
from sparkbuild.patch_work import Desk, check_on
from sparkbuild.source.digest import tree_digest
from sparkbuild.source.model import Checked, PatchFinding
from sparkbuild.source.obtain import obtain
from sparkbuild.source.prepare import prepare
from sparkbuild.workspace import Workspace

HEADER = "Why: it has to.\nUpstream: does not.\nProof: a test.\nGone-when: merged.\n"
ENV = {"GIT_AUTHOR_NAME": "Ann Author", "GIT_COMMITTER_NAME": "c", "GIT_AUTHOR_EMAIL": "ann@x.org",
       "GIT_COMMITTER_EMAIL": "c", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
       "GIT_AUTHOR_DATE": "2026-10-07T12:00:00+02:00", "PATH": os.environ["PATH"]}  # fmt: skip


@dataclass
class Quiet:
    """An observer that remembers what must be seen."""

    notes: list[str] = field(default_factory=list)

    def started(self, stage: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, report: object) -> None: ...


def git(*arguments: str, at: Path, check: bool = True) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=at, env=ENV, capture_output=True, text=True, check=check
    )
    return done.stdout.strip()


class Kit:
    """One variant ``tiny``: its pin is what ``pin`` was given, its patches what ``commit`` made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.recipes = root / "recipes"
        self.folder = self.recipes / "patchsets" / "tiny"
        self.folder.mkdir(parents=True)
        (self.recipes / "toolchains").mkdir()
        self.manifest = self.folder / "patchset.toml"
        self.work = Workspace(root / "work")
        self.work.prepare()
        self.live = Quiet()
        self.repo = root / "repo"
        self.paths: tuple[str, ...] = ("src",)
        self.patches: dict[str, bytes] = {}
        self.extra: dict[str, str] = {}
        """TOML lines of a patch's entry."""
        self.tail = ""

    def pin(self, files: Mapping[str, str | bytes]) -> None:
        """The source that the variant pins, and a repository to make patches in."""
        self.base("pin", files)
        self.repo.mkdir()
        git("init", "--quiet", "--initial-branch=main", at=self.repo)
        self.put(self.repo, files)
        git("add", "--all", at=self.repo)
        git("commit", "--quiet", "--message", "pin", at=self.repo)
        self.write()

    def base(self, name: str, files: Mapping[str, str | bytes]) -> str:
        """A folder with a source tree; its path is a base's name."""
        place = self.root / "bases" / name
        self.put(place, files)
        return str(place)

    def put(self, place: Path, files: Mapping[str, str | bytes]) -> None:
        for path, text in files.items():
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def commit(
        self,
        name: str,
        files: Mapping[str, str | bytes | None],
        *,
        body: str = HEADER,
        extra: str = "",
    ) -> bytes:
        """A patch by the commit that makes ``files`` so; None deletes one."""
        for path, text in files.items():
            if text is None:
                (self.repo / path).unlink()
            else:
                self.put(self.repo, {path: text})
        git("add", "--all", at=self.repo)
        git("commit", "--quiet", "--message", f"{name}: change\n\n{body}", at=self.repo)
        text = subprocess.run(
            ["git", "format-patch", "--stdout", "-1"], cwd=self.repo, env=ENV, capture_output=True,
            check=True,
        ).stdout  # fmt: skip
        return self.patch(f"{name}.patch", text, extra=extra)

    def patch(self, name: str, text: bytes, *, extra: str = "") -> bytes:
        self.patches[name] = text
        self.extra[name] = extra
        self.write()
        return text

    def write(self) -> None:
        place = self.root / "bases" / "pin"
        lines = ["schema = 1", 'name = "tiny"', 'summary = "s"', "[source]",
                 f"paths = {json.dumps(list(self.paths))}  # declared",
                 f'digest = "{tree_digest(place, self.paths)}"', "[[source.origins]]",
                 'kind = "path"', f"path = {json.dumps(str(place))}", "[build]",
                 'targets = ["tiny"]', "[smoke]", 'suite = "tiny"']  # fmt: skip
        for name, text in self.patches.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text)
            digest = hashlib.sha256(text).hexdigest()
            lines += ["[[patches]]", f'file = "{name}"', f'sha256 = "{digest}"', 'reason = "r"']
            lines += [self.extra[name]] if self.extra[name] else []
        self.manifest.write_text("\n".join([*lines, self.tail]) + "\n")

    @property
    def patchset(self) -> Patchset:
        return load(self.manifest, Patchset)

    @property
    def desk(self) -> Desk:
        return Desk(patchset=self.patchset, manifest=self.manifest, work=self.work, live=self.live)

    def check(self, base: str = "pin") -> Checked:
        return check_on(self.desk, base)[0]

    def only(self, base: str = "pin") -> PatchFinding:
        """The finding of the only patch."""
        (found,) = self.check(base).patches
        return found

    def make(self) -> str:
        """Stage 3; the tree that it gives."""
        source = obtain(self.patchset.source, self.manifest, self.work, self.live)
        return prepare(source, self.patchset, self.manifest, self.work, self.live).tree


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)
