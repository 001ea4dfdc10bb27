"""What a person reads of the logs of a canary's servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import RenderableType

from sparkbuild.canary.model import CanaryReport, DraftCheck
from sparkbuild.llama.log import Seen
from sparkbuild.report.ink import Ink, item


def log_remarks(
    ran: Sequence[CanaryReport],
    drafts: Sequence[DraftCheck],
    severity: Literal["fault", "warning"],
    ink: Ink,
) -> Iterator[RenderableType]:
    """Every kind of one severity once: where it is seen first, and in how many other logs."""
    logs = [(one.form, one.log) for one in ran]
    logs += [(f"drafts of {one.depth}, {one.head} head", one.log) for one in drafts if one.log]
    sign, style = ("-", "bold red") if severity == "fault" else ("!", "yellow")
    found: dict[str, list[tuple[str, Seen]]] = {}
    for name, log in logs:
        for seen in log.of(severity):
            found.setdefault(seen.kind, []).append((name, seen))
    for (first, seen), *others in found.values():
        more = f" and {len(others)} more" if others else ""
        yield item(sign, ink.text(f"log of {first}{more}: {seen}"), style)
    if severity == "fault":
        for name, log in logs:
            if not log.lines:
                yield item(sign, ink.text(f"log of {name}: the server wrote nothing"), style)
