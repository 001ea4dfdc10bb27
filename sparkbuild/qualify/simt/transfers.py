"""Decoding of what moves data between registers and memory, and of barriers."""

from __future__ import annotations

from typing import Final

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Vector,
)
from sparkbuild.qualify.simt.atomics import AtomicForm, atomic_run
from sparkbuild.qualify.simt.barriers import (
    BarrierGate,
    Barriers,
    barrier_form,
    constant,
    reduction,
)
from sparkbuild.qualify.simt.copies import Copies, copy_run, copy_size
from sparkbuild.qualify.simt.lanes import WarpGate
from sparkbuild.qualify.simt.loads import Form, load_run, store_run
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.matrix import (
    ROW_BYTES,
    MatrixForm,
    MatrixRows,
    load_matrix_run,
    store_matrix_run,
)
from sparkbuild.qualify.simt.op import Op, Run
from sparkbuild.qualify.simt.program import Step
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.site import Site, WatchedSite
from sparkbuild.qualify.simt.slots import Slots
from sparkbuild.qualify.simt.wmma import (
    FragmentForm,
    Fragments,
    load_fragment_run,
    store_fragment_run,
)

_MEMORY: Final = frozenset(
    {"ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix", "cp", "bar", "barrier"}
)


def is_transfer(instruction: Instruction) -> bool:
    """Whether ``Transfers`` is for this instruction."""
    if instruction.opcode == "wmma":
        return instruction.modifiers[:1] != ("mma",)
    return instruction.opcode in _MEMORY


class Transfers:
    """Makes the operations of memory and barriers for one machine."""

    def __init__(self, machine: Machine, slots: Slots, barriers: Barriers, races: Races) -> None:
        self._machine = machine
        self._slots = slots
        self._barriers = barriers
        self._races = races
        self._copies: Copies | None = None

    def op(self, step: Step, place: int) -> Op:
        """The operation of an instruction."""
        instruction = step.instruction
        match instruction.opcode:
            case "ld" | "ldu" | "st":
                run = self._plain(step)
            case "atom" | "red":
                run = self._atomic(step)
            case "cp":
                run = self._copy(step)
            case "ldmatrix" | "stmatrix":
                return self._matrix(step, place)
            case "wmma":
                return self._fragment(step, place)
            case _ if "warp" in instruction.modifiers:
                return self._warp_barrier(step, place)
            case _:
                return self._barrier(step, place)
        return Op(place, instruction, run)

    def _site(
        self, step: Step, where: Operand, space: str, size: int, *, writes: bool
    ) -> tuple[Site, int]:
        """The site of an access and the register of its address."""
        if not isinstance(where, Address):
            raise UnsupportedError(f"{step.instruction.name} at {where}", step.instruction)
        watch = self._machine.watch
        site = (WatchedSite if watch and writes else Site)(
            self._machine,
            step.instruction,
            space=space,
            size=size,
            plus=where.offset,
            writes=writes,
        )
        if watch and isinstance(site, WatchedSite):
            site.watch = watch
        return site, self._slots.base(step, where)

    def _plain(self, step: Step) -> Run:
        instruction = step.instruction
        form = Form(instruction)
        loads = instruction.opcode != "st"
        if len(instruction.operands) != 2:
            raise UnsupportedError(f"{instruction.name} with a cache policy", instruction)
        values, where = instruction.operands if loads else reversed(instruction.operands)
        items = values.items if isinstance(values, Vector) else (values,)
        if len(items) != form.count:
            raise UnsupportedError(instruction.name, instruction)
        site, slot = self._site(step, where, form.space, form.size * form.count, writes=not loads)
        races = self._races if form.space in {"shared", "generic"} else None
        if loads:
            targets = self._slots.targets(step, items)
            return load_run(races, site, slot, form, targets)
        return store_run(races, site, slot, form, self._slots.sources(step, items))

    def _atomic(self, step: Step) -> Run:
        instruction = step.instruction
        form = AtomicForm(instruction)
        operands = list(instruction.operands)
        target = None
        if instruction.opcode == "atom":
            (target,) = self._slots.targets(step, operands[:1])
            operands = operands[1:]
        expected = 3 if form.operation == "cas" else 2
        if len(operands) != expected:
            raise UnsupportedError(instruction.name, instruction)
        site, slot = self._site(step, operands[0], form.space, form.size, writes=True)
        sources = self._slots.sources(step, operands[1:])
        return atomic_run(self._races, site, form, slot, sources, target)

    def _matrix(self, step: Step, place: int) -> Op:
        instruction = step.instruction
        form = MatrixForm(instruction)
        loads = instruction.opcode == "ldmatrix"
        values, where = instruction.operands if loads else reversed(instruction.operands)
        items = values.items if isinstance(values, Vector) else (values,)
        if len(items) != form.tiles:
            raise UnsupportedError(instruction.name, instruction)
        site, slot = self._site(step, where, form.space, ROW_BYTES, writes=not loads)
        rows = MatrixRows(self._machine, self._races, site, slot, form)
        if loads:
            move = load_matrix_run(rows, self._slots.targets(step, items))
        else:
            move = store_matrix_run(rows, self._slots.sources(step, items))
        return self._whole_warp(place, move)

    def _fragment(self, step: Step, place: int) -> Op:
        instruction = step.instruction
        form = FragmentForm(instruction)
        order = instruction.operands if form.loads else _swapped(instruction.operands)
        if len(order) != 3 or not isinstance(order[0], Vector):
            raise UnsupportedError(f"{instruction.name} without a stride", instruction)
        values, where, stride = order
        items = values.items if isinstance(values, Vector) else ()
        if len(items) != form.registers:
            raise UnsupportedError(instruction.name, instruction)
        site, slot = self._site(step, where, form.space, form.size, writes=not form.loads)
        slots = (slot, self._slots.source(step, stride))
        fragments = Fragments(self._machine, self._races, site, form, slots)
        if form.loads:
            move = load_fragment_run(fragments, self._slots.targets(step, items))
        else:
            move = store_fragment_run(fragments, self._slots.sources(step, items))
        return self._whole_warp(place, move)

    def _whole_warp(self, place: int, move: Run) -> Op:
        """An operation that all lanes of a warp do together."""
        gate = WarpGate(self._machine, self._races, place, None)

        def run() -> None:
            gate.check()
            move()
            self._races.warp(self._machine.mask)

        return Op(place, self._machine.program.code[place].instruction, run, None, gate)

    def _copy(self, step: Step) -> Run:
        instruction = step.instruction
        if self._copies is None:
            self._copies = Copies(self._machine, self._races)
            self._copies.start()
            self._machine.starting.append(self._copies.start)
        copies = self._copies
        match instruction.modifiers:
            case ("async", "commit_group"):
                return copies.commit
            case ("async", "wait_all"):
                return copies.wait_all
            case ("async", "wait_group"):
                most = constant(instruction.operands[0], instruction)
                return lambda: copies.wait(most)
            case ("async", *_):
                return self._copy_issue(step, copies)
        raise UnsupportedError(instruction.name, instruction)

    def _copy_issue(self, step: Step, copies: Copies) -> Run:
        instruction = step.instruction
        if len(instruction.operands) < 3:
            raise UnsupportedError(instruction.name, instruction)
        into, source, *rest = instruction.operands
        size = constant(rest[0], instruction)
        copy_size(instruction, size)
        amount = self._amount(step, instruction, rest)
        target, to = self._site(step, into, "shared", size, writes=True)
        origin, where = self._site(step, source, "global", size, writes=False)
        return copy_run(self._machine, copies, target, origin, (to, where), amount)

    def _amount(self, step: Step, instruction: Instruction, rest: list[Operand]) -> int | None:
        """The register of how many bytes are read."""
        if len(rest) == 1:
            return None
        if len(rest) > 2 or isinstance(rest[1], Negated):
            raise UnsupportedError(f"{instruction.name} with a policy", instruction)
        slot = self._slots.source(step, rest[1])
        wide = isinstance(rest[1], Immediate) or self._machine.registers[slot].itemsize == 4
        if not wide:
            raise UnsupportedError(f"{instruction.name} with a policy or ignore-src", instruction)
        return slot

    def _warp_barrier(self, step: Step, place: int) -> Op:
        instruction = step.instruction
        if instruction.opcode != "bar" or instruction.modifiers != ("warp", "sync"):
            raise UnsupportedError(instruction.name, instruction)
        members = self._slots.source(step, instruction.operands[0])
        gate = WarpGate(self._machine, self._races, place, members)
        return Op(place, instruction, gate.meet, None, gate)

    def _barrier(self, step: Step, place: int) -> Op:
        """A barrier without a number of threads."""
        machine, instruction = self._machine, step.instruction
        form = barrier_form(instruction)
        number = constant(form.operands[0], instruction)
        finish = None
        if form.reduce:
            (target,) = self._slots.targets(step, instruction.operands[:1])
            source = instruction.operands[-1]
            if target is None:
                raise UnsupportedError(f"{instruction.name} into nothing", instruction)
            slot, negated = self._slots.source(step, source), isinstance(source, Negated)
            finish = reduction(machine, form.reduce, slot, negated, target[0])

        def run() -> None:
            self._races.barrier(None, partial=False)
            if finish is not None:
                here = machine.here
                finish(here, here)

        gate = BarrierGate(machine, self._barriers, place, number, finish)
        return Op(place, instruction, run, None, gate)


def _swapped(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Address and value of a store in the order of a load."""
    first, second, *rest = operands
    return (second, first, *rest)
