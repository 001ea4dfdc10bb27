"""Decoding: instructions to operations, operations to blocks, when they are first reached."""

from __future__ import annotations

from collections.abc import Callable

from sparkbuild.qualify.alu.contract import LaneOp, WarpOp
from sparkbuild.qualify.alu.decode import decode
from sparkbuild.qualify.ptx.model import Instruction
from sparkbuild.qualify.simt.barriers import Barriers, barrier_form, counted_end
from sparkbuild.qualify.simt.control import (
    End,
    branch_end,
    exit_end,
    indexed_end,
    return_end,
    trap_run,
)
from sparkbuild.qualify.simt.guard import guarded
from sparkbuild.qualify.simt.lanes import WarpGate, lane_runs, warp_runs
from sparkbuild.qualify.simt.machine import Block, Machine
from sparkbuild.qualify.simt.moves import cvta_op, is_quiet, isspacep_op, move_op
from sparkbuild.qualify.simt.op import Op, Run
from sparkbuild.qualify.simt.program import Step, callee
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.slots import Slots
from sparkbuild.qualify.simt.symbols import Symbols
from sparkbuild.qualify.simt.transfers import Transfers, is_transfer


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
        self._ops: dict[int, Op] = {}
        self.seen: set[int] = set()
        self._leaders = {frame.after for frame in machine.program.frames}
        for frame in machine.program.frames:
            self._leaders.update(frame.pcs[index] for index in frame.function.labels.values())
        self._leaders.update(step.frame.pcs[step.index + 1] for step in self._code if step.skip)

    def block(self, place: int) -> Block:
        """The block that begins at a place."""
        ops: list[Op] = []
        while True:
            self.seen.add(place)
            end = self._end(self._code[place], place)
            if end is None:
                ops.append(self._op(place))
                place += 1
                if place not in self._leaders:
                    continue
                end = _to(place)
            return Block(ops, [op.full for op in ops if op.full is not _nothing], end)

    def executed(self) -> set[int]:
        """Places that at least one lane has run."""
        return {place for place in self.seen if place not in self._ops or self._ops[place].hit}

    def _end(self, step: Step, place: int) -> End | None:
        """How the block ends with this instruction; None where it does not."""
        machine, instruction = self._machine, step.instruction
        end: End | None = None
        match instruction.opcode:
            case "bra":
                end = branch_end(machine, step, place + 1)
            case "brx":
                end = indexed_end(machine, step)
            case "ret" if step.frame is not machine.program.frames[0]:
                end = return_end(machine, step, place + 1)
            case "exit" | "ret":
                end = exit_end(machine, step, place + 1)
            case "bar" | "barrier" if "warp" not in instruction.modifiers:
                form = barrier_form(instruction)
                if form.counted:
                    end = counted_end(self._barriers, instruction, form, place + 1)
        return end

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
        if is_quiet(instruction):
            return Op(place, instruction, _nothing, _nothing)
        if is_transfer(instruction):
            return self._transfers.op(step, place)
        if instruction.opcode in {"call", "trap"}:
            run = self._leaving(instruction)
            return Op(place, instruction, run, run)
        return self._computing(step, place)

    def _computing(self, step: Step, place: int) -> Op:
        instruction = step.instruction
        match instruction.opcode:
            case "mov":
                op: LaneOp | WarpOp = move_op(instruction)
            case "cvta":
                op = cvta_op(instruction)
            case "isspacep":
                op = isspacep_op(instruction)
            case _:
                op = decode(instruction)
        targets = self._slots.targets(step, instruction.operands[: op.destinations])
        sources = self._slots.sources(step, instruction.operands[op.destinations :])
        if isinstance(op, LaneOp):
            full, masked = lane_runs(self._machine, op, sources, targets)
            return Op(place, instruction, full, masked)
        if instruction.opcode == "activemask":
            full, masked = warp_runs(self._machine, op, sources, targets, _nothing)
            return Op(place, instruction, full, masked)
        members = None if op.member_mask is None else sources[op.member_mask]
        gate = WarpGate(self._machine, self._races, place, members)
        full, masked = warp_runs(self._machine, op, sources, targets, gate.meet)
        return Op(place, instruction, full, masked, gate)

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
