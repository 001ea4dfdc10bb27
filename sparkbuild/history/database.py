"""The history's SQLite file: opened for one piece of work, migrated by numbered SQL files.

What SQLite says went wrong becomes one of the product's refusals; that the file is damaged becomes
``Damaged``, for the store to copy it aside.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparkbuild.errors import BusyError, HistoryError, HostError, SparkbuildError
from sparkbuild.files import disk_full

SCHEMA: Final = Path(__file__).parent / "schema"
TABLES: Final = frozenset({"runs", "nights", "troubles", "figures"})
BESIDE: Final = ("-wal", "-shm")
"""What SQLite keeps beside its file in WAL mode (sqlite.org/wal.html)."""

_PATIENCE: Final = 60.0
"""Seconds that a writer waits for others: each write is one small transaction."""

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""The last one stands for a table or column that is not what the schema made."""

_FULL: Final = 1 << 20
"""Bytes; with less of them free, an I/O error of SQLite is taken for a full disk."""


class Damaged(Exception):  # noqa: N818 - never shown to anybody
    """The file is no SQLite database, or one whose pages contradict each other."""


def migrations(folder: Path = SCHEMA) -> dict[int, str]:
    """SQL by the schema version that it leads to, in order, without a gap."""
    found = {}
    for file in sorted(folder.glob("*.sql")):
        match = re.fullmatch(r"(\d{3})-[a-z-]+\.sql", file.name)
        assert match is not None, file  # noqa: S101 - a test reads the folder
        found[int(match[1])] = file.read_text("utf-8")
    assert list(found) == list(range(1, len(found) + 1)), folder  # noqa: S101 - as above
    return found


@contextlib.contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection that commits nothing by itself. Raises Damaged, or a refusal."""
    with _told(file):
        connection = sqlite3.connect(file, timeout=_PATIENCE, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            yield connection
        finally:
            connection.close()


@contextlib.contextmanager
def writing(file: Path) -> Iterator[sqlite3.Connection]:
    """A transaction that holds the right to write from its start; undone by any exception."""
    with opened(file) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:  # a full disk makes SQLite undo it by itself
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def version(connection: sqlite3.Connection) -> int:
    """The schema's, 0 in an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(file: Path, steps: dict[int, str] | None = None) -> None:
    """Bring the file, new or old, to the newest schema; each step whole or not at all.

    The caller sees to it that nobody else does so now. Raises HistoryError where the file is newer
    than this sparkbuild, Damaged where it is not whole.
    """
    steps = migrations() if steps is None else steps
    with opened(file) as connection:
        found = version(connection)
        if found > len(steps):
            raise HistoryError(
                f"{file} was written by a newer sparkbuild",
                problems=[f"expected schema {len(steps)} or older, found {found}"],
                evidence=[file],
                next_step="use that sparkbuild, or another folder with --history DIR; nothing was "
                "changed",
            )
        for number, sql in steps.items():
            if number > found:
                connection.executescript(
                    f"BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {number}; COMMIT"
                )


def check(file: Path) -> None:
    """Read every page. Raises Damaged where they contradict each other or a table is gone."""
    with opened(file) as connection:
        said = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
        if said != ["ok"]:
            raise Damaged("; ".join(said))
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
        if missing := TABLES - names:
            raise Damaged(f"no table {', '.join(sorted(missing))}")


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    """SQLite's errors as the product's."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGE:
            raise Damaged(str(error)) from error
        raise _refusal(file, error, code) from error


def _refusal(file: Path, error: sqlite3.Error, code: int) -> SparkbuildError:
    full = disk_full(file)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _short_of_room(file)):
        return full
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return BusyError(
            f"{file} was being written to by others for {_PATIENCE:.0f} s",
            evidence=[file],
            next_step="run the same command again",
        )
    if code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY,
                sqlite3.SQLITE_PERM}:  # fmt: skip
        return HostError(
            f"cannot read and write {file}: {error}",
            evidence=[file],
            next_step="see to the folder's owner and its disk, or choose another with --history",
        )
    return HistoryError(f"{file}: {error}", evidence=[file])


def _short_of_room(file: Path) -> bool:
    import shutil  # noqa: PLC0415 - only after an error

    return shutil.disk_usage(file.parent).free < _FULL
