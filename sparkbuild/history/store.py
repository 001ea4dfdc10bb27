"""The history's folder: every run, night and trouble as JSON, and a SQLite file to ask.

    history.sqlite   made again from the JSON files where it is damaged
    runs/ID.json     nights/ID.json   troubles/DIGEST.json
    reports/         the JSON of the commands         evidence/   their logs

A JSON file is whole before its row is written, so that a row that a kill or a power cut prevented
is written by the next process that opens the folder. No connection outlives a call: a nightly of
hours holds up nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec
import platformdirs

from sparkbuild.errors import BusyError, HistoryError
from sparkbuild.files import disk_full_refused, sha256_bytes, write_atomic
from sparkbuild.history import database, rows
from sparkbuild.history.database import Damaged
from sparkbuild.history.model import Night, Reading, Role, Run, State, Trouble, What

FILE: Final = "history.sqlite"
FOLDERS: Final = ("runs", "nights", "troubles", "reports", "evidence")
_LOCK: Final = ".lock"
_PATIENCE: Final = 60.0
"""Seconds to wait for those who are in the file to leave it, before it is taken away."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
_T = TypeVar("_T")


def default_root() -> Path:
    """Where the history is unless ``--history`` tells: no cache, which anybody may empty."""
    return platformdirs.user_data_path("sparkbuild") / "history"


class History:
    """The history below ``root``, for as many processes at the same time as there are.

    Opening makes the folder where it is new, migrates the file, and copies a damaged one aside;
    ``notes`` then says so. Raises HistoryError where a newer sparkbuild wrote it, DiskFullError,
    HostError, BusyError.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.file = self.root / FILE
        self.notes: list[str] = []
        with disk_full_refused(self.root):
            for name in FOLDERS:
                (self.root / name).mkdir(parents=True, exist_ok=True)
        self._prepare()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is open between calls."""

    def add(self, run: Run) -> None:
        """Write a run; the same one again does nothing. Raises HistoryError where it differs."""
        file = self._json("runs", run.id)

        def work() -> None:
            with database.writing(self.file) as connection:
                known = rows.run(connection, run.id)
                if known == run:
                    return
                if known is not None:
                    raise HistoryError(
                        f"there is a run {run.id} already, and it is another one",
                        problems=[f"it began {known.started}, this one {run.started}"],
                        evidence=[file],
                        next_step="give each run an id of its own",
                    )
                write_atomic(file, _text(run))
                rows.put_run(connection, run)

        self._work(work)

    def night(self, night: Night) -> None:
        """Write a night, or what became of it since."""

        def work() -> None:
            with database.writing(self.file) as connection:
                write_atomic(self._json("nights", night.id), _text(night))
                rows.put_night(connection, night)

        self._work(work)

    def trouble(self, trouble: Trouble) -> None:
        """Write a trouble, or what became of it since."""

        def work() -> None:
            with database.writing(self.file) as connection:
                write_atomic(self._json("troubles", trouble_id(trouble.key)), _text(trouble))
                rows.put_trouble(connection, trouble)

        self._work(work)

    def runs(  # noqa: PLR0913 - the columns that may be asked for
        self,
        *,
        night: str | None = None,
        what: What | None = None,
        role: Role | None = None,
        variant: str | None = None,
        toolchain: str | None = None,
        base: str | None = None,
        state: State | None = None,
        since: str | None = None,
        last: int | None = None,
    ) -> list[Run]:
        """Runs by their start, the oldest first; ``since`` is a time, ``last`` counts the newest.

        What is None is not asked for.
        """
        asked = {"night": night, "what": what, "role": role, "variant": variant,
                 "toolchain": toolchain, "base": base, "state": state}  # fmt: skip
        wanted = {name: value for name, value in asked.items() if value is not None}
        return self._read(lambda one: rows.runs(one, wanted, since=since, last=last))

    def run(self, id_: str) -> Run:
        """One run; the start of its id is enough where no other begins so. Raises HistoryError."""
        return _one("run", id_, self._read(lambda one: rows.beginning(one, "runs", id_, Run)))

    def nights(self, *, last: int | None = None) -> list[Night]:
        """Nights, the oldest first."""
        return self._read(lambda one: rows.nights(one, last=last))

    def troubles(self, *, open_only: bool = False) -> list[Trouble]:
        """Troubles by the time they were opened."""
        return self._read(lambda one: rows.troubles(one, open_only=open_only))

    def readings(
        self, *, what: What, role: Role, variant: str, toolchain: str
    ) -> dict[str, list[Reading]]:
        """Every figure of passed runs of one cell, by name, the oldest first."""
        cell = (what, role, variant, toolchain)
        found: dict[str, list[Reading]] = {}
        for one in self._read(lambda connection: rows.readings(connection, cell)):
            found.setdefault(one.name, []).append(one)
        return found

    def keep(self, run: str, name: str, content: bytes | Path) -> tuple[str, str]:
        """Keep a log or report below ``evidence/RUN/``: its path below the root, its SHA-256."""
        return self._kept(Path("evidence") / _checked(run) / _checked(name), content)

    def keep_report(self, run: str, content: bytes | Path) -> tuple[str, str]:
        """Keep a command's JSON as ``reports/RUN.json``: its path below the root, its SHA-256."""
        return self._kept(Path("reports") / f"{_checked(run)}.json", content)

    def _kept(self, place: Path, content: bytes | Path) -> tuple[str, str]:
        data = content.read_bytes() if isinstance(content, Path) else content
        write_atomic(self.root / place, data)
        return place.as_posix(), sha256_bytes(data)

    def _json(self, folder: str, name: str) -> Path:
        return self.root / folder / f"{_checked(name)}.json"

    def _read(self, work: Callable[[rows.Connection], list[_T]]) -> list[_T]:
        def read() -> list[_T]:
            with database.opened(self.file) as connection:
                return work(connection)

        return self._work(read)

    def _work(self, work: Callable[[], _T]) -> _T:
        """Do it with nobody taking the file away; once more where the file turned out damaged."""
        try:
            with self._held(fcntl.LOCK_SH):
                return work()
        except (Damaged, msgspec.DecodeError):
            self._prepare()
            with self._held(fcntl.LOCK_SH):
                return _surely(work, self.file)

    def _prepare(self) -> None:
        """Make the file what it must be: whole, of this schema, with a row for every JSON file."""
        with self._held(fcntl.LOCK_EX):
            try:
                self._bring_up()
            except (Damaged, msgspec.DecodeError) as error:
                aside = self._aside()
                self.notes.append(
                    f"{self.file} was damaged ({error}): it is now {aside.name}, and a new one was "
                    "made of the JSON files"
                )
                _surely(self._bring_up, self.file)

    def _bring_up(self) -> None:
        database.migrate(self.file)
        database.check(self.file)
        with database.writing(self.file) as connection:
            rows.readable(connection)
            notes = rows.catch_up(connection, self.root)
        self.notes.extend(note for note in notes if note not in self.notes)

    def _aside(self) -> Path:
        """Move the file, and what SQLite keeps beside it, to a name that tells when."""
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        names = (f"{FILE}.damaged-{moment}{again}" for again in ("", *_numbers()))
        aside = next(self.root / name for name in names if not (self.root / name).exists())
        for ending in database.BESIDE:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.file}{ending}").replace(f"{aside}{ending}")
        with contextlib.suppress(FileNotFoundError):
            self.file.replace(aside)
        return aside

    @contextlib.contextmanager
    def _held(self, how: int) -> Iterator[None]:
        """Hold the folder, with others (``LOCK_SH``) or alone (``LOCK_EX``)."""
        with disk_full_refused(self.root):
            handle = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            deadline = time.monotonic() + _PATIENCE
            while not _locked(handle, how):
                if time.monotonic() > deadline:
                    raise BusyError(
                        f"the history {self.root} was held by others for {_PATIENCE:.0f} s",
                        evidence=[self.root / _LOCK],
                        next_step="run the same command again when they have ended",
                    )
                time.sleep(0.02)
            yield
        finally:
            os.close(handle)


def trouble_id(key: str) -> str:
    """The name of a trouble's file and page; its key is of any length and letters."""
    return sha256_bytes(key.encode())[:16]


def _one(kind: str, id_: str, found: list[_T]) -> _T:
    if len(found) == 1:
        return found[0]
    raise HistoryError(
        f"{'no' if not found else 'more than one'} {kind} of the history begins with {id_!r}",
        problems=[f"it could be {', '.join(getattr(one, 'id', '') for one in found[:5])}"]
        if found
        else [],
        next_step="`sparkbuild history list` shows them",
    )


def _surely(work: Callable[[], _T], file: Path) -> _T:
    """The second try: damage now is no accident."""
    try:
        return work()
    except (Damaged, msgspec.DecodeError) as error:
        raise HistoryError(
            f"{file} is damaged again right after it was made anew: {error}",
            evidence=[file],
            next_step="see to the disk of that folder, or choose another with --history DIR",
        ) from error


def _locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise HistoryError(
            f"{name!r} cannot be a name in the history",
            problems=["expected letters, digits and . _ + - of ASCII, at most 200"],
            next_step="choose such a name",
        )
    return name


def _numbers() -> Iterator[str]:
    yield from (f"-{number}" for number in range(2, 1000))


def _text(one: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(one), indent=2) + b"\n"
