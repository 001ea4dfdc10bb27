"""``cp.async``: copies from global to shared memory that arrive when they are waited for.

Until then their destination is undefined, so a wait that is missing, or waits for too little, shows
in what is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import Instruction
from sparkbuild.qualify.simt.loads import chosen
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.memory import POISON
from sparkbuild.qualify.simt.op import Run, Values
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.site import Meeting, Site

_SIZES: Final = frozenset({4, 8, 16})
_HINTS: Final = frozenset({"L2::64B", "L2::128B", "L2::256B", "ca", "cg"})


@dataclass(slots=True, eq=False)
class _Copy:
    instruction: Instruction
    meeting: Meeting
    data: NDArray[np.uint32]
    lanes: NDArray[np.intp]
    group: NDArray[np.int64]


class Copies:
    """The copies that are on their way, and how many groups each lane has committed."""

    def __init__(self, machine: Machine, races: Races) -> None:
        self._machine = machine
        self._races = races
        self._pending: list[_Copy] = []
        self._groups = np.zeros(1, dtype=np.int64)

    def start(self) -> None:
        """Other blocks begin."""
        self._pending = []
        self._groups = np.zeros(self._machine.lanes, dtype=np.int64)

    def issue(self, site: Site, meetings: list[Meeting], data: NDArray[np.uint32]) -> None:
        """Start copies of the current lanes: 4-byte words, one row a lane."""
        lanes = self._machine.lane_of if self._machine.ids is None else self._machine.ids
        undefined = np.full_like(data, POISON << 16 | POISON)
        for meeting in meetings:
            rows = np.arange(lanes.size) if meeting.rows is None else meeting.rows
            copy = _Copy(
                site.instruction,
                Meeting(meeting.region, np.broadcast_to(meeting.index, rows.shape)),
                data[rows],
                lanes[rows],
                self._groups[lanes[rows]],
            )
            self._write(copy, undefined[rows])
            self._pending.append(copy)

    def commit(self) -> None:
        """Close the group of every current lane."""
        self._groups[self._current()] += 1

    def wait_all(self) -> None:
        """Have everything of the current lanes arrive."""
        self.commit()
        self.wait(0)

    def wait(self, most: int) -> None:
        """Have all but the latest ``most`` groups of the current lanes arrive."""
        current = np.zeros(self._machine.lanes, dtype=np.bool_)
        current[self._current()] = True
        pending = []
        for copy in self._pending:
            done = current[copy.lanes] & (copy.group < self._groups[copy.lanes] - most)
            if done.any():
                self._write(_part(copy, done), copy.data[done])
            if not done.all():
                pending.append(_part(copy, ~done))
        self._pending = pending

    def _current(self) -> Any:
        return slice(None) if self._machine.ids is None else self._machine.ids

    def _write(self, copy: _Copy, data: NDArray[np.uint32]) -> None:
        region, index = copy.meeting.region, copy.meeting.index
        words = data.shape[1]
        if region.space == "shared":
            self._races.note(
                "write",
                copy.instruction,
                copy.meeting,
                4 * words,
                copy.lanes,
                [np.ascontiguousarray(data[:, number]) for number in range(words)],
            )
        region.view(4, words)[index] = data if words > 1 else data[:, 0]


def _part(copy: _Copy, rows: NDArray[np.bool_]) -> _Copy:
    return _Copy(
        copy.instruction,
        Meeting(copy.meeting.region, copy.meeting.index[rows]),
        copy.data[rows],
        copy.lanes[rows],
        copy.group[rows],
    )


def copy_size(instruction: Instruction, size: int) -> None:
    """Raise UnsupportedError for a form of ``cp.async`` that is not known."""
    words = instruction.modifiers[1:]
    spaces = [word for word in words if word not in _HINTS]
    known = (["shared", "global"], ["shared::cta", "global"])
    if size not in _SIZES or spaces not in known:
        raise UnsupportedError(f"{instruction.name} of {size} bytes", instruction)


def copy_run(
    machine: Machine,
    copies: Copies,
    into: Site,
    source: Site,
    slots: tuple[int, int],
    amount: int | None,
) -> Run:
    """Run ``cp.async``; ``amount`` is the register of how many bytes are read, None for all."""
    registers = machine.registers
    words = into.size // 4

    def run() -> None:
        lanes = machine.ids
        meetings = into.meet(chosen(registers[slots[0]], lanes), lanes)
        data = np.zeros((machine.active, words), dtype="<u4")
        address = np.broadcast_to(chosen(registers[slots[1]], lanes), machine.active)
        who = machine.lane_of if lanes is None else lanes
        for rows, bytes_ in _amounts(machine, amount, into.size):
            if bytes_ == into.size:
                _read(source.meet(address[rows], who[rows]), words, data, rows)
            elif bytes_:
                _read_some(source, address[rows], who[rows], bytes_, data, rows)
        copies.issue(into, meetings, data)

    return run


def _amounts(
    machine: Machine, amount: int | None, size: int
) -> Iterator[tuple[NDArray[np.intp], int]]:
    """Lanes by how many bytes they read."""
    everyone = np.arange(machine.active)
    if amount is None:
        yield everyone, size
        return
    values = chosen(machine.registers[amount], machine.ids).astype(np.uint32)
    values = np.minimum(np.broadcast_to(values, machine.active), size)
    for each in np.unique(values).tolist():
        yield everyone[values == each], each


def _read(
    meetings: list[Meeting], words: int, data: NDArray[np.uint32], rows: NDArray[np.intp]
) -> None:
    for meeting in meetings:
        found = meeting.region.view(4, words).take(meeting.index, axis=0)
        data[rows if meeting.rows is None else rows[meeting.rows]] = found.reshape(-1, words)


def _read_some(
    source: Site,
    address: Values,
    lanes: NDArray[np.intp],
    count: int,
    data: NDArray[np.uint32],
    rows: NDArray[np.intp],
) -> None:
    """Byte by byte; what is not read is zero."""
    single = source.bytewise()
    found = np.zeros((rows.size, 4 * data.shape[1]), dtype=np.uint8)
    for byte in range(count):
        for meeting in single.meet(address + np.uint64(byte), lanes):
            some = slice(None) if meeting.rows is None else meeting.rows
            found[some, byte] = meeting.region.view(1, 1).take(meeting.index)
    data[rows] = found.view("<u4")
