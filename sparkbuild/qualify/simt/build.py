"""Decoding: instructions to operations, operations to blocks, when they are first reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from sparkbuild.qualify.alu.contract import LaneOp, WarpOp
from sparkbuild.qualify.ptx.model import Instruction, Register
from sparkbuild.qualify.simt.barriers import Barriers, barrier_form, counted_end, is_barrier
from sparkbuild.qualify.simt.control import (
    End,
    branch_end,
    exit_end,
    indexed_end,
    return_end,
    trap_run,
)
from sparkbuild.qualify.simt.guard import guarded
from sparkbuild.qualify.simt.lanes import Target, WarpGate, lane_run, masked_lane_run, warp_runs
from sparkbuild.qualify.simt.machine import Block, Machine
from sparkbuild.qualify.simt.meaning import meaning
from sparkbuild.qualify.simt.moves import is_quiet
from sparkbuild.qualify.simt.op import WIDTHS, Op, Run
from sparkbuild.qualify.simt.program import Step, callee
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.slots import Slots
from sparkbuild.qualify.simt.symbols import Symbols
from sparkbuild.qualify.simt.transfers import Transfers, is_transfer

_ENDING: Final = frozenset({"bra", "brx", "exit", "ret", "bar", "barrier"})


def _nothing() -> None:
    pass


class Builder:
    """Makes the blocks of one program for one machine."""

    def __init__(
        self, machine: Machine, symbols: Symbols, barriers: Barriers, races: Races
    ) -> None:
        self._machine = machine
        self._barriers = barriers
        self._races = races
        self._slots = Slots(machine, symbols)
        self._transfers = Transfers(machine, self._slots, barriers, races)
        self._code = machine.program.code
        self._kinds = [WIDTHS[each] for each in machine.program.types]
        self._ops: dict[int, Op] = {}
        self.seen: set[int] = set()
        self._leaders = machine.program.leaders

    def block(self, place: int) -> Block:
        """The block that begins at a place."""
        ops: list[Op] = []
        while True:
            self.seen.add(place)
            step = self._code[place]
            end = self._end(step, place) if step.instruction.opcode in _ENDING else None
            if end is None:
                ops.append(self._op(place))
                place += 1
                if place not in self._leaders:
                    continue
                end = _to(place)
            return Block(ops, [op.full for op in ops if op.full is not _nothing], end)

    def executed(self) -> set[int]:
        """Places that at least one lane has run."""
        return {place for place in self.seen if place not in self._ops or self._ops[place].hits}

    def _end(self, step: Step, place: int) -> End | None:
        """How the block ends with this instruction; None where it does not."""
        machine, instruction = self._machine, step.instruction
        match instruction.opcode:
            case "bra":
                return branch_end(machine, step, place + 1)
            case "brx":
                return indexed_end(machine, step)
            case "exit" | "ret":
                leaves = instruction.opcode == "exit" or step.frame is machine.program.frames[0]
                return (exit_end if leaves else return_end)(machine, step, place + 1)
        form = barrier_form(instruction) if is_barrier(instruction) else None
        if form is None or not form.counted:
            return None
        return counted_end(self._barriers, instruction, form, place + 1)

    def _op(self, place: int) -> Op:
        op = self._ops.get(place)
        if op is None:
            step = self._code[place]
            op = self._decoded(step, place)
            guard = step.instruction.guard
            if guard is not None and not (place and self._code[place - 1].skip):
                op = guarded(self._machine, op, step.frame.registers[guard.register.name], guard)
            self._ops[place] = op
        return op

    def _decoded(self, step: Step, place: int) -> Op:
        instruction = step.instruction
        if is_transfer(instruction):
            return self._transfers.op(step, place)
        if is_quiet(instruction):
            return Op(place, instruction, _nothing)
        if instruction.opcode in {"call", "trap"}:
            return Op(place, instruction, self._leaving(instruction))
        return self._computing(step, place)

    def _computing(self, step: Step, place: int) -> Op:
        instruction = step.instruction
        op, targets, sources = self._resolved(step)
        machine = self._machine
        if isinstance(op, LaneOp):
            full = lane_run(machine, op, sources, targets)
            make = partial(masked_lane_run, machine, op, sources, targets)
            return Op(place, instruction, full, make)
        if instruction.opcode == "activemask":
            full, masked = warp_runs(machine, op, sources, targets, _nothing)
            return Op(place, instruction, full, lambda: masked)
        members = None if op.member_mask is None else sources[op.member_mask]
        gate = WarpGate(machine, self._races, place, members)
        full, masked = warp_runs(machine, op, sources, targets, gate.meet)
        return Op(place, instruction, full, lambda: masked, gate)

    def _resolved(self, step: Step) -> tuple[LaneOp | WarpOp, Sequence[Target], Sequence[int]]:
        """The operation with the registers it writes and reads."""
        operands, registers = step.instruction.operands, step.frame.registers
        op = meaning(step.instruction)
        count = op.destinations
        slots = [registers[each.name] for each in operands if isinstance(each, Register)]
        if count == 1 and len(slots) == len(operands):
            return op, ((slots[0], self._kinds[slots[0]]),), slots[1:]
        targets = self._slots.targets(step, operands[:count])
        return op, targets, self._slots.sources(step, operands[count:])

    def _leaving(self, instruction: Instruction) -> Run:
        """``trap`` and calls of what belongs to the system.

        A function of the module stands behind its call. ``vprintf`` prints nothing and leaves its
        result undefined.
        """
        if instruction.opcode == "trap":
            return trap_run(self._machine, instruction, "trap")
        if callee(instruction)[0] == "__assertfail":
            return trap_run(self._machine, instruction, "an assertion failed")
        return _nothing


def _to(place: int) -> Callable[[], int]:
    return lambda: place
