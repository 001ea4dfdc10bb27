"""A run over the catalogue: the clean product, lanes for changed builds, faults side by side."""

from __future__ import annotations

import multiprocessing
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from sparkbuild import __version__, process
from sparkbuild.build.jobs import GIB, available_memory, usable_cores
from sparkbuild.errors import HostError
from sparkbuild.faults.catalogue import Faults, on_gpu
from sparkbuild.faults.contract import Place
from sparkbuild.faults.kept import Kept, code_digest, text_digest
from sparkbuild.faults.lane import find_lane, put_back
from sparkbuild.faults.model import Clean, Fault, Found, Matrix, SourceSeed
from sparkbuild.faults.verdict import refusal
from sparkbuild.faults_cuda import architecture, build_name, cuda_build, find_cuda
from sparkbuild.faults_one import Task, not_run, product, run_fault
from sparkbuild.files import exclusive
from sparkbuild.manifest import find_recipes
from sparkbuild.report.machine import machine_facts
from sparkbuild.report.model import StageReport
from sparkbuild.stages import Observer
from sparkbuild.workspace import Workspace

VARIANT: Final = "vision"
_MAKE: Final = ("make", "--variant", VARIANT)
_CORES: Final = 2
"""For each lane: a change compiles one or two files, and then as many servers are asked."""
_ROOM: Final = 4 * GIB
"""Bytes of memory for each: two servers at once, or two compilers."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be run, and how."""

    faults: Faults
    chosen: Sequence[Fault]
    workspace: Workspace
    lanes: int
    clean: int = 0
    toolkit: str | None = None
    """Of the CUDA build that faults in CUDA code are planted beside."""
    fresh: bool = False
    """Nothing that is kept of earlier runs is believed."""

    cuda: Path | None = None
    """CMake's folder of that build, once it is there."""

    @property
    def root(self) -> Path:
        """All that a run makes."""
        return self.workspace.root / "faults"

    @property
    def jobs(self) -> int:
        """Cores for each lane."""
        return max(1, int(usable_cores()) // self.lanes)

    def lane(self, number: int) -> Path:
        """A work folder for changed builds."""
        return self.root / f"lane-{number}"


def lanes_here() -> int:
    """How many lanes this machine has cores and memory for."""
    return max(1, min(int(usable_cores()) // _CORES, available_memory() // _ROOM))


def run_faults(order: Order, live: Observer) -> Matrix:
    """Every chosen fault with what became of it, then clean runs; goes on where one was stopped.

    Only the main thread may call this. Raises what the clean product is refused for, BusyError
    while another run has the same work folder.
    """
    started, begun = time.monotonic(), datetime.now(UTC)
    source = find_recipes(None).patchset(VARIANT)[0].source.digest or ""
    with exclusive(order.root / "lock", what="the fault matrix"):
        kept = Kept(
            folder=order.root / "results",
            catalogue=order.faults.folder,
            around={"sparkbuild": code_digest(), "source": source, "compiler": _compiler()},
            cuda=build_name(find_cuda(order.workspace, order.toolkit, architecture())),
        )
        found = _known(order, kept)
        if found:
            live.finished(_line("kept", "reused", 0.0, f"{len(found)} known, or not for here"))
        left = [fault for fault in order.chosen if fault.id not in found]
        _make_clean(order, left, live)
        cuda = _make_cuda(order, left, live)
        kept = replace(kept, cuda=build_name(cuda))
        for one in _ran(replace(order, cuda=cuda), left, kept, live):
            found[one.id] = one
        clean = tuple(_clean_runs(order, live))
    return Matrix(
        sparkbuild=__version__,
        source=source,
        machine=machine_facts(),
        catalogue=order.faults.digest,
        started=begun.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 3),
        found=tuple(found[fault.id] for fault in order.chosen),
        clean=clean,
    )


def _known(order: Order, kept: Kept) -> dict[str, Found]:
    """What need not be run: kept results, and faults that this machine lacks something for."""
    found: dict[str, Found] = {}
    for fault in order.chosen:
        lacking = [need for need in fault.needs if not _has(order.workspace, need)]
        known = None if order.fresh else kept.read(fault)
        if lacking:
            found[fault.id] = not_run(fault, f"this machine has no {', '.join(lacking)}")
        elif known:
            found[fault.id] = known
    return found


def _has(workspace: Workspace, need: str) -> bool:
    if need == "gpu":
        return Path("/dev/nvidiactl").exists()
    return any((workspace.toolkits / name).is_dir() for name in (need, f"{need}.compilers"))


def _compiler() -> str:
    """Digest of what the host compiler calls itself, on which processor: GGML_NATIVE is on."""
    told = process.capture(["c++", "--version"], env=process.environment()).stdout
    return text_digest(f"{told}{platform.machine()}{machine_facts()['cpu']}")


def _make_clean(order: Order, left: Sequence[Fault], live: Observer) -> None:
    """``sparkbuild make`` of the clean product where a fault needs it, then of every lane."""
    gpu = [fault for fault in left if on_gpu(fault)]
    laned = [fault for fault in left if isinstance(fault.seed, SourceSeed) and fault not in gpu]
    if order.clean or len(laned) + len(gpu) < len(left):
        _make(order, order.workspace.root, "clean product", live)
    for number in range(1, 1 + (order.lanes if laned else 0)):
        lane = order.lane(number)
        if find_lane(lane) is None:
            _lend(order.workspace, lane)
            _make(order, lane, f"lane {number}", live)
        built = find_lane(lane)
        if built is None:
            raise HostError(f"{lane} holds no build after sparkbuild make", evidence=[lane])
        put_back(built)


def _make_cuda(order: Order, left: Sequence[Fault], live: Observer) -> Path | None:
    """CMake's folder of a CUDA build for this GPU, made where a fault needs it and none is here."""
    if not any(on_gpu(fault) for fault in left):
        return None
    root = order.workspace.root
    return cuda_build(
        order.workspace,
        order.toolkit,
        lambda how: _make(order, root, "clean CUDA build", live, how),
    )


def _lend(workspace: Workspace, lane: Path) -> None:
    """Give a lane the pinned source that is here: it is checked by digest as any other."""
    if workspace.store.is_dir() and not (lane / "store.git").exists():
        part = lane / "store.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(workspace.store, part)
        part.rename(lane / "store.git")


def _make(
    order: Order, work: Path, name: str, live: Observer, how: tuple[str, ...] = ("--toolkit", "cpu")
) -> None:
    log = order.root / "logs" / f"make-{name.replace(' ', '-')}.log"
    live.started(name)
    started = time.monotonic()
    place = ("--work", str(work), "--out", str(order.root / "out" / work.name))
    ending = product((*_MAKE, *how, *place), log=log)
    seconds = time.monotonic() - started
    if ending.exit_code:
        live.finished(_line(name, "failed", seconds, f"exit code {ending.exit_code}"))
        raise HostError(
            f"sparkbuild make of the {name} ended with exit code {ending.exit_code}",
            evidence=[log],
            detail=ending.stderr[-2000:],
            next_step="mend that first: faults are planted in a product that is well",
        )
    live.finished(_line(name, "done", seconds, "made, or as it was made before"))


def _ran(order: Order, left: Sequence[Fault], kept: Kept, live: Observer) -> Iterator[Found]:
    """Each fault that is left, in one of the lanes; those that are quickly caught come first."""
    waiting = sorted(left, key=lambda fault: not fault.fast)
    keys = {fault.id: kept.key(fault) for fault in waiting}
    faults = {fault.id: fault for fault in waiting}
    for done, one in enumerate(_worked(order, waiting, live), start=1):
        kept.write(faults[one.id], keys[one.id], one)
        live.finished(_told(one))
        live.started("faults")
        live.progress(done, len(waiting), one.id)
        yield one
    if waiting:
        live.finished(_line("faults", "done", 0.0, f"{len(waiting)} run"))


def _worked(order: Order, waiting: Sequence[Fault], live: Observer) -> Iterator[Found]:
    """Faults in lanes first, then those that are compiled beside the CUDA build."""
    live.started("faults")
    live.progress(0, len(waiting), waiting[0].id if waiting else "")
    for gpu in (False, True):
        yield from _side_by_side(order, [one for one in waiting if on_gpu(one) == gpu])


def _side_by_side(order: Order, waiting: Sequence[Fault]) -> Iterator[Found]:
    if order.lanes == 1 or len(waiting) < 2:
        yield from (run_fault(_task(order, fault, 1)) for fault in waiting)
        return
    left, free = list(waiting), list(range(1, order.lanes + 1))
    running: dict[Future[Found], int] = {}
    pool = ProcessPoolExecutor(
        order.lanes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=process.end_with_parent,
    )
    try:
        while left or running:
            while left and free:
                lane = free.pop(0)
                running[pool.submit(run_fault, _task(order, left.pop(0), lane))] = lane
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                free.append(running.pop(future))
                yield future.result()
    except BrokenExecutor as error:
        raise HostError(
            "a process ended while faults were run",
            problems=["it was killed; the kernel does so where memory runs out"],
            next_step="run the same command again, with --lanes 1 if it happens again",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _task(order: Order, fault: Fault, lane: int) -> Task:
    log = order.root / "logs" / f"{fault.id}.log"
    planting = log.with_name(f"{fault.id}-planting.log")
    planting.unlink(missing_ok=True)
    return Task(
        fault=fault,
        log=log,
        place=Place(
            scratch=order.root / f"scratch-{lane}",
            catalogue=order.faults.folder,
            work=order.workspace.root,
            lane=order.lane(lane),
            log=planting,
            jobs=order.jobs,
            cuda=order.cuda if on_gpu(fault) else None,
        ),
    )


def _clean_runs(order: Order, live: Observer) -> Iterator[Clean]:
    """Smoke of every build that is here in turn, with nothing planted."""
    builds = sorted(order.workspace.root.glob("builds/*/install/bin/llama-server"))
    for number in range(order.clean):
        name = f"clean run {number + 1}"
        live.started(name)
        scratch = order.root / "scratch-clean"
        shutil.rmtree(scratch, ignore_errors=True)
        binaries = builds[number % len(builds)].parent
        gpu = "-cuda-" in binaries.parents[1].name and _has(order.workspace, "gpu")
        arguments = (
            "smoke", str(binaries), *(("--backend", "cuda") if gpu else ()), "--first", "--json",
            "--work", str(scratch),
        )  # fmt: skip
        log = order.root / "logs" / f"clean-{number + 1}.log"
        log.unlink(missing_ok=True)
        started = time.monotonic()
        ending = product(arguments, log=log)
        seconds = round(time.monotonic() - started, 3)
        message = refusal(ending, "smoke").message if ending.exit_code else ""
        shutil.rmtree(scratch, ignore_errors=True)
        told = message.partition("\n")[0] or binaries.parents[1].name
        state: _State = "failed" if ending.exit_code else "done"
        live.finished(_line(name, state, seconds, told))
        yield Clean(
            command=tuple(
                argument.replace(str(scratch), "SCRATCH").replace(
                    str(order.workspace.root), "WORK"
                )
                for argument in arguments
            ),
            exit_code=ending.exit_code, seconds=seconds, message=message, log=str(log),
        )  # fmt: skip


_State = Literal["done", "reused", "failed", "not tried"]


def _told(one: Found) -> StageReport:
    if one.verdict == "not run":
        return _line(one.id, "not tried", one.planted_seconds, one.reason)
    where = f" at {one.stage}, {one.check}" if one.stage else ""
    state: _State = "done" if one.verdict == "caught" else "failed"
    return _line(one.id, state, one.planted_seconds + one.seconds, f"{one.verdict}{where}")


def _line(name: str, state: _State, seconds: float, summary: str) -> StageReport:
    return StageReport(name=name, state=state, seconds=seconds, summary=summary)
