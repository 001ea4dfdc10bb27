"""An instruction being decoded: its modifiers are used up one by one, its operands typed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, NoReturn, TypeAlias

import numpy as np

from sparkbuild.qualify.alu.contract import Bits
from sparkbuild.qualify.alu.types import REGISTER_BITS, TYPES, Type, U, bits_array
from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import (
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

Prepare: TypeAlias = Callable[[Bits], Bits]


@dataclass(frozen=True, slots=True)
class Source:
    """How a source becomes an array of the wanted dtype.

    ``prepare`` is None where it already is one. ``constant`` is an immediate's value, made once:
    an array without axes, which numpy combines with a vector at the lowest price.
    """

    prepare: Prepare | None = None
    constant: Bits | None = None

    @property
    def reader(self) -> Prepare:
        """``prepare``, or what gives back what it gets."""
        return self.prepare or _same

    @property
    def value(self) -> int | None:
        """The immediate as an unsigned integer; None for a register."""
        if self.constant is None:
            return None
        return int(self.constant.view(U[self.constant.dtype.itemsize * 8]).reshape(())[()])


def _same(bits: Bits) -> Bits:
    return bits


class Form:
    """The parts of one instruction; what a family does not take is refused by ``finish``.

    Every method raises UnsupportedError, with the instruction, for what is not implemented.
    """

    def __init__(self, instruction: Instruction, destinations: int = 1) -> None:
        self.instruction = instruction
        self.modifiers = list(instruction.modifiers)
        self.destinations = instruction.operands[:destinations]
        self.sources = tuple(flatten(instruction.operands[destinations:]))
        self._scalar = not all(isinstance(source, Immediate) for source in self.sources)

    def refuse(self, what: str) -> NoReturn:
        """Say that this form is not implemented."""
        raise self.refusal(what)

    def refusal(self, what: str) -> UnsupportedError:
        """The error that says so."""
        return UnsupportedError(f"{self.instruction.name}: {what}", self.instruction)

    def flag(self, name: str) -> bool:
        """Whether the modifier is there; it is used up."""
        if name in self.modifiers:
            self.modifiers.remove(name)
            return True
        return False

    def pick(self, *names: str, default: str | None = None) -> str:
        """The one of ``names`` that is there, used up; ``default`` where none is."""
        for name in self.modifiers:
            if name in names:
                self.modifiers.remove(name)
                return name
        if default is None:
            self.refuse(f"none of .{', .'.join(names)}")
        return default

    def type(self, *allowed: str) -> Type:
        """The last modifier as a type, which must be one of ``allowed``; it is used up."""
        if not self.modifiers:
            self.refuse("no type")
        name = self.modifiers[-1]
        if name not in allowed:
            self.refuse(f"type .{name}")
        self.modifiers.pop()
        return TYPES[name]

    def finish(self, *counts: int) -> None:
        """Refuse what is left over, and a number of sources that is none of ``counts``."""
        if self.modifiers:
            self.refuse(f"modifier .{self.modifiers[0]}")
        if counts and len(self.sources) not in counts:
            self.refuse(f"{len(self.sources)} sources")

    def widens(self, kind: Type) -> bool:
        """Whether the destination register is wider than the result's type."""
        first = self.destinations[0] if self.destinations else Sink()
        if isinstance(first, Pair):
            first = first.first
        if isinstance(first, Register):
            return REGISTER_BITS.get(first.type, 64) != kind.bits
        return not isinstance(first, Sink)

    def bits(self, index: int, kind: Type) -> Source:
        """A source as unsigned integers of the type's width."""
        return self._source(index, kind, kind.unsigned)

    def signed(self, index: int, kind: Type) -> Source:
        """A source as signed integers of the type's width."""
        return self._source(index, kind, kind.signed)

    def integers(self, index: int, kind: Type) -> Source:
        """A source as integers of the type's own sign."""
        return self._source(index, kind, kind.own)

    def floats(self, index: int, kind: Type) -> Source:
        """A source as floats of the type (f16, f32 or f64)."""
        return self._source(index, kind, kind.float)

    def code(self, index: int, kind: Type) -> Source:
        """A float source as its bits, from a register of just that width."""
        return self._source(index, kind, kind.unsigned)

    def predicate(self, index: int) -> Source:
        """A source as truth, negated where it is written so."""
        operand = self.sources[index]
        match operand:
            case Register(type="pred"):
                return Source()
            case Negated(register=Register(type="pred")):
                return Source(np.logical_not)
            case Immediate(kind="int"):
                return self._constant(np.asarray([operand.value != 0]))
        raise self.refusal(f"{operand} as a predicate")

    def constant(self, index: int) -> int:
        """A source that must be an integer immediate."""
        operand = self.sources[index]
        if not (isinstance(operand, Immediate) and operand.kind == "int"):
            self.refuse(f"operand {index + 1} of the sources is no immediate")
        return operand.value

    def is_constant(self, index: int) -> bool:
        """Whether a source is an integer immediate."""
        operand = self.sources[index]
        return isinstance(operand, Immediate) and operand.kind == "int"

    def _constant(self, values: Bits) -> Source:
        constant = values.reshape(()) if self._scalar else values
        return Source(lambda _: constant, constant)

    def _source(self, index: int, kind: Type, want: np.dtype[Any]) -> Source:
        operand = self.sources[index]
        match operand:
            case Immediate():
                return self._constant(self._immediate(operand, kind).view(want))
            case Register():
                return Source(self._register(operand, kind, want))
            case Special() | Symbol():
                return Source(_normaliser(kind.bits, want))
        raise self.refusal(f"{operand} as .{kind.name}")

    def _immediate(self, operand: Immediate, kind: Type) -> Bits:
        wanted = {"f32": 32, "f64": 64}.get(operand.kind)
        if kind.kind in {"f", "bf"} and wanted != kind.bits:
            self.refuse(f"immediate of kind {operand.kind} as .{kind.name}")
        if wanted is not None and wanted != kind.bits:
            self.refuse(f"immediate of kind {operand.kind} as .{kind.name}")
        return bits_array(operand.value, kind.bits)

    def _register(self, operand: Register, kind: Type, want: np.dtype[Any]) -> Prepare | None:
        if operand.type not in REGISTER_BITS or operand.type == "pred":
            self.refuse(f"a register of type .{operand.type} as .{kind.name}")
        width = REGISTER_BITS[operand.type]
        if width == kind.bits and width > 8:
            return None if want == kind.unsigned else methodcaller("view", want)
        if width < kind.bits:
            self.refuse(f"a register of type .{operand.type} as .{kind.name}")
        if kind.kind in {"f", "bf"}:
            self.refuse(f"a register of type .{operand.type} as .{kind.name}")
        return methodcaller("astype", want)


def _normaliser(width: int, want: np.dtype[Any]) -> Prepare:
    unsigned = U[width]

    def normalise(bits: Bits) -> Bits:
        if bits.dtype.itemsize * 8 != width:
            bits = bits.astype(unsigned)
        return bits.view(want)

    return normalise


def flatten(operands: tuple[Operand, ...]) -> list[Operand]:
    """The operands with the elements of vectors in their places."""
    found: list[Operand] = []
    for operand in operands:
        found.extend(flatten(operand.items) if isinstance(operand, Vector) else [operand])
    return found
