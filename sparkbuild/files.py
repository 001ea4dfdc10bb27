"""Files that no killed run leaves half written: atomic writes, digests, fingerprints, locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sparkbuild.errors import BusyError, DiskFullError

_CHUNK = 1 << 20


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of ``data`` in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes in lower-case hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(parts: Mapping[str, object]) -> str:
    """SHA-256 of a JSON object with sorted keys: the one way inputs become a key."""
    return sha256_bytes(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())


def fingerprint(paths: Iterable[Path]) -> str:
    """Digest of (path, size, mtime, ctime, inode): cheap, and any write or replacement changes it.

    The change time cannot be set by ``touch`` or ``cp -p``, so an edit that restores the
    modification time still shows. Raises FileNotFoundError when a path is gone.
    """
    return _fingerprint(os.fspath(path) for path in paths)


def tree_fingerprint(root: Path) -> str:
    """``fingerprint`` of every file and link below ``root``, fast enough for thousands of them."""
    return _fingerprint(_names_below(os.fspath(root)))


def _fingerprint(names: Iterable[str]) -> str:
    state = hashlib.sha256()
    for name in sorted(names):
        stat = os.lstat(name)
        line = f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}\0{stat.st_ino}\n"
        state.update(line.encode(errors="surrogateescape"))
    return state.hexdigest()


def _names_below(root: str) -> Iterator[str]:
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _names_below(entry.path)
            else:
                yield entry.path


def files_below(root: Path) -> Iterator[Path]:
    """Every file and link below ``root``, in no order."""
    return map(Path, _names_below(os.fspath(root)))


def fsync_directory(path: Path) -> None:
    """Make a rename inside ``path`` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old bytes or the new ones, never a part.

    Raises DiskFullError when there is no room; the old file is then untouched.
    """
    payload = data.encode() if isinstance(data, str) else data
    with disk_full_refused(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(payload)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        fsync_directory(path.parent)


class DigestCache:
    """SHA-256 of large files, remembered for as long as ``fingerprint`` stays the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            known = json.loads(path.read_bytes())
        except (OSError, ValueError):
            known = {}
        self._known: dict[str, list[str]] = known if isinstance(known, dict) else {}

    def sha256(self, path: Path) -> str:
        """Digest of ``path``, read again only where the file changed."""
        state = fingerprint([path])
        if self._known.get(str(path), [""])[0] != state:
            self._known[str(path)] = [state, sha256_file(path)]
            write_atomic(self._path, json.dumps(self._known, indent=1, sort_keys=True))
        return self._known[str(path)][1]


@contextlib.contextmanager
def disk_full_refused(path: Path) -> Iterator[None]:
    """Turn ENOSPC and EDQUOT into a refusal that names the file system."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise disk_full(path) from error


def disk_full(path: Path) -> DiskFullError:
    """The refusal for a full disk at ``path``, with what is free there."""
    place = path
    while not place.exists():
        place = place.parent
    stat = os.statvfs(place)
    free = stat.f_bavail * stat.f_frsize
    return DiskFullError(
        f"no space left while writing {path}",
        problems=[f"{free / 1e6:.0f} MB free on the file system of {place}"],
        next_step="free some space, or choose another place with --work DIR, then run the same "
        "command again: finished stages are kept",
    )


@contextlib.contextmanager
def exclusive(path: Path, *, what: str, wait: float = 3.0) -> Iterator[int]:
    """Hold the only right to write under ``path``; yields the lock's file descriptor.

    Children may inherit the descriptor: the lock then outlives a killed parent until its last
    child is gone, so that no new run meets a compiler that still writes. ``wait`` is the seconds
    granted for such children to end. Raises BusyError naming the holder's process id.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _acquire(handle, path, what, wait)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield handle
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, what: str, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
            raise BusyError(
                f"{what} is being made by another sparkbuild (process {holder})",
                evidence=[path],
                next_step="wait for it to end and run the same command again; "
                f"`ps -fp {holder}` shows it",
            ) from error
        return
