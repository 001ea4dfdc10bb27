"""Read and make objects of a bare repository: trees, files, commits that depend on content only."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from sparkbuild.errors import SourceMismatchError
from sparkbuild.source.entries import LINK, REGULAR, Entry
from sparkbuild.source.gitdoor import GitFailedError, Repository
from sparkbuild.source.store import Store

AUTHOR: Final = "sparkbuild <sparkbuild@localhost> 946684800 +0000"
"""Of every commit in the store; the date is 2000-01-01T00:00:00Z."""

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A file in a tree: path, git mode, object id."""

    path: str
    mode: str
    id: str


def create_repository(place: Path) -> Repository:
    """An empty bare repository, without templates and hooks; all there or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.new-"))
    try:
        Repository(new).must("init", "--bare", "--quiet", "--template=")
        new.chmod(0o755)
        new.rename(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return Repository(place)


def open_store(store: Store) -> Repository:
    """The store's repository, made where there is none; call it while ``store.writing``."""
    if (store.root / "HEAD").is_file():
        return Repository(store.root)
    return create_repository(store.root)


def listing(repository: Repository, treeish: str) -> list[Listed]:
    """Every file, link and submodule below a commit or tree. Raises GitFailedError."""
    answer = repository.must("ls-tree", "-r", "-z", "--full-tree", treeish)
    files = []
    for line in answer.out.split(b"\0")[:-1]:
        facts, _, path = line.partition(b"\t")
        mode, _, name = facts.decode().split(" ")
        normal = REGULAR if mode == "100664" else mode  # written by git before 2005 only
        files.append(Listed(path=path.decode(errors="surrogateescape"), mode=normal, id=name))
    return files


def read_entries(repository: Repository, files: Sequence[Listed]) -> Generator[Entry, None, None]:
    """The listed files with their bytes, in the same order; each must be read before the next.

    Raises GitFailedError where an object is missing, or its bytes are not those of its id.
    """
    with os.fdopen(os.memfd_create("wanted"), "w+b") as wanted:
        wanted.write(b"".join(file.id.encode() + b"\n" for file in files))
        wanted.seek(0)
        with repository.reading("cat-file", "--batch", "--buffer", stdin=wanted) as stream:
            for file in files:
                yield _entry(stream, file)


def _entry(stream: BinaryIO, file: Listed) -> Entry:
    header = stream.readline().decode(errors="replace").split()
    if len(header) != 3 or header[1] != "blob":
        state = " ".join(header[1:]) or "unreadable"
        raise GitFailedError(f"{file.path}: object {file.id} is {state}")
    size = int(header[2])
    return Entry(path=file.path, mode=file.mode, size=size, chunks=_chunks(stream, file, size))


def _chunks(stream: BinaryIO, file: Listed, size: int) -> Iterator[bytes]:
    state = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    left = size
    while left:
        chunk = stream.read(min(left, _CHUNK))
        if not chunk:
            raise GitFailedError(f"{file.path}: object {file.id} is cut off")
        state.update(chunk)
        left -= len(chunk)
        yield chunk
    stream.read(1)
    if state.hexdigest() != file.id:
        raise GitFailedError(f"{file.path}: object {file.id} holds other bytes than its id says")


def blob_id(path: Path, mode: str) -> str:
    """The object id that git would give a file (or link) on disk."""
    if mode == LINK:
        data = str(path.readlink()).encode(errors="surrogateescape")
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    state = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


def tree_of(repository: Repository, commit: str) -> str:
    """The tree id of a commit. Raises GitFailedError."""
    return repository.must("rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}").text


def commit_of(repository: Repository, name: str) -> str:
    """The full id of the commit that a name (a tag, too) stands for. Raises GitFailedError."""
    return repository.must("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").text


def damaged(store: Store, commit: str, reason: str) -> SourceMismatchError:
    """The refusal for a store that no longer gives what was put into it."""
    return SourceMismatchError(
        f"the store at {store.root} is damaged: commit {commit[:12]} cannot be read back",
        problems=[reason],
        evidence=[store.root],
        next_step=store.recovery,
    )
