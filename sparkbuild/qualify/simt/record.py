"""Who wrote and who read each place of a shared variable since the last barrier."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import DeviceFault
from sparkbuild.qualify.ptx.model import Instruction
from sparkbuild.qualify.simt.access import Access, Epochs, grain_values, grains
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.memory import Region
from sparkbuild.qualify.simt.op import Mask, Values
from sparkbuild.qualify.simt.special import WARP

_ONE, _LANES, _WARPS = 0, 1, 2
"""Who has read a place: one lane, lanes of one warp since it met, lanes of more than one warp."""

_NOBODY: Final = -1
_count: Final = np.count_nonzero

Places = NDArray[Any]
Lanes = NDArray[Any]


class Record:
    """The latest writer and the readers of each place, with what orders lanes of one warp."""

    def __init__(self, machine: Machine, region: Region, grain: int) -> None:
        self._machine = machine
        self._region = region
        self._grain = grain
        count = region.raw.size // grain
        self._writer = np.full(count, _NOBODY, dtype=np.int32)
        self._written = np.zeros(count, dtype=np.int64)
        self._atomic = np.zeros(count, dtype=np.bool_)
        self._value = np.zeros(count, dtype=f"<u{grain}")
        self._writing = np.zeros(count, dtype=np.int32)
        self._reader = np.full(count, _NOBODY, dtype=np.int32)
        self._read = np.zeros(count, dtype=np.int64)
        self._many = np.zeros(count, dtype=np.int8)
        self._reading = np.zeros(count, dtype=np.int32)
        self._instructions: list[Instruction] = []
        self._numbers: dict[int, int] = {}
        self._empty = True

    def forget(self, blocks: Mask) -> None:
        """The threads of these blocks have met: what was before is in order."""
        count = self._region.stride // self._grain
        rows = blocks if self._region.instances is not None else np.ones(1, dtype=np.bool_)
        self._writer.reshape(-1, count)[rows] = _NOBODY
        self._reader.reshape(-1, count)[rows] = _NOBODY

    def take(self, access: Access) -> None:
        """Put one access in; raises DeviceFault where it is not ordered after an earlier one."""
        values = grain_values(access, self._grain)
        number = self._number(access.instruction)
        for places, lanes in grains(access, self._grain):
            written = next(values, None)
            epochs = access.epochs if isinstance(access.epochs, int) else access.epochs[lanes]
            if not self._empty:
                self._after_write(access, places, lanes, epochs, written)
            if access.kind == "read":
                self._note_read(places, lanes, epochs, number)
            else:
                self._after_reads(access, places, lanes, epochs)
                self._note_write(access, places, lanes, epochs, written, number)
        self._empty &= access.kind == "read"

    def _number(self, instruction: Instruction) -> int:
        number = self._numbers.get(id(instruction))
        if number is None:
            number = self._numbers[id(instruction)] = len(self._instructions)
            self._instructions.append(instruction)
        return number

    def _after_write(
        self, access: Access, places: Places, lanes: Lanes, epochs: Epochs, written: Values | None
    ) -> None:
        writer = self._writer[places]
        bad = (writer >= 0) & (writer != lanes)
        if not _count(bad):
            return
        same_warp = writer // WARP == lanes // WARP
        bad &= ~(same_warp & (self._written[places] < epochs))
        if access.kind == "atomic":
            bad &= ~self._atomic[places]
        elif access.kind == "write":
            bad &= ~same_warp
            if written is not None:
                bad &= self._value[places] != written
        if _count(bad):
            at = int(bad.argmax())
            other = self._instructions[int(self._writing[places[at]])]
            self._fault(access, int(places[at]), int(lanes[at]), int(writer[at]), ("wrote", other))

    def _after_reads(self, access: Access, places: Places, lanes: Lanes, epochs: Epochs) -> None:
        reader, many = self._reader[places], self._many[places]
        other_warp = reader // WARP != lanes // WARP
        near = (self._read[places] >= epochs) & ((many == _LANES) | (reader != lanes))
        bad = (reader >= 0) & ((many == _WARPS) | other_warp | near)
        if _count(bad):
            at = int(bad.argmax())
            other = self._instructions[int(self._reading[places[at]])]
            self._fault(access, int(places[at]), int(lanes[at]), int(reader[at]), ("read", other))

    def _note_write(
        self,
        access: Access,
        places: Places,
        lanes: Lanes,
        epochs: Epochs,
        written: Values | None,
        number: int,
    ) -> None:
        self._writer[places] = lanes
        self._written[places] = epochs
        self._writing[places] = number
        self._atomic[places] = access.kind == "atomic"
        twice = self._writer[places] != lanes
        if written is not None:
            self._value[places] = written
            twice &= self._value[places] != written
        if access.kind != "atomic" and _count(twice):
            at = int(twice.argmax())
            place, did = int(places[at]), ("wrote", access.instruction)
            self._fault(access, place, int(lanes[at]), int(self._writer[place]), did)

    def _note_read(self, places: Places, lanes: Lanes, epochs: Epochs, number: int) -> None:
        before, many = self._reader[places], self._many[places]
        same_warp = before // WARP == lanes // WARP
        fresh = (before < 0) | (same_warp & (self._read[places] < epochs) & (many != _WARPS))
        grown = np.where(same_warp, np.maximum(many, before != lanes), _WARPS)
        self._reader[places] = lanes
        self._read[places] = epochs
        self._reading[places] = number
        self._many[places] = np.where(fresh, _ONE, grown)
        last = self._reader[places]
        others = last != lanes
        if _count(others):
            far = others & (last // WARP != lanes // WARP)
            self._many[places[others]] = np.maximum(self._many[places[others]], _LANES)
            self._many[places[far]] = _WARPS

    def _fault(
        self, access: Access, place: int, lane: int, other: int, did: tuple[str, Instruction]
    ) -> NoReturn:
        machine, region = self._machine, self._region
        block, thread = machine.thread(lane)
        offset = place * self._grain % region.stride
        does = {"read": "reads", "write": "writes", "atomic": "changes"}[access.kind]
        verb, instruction = did
        source = instruction.location
        where = f" ({source.file}:{source.line})" if source else ""
        raise DeviceFault(
            "race",
            f"thread {thread} of block {block} {does} byte {offset} of {region.name}, which thread "
            f"{machine.thread(other)[1]} {verb} in PTX line {instruction.line}{where}, "
            "and nothing orders the two",
            instruction=access.instruction,
            lane=(block, thread),
            address=region.base + offset,
        )
