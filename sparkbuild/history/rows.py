"""Structs to rows and back, and rows made again from JSON files."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sparkbuild.history.model import Night, Reading, Run, Trouble

Connection = sqlite3.Connection
_S = TypeVar("_S", bound=msgspec.Struct)
_ASKED: Final = frozenset({"night", "what", "role", "variant", "toolchain", "base", "state"})


def put_run(connection: Connection, run: Run) -> None:
    """Write a run and its figures."""
    connection.execute(
        "INSERT INTO runs (id, night, what, role, variant, toolchain, base, started, state, "
        "document) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run.id, run.night, run.what, run.role, run.variant, run.toolchain, run.base, run.started,
         run.state, _json(run)),
    )  # fmt: skip
    connection.executemany(
        "INSERT INTO figures (run, place, name, restart, value, unit, more_is) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (run.id, place, one.name, one.restart, one.value, one.unit, one.more_is)
            for place, one in enumerate(run.figures)
        ],
    )


def put_night(connection: Connection, night: Night) -> None:
    """Write a night in the place of an earlier state of it."""
    connection.execute(
        "INSERT OR REPLACE INTO nights (id, started, document) VALUES (?, ?, ?)",
        (night.id, night.started, _json(night)),
    )


def put_trouble(connection: Connection, trouble: Trouble) -> None:
    """Write a trouble in the place of an earlier state of it."""
    connection.execute(
        "INSERT OR REPLACE INTO troubles (key, opened, closed, document) VALUES (?, ?, ?, ?)",
        (trouble.key, trouble.opened, trouble.closed, _json(trouble)),
    )


def run(connection: Connection, id_: str) -> Run | None:
    """The run of that id."""
    row = connection.execute("SELECT document FROM runs WHERE id = ?", (id_,)).fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=Run)


def runs(
    connection: Connection, wanted: Mapping[str, str], *, since: str | None, last: int | None
) -> list[Run]:
    """Runs whose columns are ``wanted``, the oldest first."""
    assert wanted.keys() <= _ASKED  # noqa: S101 - names of columns come from History.runs alone
    tests = [f"{name} = ?" for name in wanted] + (["started >= ?"] if since else [])
    values = [*wanted.values(), *([since] if since else [])]
    where = f"WHERE {' AND '.join(tests)}" if tests else ""
    query = f"SELECT document FROM runs {where} ORDER BY started DESC, id DESC LIMIT ?"  # noqa: S608
    return _decoded(connection.execute(query, (*values, _limit(last))), Run)


def nights(connection: Connection, *, last: int | None) -> list[Night]:
    """Nights, the oldest first."""
    query = "SELECT document FROM nights ORDER BY started DESC, id DESC LIMIT ?"
    return _decoded(connection.execute(query, (_limit(last),)), Night)


def troubles(connection: Connection, *, open_only: bool) -> list[Trouble]:
    """Troubles, the oldest first."""
    where = "WHERE closed IS NULL" if open_only else ""
    query = f"SELECT document FROM troubles {where} ORDER BY opened DESC, key DESC"  # noqa: S608
    return _decoded(connection.execute(query), Trouble)


def beginning(connection: Connection, table: str, id_: str, kind: type[_S]) -> list[_S]:
    """Rows whose id begins so; the one row where it is the whole of one."""
    query = f"SELECT document FROM {table} WHERE substr(id, 1, ?) = ? ORDER BY id DESC"  # noqa: S608
    found = _decoded(connection.execute(query, (len(id_), id_)), kind)
    whole = [one for one in found if getattr(one, "id", None) == id_]
    return whole or found


def readings(connection: Connection, cell: tuple[str, str, str, str]) -> list[Reading]:
    """Figures of passed runs of a cell (what, role, variant, toolchain), the oldest first."""
    query = (
        "SELECT figures.name, figures.value, figures.unit, figures.more_is, figures.restart, "
        "runs.id, runs.night, runs.started, runs.base FROM runs JOIN figures "
        "ON figures.run = runs.id WHERE runs.state = 'passed' AND runs.what = ? AND runs.role = ? "
        "AND runs.variant = ? AND runs.toolchain = ? ORDER BY runs.started, runs.id, figures.place"
    )
    columns = Reading.__struct_fields__
    return [
        Reading(**dict(zip(columns, row, strict=True))) for row in connection.execute(query, cell)
    ]


def readable(connection: Connection) -> None:
    """Read the newest of each kind. Raises msgspec.DecodeError where a row is no such struct."""
    runs(connection, {}, since=None, last=20)
    nights(connection, last=20)
    troubles(connection, open_only=False)


def catch_up(connection: Connection, root: Path) -> list[str]:
    """Write rows for JSON files that have none, or a newer state; gives what could not be read."""
    known = {row[0] for row in connection.execute("SELECT id FROM runs")}
    notes: list[str] = []
    for file in sorted((root / "runs").glob("*.json")):
        if file.stem not in known and (run := _read(file, Run, notes)) is not None:
            put_run(connection, run)
    for table, key, kind in (("nights", "id", Night), ("troubles", "key", Trouble)):
        query = f"SELECT {key}, document FROM {table}"  # noqa: S608
        have = dict(connection.execute(query).fetchall())
        for file in sorted((root / table).glob("*.json")):
            one = _read(file, kind, notes)
            if one is None or have.get(getattr(one, key)) == _json(one):
                continue
            if isinstance(one, Night):
                put_night(connection, one)
            elif isinstance(one, Trouble):
                put_trouble(connection, one)
    return notes


def _read(file: Path, kind: type[_S], notes: list[str]) -> _S | None:
    try:
        one = msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        notes.append(f"{file} is left out: it cannot be read ({error})")
        return None
    if isinstance(one, Run) and one.id != file.stem:
        notes.append(f"{file} is left out: it is of the run {one.id}")
        return None
    return one


def _decoded(found: sqlite3.Cursor, kind: type[_S]) -> list[_S]:
    return [msgspec.json.decode(row[0], type=kind) for row in found.fetchall()][::-1]


def _json(one: msgspec.Struct) -> str:
    return msgspec.json.encode(one).decode()


def _limit(last: int | None) -> int:
    return -1 if last is None else max(0, last)
