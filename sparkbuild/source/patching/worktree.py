"""A plain git repository with files, in a folder that a user works in: theirs, not the store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sparkbuild.source.gitdoor import Answer, Repository
from sparkbuild.source.objects import AUTHOR

NOTE: Final = "REFRESH.txt"
"""What to do now, for the person who merges."""

_ATTRIBUTES: Final = "* -text -ident -filter -working-tree-encoding -export-subst\n"
"""Bytes come out of the store and go back as they are, whatever the source's own attributes say."""

_MARKER: Final = re.compile(rb"^(?:<{7} |>{7} |\|{7} |={7}\n)", re.MULTILINE)


class Worktree:
    """The repository at ``root``; git is run with fixed names, dates and without an editor."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        name, _, rest = AUTHOR.partition(" <")
        address, _, date = rest.partition("> ")
        identity = {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": address,
                    "GIT_COMMITTER_DATE": date, "GIT_EDITOR": "true"}  # fmt: skip
        self.repository = Repository(self.root / ".git", home=identity)

    def create(self) -> None:
        """Make an empty one. Raises GitFailedError."""
        git = self.root / ".git"
        git.mkdir(parents=True)
        self.repository.must("-c", "init.defaultBranch=refreshed", "init", "--quiet", "--template=")
        self.repository.must("config", "core.bare", "false")
        (git / "info").mkdir(exist_ok=True)
        (git / "info" / "attributes").write_text(_ATTRIBUTES, encoding="utf-8")
        (git / "info" / "exclude").write_text(f"/{NOTE}\n", encoding="utf-8")

    def git(self, *arguments: str) -> Answer:
        """Run git among the files."""
        return self.repository.run(f"--work-tree={self.root}", "-C", str(self.root), *arguments)

    def must(self, *arguments: str) -> Answer:
        """Like ``git``; raises GitFailedError with git's own words where it ended badly."""
        return self.repository.must(f"--work-tree={self.root}", "-C", str(self.root), *arguments)

    @property
    def head(self) -> str:
        """The commit that is checked out."""
        return self.repository.must("rev-parse", "HEAD").text

    @property
    def picking(self) -> bool:
        """Whether a cherry-pick waits for somebody to merge."""
        return (self.root / ".git" / "CHERRY_PICK_HEAD").is_file()

    def unmerged(self) -> list[str]:
        """Files that git could not merge."""
        lines = self.must("ls-files", "--unmerged", "-z").out.split(b"\0")[:-1]
        names = (line.partition(b"\t")[2].decode(errors="surrogateescape") for line in lines)
        return sorted(set(names))

    def marked(self, names: list[str]) -> list[str]:
        """Those of ``names`` that still hold git's marks of a conflict."""
        found = []
        for name in names:
            file = self.root / name
            if file.is_file() and _MARKER.search(file.read_bytes()):
                found.append(name)
        return found

    def dirty(self) -> bool:
        """Whether files differ from what is committed."""
        return bool(self.must("status", "--porcelain", "-z").out)
