"""Operands as numbers of registers: constants and read-only registers get numbers, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import (
    Address,
    Immediate,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from sparkbuild.qualify.simt.lanes import Target
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.op import WIDTHS
from sparkbuild.qualify.simt.program import Frame, Step
from sparkbuild.qualify.simt.special import special
from sparkbuild.qualify.simt.symbols import Symbols

CLOCKS: Final = frozenset({"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo"})
"""Registers that change while a program runs."""


class Slots:
    """Finds the registers that an instruction's operands are kept in."""

    def __init__(self, machine: Machine, symbols: Symbols) -> None:
        self._machine = machine
        self._symbols = symbols
        self._constants: dict[tuple[int, str], int] = {}

    def base(self, step: Step, address: Address) -> int:
        """The register of an address's base."""
        base = address.base
        if isinstance(base, Register):
            return step.frame.registers[base.name]
        if isinstance(base, Symbol):
            return self.constant(self._symbols.address(step.frame, base.name), "u8")
        return self.constant(base.value, "u8")

    def targets(self, step: Step, operands: Sequence[Operand]) -> list[Target]:
        """Destination registers, those of vectors and pairs one by one."""
        found: list[Target] = []
        for operand in operands:
            match operand:
                case Register():
                    slot = step.frame.registers[operand.name]
                    found.append((slot, WIDTHS[operand.type]))
                case Sink():
                    found.append(None)
                case Vector(items=items):
                    found.extend(self.targets(step, items))
                case Pair(first=first, second=second):
                    found.extend(self.targets(step, (first, second)))
                case _:
                    instruction = step.instruction
                    raise UnsupportedError(f"{instruction.name} into {operand}", instruction)
        return found

    def sources(self, step: Step, operands: Sequence[Operand]) -> list[int]:
        """Source registers, those of vectors one by one."""
        found: list[int] = []
        for operand in operands:
            if isinstance(operand, Vector):
                found.extend(self.sources(step, operand.items))
            else:
                found.append(self.source(step, operand))
        return found

    def source(self, step: Step, operand: Operand) -> int:
        """The number of the register that holds a source, made for it where it is none."""
        frame: Frame = step.frame
        match operand:
            case Register(name=name) | Negated(register=Register(name=name)):
                return frame.registers[name]
            case Immediate(value=value, kind=kind):
                return self.constant(value, {"int": "u8", "f32": "u4", "f64": "u8"}[kind])
            case Symbol(name=name):
                return self.constant(self._symbols.address(frame, name), "u8")
            case Address(base=Symbol(name=name), offset=offset):
                return self.constant(self._symbols.address(frame, name) + offset, "u8")
            case Special(name=name) if name not in CLOCKS:
                return self._special(name)
        raise UnsupportedError(f"{step.instruction.name} of {operand}", step.instruction)

    def constant(self, value: int, kind: str) -> int:
        """The number of a register that holds the constant for all lanes."""
        dtype = np.dtype(kind)
        value %= 1 << (8 * dtype.itemsize)
        slot = self._constants.get((value, kind))
        if slot is None:
            slot = self._constants[value, kind] = self._new(np.array([value], dtype=dtype))
        return slot

    def _special(self, name: str) -> int:
        slot = self._machine.specials.get(name)
        if slot is None:
            slot = self._new(special(name, self._machine.shape))
            self._machine.specials[name] = slot
        return slot

    def _new(self, values: NDArray[Any]) -> int:
        self._machine.registers.append(values)
        return len(self._machine.registers) - 1
