"""Find the base that brought a change: prepare a point, ask it, keep the answer, narrow down."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkbuild import process
from sparkbuild.bisect_ground import Point
from sparkbuild.errors import BisectError, HostError
from sparkbuild.files import digest_of, exclusive, sha256_file, write_atomic
from sparkbuild.nightly.search import Range, Verdict, narrowed, next_point, steps_left
from sparkbuild.patch_build import Kept
from sparkbuild.patch_work import Desk, applied_commit, check_on
from sparkbuild.source.write_tree import renew

SKIP: Final = 125
"""A program's exit status for what cannot be tested, as with git's own bisect."""

_LAST_BAD: Final = 125
"""Above it a shell speaks (126, 127) or a signal: no verdict."""

_HOLD: Final = frozenset({"applies", "applies with offset", "already upstream"})
_POLL: Final = 0.05


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a point came to. ``reason`` says why it was skipped, or what was wrong with it.

    ``check`` is the first failing check, ``log`` all that was printed, ``report`` a JSON document.
    """

    point: str
    title: str = ""
    verdict: Verdict
    reason: str = ""
    check: str = ""
    commit: str = ""
    seconds: float = 0.0
    log: str = ""
    report: str = ""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a search: one culprit, or the smallest range that could be had."""

    good: Answer
    bad: Answer
    culprit: str
    """Empty where a range is left."""
    suspects: tuple[str, ...]
    asked: tuple[Answer, ...]
    points: int


Ask = Callable[[Point, Path], Answer]
"""Asks one point; the folder is for its log and report."""


@dataclass(frozen=True, kw_only=True)
class Quest:
    """One search: its row of points, what is asked of each, and where answers are kept."""

    points: tuple[Point, ...]
    ask: Ask
    folder: Path
    note: Callable[[str], None]


def search(quest: Quest) -> Found:
    """Ask both ends, then points between them, until the range can be made no smaller.

    Answers are kept: a search that was stopped goes on. Raises BisectError where an end is not
    what it was said to be, BusyError where another process runs the same search.
    """
    with exclusive(quest.folder / "lock", what="this search"):
        known: dict[int, Answer] = {}
        last = len(quest.points) - 1
        for number, wanted in ((0, "good"), (last, "bad")):
            known[number] = _asked(quest, number)
            if known[number].verdict != wanted:
                raise _not_so(known[number], wanted)
        while (middle := next_point(_verdicts(known))) is not None:
            left = steps_left(_verdicts(known))
            quest.note(f"{quest.points[middle].name}: about {left} more points to ask")
            known[middle] = _asked(quest, middle)
        return _found(quest, known, narrowed(_verdicts(known)))


def _verdicts(known: Mapping[int, Answer]) -> dict[int, Verdict]:
    return {number: answer.verdict for number, answer in known.items()}


def _asked(quest: Quest, number: int) -> Answer:
    point = quest.points[number]
    place = quest.folder / "points" / point.name
    record = place / "answer.json"
    try:
        answer = msgspec.json.decode(record.read_bytes(), type=Answer)
    except (OSError, msgspec.DecodeError):
        place.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        answer = quest.ask(point, place)
        seconds = round(time.monotonic() - started, 3)
        answer = msgspec.structs.replace(
            answer, point=point.name, title=point.title, seconds=seconds
        )
        write_atomic(record, msgspec.json.format(msgspec.json.encode(answer), indent=2))
    quest.note(f"{point.name} {point.title}".strip() + f": {answer.verdict}"
               + (f" ({answer.reason})" if answer.reason else ""))  # fmt: skip
    return answer


def _found(quest: Quest, known: Mapping[int, Answer], here: Range) -> Found:
    names = [quest.points[number].name for number in here.suspects]
    return Found(
        good=known[here.good],
        bad=known[here.bad],
        culprit=names[0] if here.found else "",
        suspects=tuple(names),
        asked=tuple(known[number] for number in sorted(known)),
        points=len(quest.points),
    )


def _not_so(answer: Answer, wanted: str) -> BisectError:
    return BisectError(
        f"{answer.point} was said to be {wanted}, and is {answer.verdict}",
        problems=[answer.reason] if answer.reason else [],
        evidence=[Path(path) for path in (answer.log, answer.report) if path],
        next_step="name other ends, or another check; this end's answer is kept until "
        "--fresh is given",
    )


@dataclass(frozen=True, kw_only=True)
class Trees:
    """Makes the tree of a point: with the variant's patches where they hold, or none at all."""

    desk: Desk
    folder: Path

    def commit(self, point: Point) -> tuple[str, str]:
        """The commit of the store, or empty with the reason why there is none."""
        found, base = check_on(self.desk, point.ref)
        bad = [one for one in found.patches if one.state not in _HOLD]
        if bad:
            why = "".join(f" ({text})" for text in bad[0].problems[:1])
            return "", f"{bad[0].file} {bad[0].state}{why}: the patched tree cannot be had"
        if not found.patches:
            return base.source.commit, ""
        return applied_commit(self.desk, found, base), ""

    def source(self, commit: str) -> Path:
        """The folder with a commit's tree; only what differs from the last one is written."""
        place = self.folder / "source"
        renew(self.desk.store, commit, place)
        return place


def by_source(trees: Trees, program: Path, minutes: float) -> Ask:
    """Ask a program that is given the folder with the source tree; nothing is compiled."""

    def ask(point: Point, place: Path) -> Answer:
        commit, why = trees.commit(point)
        if not commit:
            return Answer(point=point.name, verdict="skip", reason=why)
        return _program(program, trees.source(commit), place, minutes, point, commit)

    return ask


def by_build(trees: Trees, kept: Kept, program: Path | None, minutes: float) -> Ask:
    """Build a point for the CPU and ask a program that is given the build's folder.

    Without a program the build itself is the check.
    """

    def ask(point: Point, place: Path) -> Answer:
        commit, why = trees.commit(point)
        if not commit:
            return Answer(point=point.name, verdict="skip", reason=why)
        log = place / "build.log"
        log.unlink(missing_ok=True)
        made = kept.build(trees.desk.store, commit, log)
        if program is not None and made.passed:
            return _program(program, Path(made.directory), place, minutes, point, commit)
        verdict: Verdict = "good" if made.passed else "skip" if program else "bad"
        return Answer(
            point=point.name,
            verdict=verdict,
            reason="" if made.passed else f"it does not build: {made.summary}",
            check="" if made.passed else "build",
            commit=commit,
            log=made.log,
        )

    return ask


def _program(
    program: Path, subject: Path, place: Path, minutes: float, point: Point, commit: str
) -> Answer:
    """Run a person's program and read its exit status: 0 good, 125 skip, others to 125 bad."""
    log = place / "check.log"
    child = process.start([str(program), str(subject)], log=log, env=process.environment())
    deadline = time.monotonic() + minutes * 60
    try:
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL)
    finally:
        ended = child.poll()
        if ended is None:
            process.stop_session(child)
    answer = Answer(point=point.name, verdict="good", commit=commit, log=str(log))
    replaced = msgspec.structs.replace
    if ended is None:
        return replaced(answer, verdict="skip", reason=f"no end within {minutes:g} minutes")
    if ended == 0:
        return answer
    if ended == SKIP:
        return replaced(answer, verdict="skip", reason=_tail(log))
    if 0 < ended < _LAST_BAD:
        return replaced(answer, verdict="bad", reason=_tail(log), check=program.name)
    raise HostError(
        f"{program} gave no verdict on {point.name}: "
        + (f"signal {signal.Signals(-ended).name}" if ended < 0 else f"exit status {ended}"),
        problems=["expected 0 (good), 1 to 124 (bad) or 125 (cannot be tested)"],
        evidence=[log],
        next_step="mend the program; the same command then goes on",
    )


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:200] if len(lines) > 1 else ""


def key_of(facts: Mapping[str, Any], program: Path | None) -> str:
    """What makes two searches the same one: points, check, and the bytes of its program."""
    content = sha256_file(program) if program is not None else ""
    return digest_of({**facts, "program": content})[:16]


def forget(folder: Path) -> None:
    """Take away the answers of an earlier search: ``--fresh``."""
    shutil.rmtree(folder / "points", ignore_errors=True)


def runnable(program: Path) -> Path:
    """A program that can be started. Raises HostError."""
    found = program.absolute()
    if not found.is_file() or not os.access(found, os.X_OK):
        raise HostError(
            f"{program} is no program that can be started",
            next_step=f"chmod +x {program}, and let it begin with #! and its interpreter",
        )
    return found
