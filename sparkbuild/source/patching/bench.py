"""A temporary index in which patches are tried: one tree at a time, git itself places the hunks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.source.gitdoor import Repository, said
from sparkbuild.source.patching.unified import split
from sparkbuild.source.store import Store

ELSEWHERE: Final = re.compile(r"^Hunk #\d+ succeeded at .*offset|^Context reduced", re.MULTILINE)
"""What ``git apply --verbose`` says of a hunk that it placed by searching."""

_APPLY: Final = ("apply", "--cached", "--verbose", "--whitespace=nowarn", "-p1")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """How ``git apply`` ended: whether it did, whether it had to search, what it said."""

    done: bool
    searched: bool
    err: str

    @property
    def said(self) -> str:
        """Why it failed, on one line."""
        return said(self.err)


class Bench:
    """One index below ``scratch``; objects go to the store, where nothing refers to them yet."""

    def __init__(self, store: Store, scratch: Path) -> None:
        self.repository = Repository(store.root, index=scratch / "index")

    def set(self, tree: str) -> None:
        """Put a tree into the index. Raises GitFailedError."""
        self.repository.must("read-tree", tree)

    def tree(self) -> str:
        """The index as a tree. Raises GitFailedError."""
        return self.repository.must("write-tree").text

    def apply(self, file: Path, *options: str) -> Attempt:
        """Apply a patch to the index; where git refuses one hunk, nothing is changed."""
        answer = self.repository.run(*_APPLY, *options, "--", str(file))
        return Attempt(
            done=answer.status == 0,
            searched=bool(ELSEWHERE.search(answer.err)),
            err=answer.err,
        )

    def content(self, tree: str, path: str) -> tuple[bytes, ...] | None:
        """The lines of a regular file of a tree, with their ends; None where there is none."""
        listed = self.repository.must("ls-tree", "-z", "--full-tree", tree, "--", path).out
        facts = listed.split(b"\t")[0].split()
        if len(facts) != 3 or facts[1] != b"blob" or not facts[0].startswith(b"100"):
            return None
        data = self.repository.must("cat-file", "blob", facts[2].decode()).out
        return tuple(split(data))

    def touched(self, before: str) -> Iterator[tuple[str, str]]:
        """Path and new mode of every file that differs between the index and a tree."""
        arguments = ("diff-index", "--cached", "--raw", "-z", "--no-renames", before, "--")
        fields = self.repository.must(*arguments).out.split(b"\0")
        for facts, path in zip(fields[0::2], fields[1::2], strict=False):
            yield path.decode(errors="surrogateescape"), facts.split(b" ")[1].decode()
