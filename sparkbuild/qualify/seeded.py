"""How much the probes notice: one PTX instruction made wrong at a time, each edit judged."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sparkbuild import process
from sparkbuild.qualify.bench import Order, Progress
from sparkbuild.qualify.edits import Edit, edits, sample
from sparkbuild.qualify.fault import PtxError
from sparkbuild.qualify.judge import Judged, entry_of, judge
from sparkbuild.qualify.model import Fate, Sowed, Tried, Unit
from sparkbuild.qualify.probes.model import Probe
from sparkbuild.qualify.ptx.model import Module
from sparkbuild.qualify.ptx.read import read_module


@dataclass(frozen=True)
class _Healthy:
    """A kernel as the compiler made it: its probes, what they executed and gave."""

    unit: Unit
    entry: str
    probes: tuple[str, ...]
    executed: frozenset[int]
    outputs: tuple[str, ...]


def seeded(
    order: Order, units: Sequence[Unit], *, count: int, seed: int, at_once: int, progress: Progress
) -> Sowed:
    """Try ``count`` edits, spread evenly over the kernels that are right, then over the kinds.

    Only the main thread may call this.
    """
    known = order.catalogue()
    with ExitStack() as stack:
        pool = ProcessPoolExecutor(
            at_once,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=process.end_with_parent,
        )
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        asked = [probe for probe in known.probes if order.asked(probe)]
        kernels = _kernels(asked, {unit.name: unit for unit in units if unit.compiled})
        progress(0, count, "running the kernels as they are")
        healthy = [
            one
            for one in pool.map(functools.partial(_healthy, order), *zip(*kernels, strict=True))
            if one
        ]
        jobs = list(_jobs(healthy, count, seed))
        tried = []
        for done in pool.map(functools.partial(_try, order), *zip(*jobs, strict=True)):
            tried.append(done)
            progress(len(tried), len(jobs), f"{done.kernel}: {done.kind}")
    return Sowed(seed=seed, tried=tuple(tried))


def _kernels(
    probes: Iterable[Probe], units: dict[str, Unit]
) -> list[tuple[Unit, str, tuple[str, ...]]]:
    found: dict[tuple[str, str], list[str]] = {}
    for probe in probes:
        if probe.unit in units:
            found.setdefault((probe.unit, probe.entry), []).append(probe.name)
    return [(units[unit], entry, tuple(names)) for (unit, entry), names in found.items()]


def _jobs(healthy: Sequence[_Healthy], count: int, seed: int) -> Iterator[tuple[_Healthy, Edit]]:
    """Edits of each kernel in turn, until there are enough."""
    waiting = []
    for number, one in enumerate(healthy):
        text = Path(one.unit.ptx).read_text(encoding="utf-8")
        module = _module(one.unit.ptx)
        function = module.functions[entry_of(module, one.entry)]
        found = edits(function, text, one.executed)
        waiting.append((one, list(sample(found, count, seed + number))))
    while count > 0 and any(left for _, left in waiting):
        for one, left in waiting:
            if left and count > 0:
                yield one, left.pop(0)
                count -= 1


def _healthy(order: Order, unit: Unit, entry: str, names: tuple[str, ...]) -> _Healthy | None:
    """None where the kernel is not right as it is: then an edit says nothing."""
    judged = [_judge(order, _module(unit.ptx), name) for name in names]
    if any(one.probed.outcome != "right" for one in judged):
        return None
    return _Healthy(
        unit=unit,
        entry=entry,
        probes=names,
        executed=frozenset().union(*(one.executed for one in judged)),
        outputs=tuple(one.outputs for one in judged),
    )


def _try(order: Order, healthy: _Healthy, edit: Edit) -> Tried:
    whole = _module(healthy.unit.ptx)
    location = whole.functions[entry_of(whole, healthy.entry)].body[edit.index].location
    text = edit.applied(Path(healthy.unit.ptx).read_text(encoding="utf-8"))
    fate: Fate = "same output"
    how, name = "", healthy.probes[-1]
    try:
        module = read_module(text)
        for name, outputs in zip(healthy.probes, healthy.outputs, strict=True):
            judged = _judge(order, module, name)
            if judged.probed.outcome == "unsupported":
                fate, how = "not executable", judged.probed.reason
                break
            if judged.probed.mistake:
                fate, how = "caught", judged.probed.mistake.text
                break
            if judged.outputs != outputs:
                fate = "within bounds"
    except PtxError as error:
        fate, how = "not executable", str(error)
    return Tried(
        kernel=healthy.entry,
        unit=healthy.unit.name,
        kind=edit.kind,
        line=edit.line,
        before=edit.before,
        after=edit.after,
        source=f"{location.file}:{location.line}" if location else "",
        fate=fate,
        probe=name,
        how=how,
    )


def _judge(order: Order, module: Module, name: str) -> Judged:
    probe = next(probe for probe in order.catalogue().probes if probe.name == name)
    return judge(probe, module)


@functools.lru_cache(maxsize=4)
def _module(path: str) -> Module:
    return read_module(Path(path).read_text(encoding="utf-8"))
