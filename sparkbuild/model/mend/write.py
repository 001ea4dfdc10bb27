"""Writes the mended file: a new header, and the tensors as the kernel copies them."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.errors import DiskFullError, HostError, InternalError, ModelError
from sparkbuild.files import fsync_directory
from sparkbuild.model.header import padded
from sparkbuild.model.mend.edits import Entries, edited
from sparkbuild.model.mend.place import Place, unmade
from sparkbuild.model.mend.plan import Plan
from sparkbuild.model.read import Shard, read_shard

Progress = Callable[[int, int, str], None]
"""Bytes done, bytes in all, what they are of."""

_PIECE: Final = 64 << 20
"""Bytes asked of the kernel at once: Ctrl-C and the bar wait no longer than for these."""
_ELSEWHERE: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""What a way of copying ends with that this kernel or these file systems do not have."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, kw_only=True)
class Written:
    """What is there now."""

    file: Path
    bytes: int
    copied: int
    """Bytes of tensors."""
    links: dict[Path, Path]


def write(planned: Plan, place: Place, progress: Progress) -> Written:
    """Write the first file anew and link the others; all of it is there at the end, or nothing.

    Raises ModelError where the input changes meanwhile, DiskFullError, and HostError where the
    place cannot be written.
    """
    first = planned.model.shards[0]
    done: list[Callable[[], object]] = []
    with _refused(place.file), unmade(done):
        if place.folder is not None:
            place.folder.mkdir()
            done.append(place.folder.rmdir)
        with _temporary(place.file.parent) as (handle, path):
            head = _copy(first, planned, handle, progress)
            _proved(planned, path)
            for link, target in place.links.items():
                _link(link, target, hard=place.hard)
                done.append(link.unlink)
            _publish(handle, path, place.file)
            done.append(place.file.unlink)
        fsync_directory(place.file.parent)
        if place.folder is not None:
            fsync_directory(place.folder.parent)
    copied = _held(first)
    size = padded(len(head), first.header.alignment) + copied
    return Written(file=place.file, bytes=size, copied=copied, links=place.links)


def _held(first: Shard) -> int:
    """Bytes behind the header; a file of metadata alone may end before they would begin."""
    return max(0, first.size - first.header.data)


def _copy(first: Shard, planned: Plan, handle: int, progress: Progress) -> bytes:
    """The new header, then all behind the old one; gives the header without its padding."""
    header = first.header
    with first.path.open("rb") as file:
        before = os.fstat(file.fileno())
        raw = file.read(header.table[1])
        _same(first, len(raw) == header.table[1] and before.st_size == first.size)
        entries = Entries(raw, header.places)
        entries.apply(planned.edits)
        head = entries.encoded(raw[header.table[0] :])
        begin = padded(len(head), header.alignment)
        _room(handle, begin + _held(first))
        with open(handle, "wb", closefd=False) as out:
            out.write(head)
        os.ftruncate(handle, begin)
        os.lseek(handle, begin, os.SEEK_SET)
        _tensors(file.fileno(), handle, first, progress)
        after = os.fstat(file.fileno())
        _same(first, (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns))
    os.fchmod(handle, 0o644)
    os.fsync(handle)
    return head


def _tensors(source: int, out: int, first: Shard, progress: Progress) -> None:
    """Copy from the old header's end to the file's, in the fastest way that works here.

    copy_file_range shares the blocks where the file system can, and copies within the kernel where
    not.
    """
    ways = [_range, _sendfile, _plain]
    at, begin = first.header.data, first.header.data
    while at < first.size:
        try:
            count = ways[0](source, out, at, min(_PIECE, first.size - at))
        except OSError as error:
            if error.errno not in _ELSEWHERE or len(ways) == 1:
                raise
            count = 0
        if count:
            at += count
            progress(at - begin, first.size - begin, first.path.name)
        elif len(ways) > 1:
            ways.pop(0)
        else:
            _same(first, same=False)


def _range(source: int, out: int, at: int, count: int) -> int:
    return os.copy_file_range(source, out, count, offset_src=at)


def _sendfile(source: int, out: int, at: int, count: int) -> int:
    return os.sendfile(out, source, at, count)


def _plain(source: int, out: int, at: int, count: int) -> int:
    return os.write(out, os.pread(source, min(count, 1 << 20), at))


def _same(first: Shard, same: bool) -> None:
    if not same:
        raise ModelError(
            f"{first.path.name} changed while it was read",
            problems=[f"expected {first.size:,} bytes that stay as they are"],
            evidence=[first.path],
            next_step="wait for what writes it (a download?) and run the same command again",
        )


def _proved(planned: Plan, path: Path) -> None:
    """Read the new file back: it says what was planned, and its tensors are where they were."""
    first = planned.model.shards[0]
    try:
        new = read_shard(path)
    except ModelError as error:
        raise _defect(first, error.problems) from error
    # By what they look like: a number that is none differs from itself.
    if repr(new.header.values) != repr(edited(planned.model, planned.edits).values):
        raise _defect(first, ["its metadata is not what was planned"])
    if new.header.tensors != first.header.tensors or new.size - new.header.data != _held(first):
        raise _defect(first, ["its tensors are not those of the input"])


def _defect(first: Shard, problems: tuple[str, ...] | list[str]) -> InternalError:
    return InternalError(
        f"the new header of {first.path.name} does not read as it was planned",
        problems=problems,
        evidence=[first.path],
        next_step="report it with the first megabytes of that file; nothing was written",
    )


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[tuple[int, Path]]:
    """An empty file that goes by itself, whatever ends this process, until it gets a name.

    Where the file system has no files without a name (NFS), it is a hidden one.
    """
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        hidden, path = None, Path(f"/proc/self/fd/{handle}")
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}:
            raise
        handle, name = tempfile.mkstemp(dir=folder, prefix=".mended.")
        hidden = path = Path(name)
    try:
        yield handle, path
    finally:
        os.close(handle)
        if hidden is not None:
            hidden.unlink(missing_ok=True)


def _publish(handle: int, temporary: Path, file: Path) -> None:
    """Give the file its name, which nothing may have taken meanwhile."""
    try:
        # With a folder's descriptor, which an absolute path has no use for, Python asks the kernel
        # to follow the link that stands for a nameless file; without one it does not.
        os.link(temporary.absolute(), file, src_dir_fd=handle, follow_symlinks=True)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}:
            raise
        if os.path.lexists(file):  # this file system has no hard links, so there is a gap here
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file)) from error
        temporary.rename(file)


def _link(link: Path, target: Path, *, hard: bool) -> None:
    if hard:
        os.link(target.resolve(), link)
    else:
        link.symlink_to(target.absolute())


def _room(handle: int, size: int) -> None:
    """A disk that cannot hold the file is refused before it is filled."""
    stat = os.fstatvfs(handle)
    if stat.f_bavail * stat.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def _refused(file: Path) -> Iterator[None]:
    """Turn what a file system says into a refusal that names the place."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        if error.errno in _FULL:
            raise DiskFullError(
                f"no room for {file}",
                problems=[f"{reason}: a copy of the file's tensors must fit there"],
                next_step="free some space, or give --fix a place on another disk",
            ) from error
        step = "give --fix a place that can be written"
        if error.errno == errno.EXDEV:
            step = "leave out --links hard: hard links do not leave a file system"
        raise HostError(
            f"{file} cannot be written",
            problems=[f"expected a place for a new file, found: {reason}"],
            evidence=[file.parent],
            next_step=step,
        ) from error
