"""A run: faults planted and asked in turn, kept as they end, gone on with after a stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sparkbuild import faults_work
from sparkbuild.errors import BusyError
from sparkbuild.faults.catalogue import PATCHES, Faults, load_faults
from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.model import SourceSeed
from sparkbuild.faults.planters import PLANTERS
from sparkbuild.faults_work import Order, lanes_here, run_faults
from sparkbuild.files import exclusive
from sparkbuild.report.model import StageReport
from sparkbuild.workspace import Workspace

FAULT = """
[[fault]]
id = "{id}"
kind = "source"
summary = "s"
imitates = "i"
reach = "everything"
subtle = false
latest = "{latest}"
says = ["{says}"]
needs = {needs}
fast = {fast}
seed = {{ how = "source", patch = "one.patch" }}
"""


class Screen:
    """An observer that keeps the closing lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def started(self, stage: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finished(self, report: StageReport) -> None:
        self.lines.append(f"{report.name}: {report.state}, {report.summary}")


class Garden:
    """A planter that needs no build: what it is asked for decides what it plants."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self.arguments = arguments
        self.planted: list[Path] = []
        self.stop = 0
        """The number of the planting that is interrupted."""
        self.wrong: Exception | None = None

    @contextmanager
    def __call__(self, seed: SourceSeed, place: Place) -> Iterator[Planted]:
        self.planted.append(place.scratch)
        assert list(place.scratch.iterdir()) == []
        (place.scratch / "left").write_text(seed.patch)
        if self.stop == len(self.planted):
            raise KeyboardInterrupt
        if self.wrong:
            raise self.wrong
        yield Planted(arguments=self.arguments, stage="toolkit")


REFUSED = ("toolkit", "show", "/nowhere/at/all", "--json")


@pytest.fixture
def garden(monkeypatch: pytest.MonkeyPatch) -> Garden:
    """Commands that are refused, as the shell would run them."""
    one = Garden(REFUSED)
    monkeypatch.setitem(cast("dict[Any, Any]", PLANTERS), SourceSeed, one)
    monkeypatch.setattr(faults_work, "_make_clean", lambda *_: None)
    return one


def fault(**values: str) -> str:
    well = {"id": "one", "latest": "toolkit", "says": "nowhere", "needs": "[]", "fast": "false"}
    return FAULT.format(**{**well, **values})


def order(tmp_path: Path, *tables: str, fresh: bool = False) -> Order:
    folder = tmp_path / "catalogue"
    (folder / PATCHES).mkdir(parents=True, exist_ok=True)
    (folder / PATCHES / "one.patch").write_text("a patch")
    (folder / "source.toml").write_text("schema = 1\n" + "".join(tables))
    faults: Faults = load_faults(folder)
    work = Workspace(tmp_path / "work")
    return Order(faults=faults, chosen=faults.every, workspace=work, lanes=1, fresh=fresh)


def verdicts(tmp_path: Path, *tables: str, fresh: bool = False) -> dict[str, str]:
    matrix = run_faults(order(tmp_path, *tables, fresh=fresh), Screen())
    return {one.id: one.verdict for one in matrix.found}


def test_what_the_product_refuses_in_words_is_caught(tmp_path: Path, garden: Garden) -> None:
    screen = Screen()
    (one,) = run_faults(order(tmp_path, fault()), screen).found
    assert (one.verdict, one.stage, one.exit_code) == ("caught", "toolkit", 9)
    assert "/nowhere/at/all" in one.message
    assert one.command == REFUSED
    assert one.seconds > 0
    assert "# exit status 9" in Path(one.log).read_text()
    assert not garden.planted[0].exists()
    assert screen.lines[0].startswith("one: done, caught at toolkit")


def test_other_words_a_later_stage_and_no_refusal_are_not_caught(
    tmp_path: Path, garden: Garden
) -> None:
    assert verdicts(tmp_path, fault(says="colour")) == {"one": "other words"}
    garden.arguments = ("--version",)
    assert verdicts(tmp_path, fault(), fresh=True) == {"one": "missed"}
    garden.arguments = ("toolkit", "show")  # a wrong command line says nothing of a fault
    assert verdicts(tmp_path, fault(), fresh=True) == {"one": "missed"}


@pytest.mark.parametrize(
    "wrong", [NotPlantedError("it does not compile"), OSError("it does not compile")]
)
def test_what_cannot_be_planted_is_not_run(
    tmp_path: Path, garden: Garden, wrong: Exception
) -> None:
    garden.wrong = wrong
    (one,) = run_faults(order(tmp_path, fault()), Screen()).found
    assert one.verdict == "not run"
    assert "it does not compile" in one.reason
    assert not garden.planted[0].exists()


def test_what_this_machine_lacks_is_told(tmp_path: Path, garden: Garden) -> None:
    (one,) = run_faults(order(tmp_path, fault(needs='["cuda-1.0"]')), Screen()).found
    assert (one.verdict, one.reason) == ("not run", "this machine has no cuda-1.0")
    assert garden.planted == []
    (tmp_path / "work" / "toolkits" / "cuda-1.0").mkdir(parents=True)
    assert verdicts(tmp_path, fault(needs='["cuda-1.0"]')) == {"one": "caught"}


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, garden: Garden) -> None:
    tables = (fault(), fault(id="two"), fault(id="three"))
    garden.stop = 2
    with pytest.raises(KeyboardInterrupt):
        run_faults(order(tmp_path, *tables), Screen())
    assert len(garden.planted) == 2
    assert verdicts(tmp_path, *tables) == dict.fromkeys(("one", "two", "three"), "caught")
    assert len(garden.planted) == 4
    assert verdicts(tmp_path, *tables) == dict.fromkeys(("one", "two", "three"), "caught")
    assert len(garden.planted) == 4
    verdicts(tmp_path, *tables, fresh=True)
    assert len(garden.planted) == 7


def test_the_quick_ones_come_first_and_are_told_in_their_place(
    tmp_path: Path, garden: Garden
) -> None:
    screen = Screen()
    matrix = run_faults(order(tmp_path, fault(), fault(id="two", fast="true")), screen)
    assert [one.id for one in matrix.found] == ["one", "two"]
    assert [line.partition(":")[0] for line in screen.lines[:2]] == ["two", "one"]


def test_two_runs_in_one_work_folder_are_refused(tmp_path: Path, garden: Garden) -> None:
    asked = order(tmp_path, fault())
    with exclusive(asked.root / "lock", what="a run"), pytest.raises(BusyError):
        run_faults(asked, Screen())


def test_there_is_a_lane_for_any_machine() -> None:
    assert lanes_here() >= 1


def test_lanes_work_side_by_side_in_processes_of_their_own(tmp_path: Path) -> None:
    asked = replace(order(tmp_path, fault(), fault(id="two"), fault(id="three")), lanes=2)
    found = list(faults_work._worked(asked, asked.chosen, Screen()))
    assert sorted(one.id for one in found) == ["one", "three", "two"]
    assert all("holds no finished build" in one.reason for one in found)
    used = {Path(one.reason.partition(" holds")[0]).name for one in found}
    assert used == {"lane-1", "lane-2"}


def test_a_lane_borrows_the_source_that_is_here(tmp_path: Path) -> None:
    work = Workspace(tmp_path / "work")
    (work.store / "objects").mkdir(parents=True)
    lane = tmp_path / "lane-1"
    faults_work._lend(work, lane)
    assert (lane / "store.git" / "objects").is_dir()
    faults_work._lend(work, lane)  # once is enough
    faults_work._lend(Workspace(tmp_path / "none"), tmp_path / "lane-2")
    assert not (tmp_path / "lane-2").exists()
