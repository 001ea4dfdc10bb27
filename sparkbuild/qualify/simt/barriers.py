"""``bar`` and ``barrier``: threads of a block wait for each other.

Without a count every thread that has not exited must come, as CUDA has it since Volta; with one,
so many threads. Numbered barriers are told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import DeviceFault, UnsupportedError
from sparkbuild.qualify.ptx.model import Immediate, Instruction, Operand
from sparkbuild.qualify.simt.machine import GONE, Machine
from sparkbuild.qualify.simt.op import Mask
from sparkbuild.qualify.simt.special import WARP

Finish = Callable[[Mask, NDArray[np.bool_]], None]
"""What a reduction does at the end: the threads that go on, and their blocks."""


@dataclass(slots=True, eq=False)
class _Barrier:
    waiting: Mask
    place: NDArray[np.int64]
    arrived: NDArray[np.int64]
    expected: int | None
    finish: dict[int, Finish] = field(default_factory=dict)
    instruction: Instruction | None = None


class Barriers:
    """The barriers of the blocks that run now."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._barriers: dict[int, _Barrier] = {}

    def __bool__(self) -> bool:
        return any(barrier.waiting.any() for barrier in self._barriers.values())

    def clear(self) -> None:
        """Forget everything, for other blocks."""
        self._barriers = {}

    def wait(
        self,
        number: int,
        place: int,
        instruction: Instruction,
        *,
        expected: int | None = None,
        finish: Finish | None = None,
    ) -> None:
        """Have the current lanes wait, to go on at ``place``."""
        barrier = self._barrier(number, expected, instruction)
        mask = self._machine.here
        barrier.waiting = barrier.waiting | mask
        barrier.place[mask] = place
        if finish is not None:
            barrier.finish[place] = finish
        self.check()

    def come(self, number: int, expected: int, instruction: Instruction) -> None:
        """Count the current lanes as arrived, which do not wait."""
        barrier = self._barrier(number, expected, instruction)
        mask = self._machine.here
        barrier.arrived += self._by_block(mask)
        self.check()

    def check(self) -> None:
        """Let go the blocks whose threads have all come."""
        machine = self._machine
        live = self._by_block(machine.everything if machine.live is None else machine.live)
        for number, barrier in list(self._barriers.items()):
            here = self._by_block(barrier.waiting) + barrier.arrived
            needed = live if barrier.expected is None else barrier.expected
            done = (here > 0) & (here >= needed)
            if not done.any():
                continue
            going = barrier.waiting & np.repeat(done, machine.shape.width)
            self._release(barrier, going, done)
            barrier.waiting &= ~going
            barrier.arrived[done] = 0
            if not barrier.waiting.any() and not barrier.arrived.any():
                del self._barriers[number]

    def stuck(self) -> DeviceFault:
        """The fault when nobody can go on."""
        barrier = next(each for each in self._barriers.values() if each.waiting.any())
        lane = int(barrier.waiting.argmax())
        here = int(self._by_block(barrier.waiting)[lane // self._machine.shape.width])
        needed = barrier.expected or self._machine.shape.threads
        return DeviceFault(
            "deadlock",
            f"{here} threads of a block wait at a barrier for {needed}, and no other can come",
            instruction=barrier.instruction,
            lane=self._machine.thread(lane),
        )

    def _barrier(self, number: int, expected: int | None, instruction: Instruction) -> _Barrier:
        machine = self._machine
        barrier = self._barriers.get(number)
        if barrier is None:
            barrier = _Barrier(
                np.zeros(machine.lanes, dtype=np.bool_),
                np.zeros(machine.lanes, dtype=np.int64),
                np.zeros(machine.shape.blocks, dtype=np.int64),
                expected,
                instruction=instruction,
            )
            self._barriers[number] = barrier
        if barrier.expected != expected:
            raise DeviceFault(
                "deadlock",
                f"barrier {number} is waited for with {expected} and {barrier.expected} threads",
                instruction=instruction,
            )
        return barrier

    def _release(self, barrier: _Barrier, going: Mask, done: NDArray[np.bool_]) -> None:
        machine = self._machine
        places = np.unique(barrier.place[going])
        if places.size > 1:
            self._same_in_warp(barrier, going)
        machine.order.barrier(done, partial=barrier.expected is not None)
        for place in places.tolist():
            lanes = going & (barrier.place == place)
            if place in barrier.finish:
                barrier.finish[place](going, lanes)
            machine.put(place, lanes)

    def _same_in_warp(self, barrier: _Barrier, going: Mask) -> None:
        """Threads of one warp must wait at one instruction."""
        low = np.where(going, barrier.place, np.iinfo(np.int64).max).reshape(-1, WARP).min(1)
        high = np.where(going, barrier.place, -1).reshape(-1, WARP).max(1)
        torn = (high >= 0) & (low != high)
        if torn.any():
            raise DeviceFault(
                "diverged",
                "threads of one warp wait at different barrier instructions",
                instruction=barrier.instruction,
                lane=self._machine.thread(int(torn.argmax()) * WARP),
            )

    def _by_block(self, mask: Mask) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = mask.reshape(self._machine.shape.blocks, -1).sum(1)
        return counts


@dataclass(frozen=True, slots=True)
class BarrierForm:
    """A barrier instruction taken apart; ``reduce`` is empty, ``popc``, ``and`` or ``or``."""

    kind: str
    reduce: str
    operands: tuple[Operand, ...]

    @property
    def counted(self) -> bool:
        """Whether a number of threads is given."""
        return len(self.operands) > 1


def is_barrier(instruction: Instruction) -> bool:
    """Whether it is a barrier of the block."""
    return instruction.opcode in {"bar", "barrier"} and "warp" not in instruction.modifiers


def barrier_form(instruction: Instruction) -> BarrierForm:
    """Take apart everything but ``bar.warp.sync``; the destination of ``red`` is left out."""
    words = [word for word in instruction.modifiers if word not in {"cta", "aligned"}]
    kind = words.pop(0) if words else ""
    operands = instruction.operands
    reduce = ""
    if kind == "red":
        reduce = words.pop(0) if words else ""
        words = words[1:] if words in (["u32"], ["pred"]) else ["?"]
        operands = operands[1:-1]
        if reduce not in {"popc", "and", "or"}:
            words = ["?"]
    if kind not in {"sync", "arrive", "red"} or words or not 1 <= len(operands) <= 2:
        raise UnsupportedError(f"{instruction.name}", instruction)
    if kind == "arrive" and len(operands) != 2:
        raise UnsupportedError(f"{instruction.name} without a count", instruction)
    return BarrierForm(kind, reduce, operands)


class BarrierGate:
    """An uncounted barrier that not all live lanes have reached."""

    def __init__(
        self, machine: Machine, barriers: Barriers, pc: int, number: int, finish: Finish | None
    ) -> None:
        self._machine = machine
        self._barriers = barriers
        self._pc = pc
        self._number = number
        self._finish = finish

    def arrive(self) -> bool:
        """Wait; nobody goes on with this group."""
        instruction = self._machine.program.code[self._pc].instruction
        self._barriers.wait(self._number, self._pc + 1, instruction, finish=self._finish)
        return False


def counted_end(
    barriers: Barriers, instruction: Instruction, form: BarrierForm, place: int
) -> Callable[[], int]:
    """A barrier with a number of threads."""
    number = constant(form.operands[0], instruction)
    expected = constant(form.operands[1], instruction)
    if expected <= 0 or expected % WARP or form.reduce:
        raise UnsupportedError(f"{instruction.name} with {expected} threads", instruction)

    def end() -> int:
        if form.kind == "arrive":
            barriers.come(number, expected, instruction)
            return place
        barriers.wait(number, place, instruction, expected=expected)
        return GONE

    return end


def constant(operand: Operand, instruction: Instruction) -> int:
    """An immediate operand's value; raises UnsupportedError for others."""
    if not isinstance(operand, Immediate) or operand.kind != "int":
        raise UnsupportedError(f"{instruction.name} with its numbers in registers", instruction)
    return operand.value


def reduction(machine: Machine, kind: str, slot: int, negated: bool, target: int) -> Finish:
    """What ``bar.red`` gives: one value a block, to every thread that goes on."""

    def finish(going: Mask, lanes: Mask) -> None:
        values = machine.registers[slot]
        values = np.broadcast_to(~values if negated else values, machine.lanes)
        blocks, width = machine.shape.blocks, machine.shape.width
        true = (values & going).reshape(blocks, width).sum(1)
        if kind == "popc":
            each = true.astype(np.uint32)
        else:
            each = true == going.reshape(blocks, width).sum(1) if kind == "and" else true > 0
        old = machine.registers[target]
        machine.registers[target] = np.where(lanes, np.repeat(each, width), old)

    return finish
