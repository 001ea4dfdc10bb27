"""A step of a night, what came of it, and a release of upstream."""

from __future__ import annotations

from typing import Literal

import msgspec

from sparkbuild.history.model import Blame, Figure, Role, State

Kind = Literal["upstream", "patches", "refresh", "make", "smoke", "faults", "publish", "compare"]


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """A release tag of upstream: its name, build number, commit and time (seconds since 1970)."""

    tag: str
    build: int
    commit: str
    time: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One command of the product that a night runs.

    ``id`` is unique within a night, and the same every night. ``needs`` are ids of steps that must
    have passed. ``minutes`` is its limit. ``model`` is the plan's name of a real model.
    """

    id: str
    kind: Kind
    role: Role
    variant: str = ""
    toolkit: str = ""
    architectures: tuple[str, ...] = ()
    model: str = ""
    minutes: float
    needs: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a step.

    ``seconds`` are of a clock that nobody sets. ``stage``, ``check`` and ``message`` tell of the
    first failure; ``document`` is the file with the JSON that the command printed, ``log`` all that
    it printed. ``wheel`` is the file that the step made. ``attempts`` is 2 where a fault of the
    machine was tried once more, and ``first_message`` then says what the first one was.
    """

    step: Step
    state: State
    exit_code: int | None
    started: str
    seconds: float
    toolchain: str = ""
    source: str = ""
    key: str = ""
    stage: str = ""
    check: str = ""
    message: str = ""
    document: str = ""
    log: str = ""
    wheel: str = ""
    attempts: int = 1
    first_message: str = ""
    figures: tuple[Figure, ...] = ()
    machine: dict[str, str] = {}
    evidence: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether it ended as asked; nothing else counts as well."""
        return self.state == "passed"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a night was green, and whom its evidence points to."""

    state: Literal["green", "red"]
    blame: Blame
    reason: str
