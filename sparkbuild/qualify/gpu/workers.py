"""Processes that hold the GPU: one that a kernel spoiled, or that hangs, is ended and replaced."""

from __future__ import annotations

import functools
import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, TypeAlias

from sparkbuild import process
from sparkbuild.errors import GpuError, InternalError
from sparkbuild.qualify.bench import Order
from sparkbuild.qualify.gpu.assemble import Assembled
from sparkbuild.qualify.gpu.driver import DriverError, Opener
from sparkbuild.qualify.gpu.judging import Subject, judge_on, lost
from sparkbuild.qualify.gpu.running import Gpu
from sparkbuild.qualify.model import Mistake, Probed
from sparkbuild.qualify.probes.model import Probe
from sparkbuild.qualify.ptx.read import read_module

LAUNCH_LIMIT: Final = 20.0
"""Seconds for one launch: the probes are small, and a second is long for a GPU."""
_GRACE: Final = 5.0
"""Seconds for a process to end by itself: killed in the middle of CUDA work it may leak memory."""
_POLL: Final = 0.25

Job: TypeAlias = tuple[Probe, Assembled]
_Spawned = multiprocessing.process.BaseProcess


@dataclass(frozen=True)
class _Begun:
    """A launch began (``on``) or ended."""

    on: bool
    case: str


@dataclass(frozen=True)
class _Done:
    """A verdict; ``spent`` where the process can do no more on the device."""

    probed: Probed
    spent: bool


@dataclass(frozen=True)
class _Failed:
    """The process cannot go on: no device (``ours`` is False), or a defect of sparkbuild."""

    text: str
    ours: bool


@dataclass(kw_only=True)
class _Worker:
    """One process and what it is at."""

    process: _Spawned
    pipe: Connection
    job: Job | None = None
    case: str = ""
    launched: float | None = None


@dataclass(kw_only=True)
class Workers:
    """``at_once`` processes, each with a context of its own on the device."""

    order: Order
    opener: Opener
    at_once: int
    limit: float = LAUNCH_LIMIT
    _held: list[_Worker] = field(default_factory=list)

    def judged(self, jobs: Sequence[Job]) -> Iterator[Probed]:
        """Every job's verdict as it comes. Only the main thread may call this.

        Raises GpuError where the device cannot be opened or fails for a reason that is no kernel's.
        """
        waiting = list(jobs)
        try:
            while waiting or any(one.job for one in self._held):
                self._feed(waiting)
                for pipe in wait([one.pipe for one in self._held], timeout=_POLL):
                    worker = next(one for one in self._held if one.pipe is pipe)
                    yield from self._heard(worker)
                yield from self._overdue()
        finally:
            for worker in list(self._held):
                self._end(worker, gentle=worker.job is None)

    def _feed(self, waiting: list[Job]) -> None:
        """Give idle processes work, and start those that are missing."""
        for worker in self._held:
            if waiting and worker.job is None:
                worker.job = waiting.pop(0)
                worker.pipe.send((worker.job[0].name, worker.job[1]))
        while waiting and len(self._held) < self.at_once:
            worker = self._start()
            worker.job = waiting.pop(0)
            worker.pipe.send((worker.job[0].name, worker.job[1]))

    def _start(self) -> _Worker:
        """A fresh process: a copy of this one would take along its threads' locks."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        made = context.Process(target=_serve, args=(there, self.order, self.opener), daemon=True)
        made.start()
        there.close()
        worker = _Worker(process=made, pipe=here)
        self._held.append(worker)
        return worker

    def _heard(self, worker: _Worker) -> Iterator[Probed]:
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._died(worker)
            return
        match said:
            case _Begun(on=on, case=case):
                worker.launched, worker.case = (time.monotonic() if on else None), case
            case _Done(probed=probed, spent=spent):
                worker.job = worker.launched = None
                if spent:
                    self._end(worker, gentle=True)
                yield probed
            case _Failed(text=text, ours=ours):
                raise _failure(text, ours=ours)

    def _died(self, worker: _Worker) -> Iterator[Probed]:
        """The process is gone: nobody knows whose fault that was."""
        job, case = worker.job, worker.case
        self._end(worker, gentle=True)
        if job:
            code = worker.process.exitcode
            reason = f"{case}: " if case else ""
            yield lost(*job, f"{reason}the process that held the GPU ended with status {code}")

    def _overdue(self) -> Iterator[Probed]:
        """A kernel that does not end is wrong; only the end of its process ends it."""
        for worker in list(self._held):
            if worker.job and worker.launched is not None:
                seconds = time.monotonic() - worker.launched
                if seconds > self.limit:
                    job, case = worker.job, worker.case
                    self._end(worker, gentle=False)
                    text = f"no end within {self.limit:g} seconds on the GPU"
                    yield lost(*job, "", Mistake(case=case, kind="endless", text=text))

    def _end(self, worker: _Worker, *, gentle: bool) -> None:
        """End a process: by itself where it only waits for work, else by a signal."""
        if worker in self._held:
            self._held.remove(worker)
        with suppress(OSError, ValueError):
            worker.pipe.close()
        if not gentle:
            worker.process.terminate()
        worker.process.join(_GRACE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _failure(text: str, *, ours: bool) -> Exception:
    if ours:
        return InternalError("judging on the GPU failed", detail=text)
    return GpuError(
        "the GPU cannot be worked with",
        problems=[text],
        next_step="look at nvidia-smi, then run the same command again",
    )


def _serve(pipe: Connection, order: Order, opener: Opener) -> None:
    """What a process does: it judges what it is sent until the pipe is closed or it is spent."""
    process.end_with_parent()
    try:
        gpu = Gpu(opener.open())
        while not gpu.spent:
            name, unit = pipe.recv()
            probe = next(one for one in order.catalogue().probes if one.name == name)
            probed = judge_on(
                gpu,
                probe,
                _subject(unit.ptx, unit.cubin, unit),
                begun=lambda on, case: pipe.send(_Begun(on, case)),
            )
            pipe.send(_Done(probed, gpu.spent))
    except EOFError:
        pass  # nothing more is to be done
    except (GpuError, DriverError) as error:
        pipe.send(_Failed("; ".join([str(error), *getattr(error, "problems", ())]), ours=False))
    except Exception:  # noqa: BLE001  told to the parent, which raises
        pipe.send(_Failed(traceback.format_exc(), ours=True))


@functools.lru_cache(maxsize=2)
def _cached(ptx: str, cubin: str, sha256: str) -> tuple[Any, bytes]:
    del sha256  # tells a file made anew from an older one
    module = read_module(Path(ptx).read_text(encoding="utf-8"))
    return module, Path(cubin).read_bytes() if cubin else b""


def _subject(ptx: str, cubin: str, unit: Assembled) -> Subject:
    module, image = _cached(ptx, cubin, unit.cubin_sha256 or unit.ptx_sha256)
    return Subject(unit=unit, module=module, image=image)
