"""What a night leaves behind: a record for each step, a run in the history, troubles as files."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.files import write_atomic
from sparkbuild.history.model import Blame, Run, Trouble, What
from sparkbuild.history.store import History, trouble_id
from sparkbuild.nightly.model import Kind, Outcome, Step
from sparkbuild.nightly.troubles import AGAIN, as_file, updated

_WHAT: Final[dict[Kind, What]] = {
    "make": "make", "smoke": "smoke", "faults": "faults", "patches": "patches",
    "refresh": "patches", "upstream": "patches", "publish": "make", "compare": "make",
}  # fmt: skip
_MOST: Final = 8 << 20
"""Bytes of a log that the history keeps; the end of a longer one."""

_FINAL: Final = frozenset({"passed", "failed", "timed out"})
"""A step that came to this is not run again when its night goes on."""


class Records:
    """The steps of one night, each in a file that is written when it ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, step: Step) -> Outcome | None:
        """What came of a step before this process; None where it was not run or is damaged."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            known = msgspec.json.decode(self._file(step).read_bytes(), type=Outcome)
            return known if known.step == step else None
        return None

    def final(self, step: Step) -> Outcome | None:
        """The same where it is not to be run again, and what it made is still there."""
        known = self.read(step)
        if known is None or known.state not in _FINAL:
            return None
        return None if known.wheel and not Path(known.wheel).is_file() else known

    def write(self, outcome: Outcome) -> None:
        """Keep what came of a step."""
        text = msgspec.json.format(msgspec.json.encode(outcome), indent=2)
        write_atomic(self._file(outcome.step), text)

    def _file(self, step: Step) -> Path:
        return self.folder / "steps" / f"{slug(step.id)}.json"


def slug(text: str) -> str:
    """A step's id as a name of a file and of a run."""
    return "".join(one if one.isalnum() or one in "._+-" else "_" for one in text)


def keep(history: History, night: str, outcome: Outcome, base: str) -> Run:
    """Write a step's run, its document and its logs to the history; again, it changes nothing."""
    name = f"{night}-{slug(outcome.step.id)}"
    before = [run for run in history.runs(night=night) if run.id.partition(AGAIN)[0] == name]
    for run in before:
        if (run.started, run.state) == (outcome.started, outcome.state):
            return run
    if before:
        name = f"{name}{AGAIN}{len(before)}"
    report, digest = "", ""
    if outcome.document and Path(outcome.document).is_file():
        report, digest = history.keep_report(name, Path(outcome.document))
    step = outcome.step
    run = Run(
        id=name,
        night=night,
        what=_WHAT[step.kind],
        role=step.role,
        variant=step.variant,
        toolchain=outcome.toolchain or step.toolkit,
        base=base,
        source=outcome.source,
        key=outcome.key,
        started=outcome.started,
        seconds=outcome.seconds,
        state=outcome.state,
        exit_code=outcome.exit_code,
        stage=outcome.stage or (step.kind if not outcome.passed else ""),
        check=outcome.check,
        message=_message(outcome),
        report=report,
        report_sha256=digest,
        evidence=_evidence(history, name, outcome),
        figures=outcome.figures,
        machine=outcome.machine,
    )
    history.add(run)
    return run


def _message(outcome: Outcome) -> str:
    if outcome.attempts == 1:
        return outcome.message
    same = outcome.first_message == outcome.message
    tried = "tried twice" if same else f"tried twice; the first time: {outcome.first_message}"
    return f"{outcome.message} ({tried})" if outcome.message else tried


def _evidence(history: History, run: str, outcome: Outcome) -> tuple[str, ...]:
    """The step's own log, and the logs that its document points to."""
    kept = []
    taken: set[str] = set()
    for place in (outcome.log, *outcome.evidence):
        file = Path(place)
        name = slug(file.name)
        if place and file.is_file() and name not in taken and name[0].isalnum():
            taken.add(name)
            kept.append(history.keep(run, name, _end(file))[0])
    return tuple(kept)


def _end(file: Path) -> bytes:
    with file.open("rb") as log:
        size = file.stat().st_size
        log.seek(max(0, size - _MOST))
        return log.read()


def keep_troubles(
    history: History, runs: Sequence[Run], *, night: str, blames: Mapping[str, Blame], now: str
) -> tuple[Trouble, ...]:
    """Open, update and close the records of faults; each is a file that a person can read, too."""
    changed = updated(history.troubles(), runs, night=night, blames=blames, now=now)
    evidence = {run.id: run.evidence for run in runs}
    for trouble in changed:
        file = history.root / "troubles" / f"{trouble_id(trouble.key)}.md"
        write_atomic(file, as_file(trouble, evidence))
        history.trouble(trouble)
    return changed
