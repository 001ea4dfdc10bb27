"""The pages of the site but for logs: what each template is given."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final

from sparkbuild.faults.model import Matrix
from sparkbuild.history.model import Band, Judgement, Night, Run
from sparkbuild.report.site import charts
from sparkbuild.report.site.calendar import months
from sparkbuild.report.site.data import Book, Cell
from sparkbuild.report.site.figures import figure_pages
from sparkbuild.report.site.shared import common
from sparkbuild.report.site.words import log_page, page, raw, tone

_SHOWN: Final = 160
"""Characters of a night's reason where it is one of four facts; its own page has all of them."""


def site(book: Book, *, fewest: int) -> Iterator[tuple[str, str]]:
    """Every page as its path and text. ``fewest``: see the band of ``history.noise``."""
    yield "index.html", _index(book)
    yield from figure_pages(book, fewest)
    yield "faults.html", _faults(book)
    yield "troubles.html", _troubles(book)
    for night in book.nights:
        yield f"nights/{night.id}.html", _night(book, night)
    for run in book.runs:
        yield f"runs/{run.id}.html", _run(book, run)


def fault_page(matrix: Matrix) -> str:
    """The fault matrix as a page of its own, which needs no other file."""
    return page(
        "faults.html",
        {"pages": (), "up": "", "here": "", "footer": f"sparkbuild {matrix.sparkbuild}",
         "matrix_run": "", **_matrix(matrix)},
    )  # fmt: skip


def _index(book: Book) -> str:
    done = [night for night in book.nights if night.state != "running"]
    last = (done or list(book.nights))[-1] if book.nights else None
    told = [
        one
        for one in (book.judgements.get(last.id, ()) if last else ())
        if one[1].state in {"note", "fault"}
    ]
    return page(
        "index.html",
        {
            **common(book, "index.html"),
            "lead": _lead(book),
            "months": months(book.nights, date.fromisoformat(book.made[:10])),
            "last": last,
            "grid": _grid([run for run in book.runs if last and run.night == last.id]),
            "told": told,
            "open": [one for one in reversed(book.troubles) if one.closed is None],
            "notes": book.notes,
        },
    )


def _lead(book: Book) -> list[tuple[str, str, str, str]]:
    """Label, text, tone and a line more of what a visitor wants to know first."""
    last = book.nights[-1] if book.nights else None
    good = next((one for one in reversed(book.nights) if one.state == "green"), None)
    still = sum(one.closed is None for one in book.troubles)
    lead: list[tuple[str, str, str, str]] = []
    if last:
        more = last.reason if last.state != "red" else f"blame {last.blame}: {last.reason}"
        shown = textwrap.shorten(more, _SHOWN, placeholder=" ...")
        lead.append(("Last night", last.state, tone(last.state), f"{last.id}. {shown}"))
    since = f"base {good.base}" if good else "none is known"
    lead.append(("Last good night", good.started[:10] if good else "none", "", since))
    lead.append(("Open troubles", str(still), "bad" if still else "good", ""))
    if (found := book.matrix) is not None:
        caught = sum(one.verdict == "caught" for one in found.found)
        ran = sum(one.verdict != "not run" for one in found.found)
        text = f"{caught} of {ran} caught"
        lead.append(("Fault matrix", text, tone("passed" if found.ok else "failed"), ""))
    return lead


def _grid(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Variants down, toolchains across, the runs of each."""
    cells = [run for run in runs if run.variant and run.toolchain]
    columns = sorted({run.toolchain for run in cells})
    if not columns:
        return None
    rows = [
        (
            variant,
            [
                [run for run in cells if (run.variant, run.toolchain) == (variant, name)]
                for name in columns
            ],
        )
        for variant in sorted({run.variant for run in cells})
    ]
    return {"columns": columns, "rows": rows}


def _faults(book: Book) -> str:
    given = {**common(book, "faults.html"), "matrix_run": book.matrix_run, **_matrix(book.matrix)}
    return page("faults.html", given)


def _matrix(matrix: Matrix | None) -> dict[str, Any]:
    if matrix is None:
        return {"matrix": None}
    verdicts = Counter(one.verdict for one in matrix.found)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    alarms = sum(bool(one.exit_code) for one in matrix.clean)
    counts = f"{len(matrix.found)} faults: {counted or 'none'}."
    if matrix.clean:
        counts += f" {alarms} false alarms in {len(matrix.clean)} clean runs."
    return {
        "matrix": matrix,
        "counts": counts,
        "chart": raw(charts.caught(matrix, name="faults")) if matrix.found else "",
        "facts": [
            ("Started", matrix.started),
            ("Seconds", f"{matrix.seconds:.0f}"),
            ("sparkbuild", matrix.sparkbuild),
            ("Source", matrix.source),
            ("Catalogue", matrix.catalogue),
            *sorted(matrix.machine.items()),
        ],
    }


def _troubles(book: Book) -> str:
    newest = book.troubles[::-1]
    return page(
        "troubles.html",
        {
            **common(book, "troubles.html"),
            "open": [one for one in newest if one.closed is None],
            "closed": [one for one in newest if one.closed is not None],
        },
    )


def _night(book: Book, night: Night) -> str:
    runs = [run for run in book.runs if run.night == night.id]
    facts = [
        ("Began", night.started),
        ("Ended", night.ended or "it has not"),
        ("Base", night.base),
        ("Candidate", night.candidate or "none"),
        ("Plan", night.plan),
        *(("Published", one) for one in night.published),
        *(("Note", one) for one in night.notes),
    ]
    judgements: Sequence[tuple[Cell, Judgement]] = book.judgements.get(night.id, ())
    return page(
        "night.html",
        {
            **common(book, f"nights/{night.id}.html"),
            "night": night,
            "runs": runs,
            "failed": [run for run in runs if run.state != "passed"],
            "judgements": judgements,
            "facts": facts,
        },
    )


def _run(book: Book, run: Run) -> str:
    report = book.reports.get(run.id)
    facts = [
        ("Run", run.id),
        ("Began", run.started),
        ("Took", f"{run.seconds:.1f} s"),
        ("Exit code", "none" if run.exit_code is None else str(run.exit_code)),
        ("Base", run.base),
        ("Source", run.source),
        ("Build key", run.key),
        *sorted(run.machine.items()),
    ]
    return page(
        "run.html",
        {
            **common(book, f"runs/{run.id}.html"),
            "run": run,
            "report": report,
            "report_page": log_page(run.report) if run.report else "",
            "checks": [one for one in report.smoke_checks if not one.passed] if report else [],
            "bands": _bands(book, run),
            "matrix_run": book.matrix_run,
            "facts": [(name, text) for name, text in facts if text],
        },
    )


def _bands(book: Book, run: Run) -> dict[str, Band]:
    cell = (run.what, run.variant, run.toolchain)
    return {
        one.name: one.bands[run.base]
        for one in book.series
        if one.cell == cell and run.base in one.bands
    }
