"""Arithmetic: operations of single lanes and of warps, between registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import LaneOp, WarpOp
from sparkbuild.qualify.fault import DeviceFault
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.op import Run, Values, fit, spread
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.special import WARP

Target = tuple[int, np.dtype[Any]] | None
"""A register's number with what it is kept in; None for a result that nobody wants."""


def lane_run(
    machine: Machine, op: LaneOp, sources: Sequence[int], targets: Sequence[Target]
) -> Run:
    """Run a lane operation for all lanes."""
    registers = machine.registers
    if len(targets) == 1 and targets[0] is not None:
        slot, want = targets[0]
        return _single(registers, op.run, sources, slot, want)
    compute = _computing(registers, op.run, sources)

    def full() -> None:
        for values, target in zip(compute(), targets, strict=True):
            if target is not None:
                registers[target[0]] = fit(values, target[1])

    return full


def masked_lane_run(
    machine: Machine, op: LaneOp, sources: Sequence[int], targets: Sequence[Target]
) -> Run:
    """Run a lane operation for the current lanes."""
    registers = machine.registers
    compute = _computing(registers, op.run, sources)
    where = np.where
    if len(targets) == 1 and targets[0] is not None:
        only, kept = targets[0]

        def single() -> None:
            values = compute()[0]
            if values.dtype is not kept:
                values = fit(values, kept)
            registers[only] = where(machine.here, values, registers[only])

        return single

    def masked() -> None:
        for values, target in zip(compute(), targets, strict=True):
            if target is not None:
                slot, want = target
                registers[slot] = where(machine.here, fit(values, want), registers[slot])

    return masked


def _computing(
    registers: list[Values], run: Callable[..., tuple[Values, ...]], sources: Sequence[int]
) -> Callable[[], tuple[Values, ...]]:
    if len(sources) == 1:
        (only,) = sources
        return lambda: run(registers[only])
    if len(sources) == 2:
        first, second = sources
        return lambda: run(registers[first], registers[second])
    if len(sources) == 3:
        first, second, third = sources
        return lambda: run(registers[first], registers[second], registers[third])
    return lambda: run(*[registers[each] for each in sources])


def _single(
    registers: list[Values],
    run: Callable[..., tuple[Values, ...]],
    sources: Sequence[int],
    slot: int,
    want: np.dtype[Any],
) -> Run:
    """One result, no mask: the way of nearly every instruction, so without a call between."""
    if len(sources) == 1:
        (only,) = sources

        def one() -> None:
            values = run(registers[only])[0]
            registers[slot] = values if values.dtype is want else fit(values, want)

        return one
    if len(sources) == 2:
        first, second = sources

        def two() -> None:
            values = run(registers[first], registers[second])[0]
            registers[slot] = values if values.dtype is want else fit(values, want)

        return two
    if len(sources) == 3:
        first, second, third = sources

        def three() -> None:
            values = run(registers[first], registers[second], registers[third])[0]
            registers[slot] = values if values.dtype is want else fit(values, want)

        return three

    def many() -> None:
        values = run(*[registers[each] for each in sources])[0]
        registers[slot] = values if values.dtype is want else fit(values, want)

    return many


def warp_runs(
    machine: Machine,
    op: WarpOp,
    sources: Sequence[int],
    targets: Sequence[Target],
    meet: Callable[[], None],
) -> tuple[Run, Run]:
    """The full and the masked run of a warp operation; ``meet`` sees to who is there."""
    registers = machine.registers

    def compute() -> tuple[Values, ...]:
        meet()
        shape = (machine.lanes // WARP, WARP)
        values = [registers[each] for each in sources]
        return op.run(
            machine.warps(machine.mask),
            *[spread(each, machine.lanes).reshape(shape) for each in values],
        )

    def full() -> None:
        for values, target in zip(compute(), targets, strict=True):
            if target is not None:
                registers[target[0]] = fit(values.reshape(-1), target[1])

    def masked() -> None:
        for values, target in zip(compute(), targets, strict=True):
            if target is not None:
                slot, want = target
                result = fit(values.reshape(-1), want)
                registers[slot] = np.where(machine.here, result, registers[slot])

    return full, masked


class WarpGate:
    """Lanes wait until every lane of their member mask, or of the warp, has come here.

    Lanes that have exited are not waited for. Raises DeviceFault where a lane is no member of its
    own mask, and where the whole warp is needed and cannot come.
    """

    def __init__(self, machine: Machine, races: Races, pc: int, members: int | None) -> None:
        self._machine = machine
        self._races = races
        self._pc = pc
        self._members = members

    def arrive(self) -> bool:
        """Bring the current lanes here; those that must wait are kept until others come."""
        machine = self._machine
        mask = machine.mask
        if mask is None:
            return True
        before = machine.blocked.pop(self._pc, None)
        if before is not None:
            mask = mask | before
        here = _bits(machine.warps(mask))
        live = _bits(machine.warps(machine.live))
        missing = self._needed() & live[:, None] & ~here[:, None]
        going = (machine.warps(mask) & (missing == 0)).reshape(-1)
        stay = mask & ~going
        if stay.any():
            machine.blocked[self._pc] = stay
        if not going.any():
            return False
        if before is not None or machine.blocked:
            machine.choose(going, keep=True)
        return True

    def meet(self) -> None:
        """Have the current lanes do this together; raises DeviceFault where they may not."""
        self.check()
        self._races.warp(self._machine.mask)

    def check(self) -> None:
        """Raise DeviceFault where the lanes that are here may not do this together."""
        machine = self._machine
        if self._members is None:
            mask = machine.mask
            if mask is not None:
                warps = machine.warps(mask)
                torn = warps.any(1) & ~warps.all(1)
                if torn.any():
                    self._fault(int(torn.argmax()) * WARP, "the whole warp must be here")
            return
        members = machine.registers[self._members]
        if members.size == 1 and int(members[0]) & 0xFFFF_FFFF == 0xFFFF_FFFF:
            return
        needed = self._needed()
        lane = np.arange(WARP, dtype=np.uint32)
        outside = machine.warps(machine.mask) & ((needed >> lane) & np.uint32(1) == 0)
        if outside.any():
            self._fault(int(outside.reshape(-1).argmax()), "a thread is not in its own member mask")

    def _needed(self) -> Values:
        machine = self._machine
        shape = (machine.lanes // WARP, WARP)
        if self._members is None:
            return np.broadcast_to(np.uint32(0xFFFF_FFFF), shape)
        members = machine.registers[self._members].astype(np.uint32)
        return spread(members, machine.lanes).reshape(shape)

    def _fault(self, lane: int, message: str) -> None:
        machine = self._machine
        raise DeviceFault(
            "diverged",
            message,
            instruction=machine.program.code[self._pc].instruction,
            lane=machine.thread(lane),
        )


def _bits(warps: Values) -> Values:
    """Rows of a mask as numbers, lane 0 lowest."""
    packed = np.packbits(warps, axis=1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u4").reshape(-1)
