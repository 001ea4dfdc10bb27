"""Read a ``.tar.gz`` as a stream; nothing of it ever reaches the disk under a name of its own."""

from __future__ import annotations

import contextlib
import gzip
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, BinaryIO, Final, Self, cast

from sparkbuild.errors import ArchiveError
from sparkbuild.source.entries import (
    LINK,
    Entry,
    link_problem,
    normal_mode,
    parents,
    path_problem,
)

MAX_BYTES: Final = 4 << 30
"""Unpacked bytes granted to an archive; llama.cpp b11434 has 0.2 GB."""

MAX_MEMBERS: Final = 200_000
"""Members granted to an archive; llama.cpp b11434 has 4,104."""

_MAX_HEADER: Final = 1 << 20
"""Bytes granted to one extended header, which tarfile holds in memory; PATH_MAX is 4 KiB."""

_EXTENDED: Final = {
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
}
_KINDS: Final = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_DAMAGE: Final = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError)


def read_archive(
    path: Path,
    root: str,
    wants: Callable[[str], bool],
    *,
    max_bytes: int = MAX_BYTES,
    max_members: int = MAX_MEMBERS,
) -> Generator[Entry, None, None]:
    """Entries of the tree at ``root`` inside the archive that ``wants`` says yes to.

    Every member is checked, asked for or not. Raises ArchiveError naming the member that is
    absolute, climbs out, is a link out of the tree, a hard link, a device, there twice or oddly
    named; and where the archive is damaged, cut off or unpacks to more than is granted.
    """
    guard = _Guard(path, max_members)
    with _damage_refused(path), path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as plain:
        bounded = _Bounded(plain, path, max_bytes)
        with tarfile.open(
            fileobj=cast("BinaryIO", bounded),  # a stream is asked for nothing but read
            mode="r|",
            bufsize=1 << 20,
            tarinfo=_Member,
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            for member in archive:
                guard.check(member)
                name = member.name.removeprefix(f"{root}/")
                if name != member.name and not member.isdir() and wants(name):
                    yield _entry(path, archive, member, name)
            guard.finish()
        while bounded.read(1 << 20):
            pass  # behind the last member gzip's own checksum is still to be met


def _entry(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> Entry:
    if member.issym():
        target = member.linkname.encode()
        return Entry(path=name, mode=LINK, size=len(target), chunks=[target])
    file = archive.extractfile(member)
    assert file is not None  # noqa: S101 - regular files have one
    chunks = _chunks(path, file)
    return Entry(path=name, mode=normal_mode(member.mode), size=member.size, chunks=chunks)


def _chunks(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    with _damage_refused(path):
        while chunk := file.read(1 << 20):
            yield chunk


@contextlib.contextmanager
def _damage_refused(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise _refused(path, f"{path.name} is damaged or cut off", str(error)) from error


def _refused(path: Path, message: str, problem: str) -> ArchiveError:
    return ArchiveError(
        message,
        problems=[problem],
        evidence=[path],
        next_step=f"delete {path} and run the same command again; if it is refused again, the "
        "archive itself is bad: name another origin in the manifest",
    )


class _Guard:
    """Checks members one by one, and together at the end."""

    def __init__(self, path: Path, max_members: int) -> None:
        self._path = path
        self._left = max_members
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def check(self, member: tarfile.TarInfo) -> None:
        self._left -= 1
        if self._left < 0:
            raise self._refusal(member.name, "too many members: this looks like a bomb")
        problem = path_problem(member.name) or self._kind_problem(member)
        if problem is None and member.issym():
            problem = link_problem(member.name, member.linkname)
        if problem is None and member.name in self._files:
            problem = "the same name twice"
        if problem is not None:
            raise self._refusal(member.name, problem)
        (self._folders if member.isdir() else self._files).add(member.name)

    def finish(self) -> None:
        for name in self._files:
            self._folders.update(parents(name))
        for name in sorted(self._files & self._folders):
            raise self._refusal(name, "both a file and a folder")

    def _kind_problem(self, member: tarfile.TarInfo) -> str | None:
        if member.type in _KINDS:
            return _KINDS[member.type]
        if member.sparse is not None:
            return _KINDS[tarfile.GNUTYPE_SPARSE]
        if not (member.isreg() or member.isdir() or member.issym()):
            return f"a member of unknown type {member.type!r}"
        return None

    def _refusal(self, name: str, problem: str) -> ArchiveError:
        return _refused(
            self._path, f"{self._path.name} holds what no source may", f"{name!r}: {problem}"
        )


class _Member(tarfile.TarInfo):
    """A header that cannot make tarfile hold an unbounded one in memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0:
            raise tarfile.ReadError(f"{member.name!r}: a negative size")
        if member.type in _EXTENDED and member.size > _MAX_HEADER:
            raise tarfile.ReadError(f"an extended header of {member.size} bytes")
        return member


class _Bounded:
    """The unpacked stream, which ends with a refusal after ``max_bytes``."""

    def __init__(self, file: gzip.GzipFile, path: Path, max_bytes: int) -> None:
        self._file = file
        self._path = path
        self._left = self._granted = max_bytes

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _refused(
                self._path,
                f"{self._path.name} unpacks to more than {self._granted} bytes",
                "this looks like a bomb",
            )
        return data
