"""What a look at a machine says: findings, and from them what the machine can do."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import msgspec.structs

from sparkbuild.errors import HostError
from sparkbuild.model import finding

Ability = Literal[
    "build-cpu", "build-cuda", "verify-cpu", "verify-cuda", "serve-cpu", "serve-cuda"
]  # fmt: skip
"""``build``: from a source to binaries; ``verify``: to run them and know that they are right;
``serve``: to run llama-server with a real model. Each without and with GPU code."""
JOBS: Final = ("build", "verify", "serve")
_BACKENDS: Final = {"cpu": "CPU", "cuda": "CUDA"}

Command = tuple[str, ...]
"""An argument list."""


class Finding(finding.Finding, frozen=True, kw_only=True):
    """One check; ``found`` is what was read, ``reason`` why it matters on GB10.

    ``concerns`` are the abilities that it bears on, ``blocks`` those that are not there because of
    it. ``mend`` are commands that mend it and may be run as they stand; what a person has to do or
    to decide is in ``next_step`` alone.
    """

    concerns: tuple[Ability, ...]
    blocks: tuple[Ability, ...] = ()
    mend: tuple[Command, ...] = ()
    advice: str = ""
    """Of ``next_step`` the part that is no command."""
    source: str = ""
    """Where reason and thresholds come from."""

    def __post_init__(self) -> None:
        """A machine's own words are spelled out where they do not print; commands stay."""
        for field in ("expected", "found", "reason", "next_step", "advice"):
            text = getattr(self, field)
            if not text.isprintable():
                plain = text.encode("unicode_escape").decode("ascii")
                msgspec.structs.force_setattr(self, field, plain)


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All findings on one machine."""

    name: str
    """The machine in a few words."""
    spark: bool
    origin: str
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0, or HostError's where anything is a fault."""
        return HostError.exit_code if self.count("fault") else 0

    @property
    def verdict(self) -> str:
        """``can build (CPU, CUDA), can verify (CPU), cannot serve``."""
        return ", ".join(self._said(job) for job in JOBS)

    def count(self, state: finding.State) -> int:
        """How many findings are in a state."""
        return sum(one.state == state for one in self.findings)

    def blockers(self, ability: Ability) -> list[str]:
        """Names of the findings because of which an ability is not there."""
        return [one.name for one in self.findings if ability in one.blocks]

    def abilities(self) -> dict[str, list[str]]:
        """Job to the backends that it can be done with."""
        blocked = {ability for one in self.findings for ability in one.blocks}
        return {job: [name for name in _BACKENDS if f"{job}-{name}" not in blocked] for job in JOBS}

    def _said(self, job: str) -> str:
        able = [_BACKENDS[name] for name in self.abilities()[job]]
        return f"can {job} ({', '.join(able)})" if able else f"cannot {job}"
