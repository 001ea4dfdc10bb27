"""The history's folder: whole after kills, damage, full disks, and many writers at once."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import subprocess  # noqa: TID251 - writers are processes of their own
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sparkbuild.errors import DiskFullError, HistoryError
from sparkbuild.history import database
from sparkbuild.history.model import Night, Run, Trouble
from sparkbuild.history.store import FILE, History, trouble_id

from .conftest import figure, run_of


def night_of(id_: str, **more: object) -> Night:
    given: dict[str, object] = {
        "started": "2026-11-01T00:00:00+00:00", "ended": None, "plan": "p", "state": "running",
        "blame": "nothing", "reason": "", "base": "b1", "candidate": "b2",
    }  # fmt: skip
    return msgspec.convert({"id": id_, **given, **more}, type=Night)


def trouble_of(key: str, **more: object) -> Trouble:
    given: dict[str, object] = {
        "title": "t", "opened": "2026-11-01", "updated": "2026-11-01", "closed": None,
        "nights": ["n1"], "blame": "machine", "first_run": "a", "last_run": "a", "message": "m",
    }  # fmt: skip
    return msgspec.convert({"key": key, **given, **more}, type=Trouble)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    history = History(tmp_path)
    late = run_of("b", started="2026-11-02T00:00:00+00:00", figures=[figure(3.5)])
    early = run_of("a", state="failed", exit_code=14, night="n1", variant="text")
    history.add(late)
    history.add(early)
    history.night(night_of("n1"))
    history.night(night_of("n1", state="green", ended="2026-11-01T02:00:00+00:00"))
    history.trouble(trouble_of("k / with any letters"))
    with History(tmp_path) as again:
        assert again.runs() == [early, late]
        assert again.runs(state="failed") == again.runs(night="n1") == [early]
        assert again.runs(since="2026-11-02") == again.runs(last=1) == [late]
        assert again.runs(variant="text", state="passed") == []
        assert [one.state for one in again.nights()] == ["green"]
        assert [one.key for one in again.troubles()] == ["k / with any letters"]
        again.trouble(trouble_of("k / with any letters", closed="2026-11-03"))
        assert again.troubles(open_only=True) == []
        assert again.notes == []


def test_a_run_is_written_once(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add(run_of("a"))
    history.add(run_of("a"))
    with pytest.raises(HistoryError, match="another one"):
        history.add(run_of("a", seconds=11.0))
    assert history.runs() == [run_of("a")]


@pytest.mark.parametrize("name", ["../a", "", ".", "a/b", "a\0", "é", "-a"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HistoryError, match="cannot be a name"):
        History(tmp_path / "h").add(run_of(name))
    with pytest.raises(HistoryError, match="cannot be a name"):
        History(tmp_path / "h").keep("run", name, b"")


def test_runs_are_found_by_the_start_of_their_id(tmp_path: Path) -> None:
    history = History(tmp_path)
    for id_ in ("ab1", "ab2", "ab"):
        history.add(run_of(id_))
    assert history.run("ab1").id == "ab1"
    assert history.run("ab").id == "ab"
    with pytest.raises(HistoryError, match="more than one"):
        history.run("a")
    with pytest.raises(HistoryError, match="no run"):
        history.run("_")  # no letter of a pattern


def test_evidence_is_kept_with_its_digest(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    (tmp_path / "log").write_bytes(b"abc")
    place, digest = history.keep("r", "build.log", tmp_path / "log")
    assert (history.root / place).read_bytes() == b"abc"
    assert digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert history.keep_report("r", b"{}")[0] == "reports/r.json"


def old_file(root: Path, version: int) -> None:
    """What an earlier sparkbuild left: the schema of its time, and rows."""
    root.mkdir(parents=True)
    connection = sqlite3.connect(root / FILE)
    for number, sql in database.migrations().items():
        if number <= version:
            connection.executescript(f"{sql}; PRAGMA user_version = {number};")
    run = run_of("old", figures=[figure(3.5), figure(4.5, restart=1)])
    connection.execute(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run.id, run.night, run.what, run.role, run.variant, run.toolchain, run.base, run.started,
         run.state, msgspec.json.encode(run).decode()),
    )  # fmt: skip
    connection.commit()
    connection.close()


def readings(history: History) -> list[tuple[str, int, float]]:
    found = history.readings(what="make", role="control", variant="vision", toolchain="cpu")
    return [(one.run, one.restart, one.value) for one in found.get("build.seconds", [])]


def test_a_file_of_the_first_schema_is_migrated_with_its_figures(tmp_path: Path) -> None:
    old_file(tmp_path / "h", 1)
    history = History(tmp_path / "h")
    assert readings(history) == [("old", 0, 3.5), ("old", 1, 4.5)]
    assert history.notes == []
    with database.opened(history.file) as connection:
        assert database.version(connection) == len(database.migrations()) >= 2


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    old_file(tmp_path / "h", 1)
    file = tmp_path / "h" / FILE
    steps = {1: "", 2: "CREATE TABLE half (a); INSERT INTO nowhere VALUES (1)"}
    with pytest.raises(database.Damaged, match="nowhere"):
        database.migrate(file, steps)
    with database.opened(file) as connection:
        assert database.version(connection) == 1
        assert "half" not in {
            row[0] for row in connection.execute("SELECT name FROM sqlite_schema")
        }


def test_a_history_of_a_newer_sparkbuild_is_refused_and_left_alone(tmp_path: Path) -> None:
    History(tmp_path).add(run_of("a"))
    newer = len(database.migrations()) + 1
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute(f"PRAGMA user_version = {newer}")
    connection.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(HistoryError, match="newer sparkbuild") as caught:
        History(tmp_path)
    assert f"found {newer}" in caught.value.problems[0]
    assert (tmp_path / FILE).read_bytes() == before
    assert not list(tmp_path.glob("*.damaged*"))


def overwrite(at: int, data: bytes) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        with file.open("r+b") as out:
            out.seek(at)
            out.write(data)

    return damage


def sql(text: str) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(text)
        connection.commit()
        connection.close()

    return damage


def zeroed(name: str) -> Callable[[Path], None]:
    """The first page of an index or table, which nothing needs to read that opens the file."""

    def damage(file: Path) -> None:
        connection = sqlite3.connect(file)
        query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        (page,) = connection.execute(query, (name,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        connection.close()
        overwrite((page - 1) * size, b"\0" * size)(file)

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "garbage": overwrite(0, b"garbage" * 2000),
    "cut short": lambda file: os.truncate(file, 9000),
    "header": overwrite(0, b"\0" * 60),
    "pages": lambda file: overwrite(4096, os.urandom(file.stat().st_size - 4096))(file),
    "an index": zeroed("figures_name"),
    "a table gone": sql("DROP TABLE figures"),
    "a column gone": sql("ALTER TABLE runs RENAME COLUMN document TO other"),
    "no JSON in a row": sql("UPDATE runs SET document = '{' WHERE id = 'b'"),
    "a folder's worth of nothing": overwrite(100, b"\xff" * 3000),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("when", ["before it is opened", "while it is open"])
def test_a_damaged_file_is_put_aside_and_made_again(
    tmp_path: Path, damage: Callable[[Path], None], when: str
) -> None:
    history = History(tmp_path)
    for id_ in ("a", "b"):
        history.add(run_of(id_, figures=[figure(3.5)]))
    history.night(night_of("n1"))
    history.trouble(trouble_of("k"))
    damage(history.file)
    damaged = history.file.read_bytes()
    if when == "before it is opened":
        history = History(tmp_path)
        assert len(readings(history)) == 2
    history.add(run_of("c"))
    assert [run.id for run in history.runs()] == ["a", "b", "c"]
    assert len(readings(history)) == 2
    assert [one.id for one in history.nights()] == ["n1"]
    assert [one.key for one in history.troubles()] == ["k"]
    notes = [*history.notes, *History(tmp_path).notes, *History(tmp_path).notes]
    assert len(notes) == 1  # what nothing had to read is found when it is opened again
    (aside,) = tmp_path.glob(f"{FILE}.damaged-????????T??????Z")
    assert aside.name in notes[0]
    if damage is not DAMAGES["a folder's worth of nothing"]:
        assert aside.read_bytes()[:60] == damaged[:60]


def test_what_lies_beside_the_file_goes_with_it(tmp_path: Path) -> None:
    """SQLite would play a log that is left there into the new file."""
    history = History(tmp_path)
    for ending in ("-wal", "-shm"):
        Path(f"{history.file}{ending}").write_text(ending)
    aside = history._aside()
    again = history._aside()
    assert again != aside
    assert sorted(tmp_path.glob(f"{FILE}*")) == [
        aside, Path(f"{aside}-shm"), Path(f"{aside}-wal"),
    ]  # fmt: skip
    assert history.runs() == []


def test_an_empty_file_is_filled_again(tmp_path: Path) -> None:
    History(tmp_path).add(run_of("a"))
    os.truncate(tmp_path / FILE, 0)
    assert [run.id for run in History(tmp_path).runs()] == ["a"]


def test_what_a_kill_kept_from_the_file_is_read_from_json(tmp_path: Path) -> None:
    """Between the JSON file and its row, and of a night and a trouble that went on."""
    history = History(tmp_path)
    history.night(night_of("n1"))
    history.trouble(trouble_of("k"))
    (tmp_path / "runs" / "a.json").write_bytes(msgspec.json.encode(run_of("a")))
    green = night_of("n1", state="green")
    (tmp_path / "nights" / "n1.json").write_bytes(msgspec.json.encode(green))
    cured = trouble_of("k", closed="2026-11-03")
    (tmp_path / "troubles" / f"{trouble_id('k')}.json").write_bytes(msgspec.json.encode(cured))
    again = History(tmp_path)
    assert (again.runs(), again.nights(), again.troubles()) == ([run_of("a")], [green], [cured])


def test_json_that_cannot_be_read_is_told_and_stops_nothing(tmp_path: Path) -> None:
    History(tmp_path).add(run_of("a"))
    (tmp_path / "runs" / "half.json").write_text('{"id": "half", "nig')
    (tmp_path / "runs" / "binary.json").write_bytes(b"\xff\xfe")
    (tmp_path / "runs" / "other.json").write_bytes(msgspec.json.encode(run_of("a")))
    (tmp_path / FILE).unlink()
    history = History(tmp_path)
    assert [run.id for run in history.runs()] == ["a"]
    assert sorted(note.split(".json")[0].rpartition("/")[2] for note in history.notes) == [
        "binary", "half", "other",
    ]  # fmt: skip


WRITER = Path(__file__).parent / "writer.py"


def spawn(root: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(WRITER), name, str(count), str(root)])


def test_many_write_at_the_same_time_also_to_a_new_folder(tmp_path: Path) -> None:
    children = [spawn(tmp_path / "h", f"w{one}", 15) for one in range(4)]
    for child in children:
        assert child.wait(120) == 0
    history = History(tmp_path / "h")
    assert {run.id for run in history.runs()} == {f"w{a}-{b}" for a in range(4) for b in range(15)}
    assert len(readings(history)) == 60
    assert len(history.nights()) == 1


def test_damage_is_mended_once_where_several_find_it(tmp_path: Path) -> None:
    History(tmp_path).add(run_of("a"))
    (tmp_path / FILE).write_bytes(b"garbage" * 1000)
    children = [spawn(tmp_path, f"w{one}", 3) for one in range(3)]
    for child in children:
        assert child.wait(120) == 0
    assert len(History(tmp_path).runs()) == 10
    assert len(list(tmp_path.glob(f"{FILE}.damaged-*Z"))) == 1


def test_killed_at_any_moment_it_has_what_its_json_files_say(tmp_path: Path) -> None:
    chance = random.Random(11434)  # noqa: S311 - the same every time
    for turn in range(6):
        child = spawn(tmp_path, f"turn{turn}", 100_000)
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(f"runs/turn{turn}-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.3))
        child.kill()
        child.wait()
        history = History(tmp_path)
        assert history.notes == []
        rows = {run.id for run in history.runs()}
        assert rows == {file.stem for file in tmp_path.glob("runs/[!.]*.json")}
        assert any(id_.startswith(f"turn{turn}-") for id_ in rows)
        assert len(readings(history)) == len(rows)
    assert not list(tmp_path.glob("*.damaged*"))


def test_after_a_full_disk_the_run_is_there(tmp_path: Path) -> None:
    """SQLite gets no further page: it reports the same error as on a full disk."""
    with pytest.MonkeyPatch.context() as patch:
        history = History(tmp_path)
        history.add(run_of("a"))
        real = sqlite3.connect

        def connect(*given: object, **more: object) -> sqlite3.Connection:
            connection: sqlite3.Connection = real(*given, **more)  # type: ignore[call-overload]
            connection.execute("PRAGMA max_page_count = 1")
            return connection

        patch.setattr(sqlite3, "connect", connect)
        with pytest.raises(DiskFullError, match="no space left"):
            history.add(run_of("b", message="x" * 100_000))
    assert [run.id for run in History(tmp_path).runs()] == ["a", "b"]


def test_no_room_for_the_json_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(tmp_path)

    def nothing(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", nothing)
    with pytest.raises(DiskFullError):
        history.add(run_of("a"))
    monkeypatch.undo()
    assert history.runs() == History(tmp_path).runs() == []


def test_migrations_are_numbered_without_a_gap_and_none_is_empty() -> None:
    steps = database.migrations()
    assert list(steps) == list(range(1, len(steps) + 1))
    assert all("CREATE" in sql_ for sql_ in steps.values())


def test_a_run_keeps_every_field(tmp_path: Path) -> None:
    run = run_of("a", machine={"gpu": "NVIDIA GB10"}, evidence=["evidence/a/x.log"], message="é\n")
    History(tmp_path).add(run)
    assert History(tmp_path).run("a") == run
    assert msgspec.json.decode((tmp_path / "runs" / "a.json").read_bytes(), type=Run) == run
