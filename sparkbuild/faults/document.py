"""The matrix as other programs read it: JSON, its version and its schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkbuild.faults.model import Fault, Matrix

SCHEMA_FILE: Final = Path(__file__).parent.parent / "report" / "schema" / "faults-1.json"
"""Checked in, so that other programs can rely on it; a test compares it with ``schema_text``."""
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class Document(Matrix, frozen=True, kw_only=True):
    """What ``faults run --json`` prints, version 1."""

    schema: int = 1
    result: str
    exit_code: int
    problems: tuple[str, ...]


def problems(matrix: Matrix, faults: Sequence[Fault]) -> tuple[str, ...]:
    """Why a run is not well; a fault that this machine lacks something for is no reason."""
    needs = {fault.id for fault in faults if fault.needs}
    found = [
        f"{one.id}: {one.verdict}{f', {one.reason}' if one.reason else ''}"
        for one in matrix.found
        if one.verdict != "caught" and not (one.verdict == "not run" and one.id in needs)
    ]
    found += [
        f"false alarm, exit code {one.exit_code}: {one.message.partition(chr(10))[0]}"
        for one in matrix.clean
        if one.exit_code
    ]
    if not matrix.found and not matrix.clean:
        found.append("nothing was run: no fault of the catalogue is what was asked for")
    return tuple(found)


def document(matrix: Matrix, wrong: Sequence[str], code: int) -> dict[str, Any]:
    """Everything, for ``--json``."""
    plain: dict[str, Any] = msgspec.to_builtins(matrix)
    result = "failed" if wrong else "passed"
    return {"result": result, "exit_code": code, "problems": list(wrong), **plain}


def schema_text() -> str:
    """The JSON schema of version 1, generated from the model."""
    schema = {
        "$schema": _DIALECT, "title": "sparkbuild faults, version 1",
        **msgspec.json.schema(Document),
    }  # fmt: skip
    text = msgspec.json.format(msgspec.json.encode(schema, order="deterministic"), indent=2)
    return text.decode("utf-8") + "\n"
