"""One probe on a GPU and in the executor, held against what is right and against each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import DeviceFault, PtxError, UnsupportedError
from sparkbuild.qualify.gpu.assemble import Assembled
from sparkbuild.qualify.gpu.running import Gpu
from sparkbuild.qualify.judge import SEED, Compared, compare, entry_of, place, written
from sparkbuild.qualify.model import Against, Mistake, Outcome, Place, Probed
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.ptx.model import Module
from sparkbuild.qualify.simt.contract import Launch, Result
from sparkbuild.qualify.simt.launch import execute


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A unit on a device: its PTX read, its cubin in memory."""

    unit: Assembled
    module: Module
    image: bytes


@dataclass(kw_only=True)
class _Tally:
    """What has been seen of a probe so far."""

    cases: int = 0
    compared: int = 0
    margin: float = 0.0
    worst: str = ""
    mistake: Mistake | None = None
    executor: Outcome = "right"
    text: str = ""
    where: Place = field(default_factory=Place)
    both: int = 0
    equal: int = 0
    apart: int = 0
    difference: float = 0.0
    farthest: str = ""


def judge_on(
    gpu: Gpu,
    probe: Probe,
    subject: Subject,
    *,
    seed: int = SEED,
    begun: Callable[[bool, str], None] = lambda *_: None,
) -> Probed:
    """Launch every case of ``probe``; the first wrong one ends it.

    ``begun`` is told when a launch begins and ends, with the case. Raises DriverError where the
    device fails for a reason that is not the kernel's.
    """
    began = time.monotonic()
    tally = _Tally()
    reason = ""
    try:
        _entry(subject, probe.entry)
        for case in probe.cases(seed):
            tally.cases += 1
            _case(gpu, case, subject, tally, begun)
            if tally.mistake:
                break
    except (UnsupportedError, PtxError) as error:
        reason = str(error)
    return _probed(probe, subject.unit, tally, reason, time.monotonic() - began)


def lost(probe: Probe, unit: Assembled, reason: str, mistake: Mistake | None = None) -> Probed:
    """A probe that ended its process: with a mistake of the kernel's, or with no verdict."""
    return _probed(probe, unit, _Tally(mistake=mistake, executor="unsupported"), reason, 0.0)


def _probed(probe: Probe, unit: Assembled, tally: _Tally, reason: str, seconds: float) -> Probed:
    outcome: Outcome = "wrong" if tally.mistake else "right"
    if reason:
        outcome = "not compiled" if unit.error and unit.made == "native" else "unsupported"
    judged = outcome in {"right", "wrong"}
    return Probed(
        name=probe.name,
        unit=probe.unit,
        kind=probe.kind,
        outcome=outcome,
        types=probe.types,
        mistake=tally.mistake if judged else None,
        reason=reason,
        cases=tally.cases,
        compared=tally.compared,
        seconds=seconds,
        margin=tally.margin if outcome == "right" else None,
        worst=tally.worst,
        made=unit.made,
        against=_against(tally) if judged else None,
    )


def _against(tally: _Tally) -> Against:
    return Against(
        outcome=tally.executor,
        text=tally.text,
        where=tally.where,
        compared=tally.both,
        equal=tally.equal,
        apart=tally.apart,
        difference=tally.difference,
        worst=tally.farthest,
    )


def _case(
    gpu: Gpu,
    case: Case,
    subject: Subject,
    tally: _Tally,
    begun: Callable[[bool, str], None],
) -> None:
    module = subject.module
    launch = replace(case.launch, entry=_entry(subject, case.launch.entry))
    ours = _executed(module, launch, case.label, tally)
    try:
        shown = gpu.run(module, subject.image, launch, lambda on: begun(on, case.label))
    except DeviceFault as fault:
        tally.mistake = Mistake(case=case.label, kind=fault.kind, text=str(fault))
        return
    for name, expected in case.expected.items():
        found = compare(case, name, expected, shown)
        tally.compared += found.count
        if found.margin > tally.margin:
            tally.margin, tally.worst = found.margin, f"{case.label}, {name}"
        if found.mistake and not tally.mistake:
            tally.mistake = _placed(module, launch, found, shown.buffers[name], expected, ours)
        if ours is not None:
            own = compare(case, name, expected, ours)
            if own.mistake and tally.executor == "right":
                tally.executor, tally.text = "wrong", f"{case.label}: {own.mistake.text}"
            _held_against(tally, f"{case.label}, {name}", expected, shown.buffers[name],
                          ours.buffers[name])  # fmt: skip


def _entry(subject: Subject, entry: str) -> str:
    """The kernel of that name or pattern. Raises UnsupportedError where the device lacks it."""
    found = entry_of(subject.module, entry)
    if subject.unit.error or found in subject.unit.left_out:
        raise UnsupportedError(subject.unit.error or subject.unit.left_out[found])
    return found


def _executed(module: Module, launch: Launch, label: str, tally: _Tally) -> Result | None:
    """The same launch in the executor; None where it ends otherwise, which the tally then says."""
    try:
        return execute(module, launch)
    except DeviceFault as fault:
        outcome: Outcome = "wrong"
        text, at = f"{fault.kind}: {fault}", fault.instruction
    except (UnsupportedError, PtxError) as error:
        outcome, text = "unsupported", str(error)
        at = getattr(error, "instruction", None)
    if tally.executor == "right":
        tally.executor, tally.where = outcome, place(at)
        tally.text = f"{label}: {text}"
    return None


def _placed(
    module: Module,
    launch: Launch,
    found: Compared,
    buffer: NDArray[Any],
    expected: Expected,
    ours: Result | None,
) -> Mistake | None:
    """The mistake with who writes that element in the executor: a GPU does not tell."""
    mistake = found.mistake
    if mistake is None or ours is None:
        return mistake
    told = written(module, launch, mistake, buffer, expected.values.shape)
    who = told.text.removeprefix(f"{mistake.text}, ")
    return msgspec.structs.replace(
        mistake, text=f"{mistake.text}, in the executor {who}", where=told.where
    )


def _held_against(
    tally: _Tally,
    label: str,
    expected: Expected,
    shown: NDArray[Any],
    ours: NDArray[Any],
) -> None:
    """Count equal bits, and how far the others are from each other in parts of their bound."""
    shape = expected.values.shape
    asked = np.ones(shape, bool) if expected.defined is None else expected.defined
    same = _bits(shown).reshape(shape) == _bits(ours).reshape(shape)
    tally.both += int(np.count_nonzero(asked))
    tally.equal += int(np.count_nonzero(asked & same))
    differ = asked & ~same
    if not differ.any():
        return
    one = shown.reshape(shape).astype(np.float64)
    other = ours.reshape(shape).astype(np.float64)
    bound = np.broadcast_to(expected.bound, shape)
    with np.errstate(all="ignore"):
        away = np.abs(one - other)
        away = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, away)
        near = away <= bound
        part = np.where(differ & near & (away > 0), away / bound, 0.0)
    tally.apart += int(np.count_nonzero(differ & ~near))
    largest = float(part.max(initial=0.0))
    if largest > tally.difference:
        tally.difference, tally.farthest = largest, label


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
