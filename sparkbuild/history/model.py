"""A run, a night of runs, and a fault that lasts over nights."""

from __future__ import annotations

from typing import Literal

import msgspec

What = Literal["make", "smoke", "faults", "patches", "bisect"]
Role = Literal["control", "candidate", "by hand"]
"""``control`` is the pinned base, which was good before: where it fails, machine or toolkit are to
blame. ``candidate`` is a newer base."""
State = Literal["passed", "failed", "cancelled", "timed out", "did not run"]
"""All but ``passed`` are failures."""
Blame = Literal["nothing", "machine", "toolkit", "upstream", "patches", "sparkbuild"]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number: ``speed.decode``, ``drafts.qwen35.depth3``, ``build.seconds``."""

    name: str
    value: float
    unit: str
    more_is: Literal["better", "worse", "neither"]
    restart: int = 0
    """Which start of the server it is of: the restart is the unit of replication."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with the run that it is of, as the history gives it over many nights."""

    name: str
    value: float
    unit: str
    more_is: Literal["better", "worse", "neither"]
    restart: int
    run: str
    night: str | None
    started: str
    base: str


Told = Literal["noise", "worse", "better", "other", "not enough nights to tell"]
"""What a difference is: explained by noise, or not; ``other`` where neither way is better."""


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure of the control does from restart to restart.

    ``sd`` is the standard deviation, of ``df`` degrees of freedom. ``over``: of restarts over
    nights, or only of those within a night.
    """

    mean: float
    sd: float
    df: int
    n: int
    nights: int
    over: Literal["nights", "one night"] = "nights"


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Where the mean of ``restarts`` new restarts of the control will be, with 99 %."""

    mean: float
    low: float
    high: float
    n: int
    nights: int
    restarts: int


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of one against another of the same night, with the margin that noise explains.

    ``margin`` is None where there is too little history. ``share`` is of the control's mean.
    """

    name: str
    unit: str
    control: float
    candidate: float
    value: float
    share: float | None
    margin: float | None
    n: int
    nights: int
    state: Told


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of tonight, seen with the nights before."""

    name: str
    state: Literal["well", "note", "fault", "not enough nights to tell"]
    text: str
    tonight: Difference


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that both sides have, or one of them alone: then ``difference`` is None."""

    what: What
    variant: str
    toolchain: str
    role: str
    """``control``, or both sides' where they differ: ``control / candidate``."""
    name: str
    unit: str
    first: float | None
    second: float | None
    difference: Difference | None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One command of the product, with what it came to.

    ``id`` is unique for ever. Times are UTC in ISO 8601. ``base`` is upstream's tag, ``key`` the
    build's. ``stage``, ``check`` and ``message`` tell of the first failure. ``report`` is the path
    of its JSON below the history's folder, ``evidence`` paths of logs there.
    """

    id: str
    night: str | None
    what: What
    role: Role
    variant: str
    toolchain: str
    base: str
    source: str
    key: str
    started: str
    seconds: float
    state: State
    exit_code: int | None
    stage: str = ""
    check: str = ""
    message: str = ""
    report: str = ""
    report_sha256: str = ""
    evidence: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    machine: dict[str, str] = {}


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """A nightly: the runs that its plan asked for, whatever became of them.

    ``plan`` is the digest of its plan. ``ended`` is None while it runs, or where it was killed and
    nobody went on. ``published`` are the wheels that went to the index.
    """

    id: str
    started: str
    ended: str | None
    plan: str
    state: Literal["running", "green", "red"]
    blame: Blame
    reason: str
    """Why ``blame`` says so: what control and candidates came to."""
    base: str
    candidate: str
    published: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    product: str = ""
    """Digest of sparkbuild's own code and recipes: where it changed, a failure may be ours."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One fault over nights: opened once, updated, closed when cured.

    ``key`` is what makes it the same fault: what, role, variant, toolchain, stage and check.
    """

    key: str
    title: str
    opened: str
    updated: str
    closed: str | None
    nights: tuple[str, ...]
    blame: Blame
    first_run: str
    last_run: str
    message: str
    cell: str = ""
    """The step of the plan that failed: the fault is cured when a run of it passes."""
