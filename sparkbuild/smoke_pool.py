"""Units of a smoke plan, as many at the same time as there are processes for them."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

import psutil

from sparkbuild import process
from sparkbuild.build.jobs import usable_cores
from sparkbuild.canary.catalogue import Canary
from sparkbuild.canary.gguf.derive import Form
from sparkbuild.canary_desk import Desk
from sparkbuild.canary_work import missed_in, run_canary
from sparkbuild.errors import HostError
from sparkbuild.report.canaries import Result
from sparkbuild.report.model import StageReport
from sparkbuild.stages import Observer

_MOST: Final = 8
"""Servers at once; a plan's longest unit takes as long as a tenth of all together."""
_ROOM: Final = 2 << 30
"""Bytes of memory for each: of the largest canary in float32 a server takes 0.9 GiB."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What one process does at a stretch: forms of a canary, or its drafts.

    ``part`` is the index of the plan's part that the result belongs to. ``desk`` says how.
    """

    part: int
    desk: Desk
    entry: Canary
    forms: tuple[Form, ...] = ()
    drafts: bool = False
    """These come after all forms of the same part: what they miss is not asked again."""

    @property
    def name(self) -> str:
        """For a person."""
        return self.desk.named(self.entry, " ".join(self.forms) or "drafts")


def processes() -> int:
    """How many servers this machine runs at once: one for each core that there is memory for.

    On a GPU too: a canary's time is that of its many small requests.
    """
    room = psutil.virtual_memory().available // _ROOM
    return max(1, min(int(usable_cores()), room, _MOST))


def worked(
    units: Sequence[Unit], *, at_once: int, live: Observer
) -> Generator[tuple[Unit, Result]]:
    """Each unit with its result, as they end.

    With one at a time all is done in this process. Whoever wants no more closes the iterator: what
    still runs is ended then. Only the main thread may call this. Raises what is no finding about a
    build: SmokeError short of memory, DiskFullError, HostError.
    """
    if at_once == 1 or len(units) == 1:
        ran: dict[int, list[Result]] = {}
        for unit in sorted(units, key=lambda unit: (unit.part, unit.drafts)):
            before = ran.setdefault(unit.part, [])
            result = _work(replace(unit, desk=replace(unit.desk, live=live)), _missed(before))
            before.append(result)
            yield unit, result
        return
    yield from _pooled(units, at_once, live)


def _pooled(units: Sequence[Unit], at_once: int, live: Observer) -> Generator[tuple[Unit, Result]]:
    waiting, ended = list(units), dict[int, list[Result]]()
    running: dict[Future[_Done], Unit] = {}
    with ExitStack() as stack:
        # Fresh processes: a copy of this one would take along its threads' locks.
        pool = ProcessPoolExecutor(
            at_once,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=process.end_with_parent,
        )
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        stack.push(_ended_when_unwanted)
        while waiting or running:
            for unit in _ready(waiting, running.values())[: at_once - len(running)]:
                waiting.remove(unit)
                kept = replace(unit, desk=replace(unit.desk, live=_Kept()))
                running[pool.submit(_worked, kept, _missed(ended.get(unit.part, ())))] = unit
            live.started(", ".join(unit.name for unit in running.values()))
            live.progress(len(units) - len(waiting) - len(running), len(units), "")
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                unit = running.pop(future)
                done = _ended(future, unit)
                for note in done.told.notes:
                    live.note(note)
                for report in done.told.reports:
                    live.finished(report)
                ended.setdefault(unit.part, []).append(done.result)
                yield unit, done.result


def _ended_when_unwanted(kind: type[BaseException] | None, *_: object) -> None:
    """End the pool's processes and their servers where nobody wants their results.

    A server that is busy may take its time over the TERM that its parent's end sends it. A process
    is halted first, so that it starts no other while those that it has are counted.
    """
    for child in multiprocessing.active_children() if kind else ():
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(child.pid or 0)
            parent.suspend()
            servers = parent.children(recursive=True)
            parent.kill()
            for server in servers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    server.kill()


def _ended(future: Future[_Done], unit: Unit) -> _Done:
    """What a unit gave. Raises HostError where its process was ended from outside."""
    try:
        return future.result()
    except BrokenExecutor as error:
        raise HostError(
            f"a process ended while {unit.name} and others were asked",
            problems=["it was killed; the kernel does so where memory runs out"],
            next_step="run the same command again, with --processes 1 if it happens again",
        ) from error


def _ready(waiting: Iterable[Unit], running: Iterable[Unit]) -> list[Unit]:
    """Units that nothing has to be known for that others have still to find out."""
    waiting = list(waiting)
    open_parts = {unit.part for unit in (*waiting, *running) if unit.forms}
    return [unit for unit in waiting if not (unit.drafts and unit.part in open_parts)]


def _missed(before: Sequence[Result]) -> frozenset[str]:
    return frozenset().union(*(missed_in(result.ran) for result in before))


@dataclass(kw_only=True)
class _Kept:
    """What a process would have shown, for the one that has the screen."""

    reports: list[StageReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def started(self, stage: str) -> None:
        """See Observer."""

    def progress(self, done: int, total: int, text: str) -> None:
        """See Observer."""

    def note(self, text: str) -> None:
        """See Observer."""
        self.notes.append(text)

    def finished(self, report: StageReport) -> None:
        """See Observer."""
        self.reports.append(report)


@dataclass(frozen=True, kw_only=True)
class _Done:
    result: Result
    told: _Kept


def _worked(unit: Unit, missed: frozenset[str]) -> _Done:
    """What a process of the pool does; its desk keeps what it would have shown."""
    result = _work(unit, missed)
    told = unit.desk.live
    assert isinstance(told, _Kept)  # noqa: S101 - _pooled has put it there
    return _Done(result=result, told=told)


def _work(unit: Unit, missed: frozenset[str]) -> Result:
    return run_canary(unit.desk, unit.entry, unit.forms, drafts=unit.drafts, missed=missed)
