"""The store: a bare git repository with every source ever pinned, and what is known of each.

Beside git's own files it holds ``sparkbuild/records`` (what a pin's objects were verified to be)
and ``sparkbuild/scratch`` (what a run is at; a killed run's leavings go with the next run). A
record counts only together with its ref, and the ref is written last. Reading both needs no git.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sparkbuild.files import digest_of, exclusive, write_atomic
from sparkbuild.manifest import GitOrigin, SourcePin
from sparkbuild.source.model import AppliedPatch

LOCK_SECONDS: Final = 1800.0
"""Granted to another sparkbuild that fetches: 37 MB at 20 kB/s, the slowest line we care for."""

_OBJECT: Final = re.compile(r"[0-9a-f]{40}")


_Record = TypeVar("_Record", bound=msgspec.Struct)


class PinRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a pin's objects were verified to be."""

    digest: str
    commit: str
    tree: str
    paths: tuple[str, ...]
    files: int
    bytes: int
    origin: str
    """The place that delivered it, for the record only."""
    upstream: str | None = None
    """The commit it had where it came from."""


class PatchedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a pin's commit became with a list of patches."""

    commit: str
    tree: str
    patches: tuple[AppliedPatch, ...]
    notes: tuple[str, ...] = ()
    """New values that model files may hold."""


class Store:
    """Pinned sources below ``root``, which is made when something is first written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = root.with_name(f"{root.name}.lock")
        self._records = root / "sparkbuild" / "records"
        self._scratch = root / "sparkbuild" / "scratch"

    @contextlib.contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Hold the only right to write. Raises BusyError after ``LOCK_SECONDS``."""
        with exclusive(self._lock, what=what, wait=LOCK_SECONDS):
            self._sweep()
            try:
                yield
            finally:
                self._sweep()

    def _sweep(self) -> None:
        """Remove what a killed or failed run left, git's half-written packs among it."""
        for leftover in self.root.parent.glob(f".{self.root.name}.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        shutil.rmtree(self._scratch, ignore_errors=True)
        for leftover in (self.root / "objects").rglob("tmp_*"):
            if leftover.is_file():
                leftover.unlink()

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder that lives as long as the ``with``; call it while ``writing``."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def pinned(self, digest: str) -> str | None:
        """The commit kept for a content digest, or None."""
        return self.ref(pin_ref(digest))

    def find(self, pin: SourcePin) -> PinRecord | None:
        """What the store holds for a pin: same digest or commit, verified over the same paths."""
        if pin.digest is not None:
            return self._believed(pin.digest, pin)
        for origin in pin.origins:
            if not isinstance(origin, GitOrigin) or origin.commit is None:
                continue
            key = commit_key(pin, origin)
            names = sorted(self._records.glob(f"{origin.commit}*-{key}.json"))
            found = [self._believed(name.stem, pin) for name in names]
            if len(found) == 1 and found[0] is not None:
                return found[0]
        return None

    def _believed(self, name: str, pin: SourcePin) -> PinRecord | None:
        record = self._read(name, PinRecord)
        if record is None or record.paths != pin.paths:
            return None
        if self.pinned(record.digest) != record.commit:
            return None
        return record

    def remember(self, name: str, record: PinRecord) -> None:
        """Keep a record under a digest, or under ``commit_name``; the ref must follow."""
        write_atomic(self._records / f"{name}.json", msgspec.json.encode(record))

    def patched(self, key: str) -> PatchedRecord | None:
        """What is known for a list of patches on a commit."""
        record = self._read(f"patched-{key}", PatchedRecord)
        return record if record and self.ref(patched_ref(key)) == record.commit else None

    def remember_patched(self, key: str, record: PatchedRecord) -> None:
        """Keep what a list of patches made; the ref must follow."""
        write_atomic(self._records / f"patched-{key}.json", msgspec.json.encode(record))

    def _read(self, name: str, kind: type[_Record]) -> _Record | None:
        try:
            return msgspec.json.decode((self._records / f"{name}.json").read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError):
            return None

    def ref(self, name: str) -> str | None:
        """The object that a ref names, read without git: a loose ref goes before a packed one."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            value = (self.root / name).read_text(encoding="ascii").strip()
            if _OBJECT.fullmatch(value):
                return value
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for line in (self.root / "packed-refs").read_text(encoding="utf-8").splitlines():
                value, _, packed = line.partition(" ")
                if packed == name and _OBJECT.fullmatch(value):
                    return value
        return None

    @property
    def recovery(self) -> str:
        """The command to try where the store is damaged; downloads and sources stay."""
        return f"mv {self.root} {self.root}.damaged, then run the same command again to fetch anew"


def pin_ref(digest: str) -> str:
    """The ref that keeps a content digest's commit, whatever happens upstream."""
    return f"refs/pins/{digest}"


def patched_ref(key: str) -> str:
    """The ref that keeps a patched commit."""
    return f"refs/patched/{key}"


def commit_key(pin: SourcePin, origin: GitOrigin) -> str:
    """What else than the commit decides the content.

    That is the declared paths; for an abbreviated commit, which another repository may hold too,
    also the place that it is looked up in.
    """
    place = [] if origin.commit and len(origin.commit) == 40 else [origin.url, origin.branch]
    return digest_of({"paths": list(pin.paths), "place": place})[:16]


def commit_name(commit: str, key: str) -> str:
    """The record's name for a source that git's own commit id pins."""
    return f"{commit}-{key}"
