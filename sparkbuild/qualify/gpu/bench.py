"""The whole of a qualification on a GPU: units compiled, assembled for the device, and launched."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from sparkbuild import process
from sparkbuild.errors import GpuError, HostError, UsageError
from sparkbuild.qualify.bench import Found, Gathered, Order, Progress, lost, refuse_unknown
from sparkbuild.qualify.compile import compile_unit
from sparkbuild.qualify.gpu.assemble import Assembled, assemble_unit, runs
from sparkbuild.qualify.gpu.driver import Device, Opener
from sparkbuild.qualify.gpu.running import REFUSED
from sparkbuild.qualify.gpu.workers import LAUNCH_LIMIT, Workers
from sparkbuild.qualify.model import Made, Probed, Unit
from sparkbuild.qualify.probes.model import Probe

_DEVICE: Final = re.compile(r"(\d{1,2})(\d)[af]?")
MOST_WORKERS: Final = 4
"""Processes that hold the device at once: each has a context of some hundred MB on it."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What units are assembled for: an architecture, and the same code or retargeted."""

    architecture: str
    made: Made


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Units as machine code, and those that did not compile."""

    units: tuple[Assembled, ...]
    failed: tuple[Unit, ...]


def target_for(architecture: str, device: Device) -> Target:
    """The architecture itself where the device runs it, else the device's own."""
    return _target(architecture, device.capability, device.target)


def target_named(architecture: str, device: str) -> Target:
    """The same for a device that is elsewhere, named as ``90a``. Raises UsageError."""
    match = _DEVICE.fullmatch(device)
    if match is None:
        raise UsageError(
            f"--device {device}: no compute capability",
            next_step="write it as nvcc does: 90a for an H200, 121a for a GB10",
        )
    return _target(architecture, (int(match[1]), int(match[2])), device)


def _target(architecture: str, capability: tuple[int, int], own: str) -> Target:
    if runs(architecture, capability):
        return Target(architecture=architecture, made="native")
    return Target(architecture=own, made="retargeted")


def prepare(order: Order, target: Target, *, at_once: int, progress: Progress) -> Prepared:
    """Compile and assemble what the asked probes need. Only the main thread may call this."""
    known = order.catalogue()
    refuse_unknown(order.only, known.probes)
    needed = {probe.unit for probe in known.probes if order.asked(probe)}
    names = sorted(needed, key=lambda name: -known.costs.get(name, 0.0))
    made: dict[str, Unit | Assembled] = {}
    progress(0, len(names), "compiling probe kernels")
    with ExitStack() as stack:
        pool = ProcessPoolExecutor(
            at_once,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=process.end_with_parent,
        )
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        futures = [pool.submit(_make, order, target, name) for name in names]
        for future in as_completed(futures):
            try:
                one = future.result()
            except BrokenExecutor as error:
                raise HostError(
                    "a process ended while probe kernels were compiled",
                    problems=["it was killed; the kernel does so where memory runs out"],
                    next_step="run the same command again, with --jobs 1 if it happens again",
                ) from error
            made[one.name] = one
            progress(len(made), len(names), one.name)
    ordered = [made[name] for name in known.units if name in made]
    return Prepared(
        units=tuple(one for one in ordered if isinstance(one, Assembled)),
        failed=tuple(one for one in ordered if isinstance(one, Unit)),
    )


def judge_all(
    order: Order,
    prepared: Prepared,
    opener: Opener,
    *,
    at_once: int,
    progress: Progress,
    found: Found = lambda _: None,
    first: bool = False,
    limit: float = LAUNCH_LIMIT,
) -> Gathered:
    """Launch the asked probes and hold them against what is right; urgent ones first.

    Only the main thread may call this. Raises GpuError where the driver refuses every cubin.
    """
    known = order.catalogue()
    refuse_unknown(order.only, known.probes)
    asked = [probe for probe in known.probes if order.asked(probe)]
    known.prepare()
    gathered = Gathered(units={unit.name: unit for unit in _units(prepared)})
    for probed in _lost(asked, prepared.failed):
        gathered.probes[probed.name] = probed
    ready = {unit.name: unit for unit in prepared.units}
    jobs = [
        (probe.name, ready[probe.unit])
        for probe in sorted(asked, key=lambda probe: not probe.urgent)
        if probe.unit in ready
    ]
    workers = Workers(
        order=order, opener=opener, at_once=max(1, min(at_once, MOST_WORKERS)), limit=limit
    )
    progress(len(gathered.probes), len(asked), "on the GPU")
    by_name = {probe.name: probe for probe in asked}
    for probed in workers.judged([(by_name[name], unit) for name, unit in jobs]):
        gathered.probes[probed.name] = probed
        progress(len(gathered.probes), len(asked), probed.name)
        found(probed)
        if first and probed.outcome == "wrong":
            break
    _refuse_unloadable(gathered)
    gathered.probes = {
        probe.name: gathered.probes[probe.name] for probe in asked if probe.name in gathered.probes
    }
    return gathered


def gather_on(
    opener: Opener,
    device: Device,
    order: Order,
    *,
    at_once: int,
    progress: Progress,
    found: Found = lambda _: None,
    first: bool = False,
) -> Gathered:
    """As ``qualify.bench.gather``, on a device. Only the main thread may call this."""
    prepared = prepare(
        order, target_for(order.nvcc.architecture, device), at_once=at_once, progress=progress
    )
    return judge_all(
        order, prepared, opener, at_once=at_once, progress=progress, found=found, first=first
    )


def refuse_foreign(units: Iterable[Assembled], device: Device) -> None:
    """Raises GpuError where units were assembled for another device."""
    targets = {unit.target for unit in units}
    wrong = sorted(one for one in targets if not runs(one, device.capability))
    if wrong:
        raise GpuError(
            f"the probes were assembled for sm_{', sm_'.join(wrong)}, and this is {device}",
            next_step=f"assemble them again with --device {device.target}",
        )


def _make(order: Order, target: Target, name: str) -> Unit | Assembled:
    unit = compile_unit(order.nvcc, name, order.catalogue().units[name])
    if not unit.compiled:
        return unit
    return assemble_unit(order.nvcc, unit, target.architecture, target.made)


def _units(prepared: Prepared) -> list[Unit]:
    return [
        *(
            Unit(
                name=unit.name,
                compiled=True,
                seconds=0.0,
                ptx_sha256=unit.ptx_sha256,
                ptx=unit.ptx,
                cubin_sha256=unit.cubin_sha256,
                error=unit.error,
            )
            for unit in prepared.units
        ),
        *prepared.failed,
    ]


def _lost(asked: Sequence[Probe], failed: Iterable[Unit]) -> Iterable[Probed]:
    for unit in failed:
        yield from (lost(probe, unit) for probe in asked if probe.unit == unit.name)


def _refuse_unloadable(gathered: Gathered) -> None:
    """Raises GpuError where all that could be loaded was refused: no verdict on the compiler."""
    refused = [one.reason for one in gathered.probes.values() if one.reason.startswith(REFUSED)]
    judged = any(one.outcome in {"right", "wrong"} for one in gathered.probes.values())
    if refused and not judged:
        raise GpuError(
            "the driver refuses every cubin of this toolkit",
            problems=[refused[0]],
            next_step="update the driver, or take a toolkit no newer than it",
        )
