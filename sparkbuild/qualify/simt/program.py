"""A kernel as one sequence of instructions: device functions put in where they are called.

Each call has its own copy of the function with registers of its own, so a place in the sequence
tells the whole chain of calls, and lanes that return meet again behind the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import (
    Function,
    Guard,
    Instruction,
    Label,
    Module,
    Operand,
    Symbol,
    Variable,
    Vector,
)

DEEPEST_CALL: Final = 32
"""Calls inside calls; deeper is taken for a recursion, which cannot be put in."""

_SELF_GUARDED: Final = frozenset({"bra", "exit", "ret"})
_SPLITTING: Final = frozenset(
    {"call", "brx", "trap", "bar", "barrier", "shfl", "vote", "match", "redux", "activemask"}
    | {"mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "elect"}
)
"""What a guard stands before as a branch: lanes may have to wait there."""


@dataclass(slots=True, eq=False)
class Frame:
    """One copy of a function: its registers' first number, what its symbols mean, its labels."""

    function: Function
    base: int
    symbols: dict[str, tuple[Frame, str]]
    """Formal parameters to the caller's variables."""
    pcs: list[int] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)
    after: int = 0

    def target(self, label: str) -> int | None:
        """Where a label leads in the sequence."""
        index = self.function.labels.get(label)
        return None if index is None else self.pcs[index]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One place of the sequence. ``index`` is that in its function's body.

    ``skip``: a branch that was put before a guarded instruction, to the place behind it.
    """

    instruction: Instruction
    frame: Frame
    index: int
    skip: bool = False


@dataclass(slots=True, eq=False)
class Program:
    """The whole sequence, the frames in it, and the types of all registers by number."""

    code: list[Step] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    leaders: set[int] = field(default_factory=set)
    """Places that are branched to."""


@lru_cache(maxsize=4)
def flatten(module: Module, entry: str) -> Program:
    """The program of a kernel; raises UnsupportedError for recursion and unknown callees.

    The latest ones are kept: a kernel is run with one input after another.
    """
    kernel = module.functions.get(entry)
    if kernel is None or not kernel.entry:
        raise UnsupportedError(f"the module has no kernel {entry}")
    program = Program()
    _Splicer(module, program).splice(kernel, {}, 0)
    last = Instruction("exit", (), (), None, kernel.body[-1].line if kernel.body else 1)
    program.code.append(Step(last, program.frames[0], -1))
    for frame in program.frames:
        program.leaders.add(frame.after)
        program.leaders.update(frame.pcs[index] for index in frame.function.labels.values())
    skips = (step for step in program.code if step.skip)
    program.leaders.update(step.frame.pcs[step.index + 1] for step in skips)
    return program


class _Splicer:
    def __init__(self, module: Module, program: Program) -> None:
        self._module = module
        self._program = program

    def splice(
        self, function: Function, symbols: Mapping[str, tuple[Frame, str]], depth: int
    ) -> None:
        """Append one copy of the function."""
        if depth > DEEPEST_CALL:
            raise UnsupportedError(f"recursion in {function.name}")
        program = self._program
        frame = Frame(function, len(program.types), dict(symbols))
        frame.registers = {each.name: frame.base + at for at, each in enumerate(function.registers)}
        program.types.extend(each.type for each in function.registers)
        program.frames.append(frame)
        for at, instruction in enumerate(function.body):
            frame.pcs.append(len(program.code))
            if instruction.guard and instruction.opcode in _SPLITTING:
                program.code.append(
                    Step(_skip(instruction, instruction.guard), frame, at, skip=True)
                )
            program.code.append(Step(instruction, frame, at))
            if instruction.opcode == "call":
                self._call(instruction, frame, depth)
        frame.pcs.append(len(program.code))
        frame.after = len(program.code)

    def _call(self, instruction: Instruction, frame: Frame, depth: int) -> None:
        name, results, arguments = callee(instruction)
        function = self._module.functions.get(name)
        if function is None:
            raise UnsupportedError(f"call of {name}, which is not in the module", instruction)
        if not function.body:
            return
        symbols: dict[str, tuple[Frame, str]] = {}
        for formals, actuals in ((function.results, results), (function.parameters, arguments)):
            if len(formals) != len(actuals):
                raise UnsupportedError(f"call of {name} with other arguments", instruction)
            for formal, actual in zip(formals, actuals, strict=True):
                symbols[formal.name] = frame.symbols.get(actual, (frame, actual))
        self.splice(function, symbols, depth + 1)


def callee(instruction: Instruction) -> tuple[str, list[str], list[str]]:
    """The name of the called function, the variables of its results and of its arguments."""
    operands = list(instruction.operands)
    results = _names(operands.pop(0), instruction) if isinstance(operands[0], Vector) else []
    function = operands.pop(0) if operands else None
    if not isinstance(function, Symbol):
        raise UnsupportedError("call through a pointer", instruction)
    arguments = operands.pop(0) if operands else Vector(())
    if not isinstance(arguments, Vector):
        raise UnsupportedError("call through a pointer", instruction)
    return function.name, results, _names(arguments, instruction)


def variable(frame: Frame, name: str) -> Variable | None:
    """What the function of that frame declares under the name."""
    for each in frame.function.variables:
        if each.name == name:
            return each
    return None


def _names(operand: Operand, instruction: Instruction) -> list[str]:
    if not isinstance(operand, Vector):
        raise UnsupportedError("call with other operands than variables", instruction)
    names = [each.name for each in operand.items if isinstance(each, Symbol)]
    if len(names) != len(operand.items):
        raise UnsupportedError("call with registers as arguments", instruction)
    return names


def _skip(instruction: Instruction, guard: Guard) -> Instruction:
    """The branch for those whose guard does not let them."""
    guard = Guard(guard.register, not guard.negated)
    return Instruction("bra", (), (Label(""),), guard, instruction.line, instruction.location)
