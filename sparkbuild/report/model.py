"""The report of one ``make``: every stage, in order, with its evidence."""

from __future__ import annotations

from typing import Literal

import msgspec

from sparkbuild.smoke.model import Check
from sparkbuild.toolkit.model import Accepted

State = Literal["done", "reused", "not applicable", "not tried", "failed", "not reached"]


class FileRef(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a stage made or relied on."""

    path: str
    sha256: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal, as it was shown."""

    title: str
    exit_code: int
    message: str
    problems: tuple[str, ...]
    next_step: str
    detail: str


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: state, own seconds, what went in and came out by digest, where the proof lies."""

    name: str
    state: State
    seconds: float
    summary: str
    inputs: dict[str, str] = {}
    """Name to digest."""
    result: str | None = None
    """SHA-256 of what the stage found out, as sparkbuild keeps it; null where it did not end."""
    outputs: tuple[FileRef, ...] = ()
    evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Warnings and reasons that a reader must see even when all is well."""
    failure: Failure | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Version 1 of ``report.json``."""

    schema: Literal[1] = 1
    sparkbuild: str
    variant: str
    toolchain: str
    command: tuple[str, ...]
    started: str
    """UTC, ISO 8601."""
    seconds: float
    result: Literal["passed", "failed"]
    exit_code: int
    key: str | None
    """Build key, 64 hex digits; null where the run ended before it was known."""
    machine: dict[str, str]
    accepted: tuple[Accepted, ...] = ()
    """Known defects of the toolkit that were taken on with ``--accept``."""
    stages: tuple[StageReport, ...]
    smoke_checks: tuple[Check, ...] = ()
    wheel: FileRef | None = None
