"""The content digest that pins a source, whoever delivers it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.source.entries import (
    EXECUTABLE,
    LINK,
    REGULAR,
    Entry,
    UnsafeEntryError,
    link_problem,
    parents,
    path_problem,
)
from sparkbuild.source.folder import read_folder

_DOMAIN: Final = b"sparkbuild source tree, version 1\n"


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """One file's part of the digest: git mode, size in bytes, SHA-256 of its bytes in hex."""

    mode: str
    size: int
    sha256: str


def content_digest(files: Mapping[str, FileFacts]) -> str:
    """SHA-256 over (path, mode, bytes) of every file, in lower-case hex.

    Hashed are, one after another: the line ``sparkbuild source tree, version 1`` with its newline;
    the number of files as 8 bytes; then for each file, in ascending order of its path as UTF-8
    bytes: the path's length as 8 bytes, the path, the mode as 6 ASCII digits (``100644``,
    ``100755``, ``120000``), the size as 8 bytes, the SHA-256 of the file's bytes (a link's target)
    as 32 bytes. Numbers are unsigned and big-endian, so no two different trees hash the same input.
    """
    state = hashlib.sha256(_DOMAIN + len(files).to_bytes(8))
    for path, facts in sorted((path.encode(), facts) for path, facts in _keyed(files)):
        state.update(len(path).to_bytes(8) + path)
        state.update(facts[0].encode() + facts[1].to_bytes(8) + bytes.fromhex(facts[2]))
    return state.hexdigest()


def _keyed(files: Mapping[str, FileFacts]) -> Iterator[tuple[str, tuple[str, int, str]]]:
    for path, facts in files.items():
        yield path, (facts.mode, facts.size, facts.sha256)


def tree_digest(root: Path, paths: Sequence[str]) -> str:
    """The content digest of a folder's declared paths, as a manifest pins it.

    Raises UnsafeEntryError, and all that ``read_folder`` raises.
    """
    inventory = Inventory(paths)
    for entry in read_folder(root, paths, inventory.wants):
        for _ in inventory.through(entry):
            pass
    inventory.finish()
    return inventory.digest


class Inventory:
    """The files of one source below the declared paths, gathered while they stream by."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._declared = frozenset(path.rstrip("/") for path in paths)
        self.files: dict[str, FileFacts] = {}

    def wants(self, path: str) -> bool:
        """True where ``path`` is a declared file or lies below a declared folder."""
        return path in self._declared or any(folder in self._declared for folder in parents(path))

    def through(self, entry: Entry) -> Iterator[bytes]:
        """Yield an entry's bytes, and count it in once all of them went by.

        Raises UnsafeEntryError for an entry that may not be in a tree, that was there before, or
        whose bytes are not as many as announced.
        """
        self._check(entry)
        state, seen, target = hashlib.sha256(), 0, bytearray()
        for chunk in entry.chunks:
            seen += len(chunk)
            state.update(chunk)
            if entry.mode == LINK:
                target += chunk
            yield chunk
        if seen != entry.size:
            raise UnsafeEntryError(f"{entry.path}: {entry.size} bytes announced, {seen} came")
        if entry.mode == LINK:
            problem = link_problem(entry.path, target.decode(errors="surrogateescape"))
            if problem is not None:
                raise UnsafeEntryError(f"{entry.path}: {problem}")
        facts = FileFacts(mode=entry.mode, size=seen, sha256=state.hexdigest())
        self.files[entry.path] = facts

    def _check(self, entry: Entry) -> None:
        problem = path_problem(entry.path)
        if problem is None and entry.mode not in {REGULAR, EXECUTABLE, LINK}:
            problem = f"mode {entry.mode} is none that a source may hold"
        if problem is None and entry.path in self.files:
            problem = "the same name twice"
        if problem is not None:
            raise UnsafeEntryError(f"{entry.path!r}: {problem}")

    def finish(self) -> None:
        """Raise UnsafeEntryError where one entry is both a file and a folder."""
        for path in self.files:
            for folder in parents(path):
                if folder in self.files:
                    raise UnsafeEntryError(f"{folder}: a file, and the folder of {path}")

    @property
    def digest(self) -> str:
        """The content digest of what came so far."""
        return content_digest(self.files)

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(facts.size for facts in self.files.values())

    @property
    def missing(self) -> list[str]:
        """Declared paths that no file came for, sorted."""
        met = set(self.files)
        for path in self.files:
            met.update(parents(path))
        return sorted(self._declared - met)
