"""The site as files: every link leads somewhere, nothing from outside is markup, all or nothing."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from click.testing import CliRunner

from sparkbuild import site_work
from sparkbuild.errors import DiskFullError, ManifestError, UsageError
from sparkbuild.faults.model import Matrix
from sparkbuild.faults_report_commands import faults_report_command
from sparkbuild.history.compare import reading
from sparkbuild.history.store import History
from sparkbuild.report.site import write
from sparkbuild.report.site.calendar import months
from sparkbuild.report.site.charts import over_time
from sparkbuild.report.site.data import Series
from sparkbuild.report.site.pages import fault_page
from sparkbuild.report.site.write import MARK
from sparkbuild.report_commands import report_group

from .conftest import BROKEN, DATA, WORDS, figure, run_of
from .test_store import night_of, trouble_of

OUTSIDE = {"w3.org"}
"""Namespaces of SVG, which no browser fetches."""


@dataclass
class Page(HTMLParser):
    """What a page refers to, its identifiers, its texts."""

    links: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in {"href", "src"} and value is not None and tag != "use":
                self.links.append(value)
            if name == "id" and value is not None:
                self.ids.append(value)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(file: Path) -> Page:
    page = Page()
    page.feed(file.read_text("utf-8"))
    page.close()
    return page


@pytest.fixture(scope="session")
def site(weeks: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    done = CliRunner().invoke(
        report_group,
        ["site", str(folder), "--history", str(weeks.root), "--json"],
        catch_exceptions=False,
    )
    facts = json.loads(done.stdout)
    assert facts["nights"] == len(weeks.nights())
    assert facts["runs"] == len(weeks.runs())
    return folder


def pages(site: Path) -> Iterator[Path]:
    found = sorted(site.rglob("*.html"))
    assert len(found) > 100
    yield from found


def test_every_link_leads_to_a_file_of_the_site(site: Path) -> None:
    reached = {site / "index.html"}
    for file in pages(site):
        page = read(file)
        assert len(page.ids) == len(set(page.ids)), file
        for link in page.links:
            if link == "data:,":
                continue
            place, _, mark = unquote(link).partition("#")
            target = (file.parent / place).resolve() if place else file
            assert target.is_file(), (file, link)
            reached.add(target)
            if mark:
                assert mark in read(target).ids, (file, link)
    assert not set(pages(site)) - reached


def test_nothing_is_fetched_and_nothing_runs(site: Path) -> None:
    for file in pages(site):
        text = file.read_text()
        hosts = set(re.findall(r"https?://(?:www\.)?([\w.]+)", text))
        assert hosts <= OUTSIDE, file
        page = read(file)
        assert not {"script", "iframe", "object", "embed", "form"} & set(page.tags), file
        assert "default-src 'none'" in text


def test_a_log_is_shown_as_text_and_goes_along_as_it_is(site: Path, weeks: History) -> None:
    run = weeks.runs(state="failed")[0]
    (place,) = run.evidence
    page = read(site / f"{place}.html")
    shown = "".join(page.text)
    assert "<b>warning</b> llama_decode returned -1 </pre><script>alert(1)</script>" in shown
    assert "\x1b" not in shown
    assert WORDS in (site / f"{place}.txt").read_text()
    assert not list(site.rglob("*.log"))


def test_a_red_night_leads_to_its_log_in_two_links(site: Path, weeks: History) -> None:
    night = next(one for one in weeks.nights() if one.state == "red")
    first = f"nights/{night.id}.html"
    assert first in read(site / "index.html").links
    (log,) = weeks.runs(night=night.id, state="failed")[0].evidence
    assert f"../{log}.html" in read(site / first).links


def test_the_index_says_how_things_stand(site: Path) -> None:
    shown = "".join(read(site / "index.html").text)
    for words in ("12 of 12 caught", "vision-mtp", "cuda-13.0", "build.seconds", "November 2026"):
        assert words in shown
    assert shown.count("fault") >= 2


def test_charts_have_bands_bases_and_a_link_for_each_run(site: Path, weeks: History) -> None:
    text = (site / "trends.html").read_text()
    figures = re.findall(r"<figure>.*?</figure>", text, re.DOTALL)
    build = next(one for one in figures if ">build.seconds<" in one)
    assert build.count("var(--band)") == 2
    assert {"b11401", "b11434"} <= set(re.findall(r">(b\d{5})</text>", build))
    runs = weeks.runs(what="make", variant="vision", state="passed")
    links = re.findall(r'<a href="runs/([^"]+)\.html"><use', build)
    assert sorted(links) == sorted(run.id for run in runs)
    assert build.count("<title>") == len(runs)
    assert "#0102" not in text


@pytest.mark.parametrize("step", [0.000_5, 0.003, 1.0, 40.0])
def test_the_scale_of_a_chart_says_what_its_points_do(step: float) -> None:
    """Numbers at the axis are evenly apart, as many as their places, around the values."""
    runs = [
        run_of(
            f"r{at}",
            started=f"2026-11-{at + 1:02d}T01:00:00+00:00",
            figures=[figure(3 + at * step)],
        )
        for at in range(9)
    ]
    readings = tuple(reading(run.figures[0], run) for run in runs)
    series = Series(
        cell=("make", "vision", "cpu"), name="f", unit="s", control=readings, candidate=()
    )
    text = over_time(series, name="c", runs="runs/")
    found = re.findall(r'text-anchor: end[^>]* y="([\d.]+)"[^>]*>([\d.]+)</text>', text)
    values = [float(value) for _, value in found]
    places = [float(place) for place, _ in found]
    assert len(set(values)) == len(values) >= 3
    gaps = [after - before for before, after in pairwise(values)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-6)
    scale = (places[-1] - places[0]) / (values[-1] - values[0])
    points = [
        float(place) for place in re.findall(r'<use x="[\d.]+" y="([\d.]+)" href="#c-C', text)
    ]
    assert len(points) == 9
    offsets = [
        point - scale * (one.value - values[0]) - places[0]
        for point, one in zip(points, readings, strict=True)
    ]
    assert max(offsets) - min(offsets) < 0.5
    assert abs(offsets[0]) < 6  # a text stands half its height below its line


def test_a_run_shows_its_stages_and_the_night_its_judgements(site: Path, weeks: History) -> None:
    run = weeks.runs(state="failed")[0]
    shown = "".join(read(site / f"runs/{run.id}.html").text)
    for words in ("qualify", "not applicable", "no CUDA compiler takes part", "2 checks failed"):
        assert words in shown
    last = weeks.nights()[-1]
    shown = "".join(read(site / f"nights/{last.id}.html").text)
    assert "speed.plain" in shown
    assert "+1" in shown


def test_what_is_not_sparkbuilds_is_not_replaced(weeks: History, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(UsageError, match="did not make it"):
        site_work.write(weeks, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years"
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def small(root: Path) -> History:
    history = History(root)
    history.night(night_of("n1", state="green"))
    history.add(run_of("r1", night="n1"))
    return history


def everything(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("error", "told"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(errno.ENOSPC, "full"), DiskFullError)],
    ids=["interrupted", "disk full"],
)
def test_a_site_is_replaced_whole_or_stays(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    told: type[BaseException],
) -> None:
    history, folder = small(tmp_path / "h"), tmp_path / "site"
    site_work.write(history, folder)
    before = everything(folder)
    history.add(run_of("r2", night="n1"))
    real = Path.write_text

    def failing(self: Path, *given: Any, **more: Any) -> int:
        if self.name == "r2.html":
            raise error
        return real(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", failing)
        with pytest.raises(told):
            site_work.write(history, folder)
    assert everything(folder) == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["h", "site"]


@pytest.mark.parametrize("swap", [True, False], ids=["in one step", "in two"])
def test_the_new_site_takes_the_old_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: bool
) -> None:
    history, folder = small(tmp_path / "h"), tmp_path / "si*te"
    (tmp_path / ".si*te.new-killed" / "runs").mkdir(parents=True)
    (tmp_path / ".site.new-of-another").mkdir()
    if not swap:
        monkeypatch.setattr(write, "_swapped", lambda one, other: False)
    site_work.write(history, folder)
    (folder / "runs" / "stale.html").write_text("")
    history.add(run_of("r2", night="n1"))
    inode = folder.stat().st_ino
    site_work.write(history, folder)
    assert (folder / "runs" / "r2.html").is_file()
    assert not (folder / "runs" / "stale.html").exists()
    assert folder.stat().st_ino != inode
    assert (folder / MARK).is_file()
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [".site.new-of-another", "h", "si*te"]
    assert folder.stat().st_mode & 0o777 == 0o755


def test_this_machine_exchanges_folders_in_one_step(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "of").write_text(name)
    assert write._swapped(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "of").read_text() == "b"
    assert not write._swapped(tmp_path / "a", tmp_path / "none")


def test_two_writers_take_turns(tmp_path: Path) -> None:
    history, folder = small(tmp_path / "h"), tmp_path / "site"
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: site_work.write(history, folder), range(3)))
    assert (folder / "index.html").is_file()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["h", "site"]


def test_an_empty_history_has_pages_too(tmp_path: Path) -> None:
    site_work.write(History(tmp_path / "h"), tmp_path / "site")
    assert "No night is in this history" in (tmp_path / "site" / "index.html").read_text()
    assert "No run of the fault matrix" in (tmp_path / "site" / "faults.html").read_text()


def test_texts_of_a_run_are_never_markup_and_its_places_never_lead_out(tmp_path: Path) -> None:
    history = small(tmp_path / "h")
    (tmp_path / "secret").write_text("key")
    bad = "<script>alert(1)</script>"
    history.add(
        run_of(
            "evil", night="n1", state="failed", variant=bad, toolchain=f"'\"{bad}", base=bad,
            message=bad, stage=bad, machine={bad: bad}, report="../secret",
            evidence=["evidence/evil/none.log", "../../../../../../etc/hostname"],
            figures=[{"name": bad, "value": 1.0, "unit": bad, "more_is": "better"}],
        )
    )  # fmt: skip
    history.add(
        run_of("evil2", night="n1", variant=bad, toolchain=f"'\"{bad}", base=bad,
               figures=[{"name": bad, "value": 1.0, "unit": bad, "more_is": "better"}])
    )  # fmt: skip
    history.trouble(trouble_of(bad, title=bad, message=bad, first_run=bad, nights=[bad]))
    history.night(night_of("n1", state="red", reason=bad, base=bad, notes=[bad], published=[bad]))
    site_work.write(history, tmp_path / "site")
    for file in (tmp_path / "site").rglob("*.html"):
        assert "script" not in read(file).tags, file
        assert "key" not in "".join(read(file).text).split()
        links = [unquote(link).partition("#")[0] for link in read(file).links if link != "data:,"]
        assert all(
            (file.parent / link).resolve().is_relative_to(tmp_path / "site") for link in links
        )
        assert all((file.parent / link).is_file() for link in links if link), links
    assert not list((tmp_path / "site").rglob("*hostname.txt"))
    assert not (tmp_path / "secret.html").exists()
    assert not list(tmp_path.glob("*.html"))


def test_a_report_that_is_damaged_costs_its_stages_alone(tmp_path: Path) -> None:
    history = small(tmp_path / "h")
    place, digest = history.keep_report("r3", b'{"schema": 1')
    history.add(run_of("r3", night="n1", report=place, report_sha256=digest))
    matrix, digest = history.keep_report("f1", b"\xff\xff")
    history.add(run_of("f1", night="n1", what="faults", report=matrix, report_sha256=digest))
    site_work.write(history, tmp_path / "site")
    assert "Stages" not in (tmp_path / "site" / "runs" / "r3.html").read_text()


def test_the_calendar_shows_gaps_and_the_worst_of_a_day() -> None:
    nights = [
        night_of("a", state="green", started="2026-02-26T23:50:00+00:00"),
        night_of("b", state="red", started="2026-03-01T01:00:00+00:00"),
        night_of("c", state="green", started="2026-03-01T04:00:00+00:00"),
    ]
    march, february = months(nights, date(2026, 3, 3))
    assert (march.name, february.name) == ("March 2026", "February 2026")
    days = {day.number: day for day in february.days if day}
    assert len(days) == 28
    assert [number for number, day in days.items() if day.gap] == [27, 28]
    days = {day.number: day for day in march.days if day}
    assert days[1].night is not None
    assert days[1].night.id == "b"
    assert [number for number, day in days.items() if day.gap] == [2]
    assert march.days[:7].count(None) == 6  # the first of March 2026 is a Sunday
    assert months([], date(2026, 3, 3)) == []


def test_only_the_newest_nights_where_fewer_are_asked_for(weeks: History) -> None:
    book = site_work.gather(weeks, last=3, now=datetime(2026, 11, 23, tzinfo=UTC))
    assert len(book.nights) == 3
    assert {run.night for run in book.runs} == {night.id for night in book.nights}
    build = next(one for one in book.series if one.name == "build.seconds")
    assert len(build.control) == 3
    assert build.bands["b11434"].nights > BROKEN - 30  # the noise is that of all nights


def test_the_fault_page_needs_no_other_file(tmp_path: Path) -> None:
    matrix = msgspec.json.decode((DATA / "faults-cpu.json").read_bytes(), type=Matrix)
    page = Page()
    page.feed(fault_page(matrix))
    assert page.links == ["data:,"]
    shown = "".join(page.text)
    for one in matrix.found:
        assert one.id in shown
    done = CliRunner().invoke(
        faults_report_command,
        [str(DATA / "faults-cpu.json"), "--out", str(tmp_path / "f.html")],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    assert (tmp_path / "f.html").read_text() == fault_page(matrix)
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(ManifestError, match="no fault matrix"):
        CliRunner().invoke(
            faults_report_command,
            [str(tmp_path / "no.json"), "--out", str(tmp_path / "g.html")],
            catch_exceptions=False,
        )
    assert not (tmp_path / "g.html").exists()


def test_missed_faults_and_false_alarms_are_seen(tmp_path: Path) -> None:
    document = msgspec.json.decode((DATA / "faults-cpu.json").read_bytes())
    document["found"][0].update(verdict="missed", stage=None, check="", message="")
    document["found"][1].update(
        verdict="not run", stage=None, check="", message="", reason="no GPU here"
    )
    document["clean"] = [
        {"command": ["smoke"], "exit_code": 14, "seconds": 3.0, "message": "too slow", "log": "l"}
    ]
    page = Page()
    page.feed(fault_page(msgspec.convert(document, type=Matrix)))
    shown = "".join(page.text)
    for words in ("missed", "not run", "no GPU here", "false alarm", "too slow", "1 false alarms"):
        assert words in shown
