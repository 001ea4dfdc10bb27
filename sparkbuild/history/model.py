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
