"""Branches, exits, and what ends a program: traps and failed assertions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparkbuild.qualify.fault import DeviceFault, UnsupportedError
from sparkbuild.qualify.ptx.model import Instruction, Label, Operand, Register
from sparkbuild.qualify.simt.machine import GONE, Machine
from sparkbuild.qualify.simt.op import Mask
from sparkbuild.qualify.simt.program import Step

End = Callable[[], int]


def guard_of(step: Step) -> tuple[int, bool] | None:
    """The register of the instruction's guard, and whether it is negated."""
    guard = step.instruction.guard
    if guard is None:
        return None
    return step.frame.registers[guard.register.name], guard.negated


def place_of(step: Step, label: Operand) -> int:
    """Where a label leads; raises UnsupportedError for one that is not set."""
    place = step.frame.target(label.name) if isinstance(label, Label) else None
    if place is None:
        raise UnsupportedError(f"a branch to {label}, which is not set", step.instruction)
    return place


def branch_end(machine: Machine, step: Step, following: int) -> End:
    """``bra`` and the branches put before guarded instructions."""
    if step.skip:
        place = step.frame.pcs[step.index + 1]
    else:
        place = place_of(step, step.instruction.operands[-1])
    guard = guard_of(step)
    if guard is None:
        return lambda: place
    slot, negated = guard
    registers = machine.registers

    def end() -> int:
        taken = registers[slot]
        if taken.size == 1:
            return place if bool(taken[0]) is not negated else following
        taken = _of_current(machine, taken, negated)
        count = int(np.count_nonzero(taken))
        if count == machine.active:
            return place
        return machine.split(taken, place, following) if count else following

    return end


def indexed_end(machine: Machine, step: Step) -> End:
    """``brx.idx``: a table of places."""
    index, table = step.instruction.operands
    names = step.frame.function.branch_targets.get(getattr(table, "name", ""))
    if names is None or not isinstance(index, Register):
        raise UnsupportedError(f"a branch by {table}, which is not set", step.instruction)
    places = [place_of(step, Label(name)) for name in names]
    slot = step.frame.registers[index.name]

    def end() -> int:
        values = machine.registers[slot]
        values = values if values.size > 1 else np.broadcast_to(values, machine.lanes)
        left = machine.here
        beyond = left & (values >= len(places))
        if beyond.any():
            _fault(machine, step.instruction, beyond, "trap", "an index beyond the branch table")
        for number, place in enumerate(places):
            taken = left & (values == number)
            if taken.any():
                machine.put(place, taken)
        return GONE

    return end


def exit_end(machine: Machine, step: Step, following: int) -> End:
    """``exit``, and ``ret`` of a kernel."""
    guard = guard_of(step)

    def end() -> int:
        mask = machine.mask
        if guard is not None:
            taken = machine.registers[guard[0]]
            if taken.size == 1:
                if bool(taken[0]) is guard[1]:
                    return following
            else:
                mask = _of_current(machine, taken, guard[1])
                rest = machine.here
                rest = rest & ~mask
                if rest.any():
                    machine.put(following, rest)
        machine.leave(mask)
        return GONE

    return end


def return_end(machine: Machine, step: Step, following: int) -> End:
    """``ret`` of a device function: to behind the call."""
    after = step.frame.after
    guard = guard_of(step)
    if guard is None:
        return lambda: after
    slot, negated = guard

    def end() -> int:
        taken = machine.registers[slot]
        if taken.size == 1:
            return after if bool(taken[0]) is not negated else following
        taken = _of_current(machine, taken, negated)
        return machine.split(taken, after, following)

    return end


def trap_run(machine: Machine, instruction: Instruction, message: str) -> Callable[[], None]:
    """``trap``, and what the CUDA runtime does when an assertion fails."""

    def run() -> None:
        mask = machine.here
        _fault(machine, instruction, mask, "trap", message)

    return run


def _of_current(machine: Machine, values: Mask, negated: bool) -> Mask:
    values = ~values if negated else values
    return values if machine.mask is None else values & machine.mask


def _fault(machine: Machine, instruction: Instruction, mask: Mask, kind: str, message: str) -> None:
    lane = machine.thread(int(np.flatnonzero(mask)[0]))
    raise DeviceFault(kind, message, instruction=instruction, lane=lane)
