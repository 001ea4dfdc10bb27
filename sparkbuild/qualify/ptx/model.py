"""A PTX module as data: what the reader gives and the executor takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Space: TypeAlias = Literal["global", "const", "shared", "local", "param"]


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register; ``type`` without its dot: ``pred``, ``b16``, ``f32``, ``b64``."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only register of the machine, its name with the percent sign: ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. ``kind`` int: ``value`` as written, which may be negative; else the raw bits."""

    value: int
    kind: Literal["int", "f32", "f64"] = "int"


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, or a function that is called."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """``[base+offset]``, the offset in bytes."""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A place to branch to."""

    name: str


@dataclass(frozen=True, slots=True)
class Negated:
    """``!%p``: the other truth of a predicate."""

    register: Register


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that nobody wants."""


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b}``: the elements of one access, or the fragments of one matrix."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``%p|%q``: two results of one instruction."""

    first: Register | Sink
    second: Register | Sink


Operand: TypeAlias = (
    Register | Special | Immediate | Symbol | Address | Label | Negated | Sink | Vector | Pair
)


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a source file, from ``.loc``; ``inlined`` is where its function was inlined."""

    file: str
    line: int
    function: str = ""
    inlined: Location | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """``@%p`` or ``@!%p``."""

    register: Register
    negated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction: ``ld.global.nc.v4.b32`` is ``ld`` with four modifiers, in their order.

    ``line`` counts from 1 in the PTX text; ``location`` is None where no ``.loc`` came before.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    location: Location | None = None

    @property
    def name(self) -> str:
        """The opcode with its modifiers, as PTX writes it."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """Memory that the module declares; ``size`` and ``align`` in bytes.

    ``data`` is its first content (shorter than ``size`` where the rest is zero; empty for shared
    and local memory, which begin undefined). ``size`` is 0 for ``extern .shared`` arrays.
    """

    name: str
    space: Space
    size: int
    align: int
    data: bytes = b""
    references: tuple[tuple[int, str, int], ...] = ()
    """Addresses inside ``data``: (offset in bytes, the symbol, what is added to it)."""


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A kernel (``entry``) or a device function with its body.

    ``labels`` gives each label the index in ``body`` of what follows it. ``parameters`` are of
    space ``param``, in order, laid out by their alignment; ``results`` are a device function's.
    """

    name: str
    entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    registers: tuple[Register, ...]
    variables: tuple[Variable, ...]
    """Declared inside: shared, local, and the parameters of calls."""
    body: tuple[Instruction, ...]
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """``.branchtargets`` of ``brx.idx``, by its label."""
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """``maxntid``, ``reqntid``, ``minnctapersm``, ``maxnreg``."""


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A whole PTX file. ``target`` is ``sm_121a``, ``version`` (8, 8)."""

    version: tuple[int, int]
    target: str
    variables: dict[str, Variable]
    functions: dict[str, Function]
    opcodes: dict[str, int] = field(default_factory=dict)
    """How often each full name occurs in the text, for what the executor lacks."""
