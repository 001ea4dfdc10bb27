"""What the smoke stage gives."""

from __future__ import annotations

from typing import Literal

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check: what it saw against what it expected."""

    name: str
    passed: bool
    seconds: float
    expected: str
    found: str
    evidence: tuple[str, ...] = ()


class SmokeReport(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of a suite in the order they ran; ``model_sha256`` says against which model."""

    suite: str
    model_sha256: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """True where every check passed and at least one ran."""
        return bool(self.checks) and all(check.passed for check in self.checks)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a run left as evidence: its name below the run's folder, and its digest."""

    file: str
    sha256: str


class ServedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One check of a real model in one way to serve it.

    ``unsupported``: this build or model cannot do it, which is no failure and never silent.
    ``reason`` is the bound's; ``likely`` and ``next_step`` are for failures.
    """

    way: str
    group: str
    """What it is about, which likely causes are found by."""
    name: str
    state: Literal["passed", "failed", "unsupported"]
    seconds: float
    expected: str
    found: str
    reason: str = ""
    likely: tuple[str, ...] = ()
    next_step: str = ""
    evidence: tuple[str, ...] = ()
    figures: dict[str, float] = {}

    @property
    def passed(self) -> bool:
        """True for what is unsupported too: nothing is known to be wrong then."""
        return self.state != "failed"
