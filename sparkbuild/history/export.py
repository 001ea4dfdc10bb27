"""The history as other programs read it: JSON with everything, CSV with a row for each figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sparkbuild.history.model import Night, Run, Trouble

COLUMNS: Final = (
    "run", "night", "what", "role", "variant", "toolchain", "base", "started", "state", "exit_code",
    "seconds", "figure", "restart", "value", "unit",
)  # fmt: skip


def as_document(
    runs: Sequence[Run], nights: Sequence[Night], troubles: Sequence[Trouble]
) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "runs": msgspec.to_builtins(list(runs)),
        "nights": msgspec.to_builtins(list(nights)),
        "troubles": msgspec.to_builtins(list(troubles)),
    }


def as_csv(runs: Sequence[Run]) -> str:
    """A row for each figure of each run; one with empty cells for a run without figures."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for run in runs:
        common = (run.id, run.night or "", run.what, run.role, run.variant, run.toolchain, run.base,
                  run.started, run.state, "" if run.exit_code is None else run.exit_code,
                  run.seconds)  # fmt: skip
        for one in run.figures:
            table.writerow((*common, one.name, one.restart, one.value, one.unit))
        if not run.figures:
            table.writerow((*common, "", "", "", ""))
    return out.getvalue()
