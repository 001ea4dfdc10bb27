"""Races in shared memory: two threads of a block touch a byte, one writes, nothing orders them.

The schedule here happens to be a good one, so a lost barrier shows in no value. Every access to
shared memory is therefore noted until the next barrier, and then looked at as if the threads had
run in any order. What orders two threads is

- a barrier of the block;
- inside of a warp ``bar.warp.sync``, and every other instruction that lanes of a warp do together
  (``shfl.sync``, ``vote.sync``, ``mma.sync``, ``ldmatrix`` and so on). PTX promises order of memory
  for the first only, but lanes that have met there have issued what came before, a warp's accesses
  to shared memory are served in their order, and ggml's attention kernels rely on it. Nothing else
  does: since Volta lanes of a warp may run apart.

What is let pass: writes of the same value to one place, since whichever comes last leaves the same
(ggml's tile loaders do so where a tile reaches beyond the matrix); different writes of one warp, in
the order of the program (ggml clears padding so, lane by lane); atomics among themselves. A barrier
of some threads of a block counts for what they did before; others are not told apart, so there a
race can be missed, and none is invented.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.ptx.model import Instruction
from sparkbuild.qualify.simt.access import Access, Epochs, Kind, grains
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.memory import Region
from sparkbuild.qualify.simt.op import Mask, Values
from sparkbuild.qualify.simt.record import Record
from sparkbuild.qualify.simt.site import Meeting, Site
from sparkbuild.qualify.simt.special import WARP

_MOST_BYTES: Final = 128 << 20
"""Of noted accesses; more are put into the record before the barrier comes."""


class Races:
    """Notes accesses to shared memory and judges them."""

    def __init__(self, machine: Machine, grain: int) -> None:
        self._machine = machine
        self._grain = grain
        """Bytes that are told apart: the smallest access of the program."""
        self._noted: list[Access] = []
        self._bytes = 0
        self._writes = False
        self._records: dict[Region, Record] = {}
        self._epochs: Epochs = 0

    def start(self) -> None:
        """Other blocks begin."""
        self._forget()

    def note(
        self,
        kind: Kind,
        instruction: Instruction,
        meeting: Meeting,
        size: int,
        lanes: NDArray[np.intp] | None,
        values: Sequence[Values] = (),
    ) -> None:
        """Note what these lanes did; None is all lanes."""
        machine = self._machine
        who = machine.lane_of if lanes is None else lanes
        if meeting.rows is not None:
            who = who[meeting.rows]
        self._noted.append(
            Access(
                kind,
                instruction,
                meeting.region,
                meeting.index,
                size,
                who,
                values,
                self._epochs,
            )
        )
        self._writes |= kind != "read"
        self._bytes += meeting.index.nbytes + sum([each.nbytes for each in values])
        if self._bytes > _MOST_BYTES:
            self._settle()

    def note_shared(
        self,
        kind: Kind,
        site: Site,
        meetings: Sequence[Meeting],
        lanes: NDArray[np.intp] | None,
        values: Sequence[Values] = (),
    ) -> None:
        """Note those meetings that are in shared memory."""
        for meeting in meetings:
            if meeting.region.space == "shared":
                rows = meeting.rows
                some = [each if rows is None or each.size == 1 else each[rows] for each in values]
                self.note(kind, site.instruction, meeting, site.size, lanes, some)

    def warp(self, mask: Mask | None) -> None:
        """Lanes of each warp have met."""
        if not self._noted and not self._records:
            return
        if mask is None:
            self._epochs = self._epochs + 1
            return
        epochs = np.broadcast_to(self._epochs, self._machine.lanes).reshape(-1, WARP)
        here = self._machine.warps(mask)
        after = np.where(here, epochs, -1).max(1, keepdims=True) + 1
        self._epochs = np.where(here, after, epochs).reshape(-1)

    def barrier(self, blocks: Mask | None, *, partial: bool) -> None:
        """All threads of these blocks have met, or some of them; None is all blocks."""
        if blocks is None or (blocks.all() and not partial):
            if self._writes or self._records:
                self._judge()
            self._forget()
            return
        self._settle()
        for record in self._records.values():
            record.forget(blocks)

    def _forget(self) -> None:
        self._noted = []
        self._bytes = 0
        self._writes = False
        self._records = {}
        self._epochs = 0

    def _judge(self) -> None:
        """Look coarsely first: most intervals have no two threads at one place."""
        if self._records or _crossed(self._noted, self._grain):
            self._settle()

    def _settle(self) -> None:
        """Put what is noted into the records, which raise DeviceFault for a race."""
        for access in self._noted:
            record = self._records.get(access.region)
            if record is None:
                record = Record(self._machine, access.region, self._grain)
                self._records[access.region] = record
            record.take(access)
        self._noted = []
        self._bytes = 0


def _crossed(noted: Sequence[Access], grain: int) -> bool:
    """Whether a thread met a place that another one wrote, in whatever order."""
    owners: dict[Region, NDArray[np.int32]] = {}
    for access in noted:
        if access.kind == "read":
            continue
        owner = owners.get(access.region)
        if owner is None:
            owner = np.full(access.region.raw.size // grain, -1, dtype=np.int32)
            owners[access.region] = owner
        for places, lanes in grains(access, grain):
            before = owner[places]
            if np.count_nonzero((before >= 0) & (before != lanes)):
                return True
            owner[places] = lanes
            if np.count_nonzero(owner[places] != lanes):
                return True
    for access in noted:
        if access.kind == "read" and access.region in owners:
            owner = owners[access.region]
            for places, lanes in grains(access, grain):
                before = owner[places]
                if np.count_nonzero((before >= 0) & (before != lanes)):
                    return True
    return False
