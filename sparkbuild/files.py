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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

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
    """SHA-256 of files, and what was read from them, kept while ``fingerprint`` stays the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = self._load()

    def sha256(self, path: Path) -> str:
        """Digest of ``path``, read again only where the file changed."""
        state = fingerprint([path])
        known = self._entry(path, state)
        if known is None:
            _let_the_clock_go_on([path])
            known = (state, sha256_file(path), {})
            self._keep({str(path): known})
        return known[1]

    def study(
        self, paths: Iterable[Path], kind: type[_T], read: Callable[[Path], _T]
    ) -> dict[Path, tuple[str, _T] | OSError]:
        """Digest of each file, and what ``read`` finds in it; the error of one that is unreadable.

        What changed is read on several threads, so ``read`` must be free of side effects. ``kind``
        names what is remembered: another class name for another meaning.
        """
        results: dict[Path, tuple[str, _T] | OSError] = {}
        changed: dict[Path, str] = {}
        for path in dict.fromkeys(paths):
            try:
                state = fingerprint([path])
            except OSError as error:
                results[path] = error
                continue
            known = self._entry(path, state)
            try:
                facts = msgspec.convert(known[2][kind.__name__], kind) if known else None
            except (KeyError, msgspec.ValidationError):
                facts = None
            if known is None or facts is None:
                changed[path] = state
            else:
                results[path] = (known[1], facts)
        if changed:
            _let_the_clock_go_on(changed)
            found = _on_threads(lambda path: _studied(path, read), changed)
            results.update(found)
            self._keep(
                {
                    str(path): (changed[path], one[0], {kind.__name__: msgspec.to_builtins(one[1])})
                    for path, one in found.items()
                    if not isinstance(one, OSError)
                }
            )
        return results

    def _entry(self, path: Path, state: str) -> _Entry | None:
        """What is remembered of a file in that state."""
        try:
            known = msgspec.convert(self._known.get(str(path)), _Entry)
        except msgspec.ValidationError:
            return None
        return known if known[0] == state else None

    def _keep(self, entries: Mapping[str, _Entry]) -> None:
        """Remember, together with what another process may have written meanwhile."""
        self._known = {**self._known, **self._load(), **entries}
        write_atomic(self._path, json.dumps(self._known))

    def _load(self) -> dict[str, object]:
        try:
            known = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


_T = TypeVar("_T", bound=msgspec.Struct)
_Entry = tuple[str, str, dict[str, Any]]
"""Of one file: its fingerprint, its SHA-256, what was read from it by the name of its class."""

_TICK: Final = 0.02
"""Seconds; longer than the kernel's clock for file times stands still (10 ms at 100 Hz)."""


def _let_the_clock_go_on(paths: Iterable[Path]) -> None:
    """Wait where a file is so new that a further write could leave its times as they are."""
    now = time.time()
    with contextlib.suppress(OSError):
        if any(abs(now - os.lstat(path).st_ctime) < _TICK for path in paths):
            time.sleep(_TICK)


def _studied(path: Path, read: Callable[[Path], _T]) -> tuple[str, _T] | OSError:
    try:
        return sha256_file(path), read(path)
    except OSError as error:
        return error


def _on_threads(work: Callable[[Path], _R], paths: Iterable[Path]) -> dict[Path, _R]:
    """``work`` for each path; hashlib lets other threads run, so large files go side by side."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms that few calls need

    ordered = sorted(paths, key=_size, reverse=True)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(ordered, pool.map(work, ordered), strict=True))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0  # gone meanwhile: reading it says so


_R = TypeVar("_R")


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
