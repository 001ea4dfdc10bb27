"""What the smoke stage gives."""

from __future__ import annotations

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
