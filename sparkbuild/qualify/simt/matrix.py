"""``ldmatrix`` and ``stmatrix``: 8 x 8 tiles of 16-bit elements between shared memory and a warp.

Lane ``8 i + r`` of the warp gives the address of row ``r`` of tile ``i``. Lane ``l`` holds of each
tile the elements ``2 (l % 4)`` and ``2 (l % 4) + 1`` of row ``l // 4``; of column ``l // 4`` where
the tile is transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import Instruction
from sparkbuild.qualify.simt.access import Kind
from sparkbuild.qualify.simt.lanes import Target
from sparkbuild.qualify.simt.loads import put
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.op import Run, Values, spread
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.site import Meeting, Site
from sparkbuild.qualify.simt.special import WARP

ROW_BYTES: Final = 16
_ROWS: Final = 8
_TILES: Final = {"x1": 1, "x2": 2, "x4": 4}


class MatrixForm:
    """The modifiers of ``ldmatrix`` and ``stmatrix`` taken apart."""

    def __init__(self, instruction: Instruction) -> None:
        words = ["shared" if word == "shared::cta" else word for word in instruction.modifiers]
        self.transposed = "trans" in words
        tiles = [word for word in words if word in _TILES]
        known = {"sync", "aligned", "m8n8", "trans", "shared", "b16", *_TILES}
        if set(words) - known or len(tiles) != 1 or not {"m8n8", "b16"} <= set(words):
            raise UnsupportedError(instruction.name, instruction)
        self.tiles = _TILES[tiles[0]]
        self.space = "shared" if "shared" in words else "generic"


class MatrixRows:
    """The rows that the warps of an instruction name."""

    def __init__(
        self, machine: Machine, races: Races, site: Site, slot: int, form: MatrixForm
    ) -> None:
        self.machine = machine
        self.form = form
        self._races = races
        self._site = site
        self._slot = slot

    def warps(self) -> NDArray[np.intp]:
        """The warps that take part."""
        return np.flatnonzero(self.machine.warps(self.machine.mask).all(1))

    def meet(self, warps: NDArray[np.intp]) -> tuple[list[Meeting], NDArray[np.intp]]:
        """Where the rows are, and the lane that named each."""
        machine = self.machine
        lanes = (warps[:, None] * WARP + np.arange(_ROWS * self.form.tiles)).reshape(-1)
        address = spread(machine.registers[self._slot], machine.lanes)[lanes]
        return self._site.meet(address, lanes), lanes

    def note(
        self,
        kind: Kind,
        meetings: Sequence[Meeting],
        lanes: NDArray[np.intp],
        values: NDArray[np.uint32] | None,
    ) -> None:
        """Tell of every word that a lane touches, which is not the lane that names its row."""
        words = np.arange(4)
        for meeting in meetings:
            if meeting.region.space != "shared":
                continue
            rows = np.arange(lanes.size) if meeting.rows is None else meeting.rows
            named = lanes[rows]
            first = named // WARP * WARP + named % _ROWS * 4
            index = (meeting.index.astype(np.int64)[:, None] * 4 + words).reshape(-1)
            touching = (first[:, None] + words).reshape(-1)
            written = () if values is None else (values[rows].reshape(-1),)
            self._races.note(
                kind, self._site.instruction, Meeting(meeting.region, index), 4, touching, written
            )


def load_matrix_run(where: MatrixRows, targets: Sequence[Target]) -> Run:
    """Run ``ldmatrix``."""
    machine, form = where.machine, where.form

    def run() -> None:
        warps = where.warps()
        meetings, lanes = where.meet(warps)
        where.note("read", meetings, lanes, None)
        rows = np.empty((lanes.size, 8), dtype="<u2")
        for meeting in meetings:
            found = meeting.region.view(2, 8).take(meeting.index, axis=0)
            if meeting.rows is None:
                rows = found
            else:
                rows[meeting.rows] = found
        tiles = rows.reshape(warps.size, form.tiles, _ROWS, 8)
        if form.transposed:
            tiles = tiles.swapaxes(2, 3)
        words = np.ascontiguousarray(tiles).view("<u4").reshape(warps.size, form.tiles, WARP)
        for number, target in enumerate(targets):
            if target is not None:
                put(machine, target, words[:, number].reshape(-1))

    return run


def store_matrix_run(where: MatrixRows, sources: Sequence[int]) -> Run:
    """Run ``stmatrix``."""
    machine, form = where.machine, where.form

    def run() -> None:
        warps = where.warps()
        meetings, lanes = where.meet(warps)
        words = np.stack([_of_warps(machine, each, warps) for each in sources], axis=1)
        tiles = np.ascontiguousarray(words).view("<u2").reshape(warps.size, form.tiles, _ROWS, 8)
        if form.transposed:
            tiles = tiles.swapaxes(2, 3)
        rows = np.ascontiguousarray(tiles).reshape(lanes.size, 8)
        where.note("write", meetings, lanes, rows.view("<u4"))
        for meeting in meetings:
            some = rows if meeting.rows is None else rows[meeting.rows]
            meeting.region.view(2, 8)[meeting.index] = some

    return run


def _of_warps(machine: Machine, slot: int, warps: NDArray[np.intp]) -> Values:
    values = spread(machine.registers[slot], machine.lanes)
    return values.reshape(-1, WARP)[warps].astype(np.uint32)
