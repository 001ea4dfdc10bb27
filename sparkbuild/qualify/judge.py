"""One probe on one module: its launches executed, every element held against what is right."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import DeviceFault, PtxError, UnsupportedError
from sparkbuild.qualify.model import Mistake, Place, Probed
from sparkbuild.qualify.probes.entries import find_entry
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.ptx.model import Instruction, Location, Module
from sparkbuild.qualify.simt.contract import Launch, Result
from sparkbuild.qualify.simt.launch import execute
from sparkbuild.qualify.simt.watch import Watch

_PART = re.compile(r"K?(\d+)")
"""Before a name in a mangled one: its length."""

SEED = 20261130
"""Of every probe's inputs: the same ones for every compiler."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a probe showed, and which source locations its launches went through."""

    probed: Probed
    locations: frozenset[Location] = frozenset()
    executed: frozenset[int] = frozenset()
    """Instructions of the kernel's body that some lane executed."""
    outputs: str = ""
    """Digest over every buffer of every case, bit for bit."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One buffer against what is right."""

    mistake: Mistake | None
    count: int
    margin: float


def judge(probe: Probe, module: Module, *, seed: int = SEED) -> Judged:
    """Execute every case of ``probe``; the first wrong one ends it."""
    began = time.monotonic()
    locations: set[Location] = set()
    executed: set[int] = set()
    outputs = hashlib.sha256()
    cases = compared = steps = 0
    margin, worst = 0.0, ""
    mistake: Mistake | None = None
    for case in probe.cases(seed):
        cases += 1
        try:
            entry = entry_of(module, case.launch.entry)
            result = execute(module, replace(case.launch, entry=entry))
        except (UnsupportedError, PtxError) as error:
            return Judged(probed=_unsupported(probe, error, began))
        except DeviceFault as fault:
            mistake = _fault(case, fault)
            break
        locations |= result.locations
        executed |= result.executed
        steps += result.lane_steps
        for name, expected in case.expected.items():
            outputs.update(np.ascontiguousarray(result.buffers[name]).tobytes())
            found = compare(case, name, expected, result)
            compared += found.count
            if found.mistake and not mistake:
                launch, shape = replace(case.launch, entry=entry), expected.values.shape
                mistake = written(module, launch, found.mistake, result.buffers[name], shape)
            if found.margin > margin:
                margin, worst = found.margin, f"{case.label}, {name}"
        if mistake:
            break
    probed = Probed(
        name=probe.name,
        unit=probe.unit,
        kind=probe.kind,
        outcome="wrong" if mistake else "right",
        types=probe.types,
        mistake=mistake,
        cases=cases,
        compared=compared,
        lane_steps=steps,
        seconds=time.monotonic() - began,
        margin=None if mistake else margin,
        worst=worst,
    )
    return Judged(
        probed=probed,
        locations=frozenset(locations),
        executed=frozenset(executed),
        outputs=outputs.hexdigest(),
    )


def entry_of(module: Module, entry: str) -> str:
    """The kernel that a probe's entry names, which may be a pattern. Raises UnsupportedError."""
    found = find_entry(module.functions, entry)
    if found is None:
        raise UnsupportedError(f"no one kernel of the PTX is {entry}")
    return found


def place(instruction: Instruction | None) -> Place:
    """Where an instruction stands in the PTX, and what line of the source it was made from."""
    if instruction is None:
        return Place()
    return Place(
        ptx_line=instruction.line,
        instruction=instruction.name,
        source=_source(instruction.location),
    )


def _source(location: Location | None) -> str:
    if location is None:
        return ""
    inside = f" in {plain_name(location.function)}" if location.function else ""
    file = location.file.rpartition("/ggml/src/")[2] or location.file
    return f"{file}:{location.line}{inside}"


def plain_name(mangled: str) -> str:
    """A function's own name out of a mangled one: the last one before its template arguments."""
    rest = mangled.removeprefix("_Z").removeprefix("N") if mangled.startswith("_Z") else ""
    found = ""
    while match := _PART.match(rest):
        end = match.end() + int(match[1])
        found, rest = rest[match.end() : end], rest[end:]
    return found or mangled


def _unsupported(probe: Probe, error: UnsupportedError | PtxError, began: float) -> Probed:
    at = getattr(error, "instruction", None)
    reason = f"{error}" + (f" (PTX line {at.line})" if at is not None else "")
    return Probed(
        name=probe.name,
        unit=probe.unit,
        kind=probe.kind,
        outcome="unsupported",
        types=probe.types,
        reason=reason,
        seconds=time.monotonic() - began,
    )


def _fault(case: Case, fault: DeviceFault) -> Mistake:
    return Mistake(
        case=case.label, kind=fault.kind, text=str(fault), where=place(fault.instruction)
    )


def written(
    module: Module,
    launch: Launch,
    mistake: Mistake,
    buffer: NDArray[Any],
    shape: tuple[int, ...],
) -> Mistake:
    """The mistake with the instruction that wrote the wrong value: the launch once more, watched.

    What led to the value may be wrong long before; this is where to begin to read.
    """
    at = int(np.ravel_multi_index(mistake.index, shape)) if shape else 0
    watch = Watch(buffer=mistake.buffer, offset=at * buffer.itemsize)
    execute(module, launch, watch=watch)
    block, thread = watch.thread
    who = f"written by thread {thread} of block {block}" if watch.writer else "never written"
    return msgspec.structs.replace(
        mistake, text=f"{mistake.text}, {who}", where=place(watch.writer)
    )


def compare(case: Case, name: str, expected: Expected, result: Result) -> Compared:
    """What a launch left in one buffer against what is right there."""
    found = result.buffers[name].reshape(expected.values.shape)
    right, shown = _numbers(expected.values), _numbers(found)
    bound = np.broadcast_to(expected.bound, right.shape)
    with np.errstate(all="ignore"):
        away = np.abs(shown - right)
    same = (shown == right) | (np.isnan(shown) & np.isnan(right))
    away = np.where(same, 0.0, away)
    asked = np.ones(right.shape, bool) if expected.defined is None else expected.defined
    bad = asked & ~(away <= bound)
    count = int(np.count_nonzero(asked))
    if not bad.any():
        with np.errstate(all="ignore"):
            part = np.where(asked & (away > 0), away / bound, 0.0)
        return Compared(mistake=None, count=count, margin=float(part.max(initial=0.0)))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    wanted, got, limit = float(right[at]), float(shown[at]), float(bound[at])
    wrong = int(np.count_nonzero(bad))
    return Compared(
        mistake=Mistake(
            case=case.label,
            kind="value",
            text=f"{name}{list(at)}: expected {wanted:.9g} within {limit:.3g}, found {got:.9g}",
            buffer=name,
            index=at,
            expected=wanted,
            found=got,
            bound=limit,
            wrong=wrong,
            compared=count,
            nmse=_nmse(shown[asked], right[asked]),
        ),
        count=count,
        margin=float("inf"),
    )


def _numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Every dtype's values without loss, 64-bit integers apart (no probe has such)."""
    return values.astype(np.float64)


def _nmse(found: NDArray[np.float64], right: NDArray[np.float64]) -> float | None:
    with np.errstate(all="ignore"):
        power = float(np.sum(right * right))
        value = float(np.sum((found - right) ** 2)) / power if power else float("nan")
    return value if np.isfinite(value) else None
