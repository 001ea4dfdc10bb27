"""The whole of a qualification: units compiled and probes judged, as many at once as cores."""

from __future__ import annotations

import difflib
import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from sparkbuild import process
from sparkbuild.errors import HostError, UsageError
from sparkbuild.qualify.catalogue import Catalogue, Given, catalogue
from sparkbuild.qualify.compile import Nvcc, compile_unit
from sparkbuild.qualify.judge import Judged, judge
from sparkbuild.qualify.model import Probed, Unit
from sparkbuild.qualify.probes.model import Probe
from sparkbuild.qualify.ptx.model import Location, Module
from sparkbuild.qualify.ptx.read import read_module

Progress: TypeAlias = Callable[[int, int, str], None]
Found: TypeAlias = Callable[[Probed], None]


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be judged, and with what; it travels to other processes."""

    nvcc: Nvcc
    given: Given
    only: tuple[str, ...] = ()
    """Names or kinds of probes; empty for all."""

    def asked(self, probe: Probe) -> bool:
        """Whether this probe is to be run."""
        return not self.only or probe.name in self.only or probe.kind in self.only

    def catalogue(self) -> Catalogue:
        """Units and probes for the order's source."""
        return catalogue(self.nvcc.source, self.nvcc.architecture, self.given)


@dataclass(kw_only=True)
class Gathered:
    """Everything that came back, in the catalogue's order once it is over."""

    units: dict[str, Unit] = field(default_factory=dict)
    probes: dict[str, Probed] = field(default_factory=dict)
    locations: set[Location] = field(default_factory=set)


Gather: TypeAlias = Callable[..., Gathered]
"""``gather``, or what judges the same order in another way, with the same keywords."""


def gather(
    order: Order,
    *,
    at_once: int,
    progress: Progress,
    found: Found = lambda _: None,
    first: bool = False,
) -> Gathered:
    """Compile what the asked probes need, then judge them; urgent ones first.

    ``found`` gets every verdict as it comes; ``first`` stops at the first wrong one. Only the main
    thread may call this. Raises HostError where a process was ended from outside.
    """
    known = order.catalogue()
    refuse_unknown(order.only, known.probes)
    asked = [probe for probe in known.probes if order.asked(probe)]
    gathered = Gathered()
    total, wrong = len(asked), False
    progress(0, total, "compiling probe kernels")
    ordered = _ordered(known, asked)
    for result in _early(order, ordered, at_once) if first else _results(order, ordered, at_once):
        if isinstance(result, Unit):
            gathered.units[result.name] = result
            if result.compiled:
                continue
            failed = [lost(probe, result) for probe in asked if probe.unit == result.name]
        else:
            gathered.locations |= result.locations
            failed = [result.probed]
        for probed in failed:
            gathered.probes[probed.name] = probed
            progress(len(gathered.probes), total, probed.name)
            found(probed)
            wrong = wrong or probed.outcome == "wrong"
        if first and wrong:
            break
    places = {probe.name: number for number, probe in enumerate(asked)}
    gathered.probes = dict(sorted(gathered.probes.items(), key=lambda item: places[item[0]]))
    gathered.units = {name: gathered.units[name] for name in known.units if name in gathered.units}
    return gathered


def refuse_unknown(only: Sequence[str], probes: Sequence[Probe]) -> None:
    """Raises UsageError where a name is neither a probe's nor a kind's."""
    kinds = list(dict.fromkeys(probe.kind for probe in probes))
    every = [*kinds, *(probe.name for probe in probes)]
    for name in only:
        if name not in every:
            near = difflib.get_close_matches(name, every, n=3)
            raise UsageError(
                f"--probe {name}: there is no such probe, and no such kind",
                problems=[f"kinds: {', '.join(kinds)}"],
                next_step=f"did you mean {' or '.join(near)}?" if near else "name a kind",
            )


def _ordered(known: Catalogue, asked: list[Probe]) -> dict[str, list[Probe]]:
    """Units with their probes: those with an urgent probe first, then by how many they have."""
    by_unit: dict[str, list[Probe]] = {}
    for probe in sorted(asked, key=lambda probe: not probe.urgent):
        by_unit.setdefault(probe.unit, []).append(probe)
    costs = known.costs
    names = sorted(by_unit, key=lambda n: (not by_unit[n][0].urgent, -costs.get(n, 0.0)))
    return {name: by_unit[name] for name in names}


def lost(probe: Probe, unit: Unit) -> Probed:
    """A probe whose unit did not compile."""
    return Probed(
        name=probe.name,
        unit=probe.unit,
        kind=probe.kind,
        outcome="not compiled",
        types=probe.types,
        reason=unit.error,
    )


def _early(order: Order, by_unit: dict[str, list[Probe]], at_once: int) -> Iterator[Unit | Judged]:
    """The first unit, the most urgent one, in this very process; then all others.

    Whoever stops at the first mistake would else wait for what began beside it.
    """
    (name, probes), *others = by_unit.items()
    unit = _compile(order, name)
    yield unit
    if unit.compiled:
        yield from (_judge(order, unit, probe.name) for probe in probes)
    if others:
        yield from _results(order, dict(others), at_once)


def _results(
    order: Order, by_unit: dict[str, list[Probe]], at_once: int
) -> Iterator[Unit | Judged]:
    if at_once <= 1:
        order.catalogue().prepare()
        for name, probes in by_unit.items():
            unit = _compile(order, name)
            yield unit
            if unit.compiled:
                yield from (_judge(order, unit, probe.name) for probe in probes)
        return
    with ExitStack() as stack:
        # Fresh processes: a copy of this one would take along its threads' locks.
        pool = ProcessPoolExecutor(
            at_once,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=process.end_with_parent,
        )
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        yield from _pooled(order, by_unit, pool, at_once)


def _pooled(
    order: Order, by_unit: dict[str, list[Probe]], pool: ProcessPoolExecutor, at_once: int
) -> Iterator[Unit | Judged]:
    """Whatever can be judged goes before the next unit: the first verdict comes early."""
    units, probes = list(by_unit), list[tuple[Unit, str]]()
    # References take some seconds once for each source: beside the first unit, not before it.
    running: set[Future[Any]] = {
        pool.submit(_compile, order, units.pop(0)),
        pool.submit(_prepare, order),
    }
    while units or probes or running:
        while len(running) < at_once and (units or probes):
            if probes:
                unit, probe = probes.pop(0)
                running.add(pool.submit(_judge, order, unit, probe))
            else:
                running.add(pool.submit(_compile, order, units.pop(0)))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            result = _ended(future)
            if result is None:
                continue
            if isinstance(result, Unit) and result.compiled:
                probes += [(result, probe.name) for probe in by_unit[result.name]]
            yield result


def _ended(future: Future[Any]) -> Unit | Judged | None:
    try:
        result: Unit | Judged | None = future.result()
    except BrokenExecutor as error:
        raise HostError(
            "a process ended while probe kernels were judged",
            problems=["it was killed; the kernel does so where memory runs out"],
            next_step="run the same command again, with --jobs 1 if it happens again",
        ) from error
    return result


def _prepare(order: Order) -> None:
    order.catalogue().prepare()


def _compile(order: Order, name: str) -> Unit:
    return compile_unit(order.nvcc, name, order.catalogue().units[name])


def _judge(order: Order, unit: Unit, name: str) -> Judged:
    probe = next(probe for probe in order.catalogue().probes if probe.name == name)
    return judge(probe, _module(unit.ptx, unit.ptx_sha256))


@functools.lru_cache(maxsize=2)
def _module(path: str, sha256: str) -> Module:
    del sha256  # tells a file made anew from an older one
    return read_module(Path(path).read_text(encoding="utf-8"))
