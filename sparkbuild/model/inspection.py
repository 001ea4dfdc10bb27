"""Everything that is told about a model before it is served: facts, findings, memory."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import msgspec

from sparkbuild.errors import ModelError
from sparkbuild.model.asked import Asked, Machine
from sparkbuild.model.build import Build
from sparkbuild.model.facts import Facts, facts
from sparkbuild.model.finding import Finding
from sparkbuild.model.fit import fit
from sparkbuild.model.memory import Budget, budget, largest_context
from sparkbuild.model.mend.edits import Edit
from sparkbuild.model.mend.plan import plan
from sparkbuild.model.read import Model
from sparkbuild.model.serve import Line
from sparkbuild.model.types import BY_NAME


class Mendable(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose metadata can be set right, by which changes (``inspect FILE --fix OUT``)."""

    path: str
    changes: tuple[Edit, ...]


class Cached(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the KV cache as it is asked for, in the terms of ``roles.Weights``."""

    role: str
    numbers: int
    bytes: int
    bits: float
    type: str


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What a model is, what every check said, and the sum of its memory."""

    asked: Asked
    facts: Facts
    findings: tuple[Finding, ...]
    memory: Budget
    available: int
    """Bytes that a server can have."""
    largest: int
    """Tokens of the largest context that fits, of all slots together; 0 where none does."""
    mendable: tuple[Mendable, ...] = ()
    served: Line | None = None
    """The line that serves it, where that was asked."""

    @property
    def caches(self) -> tuple[Cached, ...]:
        """Keys and values of all slots, each with its type; none of what the model has not."""
        asked = self.asked
        kinds = {"KV cache, keys": asked.cache_k, "KV cache, values": asked.cache_v,
                 "indexer keys": asked.cache_k}  # fmt: skip
        return tuple(
            Cached(role=part.name, numbers=round(8 * part.bytes / bits), bytes=part.bytes,
                   bits=bits, type=kinds[part.name])
            for part in self.memory.parts
            if part.name in kinds and (bits := BY_NAME[kinds[part.name]].bits)
        )  # fmt: skip

    @property
    def margin(self) -> int:
        """Bytes that are left at the start; below 0 they lack."""
        return self.available - self.memory.needed

    @property
    def exit_code(self) -> int:
        """ModelError's where a check found a fault."""
        faulty = any(finding.state == "fault" for finding in self.findings)
        return ModelError.exit_code if faulty else 0


def inspect(
    model: Model, vision: Model | None, build: Build | None, asked: Asked, machine: Machine
) -> Inspection:
    """Look at a model in every way that needs nothing but its headers."""
    asked = dataclasses.replace(asked, machine=machine)
    return Inspection(
        asked=asked,
        facts=facts(model, vision),
        findings=fit(model, vision, build, asked),
        memory=budget(model, vision, asked),
        available=machine.available,
        largest=largest_context(model, vision, asked, machine.available),
        mendable=tuple(
            Mendable(path=str(each.path), changes=planned.edits)
            for each in (model, vision)
            if each is not None and (planned := plan(each)).helps
        ),
    )


def document(found: Inspection) -> dict[str, Any]:
    """The same for JSON, result and exit code first."""
    return {
        "result": "failed" if found.exit_code else "passed",
        "exit_code": found.exit_code,
        "asked": {
            field.name: getattr(found.asked, field.name)
            for field in dataclasses.fields(found.asked)
            if field.name not in {"drafter", "machine"}
        },
        "facts": msgspec.to_builtins(found.facts),
        "caches": msgspec.to_builtins(found.caches),
        "findings": msgspec.to_builtins(found.findings),
        "memory": {
            **dataclasses.asdict(found.memory),
            "needed": found.memory.needed,
            "growth": found.memory.growth,
            "available": found.available,
            "margin": found.margin,
            "largest_context": found.largest,
        },
        "mendable": msgspec.to_builtins(found.mendable),
        "serve": found.served
        and {"argv": list(found.served.argv), **msgspec.to_builtins(found.served)},
    }
