"""A search in the history: what was found, its document, the logs of both sides."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

from sparkbuild.bisect_work import Found
from sparkbuild.history.model import Run
from sparkbuild.history.store import History


def keep(
    root: Path, found: Found, document: dict[str, Any], *, variant: str, toolkit: str, check: str
) -> Run:
    """Write a finished search below ``root`` as a run by hand; ``check`` is what was asked."""
    history = History(root)
    now = dt.datetime.now(dt.UTC)
    name = f"bisect-{now:%Y%m%dT%H%M%S}-{now.microsecond:06}"
    report, digest = history.keep_report(name, json.dumps(document, indent=2).encode())
    evidence = [
        history.keep(name, f"{side}-{Path(place).name}", Path(place))[0]
        for side, answer in (("good", found.good), ("bad", found.bad))
        for place in (answer.log, answer.report)
        if place and Path(place).is_file()
    ]
    run = Run(
        id=name,
        night=None,
        what="bisect",
        role="by hand",
        variant=variant,
        toolchain=toolkit,
        base=found.bad.point,
        source=found.bad.commit,
        key="",
        started=now.isoformat(timespec="seconds"),
        seconds=sum(one.seconds for one in found.asked),
        state="passed",
        exit_code=0,
        check=check,
        message=told(found),
        report=report,
        report_sha256=digest,
        evidence=tuple(evidence),
    )
    history.add(run)
    return run


def told(found: Found) -> str:
    """The end of a search on one line."""
    if found.culprit:
        return f"{found.culprit} {found.bad.title}".strip() + " is the first bad one"
    return f"one of these brought it: {', '.join(found.suspects)}"
