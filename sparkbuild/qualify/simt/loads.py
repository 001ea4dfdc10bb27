"""``ld``, ``ldu`` and ``st`` of every space, with vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import Instruction
from sparkbuild.qualify.simt.lanes import Target
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.op import Run, Values, fit
from sparkbuild.qualify.simt.program import Program
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.site import Meeting, Site

QUALIFIERS: Final = frozenset({"", "cta", "entry", "func"})
"""What may follow ``::`` behind a space; ``shared::cluster`` is not known."""
SPACES: Final = frozenset({"global", "shared", "local", "const", "param"})
_ELEMENTS: Final = {
    **{f"{kind}{bits}": (bits // 8, kind == "s") for kind in "bus" for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("f16", "bf16"), (2, False)),
    **dict.fromkeys(("f32", "f16x2", "bf16x2"), (4, False)),
    "f64": (8, False),
}
_OPS: Final = frozenset({"ld", "ldu", "st", "atom", "red", "wmma"})
_VECTORS: Final = {"v2": 2, "v4": 4, "v8": 8}
_HINTS: Final = frozenset(
    {"nc", "volatile", "relaxed", "acquire", "release", "weak", "mmio", "gpu", "cta", "sys"}
    | {"cluster", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "entry", "func", "unified"}
    | {"L1::evict_first", "L1::evict_last", "L1::evict_normal", "L1::evict_unchanged"}
    | {"L1::no_allocate", "L2::evict_first", "L2::evict_last", "L2::evict_normal"}
    | {"L2::64B", "L2::128B", "L2::256B"}
)
"""What changes when and where bytes are cached or seen by other blocks, not which bytes.

Lanes run one instruction together and blocks one after the other, so every access is seen at once.
"""


def smallest_access(program: Program) -> int:
    """Bytes of the smallest element in shared memory, or where the space is not told."""
    names = {step.instruction.modifiers for step in program.code if step.instruction.opcode in _OPS}
    sizes = [4]
    for modifiers in names:
        bases = {word.partition("::")[0] for word in modifiers}
        if "shared" in bases or not bases & SPACES:
            sizes += [_ELEMENTS[word][0] for word in modifiers if word in _ELEMENTS]
    return min(sizes)


class Form:
    """The modifiers of a memory instruction, taken apart."""

    def __init__(self, instruction: Instruction) -> None:
        self.space = "generic"
        self.count = 1
        self.type = ""
        for word in instruction.modifiers:
            base, _, rest = word.partition("::")
            if base in SPACES and rest in QUALIFIERS:
                self.space = base
            elif word in _VECTORS:
                self.count = _VECTORS[word]
            elif word in _ELEMENTS:
                self.type = word
            elif word not in _HINTS:
                raise UnsupportedError(f"{instruction.name}: .{word}", instruction)
        if not self.type:
            raise UnsupportedError(f"{instruction.name}: its type", instruction)
        self.size, self.signed = _ELEMENTS[self.type]


def load_run(
    races: Races | None,
    site: Site,
    slot: int,
    form: Form,
    targets: Sequence[Target],
) -> Run:
    """Run a load: addresses in ``slot``, one target for each element."""
    machine = site.machine
    registers = machine.registers
    size, count = form.size, form.count
    signed = np.dtype(f"<i{size}") if form.signed else None

    def run() -> None:
        address = registers[slot]
        lanes = machine.ids
        if lanes is not None and address.size > 1:
            address = address[lanes]
        meetings = site.meet(address, lanes)
        if races is not None:
            races.note_shared("read", site, meetings, lanes)
        if len(meetings) == 1:
            found = meetings[0].region.view(size, count).take(meetings[0].index, axis=0)
        else:
            found = _gathered(meetings, address.size, size, count)
        if signed is not None:
            found = found.view(signed)
        if count == 1:
            if targets[0] is not None:
                put(machine, targets[0], found)
            return
        for number, target in enumerate(targets):
            if target is not None:
                put(machine, target, found[:, number])

    return run


def _gathered(meetings: Sequence[Meeting], lanes: int, size: int, count: int) -> Values:
    """What lanes read that met more than one region."""
    found = np.empty((lanes, count) if count > 1 else lanes, f"<u{size}")
    for meeting in meetings:
        found[meeting.rows] = meeting.region.view(size, count).take(meeting.index, axis=0)
    return found


def put(machine: Machine, target: tuple[int, np.dtype[Any]], values: Values) -> None:
    """Give a register new values of the current lanes, one each or one for all."""
    slot, want = target
    if values.dtype is not want:
        values = fit(values, want)
    lanes = machine.ids
    if lanes is None:
        machine.registers[slot] = values
    elif not machine.keep:
        if values.size > 1 or lanes.size == 1:
            whole = np.zeros(machine.lanes, dtype=want)
            whole[lanes] = values
            values = whole
        machine.registers[slot] = values
    else:
        old = machine.registers[slot]
        whole = np.full(machine.lanes, old[0]) if old.size == 1 else old.copy()
        whole[lanes] = values
        machine.registers[slot] = whole


def store_run(
    races: Races | None,
    site: Site,
    slot: int,
    form: Form,
    sources: Sequence[int],
) -> Run:
    """Run a store: addresses in ``slot``, one source for each element."""
    machine = site.machine
    registers = machine.registers
    size, count = form.size, form.count
    want = np.dtype(f"<u{size}")

    def run() -> None:
        address = registers[slot]
        lanes = machine.ids
        if lanes is not None and address.size > 1:
            address = address[lanes]
        meetings = site.meet(address, lanes)
        values = [chosen(registers[each], lanes) for each in sources]
        values = [each if each.dtype is want else each.astype(want) for each in values]
        if races is not None:
            races.note_shared("write", site, meetings, lanes, values)
        for meeting in meetings:
            _store(meeting.region.view(size, count), meeting.index, values, meeting.rows)

    return run


def _store(
    view: NDArray[Any],
    index: NDArray[Any],
    values: Sequence[Values],
    rows: NDArray[np.intp] | None,
) -> None:
    if len(values) == 1:
        view[index] = last(values[0] if rows is None else chosen(values[0], rows), index)
        return
    for number, each in enumerate(values):
        view[index, number] = last(each if rows is None else chosen(each, rows), index)


def chosen(values: Values, lanes: NDArray[np.intp] | None) -> Values:
    """The values of these lanes; one that is for all stays one."""
    return values if lanes is None or values.size == 1 else values[lanes]


def last(values: Values, index: NDArray[Any]) -> Values:
    """What is left in memory when all lanes write to one address: the highest lane's value."""
    return values[-1:] if index.size == 1 and values.size > 1 else values
