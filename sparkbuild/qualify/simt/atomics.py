"""``atom`` and ``red``: one lane after the other, in their order, where they meet at one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.alu.contract import LaneOp
from sparkbuild.qualify.alu.decode import decode
from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import Instruction, Register
from sparkbuild.qualify.simt.lanes import Target
from sparkbuild.qualify.simt.loads import QUALIFIERS, chosen, put
from sparkbuild.qualify.simt.op import Run, Values
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.site import Meeting, Site

Update = Callable[..., Values]
"""The old values and the operands to the new values."""

_SIZES: Final = {
    "b16": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "f16": 2,
    "bf16": 2,
    "f16x2": 4,
    "bf16x2": 4,
}
_SPACES: Final = frozenset({"global", "shared"})
_QUIET: Final = frozenset(
    {"relaxed", "acquire", "release", "acq_rel", "gpu", "cta", "sys", "cluster", "noftz"}
)
_OPERATIONS: Final = frozenset(
    {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}
)


class AtomicForm:
    """The modifiers of an atomic taken apart."""

    def __init__(self, instruction: Instruction) -> None:
        self.space = "generic"
        self.operation = self.type = ""
        for word in instruction.modifiers:
            base, _, rest = word.partition("::")
            if base in _SPACES and rest in QUALIFIERS:
                self.space = base
            elif word in _OPERATIONS:
                self.operation = word
            elif word in _SIZES:
                self.type = word
            elif word not in _QUIET:
                raise UnsupportedError(f"{instruction.name}: .{word}", instruction)
        if not self.operation or not self.type:
            raise UnsupportedError(instruction.name, instruction)
        self.size = _SIZES[self.type]
        self.update = _update(self.operation, self.type, self.space, instruction)


def atomic_run(
    races: Races,
    site: Site,
    form: AtomicForm,
    slot: int,
    sources: Sequence[int],
    target: Target,
) -> Run:
    """Run an atomic; ``target`` None where the old value is not wanted."""
    machine = site.machine
    registers = machine.registers
    dtype = np.dtype(f"<u{form.size}")

    def run() -> None:
        lanes = machine.ids
        address = chosen(registers[slot], lanes)
        count = machine.active
        old = np.empty(count, dtype=dtype)
        operands = [
            np.broadcast_to(chosen(registers[each], lanes), count).astype(dtype) for each in sources
        ]
        meetings = site.meet(address, lanes)
        races.note_shared("atomic", site, meetings, lanes)
        for meeting in meetings:
            view = meeting.region.view(form.size, 1)
            for rows, index in _rounds(meeting, count):
                old[rows] = view[index]
                view[index] = form.update(old[rows], *[each[rows] for each in operands])
        if target is not None:
            put(machine, target, old)

    return run


def _rounds(meeting: Meeting, count: int) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
    """Lanes that meet no other at their place, then the second of each place, and so on."""
    rows = np.arange(count) if meeting.rows is None else meeting.rows
    index = np.broadcast_to(meeting.index, rows.shape)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if begins.size == rows.size:
        yield rows, index
        return
    lengths = np.diff(np.append(begins, rows.size))
    rank = np.arange(rows.size) - np.repeat(begins, lengths)
    by_rank = np.argsort(rank, kind="stable")
    ends = np.cumsum(np.bincount(rank))
    for begin, end in zip(np.append(0, ends[:-1]), ends, strict=True):
        some = order[by_rank[begin:end]]
        yield rows[some], index[some]


def _exchange(_: Values, new: Values) -> Values:
    return new


def _compare(old: Values, expected: Values, new: Values) -> Values:
    return np.where(old == expected, new, old)


def _increase(old: Values, most: Values) -> Values:
    return np.where(old >= most, 0, old + old.dtype.type(1))


def _decrease(old: Values, most: Values) -> Values:
    return np.where((old == 0) | (old > most), most, old - old.dtype.type(1))


_OWN: Final[dict[str, Update]] = {
    "exch": _exchange,
    "cas": _compare,
    "inc": _increase,
    "dec": _decrease,
}


def _update(operation: str, kind: str, space: str, instruction: Instruction) -> Update:
    if operation in _OWN:
        return _OWN[operation]
    words: tuple[str, ...] = (kind,)
    if kind == "f32" and space != "shared":
        # PTX: addition in global memory flushes subnormal numbers, that in shared memory does not.
        words = ("ftz", "f32")
    if kind in {"f16", "bf16", "f16x2", "bf16x2"} or kind == "f64":
        words = ("rn", kind)
    register = Register("%atom", kind if kind in {"f32", "f64"} else f"b{8 * _SIZES[kind]}")
    made = Instruction(operation, words, (register,) * 3, None, instruction.line)
    try:
        op = decode(made)
    except UnsupportedError as error:
        raise UnsupportedError(instruction.name, instruction) from error
    if not isinstance(op, LaneOp):
        raise UnsupportedError(instruction.name, instruction)
    run = op.run
    unsigned = np.dtype(f"<u{_SIZES[kind]}")

    def update(old: Values, value: Values) -> Values:
        new: Values = run(old, value)[0].view(unsigned)
        return new

    return update
