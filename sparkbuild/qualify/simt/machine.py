"""The state of blocks that run together, and the schedule: lowest place in the code first.

Lanes at one place form a group, told by a mask. The group that is furthest behind runs next, so
lanes that took a longer way catch up and meet the others again. While all lanes that have not
exited are in one group, no mask is needed: whole arrays are computed, and old ones thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import DeviceFault
from sparkbuild.qualify.simt.memory import POISON, Memory, Region
from sparkbuild.qualify.simt.op import WIDTHS, Mask, Op, Run, Values
from sparkbuild.qualify.simt.program import Program
from sparkbuild.qualify.simt.special import WARP, Shape, special
from sparkbuild.qualify.simt.watch import Watch

PATIENCE: Final = 4096
"""Turns without all lanes together, after which the group that is furthest ahead has as many: what
runs behind may be waiting for it."""

GONE: Final = -1
"""What a block's end gives when its lanes are no longer one group."""

_UNDEFINED: Final = {
    kind: np.full(4, POISON, dtype="<u2").view(np.uint8)[: dtype.itemsize].view(dtype)
    if dtype.kind == "u"
    else np.ones(1, dtype=np.bool_)
    for kind, dtype in WIDTHS.items()
}


@dataclass(slots=True, eq=False)
class Block:
    """Instructions that are run one after the other, and how they end."""

    ops: list[Op]
    full: list[Run]
    end: Callable[[], int]
    """The next place, or GONE; for ``masked`` lanes, too."""


class Waiting(Protocol):
    """Threads that wait at barriers; true while there are any."""

    def __bool__(self) -> bool: ...

    def clear(self) -> None:
        """Forget everything, for other blocks."""

    def check(self) -> None:
        """Let go those whose others have come or exited."""

    def stuck(self) -> DeviceFault:
        """The fault when nobody can go on."""


class Order(Protocol):
    """What has to know when threads are put in order."""

    def start(self) -> None:
        """Other blocks begin."""

    def barrier(self, blocks: Mask | None, *, partial: bool) -> None:
        """The threads of these blocks, of all where None, have met; ``partial``: some of them."""


class Machine:
    """Registers, masks and groups of the blocks that run now."""

    def __init__(self, program: Program, memory: Memory, limit: int) -> None:
        self.program = program
        self.memory = memory
        self.limit = limit
        self.registers: list[Values] = []
        self.specials: dict[str, int] = {}
        self.steps = 0
        self.lane_steps = 0
        self.blocks: dict[int, Block] = {}
        self.build: Callable[[int], Block]
        self.barriers: Waiting
        self.order: Order
        self.starting: list[Callable[[], None]] = []
        self.watch: Watch | None = None
        self._undefined = [_UNDEFINED[each] for each in program.types]
        self.registers.extend(self._undefined)

    def start(self, shape: Shape) -> None:
        """Take up the next blocks of the grid: nothing is defined, every thread at the entry."""
        self.shape = shape
        self.lanes = shape.lanes
        self.registers[: len(self._undefined)] = self._undefined
        for name, slot in self.specials.items():
            self.registers[slot] = special(name, shape)
        self.everything: Mask = np.ones(self.lanes, dtype=np.bool_)
        self.block_of = np.repeat(np.arange(shape.blocks), shape.width)
        self.lane_of = np.arange(self.lanes)
        for region in self.memory.regions:
            self.renew(region)
        self.live: Mask | None = None
        if shape.width != shape.threads:
            self.live = np.arange(self.lanes) % shape.width < shape.threads
        self.ready: dict[int, Mask | None] = {0: self.live}
        self.blocked: dict[int, Mask] = {}
        self.barriers.clear()
        self._turns = 0
        self.choose(self.live, keep=False)
        self.order.start()
        for start in self.starting:
            start()

    def close(self) -> None:
        """Let go of everything that was made for this program.

        Operations know the machine and the machine knows them: without this only the garbage
        collector would free them, tens of thousands a launch.
        """
        self.blocks.clear()
        self.registers.clear()
        del self.build, self.barriers, self.order, self.starting

    def renew(self, region: Region) -> None:
        """Give blocks or lanes their own, undefined instances of the region."""
        if region.per == "block":
            region.poison(self.shape.blocks, self.block_of)
        elif region.per == "lane":
            region.poison(self.lanes, self.lane_of)

    def choose(self, mask: Mask | None, *, keep: bool) -> None:
        """Make these lanes the current ones; ``keep`` the registers of others."""
        self.mask: Mask | None = mask
        self.here: Mask = self.everything if mask is None else mask
        self.keep = keep
        self.ids: NDArray[np.intp] | None = None if mask is None else np.flatnonzero(mask)
        self.active = self.lanes if self.ids is None else self.ids.size

    def put(self, place: int, mask: Mask | None) -> None:
        """Have lanes go on from a place when it is their turn."""
        if place in self.ready:
            other = self.ready[place]
            mask = None if mask is None or other is None else mask | other
        self.ready[place] = mask

    def split(self, taken: Mask, place: int, other: int) -> int:
        """Send the current lanes two ways."""
        rest = ~taken if self.mask is None else self.mask & ~taken
        if taken.any():
            self.put(place, taken)
        if rest.any():
            self.put(other, rest)
        return GONE

    def leave(self, mask: Mask | None) -> None:
        """Have lanes exit: nobody waits for them any more."""
        live = self.everything if self.live is None else self.live
        self.live = live & ~(self.everything if mask is None else mask)
        blocked, self.blocked = self.blocked, {}
        for place, lanes in blocked.items():
            self.put(place, lanes)
        self.barriers.check()

    def run(self) -> None:
        """Run all lanes until every one has exited."""
        blocks, build = self.blocks, self.build
        place = self._next()
        while place != GONE:
            block = blocks.get(place)
            if block is None:
                block = blocks[place] = build(place)
            if self.keep:
                place = self._masked(block)
                if place != GONE:
                    self.put(place, self.mask)
                place = self._next()
            else:
                for run in block.full:
                    run()
                count = len(block.full) + 1
                self.steps += count
                self.lane_steps += count * self.active
                place = block.end()
                if place == GONE:
                    place = self._next()
            if self.steps > self.limit:
                raise DeviceFault(
                    "endless",
                    f"no end after {self.limit:,} instructions",
                    instruction=block.ops[-1].instruction if block.ops else None,
                )
        self.order.barrier(None, partial=False)

    def _masked(self, block: Block) -> int:
        count = 1
        for op in block.ops:
            if op.gate is not None and not op.gate.arrive():
                self._count(count)
                return GONE
            op.masked()
            count += 1
        self._count(count)
        return block.end()

    def _count(self, count: int) -> None:
        self.steps += count
        self.lane_steps += count * self.active

    def _next(self) -> int:
        """Choose the group that is furthest behind; GONE where all lanes have exited."""
        ready = self.ready
        if not ready:
            if self.blocked or self.barriers:
                self._dead_end()
            return GONE
        self._turns += 1
        place = max(ready) if self._turns // PATIENCE % 2 else min(ready)
        mask = ready.pop(place)
        keep = bool(ready or self.blocked or self.barriers)
        if keep:
            self.choose(mask, keep=True)
        else:
            self._turns = 0
            self.choose(None if self.live is None or self.live.all() else self.live, keep=False)
        return place

    def _dead_end(self) -> None:
        if not self.blocked:
            raise self.barriers.stuck()
        place, mask = next(iter(self.blocked.items()))
        raise DeviceFault(
            "diverged",
            "threads wait for others of their warp that never come",
            instruction=self.program.code[place].instruction,
            lane=self.thread(int(np.flatnonzero(mask)[0])),
        )

    def thread(self, lane: int) -> tuple[int, int]:
        """A lane as block and thread, both linear in the grid."""
        block, thread = divmod(lane, self.shape.width)
        return self.shape.first + block, thread

    def warps(self, mask: Mask | None) -> Mask:
        """A mask in rows of warps."""
        return (self.everything if mask is None else mask).reshape(-1, WARP)
