"""What commands about canaries answer, as JSON and for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType

from sparkbuild.canary.audit.records import Probe
from sparkbuild.canary.audit.summary import Row, Summary
from sparkbuild.canary.catalogue import Canary
from sparkbuild.canary.forms import possible
from sparkbuild.canary.suite import load_suite
from sparkbuild.canary_work import Made
from sparkbuild.errors import SmokeError
from sparkbuild.report.canaries import Line, Result, Unnoticed, audit_view, plain_table

_DIGITS = 12
"""Of a digest that a person sees; JSON has it whole."""


def entry_facts(folder: Path, entry: Canary) -> dict[str, Any]:
    """What a canary is, and how much its suite asks."""
    suite, _ = load_suite(folder / entry.suite)
    return {
        "name": entry.name,
        "architecture": entry.architecture,
        "summary": entry.summary,
        "bytes": sum(file.bytes for file in entry.files),
        "forms": list(possible(entry)),
        "recorded": sorted(entry.forms),
        "vision": entry.vision is not None,
        "drafts": entry.drafts,
        "answers": len(suite.answers),
        "references": len(suite.references),
        "pytorch": msgspec.to_builtins(entry.pytorch),
    }


def list_screen(facts: Sequence[dict[str, Any]]) -> RenderableType:
    """The canaries in a table."""
    rows = [
        (
            fact["name"],
            fact["architecture"],
            f"{fact['bytes'] / 1e6:.1f} MB",
            "yes" if fact["vision"] else "no",
            "yes" if fact["drafts"] else "no",
            fact["answers"],
            fact["references"],
        )
        for fact in facts
    ]
    names = ("canary", "architecture", "size", "vision", "drafts", "answers", "references")
    return plain_table(names, rows)


def form_facts(made: Made) -> dict[str, Any]:
    """A derived form: where, how it stands to its record, types with their errors."""
    found = made.derived
    return {
        "form": found.form,
        "path": str(found.path),
        "sha256": found.sha256,
        "how": found.how,
        "seconds": made.seconds,
        "types": {
            kind: {"tensors": count, "nmse": found.content.errors.get(kind)}
            for kind, count in sorted(found.content.types.items())
        },
    }


def forms_screen(made: Sequence[Made]) -> RenderableType:
    """Forms and their types in a table: one line for each type, the form's own facts on its first.

    A form without a type that it changed has one line.
    """
    rows: list[tuple[object, ...]] = []
    for one in made:
        found = one.derived
        head = (found.form, found.how, f"{one.seconds:.1f} s", found.sha256[:_DIGITS])
        kinds = [
            (kind, str(count), f"{found.content.errors[kind]:.3g}")
            for kind, count in sorted(found.content.types.items())
        ] or [("", "", "")]
        rows += [(*(head if not at else ("",) * len(head)), *kind) for at, kind in enumerate(kinds)]
    return plain_table(("form", "how", "time", "sha256", "type", "tensors", "worst NMSE"), rows)


def passes_answer(results: Sequence[Result], code: int) -> dict[str, Any]:
    """Everything about every pass."""
    return {
        **_outcome(code),
        "canaries": [{**_plain(one), "passed": one.passed} for one in results],
    }


def _outcome(code: int) -> dict[str, Any]:
    return {"result": "failed" if code else "passed", "exit_code": code}


def worst_code(results: Sequence[Result]) -> int:
    """SmokeError's where an answer is wrong anywhere, else the first one that is not 0."""
    codes = [result.exit_code for result in results if result.exit_code]
    return SmokeError.exit_code if SmokeError.exit_code in codes else next(iter(codes), 0)


def audit_answer(name: str, summary: Summary, found: Sequence[Probe], code: int) -> dict[str, Any]:
    """An audit's sums and each of its perturbations."""
    return {
        **_outcome(code),
        "canary": name,
        "share": summary.total.share,
        "unexplained": summary.unexplained,
        "summary": _plain(summary),
        "probes": _plain(list(found)),
    }


def audit_screen(summary: Summary) -> RenderableType:
    """An audit in tables."""
    tables = [
        ("tensor or hyper-parameter", [_line(row) for row in summary.by_tensor]),
        ("kind of change", [_line(row) for row in summary.by_kind]),
    ]
    unnoticed = [
        Unnoticed(
            name=f"{one.probe.target} {one.probe.kind}",
            detail=one.probe.detail,
            nmse=one.probe.worst,
            counts=one.alters,
            reason=one.reason,
        )
        for one in summary.unnoticed
    ]
    return audit_view(_line(summary.total), tables, unnoticed)


def _line(row: Row) -> Line:
    return msgspec.convert(row, Line, from_attributes=True)


def _plain(value: object) -> Any:
    """For JSON, in which a number that is none is null."""
    return msgspec.json.decode(msgspec.json.encode(value))
