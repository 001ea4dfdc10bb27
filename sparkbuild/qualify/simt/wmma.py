"""``wmma.load`` and ``wmma.store``: matrices between memory and the fragments of a warp.

PTX leaves open which lane holds which element; ``alu.fragments`` has chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.alu.fragments import WMMA_SHAPES, wmma_elements
from sparkbuild.qualify.fault import DeviceFault, UnsupportedError
from sparkbuild.qualify.ptx.model import Instruction
from sparkbuild.qualify.simt.access import Kind
from sparkbuild.qualify.simt.lanes import Target
from sparkbuild.qualify.simt.loads import put
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.op import Run, Values
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.site import Meeting, Site
from sparkbuild.qualify.simt.special import WARP

_SIZES: Final = {"f16": 2, "f32": 4}
_SPACES: Final = frozenset({"global", "shared"})


class FragmentForm:
    """``wmma.load.a.sync.aligned.row.m16n16k16.shared.f16`` and its like, taken apart."""

    def __init__(self, instruction: Instruction) -> None:
        words = ["shared" if word == "shared::cta" else word for word in instruction.modifiers]
        self.loads = words[:1] == ["load"]
        spaces = [word for word in words if word in _SPACES]
        words = [word for word in words if word not in _SPACES]
        if (
            len(words) != 7
            or words[2:4] != ["sync", "aligned"]
            or words[0] not in {"load", "store"}
        ):
            raise UnsupportedError(instruction.name, instruction)
        verb, self.matrix, _, _, self.layout, self.shape, kind = words
        wanted = {"a", "b", "c"} if self.loads else {"d"}
        if (
            verb not in {"load", "store"}
            or self.matrix not in wanted
            or self.layout not in {"row", "col"}
            or self.shape not in WMMA_SHAPES
            or kind not in _SIZES
            or (kind == "f32" and self.matrix in {"a", "b"})
        ):
            raise UnsupportedError(instruction.name, instruction)
        self.space = spaces[0] if spaces else "generic"
        self.size = _SIZES[kind]
        count = 16 if self.matrix in {"a", "b"} else 8
        self.registers = count * self.size // 4

    def places(self, stride: int) -> NDArray[np.uint64]:
        """Offsets in bytes of each lane's elements, (32, elements); ``stride`` in elements."""
        row, column = wmma_elements(self.shape, self.matrix)
        if self.layout == "row":
            return ((row * stride + column) * self.size).astype(np.uint64)
        return ((column * stride + row) * self.size).astype(np.uint64)


class Fragments:
    """The elements that the warps of an instruction touch."""

    def __init__(
        self, machine: Machine, races: Races, site: Site, form: FragmentForm, slots: tuple[int, int]
    ) -> None:
        self.machine = machine
        self.form = form
        self._races = races
        self._site = site
        self._address, self._stride = slots

    def meet(self) -> tuple[list[Meeting], NDArray[np.intp]]:
        """Where all elements are, warp after warp and lane after lane, and the lane of each."""
        machine = self.machine
        warps = np.flatnonzero(machine.warps(machine.mask).all(1))
        stride = int(self._same(self._stride, warps)[0])
        places = self.form.places(stride).reshape(-1)
        address = self._same(self._address, warps).astype(np.uint64)
        each = (address[:, None] + places).reshape(-1)
        lanes = (warps[:, None] * WARP + np.arange(WARP)).reshape(-1)
        lanes = np.repeat(lanes, places.size // WARP)
        return self._site.meet(each, lanes), lanes

    def note(
        self, meetings: Sequence[Meeting], lanes: NDArray[np.intp], values: Values | None
    ) -> None:
        """Tell what was touched in shared memory."""
        for meeting in meetings:
            if meeting.region.space == "shared":
                written = () if values is None else (values[_rows(meeting)],)
                kind: Kind = "read" if values is None else "write"
                self._races.note(
                    kind, self._site.instruction, meeting, self.form.size, lanes, written
                )

    def _same(self, slot: int, warps: NDArray[np.intp]) -> Values:
        """One value a warp; raises DeviceFault where its lanes do not agree.

        The stride must be the same in all warps: it is a constant wherever ggml uses it.
        """
        machine = self.machine
        values = np.broadcast_to(machine.registers[slot], machine.lanes).reshape(-1, WARP)[warps]
        torn = (values != values[:, :1]).any(1)
        if torn.any() or (slot == self._stride and (values != values[0, 0]).any()):
            raise DeviceFault(
                "diverged",
                "lanes of a warp name different matrices",
                instruction=self._site.instruction,
                lane=machine.thread(int(warps[torn.argmax()]) * WARP),
            )
        return values[:, 0]


def load_fragment_run(fragments: Fragments, targets: Sequence[Target]) -> Run:
    """Run ``wmma.load``."""
    machine, form = fragments.machine, fragments.form

    def run() -> None:
        meetings, lanes = fragments.meet()
        fragments.note(meetings, lanes, None)
        found = np.empty(lanes.size, dtype=f"<u{form.size}")
        for meeting in meetings:
            found[_rows(meeting)] = meeting.region.view(form.size, 1).take(meeting.index)
        words = found.view("<u4").reshape(-1, form.registers)
        for number, target in enumerate(targets):
            if target is not None:
                put(machine, target, words[:, number])

    return run


def store_fragment_run(fragments: Fragments, sources: Sequence[int]) -> Run:
    """Run ``wmma.store``."""
    machine, form = fragments.machine, fragments.form

    def run() -> None:
        meetings, lanes = fragments.meet()
        values = [np.broadcast_to(machine.registers[each], machine.lanes) for each in sources]
        words = np.stack(values, axis=1)
        if machine.mask is not None:
            words = words[machine.mask]
        elements = np.ascontiguousarray(words).view(f"<u{form.size}").reshape(-1)
        fragments.note(meetings, lanes, elements)
        for meeting in meetings:
            meeting.region.view(form.size, 1)[meeting.index] = elements[_rows(meeting)]

    return run


def _rows(meeting: Meeting) -> slice | NDArray[np.intp]:
    return slice(None) if meeting.rows is None else meeting.rows
