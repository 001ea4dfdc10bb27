"""``sparkbuild history`` as a user runs it: what it prints, and its JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner, Result

from sparkbuild.errors import HistoryError
from sparkbuild.history.compare import compared
from sparkbuild.history.model import Role, Run, State, What
from sparkbuild.history.store import History
from sparkbuild.history_commands import ROLES, STATES, WHATS, history_group

from .conftest import figure, run_of


def ask(root: Path, *words: str) -> Result:
    done = CliRunner().invoke(
        history_group, [*words, "--history", str(root)], catch_exceptions=False
    )
    assert done.exit_code == 0
    return done


def told(root: Path, *words: str) -> dict[str, Any]:
    facts = json.loads(ask(root, *words, "--json").stdout)
    assert facts["schema"] == 1
    assert isinstance(facts, dict)
    return facts


def test_list_shows_runs_and_nights(weeks: History) -> None:
    every = told(weeks.root, "list")["runs"]
    assert len(every) == len(weeks.runs())
    failed = told(weeks.root, "list", "--state", "failed", "--role", "candidate")["runs"]
    assert [run["state"] for run in failed] == ["failed"] * 2
    assert [run["id"] for run in told(weeks.root, "list", "--last", "2")["runs"]] == [
        run.id for run in weeks.runs(last=2)
    ]
    nights = told(weeks.root, "list", "--nights")["nights"]
    assert [night["state"] for night in nights].count("red") == 2
    shown = ask(weeks.root, "list", "--state", "failed").stdout
    assert failed[0]["id"] in shown
    assert "qwen35 drafts" in shown
    assert "blame" in ask(weeks.root, "list", "--nights").stdout


def test_show_has_bands_of_runs_and_runs_of_nights(weeks: History) -> None:
    run = next(run for run in reversed(weeks.runs(role="candidate", what="make")) if run.figures)
    facts = told(weeks.root, "show", run.id)
    assert facts["run"]["id"] == run.id
    assert not facts["bands"]  # its base is no control's, and so there is no noise of it
    control = weeks.runs(role="control", what="make", night=run.night)[0]
    band = told(weeks.root, "show", control.id)["bands"]["build.seconds"]
    assert band["n"] >= 20
    assert band["low"] < 911 < band["high"]
    assert "control's band" in ask(weeks.root, "show", control.id).stdout
    night = told(weeks.root, "show", str(run.night))
    assert night["night"]["id"] == run.night
    assert len(night["runs"]) == len(weeks.runs(night=run.night))
    assert "reason" in ask(weeks.root, "show", str(run.night)).stdout


def test_compare_of_nights_goes_cell_by_cell(weeks: History) -> None:
    nights = weeks.nights()
    rows = told(weeks.root, "compare", nights[-6].id, nights[-1].id)["rows"]
    slow = {
        (row["variant"], row["role"]): row["difference"]["state"]
        for row in rows
        if row["name"] == "build.seconds"
    }
    assert slow == {
        ("vision", "control"): "noise", ("vision", "candidate"): "not enough nights to tell",
        ("vision-mtp", "control"): "noise",
        ("vision-mtp", "candidate"): "not enough nights to tell",
    }  # fmt: skip
    alone = [row for row in rows if row["difference"] is None]
    assert {row["what"] for row in alone} == {"faults"}
    shown = ask(weeks.root, "compare", nights[-6].id, nights[-1].id).stdout
    assert "make vision-mtp cuda-13.0 control" in shown
    assert "not enough" in shown
    speeds = {
        row["difference"]["state"]
        for row in rows
        if row["name"] == "speed.plain" and row["role"] == "control"
    }
    assert speeds == {"noise"}


def test_compare_of_control_and_candidate_finds_the_slow_build(weeks: History) -> None:
    night = weeks.nights()[-1].id
    control, candidate = (
        weeks.runs(night=night, what="make", role=role, variant="vision")[0].id
        for role in ("control", "candidate")
    )
    rows = told(weeks.root, "compare", control, candidate)["rows"]
    states = {row["name"]: row["difference"]["state"] for row in rows}
    assert states["build.seconds"] == "worse"
    assert states["wheel.bytes"] == states["drafts.qwen35.depth1"] == "noise"
    assert sum(state != "noise" for state in states.values()) <= 2
    assert next(row for row in rows if row["name"] == "build.seconds")["role"] == (
        "control / candidate"
    )


def test_a_comparison_takes_neither_side_for_noise() -> None:
    runs = [run_of(f"r{at}", figures=[figure(10.0)]) for at in range(3)]
    seen: list[tuple[str, str, str]] = []

    def history(what: str, variant: str, toolchain: str) -> dict[str, Any]:
        from sparkbuild.history.compare import reading

        seen.append((what, variant, toolchain))
        return {"build.seconds": [reading(run.figures[0], run) for run in runs]}

    def one(run: Run) -> list[Run]:
        return [run]

    (row,) = compared(one(runs[0]), one(runs[1]), history)
    assert row.difference is not None
    assert row.difference.n == 1
    assert seen == [("make", "vision", "cpu")]


def test_export_has_everything(weeks: History, tmp_path: Path) -> None:
    facts = json.loads(ask(weeks.root, "export").stdout)
    assert len(facts["runs"]) == len(weeks.runs())
    assert len(facts["nights"]) == len(weeks.nights())
    assert len(facts["troubles"]) == 2
    ask(weeks.root, "export", "--csv", "--out", str(tmp_path / "all.csv"))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text())))
    assert len(rows) == sum(len(run.figures) or 1 for run in weeks.runs())
    speeds = [row for row in rows if row["figure"] == "speed.plain"]
    assert {row["restart"] for row in speeds} == {"0", "1", "2"}
    assert float(speeds[0]["value"]) == next(
        one.value for one in weeks.runs()[0].figures if one.name == "speed.plain"
    )


def test_the_choices_are_those_of_the_model() -> None:
    assert (get_args(What), get_args(Role), get_args(State)) == (WHATS, ROLES, STATES)


@pytest.mark.parametrize("words", [("list",), ("show", "x"), ("compare", "a", "b"), ("export",)])
def test_where_nothing_was_kept_nothing_is_made(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(HistoryError, match="no history"):
        ask(tmp_path / "h", *words)
    assert not (tmp_path / "h").exists()


def test_an_unknown_id_is_refused(weeks: History) -> None:
    with pytest.raises(HistoryError, match="no run"):
        ask(weeks.root, "show", "nothing")
    with pytest.raises(HistoryError, match="more than one"):
        ask(weeks.root, "show", "2026")
