"""What the qualify stage gives."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

SCHEMA = 1

Outcome = Literal["right", "wrong", "unsupported", "not compiled"]
"""Of a probe. ``unsupported``: the executor lacks an instruction; never counted as right."""

Verdict = Literal["right", "wrong", "incomplete", "not applicable", "not tried"]
"""``incomplete``: nothing was wrong, and not every probe could be judged."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where in the code: lines count from 1; ``source`` is ``vecdotq.cuh:812 in vec_dot_...``."""

    ptx_line: int | None = None
    instruction: str = ""
    source: str = ""


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that a probe's kernel did wrong, and how much of its output is wrong."""

    case: str
    kind: str
    """``value``, or what ended the execution: ``out of bounds``, ``race``, ``deadlock`` ..."""
    text: str
    where: Place = Place()
    buffer: str = ""
    index: tuple[int, ...] = ()
    expected: float | None = None
    found: float | None = None
    bound: float | None = None
    wrong: int = 0
    """Elements outside of their bounds, in this case ..."""
    compared: int = 0
    """... out of so many."""
    nmse: float | None = None
    """Normalised squared error over the compared elements of the buffer."""


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """The same launches on a GPU and in the executor, element by element of what is compared."""

    outcome: Outcome
    """The executor's own, on the cases that both ran."""
    text: str = ""
    """Its mistake, or what it lacks."""
    where: Place = Place()
    """Where it ended, if it did not come to the end."""
    compared: int = 0
    equal: int = 0
    """Elements whose bits are the same in both."""
    apart: int = 0
    """Elements that differ by more than the bound of what is right."""
    difference: float = 0.0
    """The largest difference within its bound, as a part of that bound."""
    worst: str = ""
    """Which case and buffer that was."""


Made = Literal["native", "retargeted"]
"""What a GPU ran: the target's own code, or the same PTX assembled for the device."""


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """What one probe showed."""

    name: str
    unit: str
    kind: str
    outcome: Outcome
    types: tuple[str, ...] = ()
    mistake: Mistake | None = None
    reason: str = ""
    """Why it could not be judged, with the instruction's name."""
    cases: int = 0
    compared: int = 0
    """Elements that were compared with what is right."""
    lane_steps: int = 0
    seconds: float = 0.0
    margin: float | None = None
    """The largest difference as a part of its bound, where it is right: 1.0 is at the bound."""
    worst: str = ""
    """Which case that was."""
    made: Made | None = None
    """On a GPU alone, as is ``against``."""
    against: Against | None = None


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One file of probe kernels as it was compiled."""

    name: str
    compiled: bool
    seconds: float
    ptx_sha256: str = ""
    ptx: str = ""
    """Where the PTX lies."""
    cubin_sha256: str = ""
    """Of the machine code that a GPU ran."""
    log: str = ""
    error: str = ""


class FileCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """Which device functions of one source file were executed."""

    file: str
    executed: tuple[str, ...]
    missed: tuple[str, ...]


class Compiler(msgspec.Struct, frozen=True, kw_only=True):
    """What was judged: the release, who wrote the PTX, for which target, from which source."""

    toolkit: str
    cicc: str
    platform: str
    architecture: str
    flags: tuple[str, ...]
    tree: str
    executor: Literal["cpu", "gpu"] = "cpu"
    device: str = ""


class Qualification(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the compiler was tried on these sources, how far, and what came out."""

    verdict: Verdict
    reason: str
    compiler: Compiler | None = None
    probes: tuple[Probed, ...] = ()
    units: tuple[Unit, ...] = ()
    coverage: tuple[FileCoverage, ...] = ()
    uncovered: tuple[str, ...] = ()
    """What no probe is there for: tensor types, files."""
    remark: str = ""
    """What this way of judging cannot tell."""
    same_bits: int | None = None
    """Probes whose every compared value has the executor's bits; None without a GPU."""
    seconds: float = 0.0
    cached: bool = False
    key: str = ""

    def counts(self) -> Counter[str]:
        """How many probes came out how."""
        return Counter(probe.outcome for probe in self.probes)

    @property
    def wrong(self) -> tuple[Probed, ...]:
        """Probes whose code is wrong."""
        return tuple(probe for probe in self.probes if probe.outcome == "wrong")

    @property
    def broken_types(self) -> tuple[str, ...]:
        """Tensor types that wrong code would break, sorted."""
        return tuple(sorted({name for probe in self.wrong for name in probe.types}))


Fate = Literal["caught", "same output", "within bounds", "not executable"]
"""Of an edit. ``same output``: every buffer of every case is the same to the bit, so that the edit
changes nothing that these kernels compute from any of the inputs; ``not executable``: the edited
text is no PTX, or needs what the executor lacks, and counts neither way."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One edit and what became of it; ``probe`` is the one that caught it, or the last asked."""

    kernel: str
    unit: str
    kind: str
    line: int
    before: str
    after: str
    source: str
    fate: Fate
    probe: str
    how: str = ""


class Sowed(msgspec.Struct, frozen=True, kw_only=True):
    """All edits of one compiler's code, the seed that chose them, and how many were noticed."""

    seed: int
    tried: tuple[Tried, ...]

    def count(self, fate: Fate, kind: str = "") -> int:
        """How many came to that, of one kind or of all."""
        return sum(one.fate == fate and kind in {"", one.kind} for one in self.tried)

    @property
    def share(self) -> float:
        """Caught edits as a part of those that change an output; 1.0 where none does."""
        caught = self.count("caught")
        changed = caught + self.count("within bounds")
        return caught / changed if changed else 1.0
