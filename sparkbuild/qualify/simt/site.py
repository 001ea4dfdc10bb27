"""One memory instruction: addresses to elements of regions, every byte checked.

Nearly always all lanes of an instruction meet one region, the same as last time: then an address
costs a subtraction and a bound. Else lanes are told apart region by region.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import DeviceFault
from sparkbuild.qualify.ptx.model import Instruction
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.memory import WINDOWS, Region, allowed
from sparkbuild.qualify.simt.op import Values
from sparkbuild.qualify.simt.watch import Watch

_ored: Final = np.bitwise_or.reduce
_ADDRESSES: Final = 1 << 64
_NARROW: Final = 1 << 32
_UNKNOWN: Final = Region("nothing", "global", 0, 0, writable=False)


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """Some lanes' accesses to one region.

    ``index`` counts in elements of the access's whole size over all instances; ``rows`` says which
    of the lanes they are, None for all.
    """

    region: Region
    index: NDArray[Any]
    rows: NDArray[np.intp] | None = None


class Site:
    """The accesses of one instruction: ``size`` bytes a lane, ``plus`` added to each address."""

    def __init__(
        self,
        machine: Machine,
        instruction: Instruction,
        *,
        space: str,
        size: int,
        plus: int = 0,
        writes: bool = False,
    ) -> None:
        self.machine = machine
        self.instruction = instruction
        self.space = space
        self.size = size
        self.shift = size.bit_length() - 1
        self.writes = writes
        self._plus = plus
        self._region = _UNKNOWN
        self._begin = {8: 0, 4: 0}
        self._offset: NDArray[Any] = np.zeros(0, dtype=np.uint64)
        self._limit = -1

    def meet(self, address: Values, lanes: NDArray[np.intp] | None) -> list[Meeting]:
        """Check the addresses, one a lane or one for all; ``lanes`` whose they are, None for all.

        Raises DeviceFault for the first lane that is out of bounds, misaligned or may not write.
        """
        if address.itemsize == 4 and self.space not in WINDOWS:
            address = address.astype(np.uint64)
        if self._within(address):
            return [self._meeting(self._region, self._offset, lanes, None)]
        full = self._full(address)
        region = self.machine.memory.at(self.space, int(full[0]))
        if region is not None and allowed(region, self.space) and region.writable >= self.writes:
            self._remember(region)
            if self._within(address):
                return [self._meeting(region, self._offset, lanes, None)]
        return self._slowly(full, lanes)

    def _within(self, address: Values) -> bool:
        """Whether all addresses lie in the region that was met before, aligned."""
        offset = self._offset = address - self._begin[address.itemsize]
        bits = int(_ored(offset))
        if bits & (self.size - 1):
            return False
        return bits <= self._limit or int(offset.max()) <= self._limit

    def _full(self, address: Values) -> NDArray[np.uint64]:
        full = address.astype(np.uint64) + np.uint64(self._plus % _ADDRESSES)
        return full & np.uint64(_NARROW - 1) if address.itemsize == 4 else full

    def bytewise(self) -> Site:
        """The same instruction's accesses to single bytes."""
        return Site(
            self.machine,
            self.instruction,
            space=self.space,
            size=1,
            plus=self._plus,
            writes=self.writes,
        )

    def _meeting(
        self,
        region: Region,
        offset: NDArray[Any],
        lanes: NDArray[np.intp] | None,
        rows: NDArray[np.intp] | None,
    ) -> Meeting:
        index = offset >> self.shift
        if index.itemsize == 8:
            index = index.view(np.int64)
        if region.instances is not None:
            first = region.first(self.shift)
            if lanes is not None:
                first = first[lanes]
            index = index + (first if rows is None or first.size == 1 else first[rows])
        return Meeting(region, index, rows)

    def _slowly(self, full: NDArray[np.uint64], lanes: NDArray[np.intp] | None) -> list[Meeting]:
        """Lanes region by region, from the first lane on."""
        left = np.ones(full.size, dtype=np.bool_)
        found: list[tuple[Region, NDArray[np.uint64], NDArray[np.bool_]]] = []
        while left.any():
            first = int(left.argmax())
            region = self.machine.memory.at(self.space, int(full[first])) or _UNKNOWN
            offset = full - np.uint64(self._base(region))
            inside = left & (offset <= np.uint64(max(region.size - self.size, 0)))
            if not inside[first] or region.size < self.size or not allowed(region, self.space):
                self._out_of_bounds(region, int(full[first]), self._lane(first, lanes))
            if self.writes and not region.writable:
                lane = self._lane(first, lanes)
                self._fault("read-only", "may not be written", region, int(full[first]), lane)
            found.append((region, offset, inside))
            left &= ~inside
        crooked = full & np.uint64(self.size - 1) != 0
        if crooked.any():
            first = int(crooked.argmax())
            region = next(each for each, _, inside in found if inside[first])
            lane = self._lane(first, lanes)
            self._fault("misaligned", "is not aligned to it", region, int(full[first]), lane)
        if len(found) == 1:
            region, offset, _ = found[0]
            self._remember(region)
            return [self._meeting(region, offset, lanes, None)]
        return [
            self._meeting(region, offset[inside], lanes, np.flatnonzero(inside))
            for region, offset, inside in found
        ]

    def _base(self, region: Region) -> int:
        """Where the region begins, as this instruction addresses it."""
        return region.base + (0 if self.space in WINDOWS else WINDOWS.get(region.space, 0))

    def _remember(self, region: Region) -> None:
        self._region = region
        self._limit = region.size - self.size
        begin = self._base(region) - self._plus
        self._begin = {8: begin % _ADDRESSES, 4: begin % _NARROW}

    def _lane(self, at: int, lanes: NDArray[np.intp] | None) -> int:
        return at if lanes is None else int(lanes[at])

    def _out_of_bounds(self, region: Region, address: int, lane: int) -> NoReturn:
        verb = "write" if self.writes else "read"
        within = 0 <= address - self._base(region) <= region.size - self.size
        near = self.machine.memory.nearest(self.space, address)
        if within and region is not _UNKNOWN:
            where = f"in {region.name}, which is {region.space} memory"
        elif near is None:
            where = "where nothing is"
        elif address < self._base(near):
            where = f"{self._base(near) - address} bytes before {near.name}"
        else:
            over = address - self._base(near) + self.size - near.size
            where = f"{over} bytes beyond the end of {near.name}, which has {near.size}"
        raise DeviceFault(
            "out of bounds",
            f"{verb} of {self.size} bytes of {self.space} memory at {address:#x}, {where}",
            instruction=self.instruction,
            lane=self.machine.thread(lane),
            address=address,
        )

    def _fault(self, kind: str, what: str, region: Region, address: int, lane: int) -> NoReturn:
        verb = "write" if self.writes else "read"
        raise DeviceFault(
            kind,
            f"{verb} of {self.size} bytes at {address:#x} in {region.name} {what}",
            instruction=self.instruction,
            lane=self.machine.thread(lane),
            address=address,
        )


class WatchedSite(Site):
    """The accesses of an instruction that writes, some of which may meet what is watched."""

    watch: Watch

    def meet(self, address: Values, lanes: NDArray[np.intp] | None) -> list[Meeting]:
        """See Site; also keeps the instruction where it meets the watched byte."""
        meetings = super().meet(address, lanes)
        watch = self.watch
        for meeting in meetings:
            if meeting.region.space != "global" or meeting.region.name != watch.buffer:
                continue
            hits = np.flatnonzero(np.atleast_1d(meeting.index) == watch.offset >> self.shift)
            if hits.size:
                row = int(hits[-1])
                lane = row if meeting.rows is None else int(meeting.rows[row])
                watch.writer = self.instruction
                watch.thread = self.machine.thread(self._lane(lane, lanes))
        return meetings
