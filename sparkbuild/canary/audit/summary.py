"""An audit in numbers: what was noticed, in every kind of tensor, and by which check."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from sparkbuild.canary.audit.reasons import NONE, Reason, Reasons
from sparkbuild.canary.audit.records import Probe
from sparkbuild.canary.suite import REFERENCES, Bound, Limits

_BLOCK: Final = re.compile(r"\bblk\.\d+\.")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of tensor, or one kind of perturbation.

    Of ``made`` perturbations, ``counted`` are: all but those of which it is recorded that the
    perturbed model computes the same. ``noticed`` of these made a check fail; ``checks`` counts
    those by check.
    """

    name: str
    made: int
    counted: int
    noticed: int
    checks: dict[str, int]

    @property
    def share(self) -> float:
        """Noticed of counted; 1 where nothing is."""
        return self.noticed / self.counted if self.counted else 1.0


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """A perturbation that no check noticed, and the reason where one is recorded."""

    probe: Probe
    reason: str
    alters: bool
    """Whether it counts."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The whole audit."""

    total: Row
    by_tensor: tuple[Row, ...]
    """Blocks taken together: ``blk.attn_q.weight``; hyper-parameters by key."""
    by_kind: tuple[Row, ...]
    unnoticed: tuple[Missed, ...]
    """Those that count first, the largest change first among them."""

    @property
    def unexplained(self) -> int:
        """How many were not noticed for no recorded reason."""
        return sum(not missed.reason for missed in self.unnoticed)


def summarise(found: Sequence[Probe], limits: Limits, reasons: Reasons = NONE) -> Summary:
    """Count what an audit found; bounds of other ways to run are applied to the same numbers.

    A perturbation that changed nothing which was asked counts as not noticed all the same, but for
    a recorded reason why the model computes the same.
    """
    known = {probe.key: reasons.of(probe) for probe in found}
    counted = [probe for probe in found if _counts(probe, known[probe.key])]
    count = _Count(counted=frozenset(probe.key for probe in counted), limits=limits)
    missed = [_missed(probe, known[probe.key]) for probe in found if not probe.noticed]
    return Summary(
        total=count.row("all", found),
        by_tensor=count.rows(found, tensor_kind),
        by_kind=count.rows(found, lambda probe: probe.kind),
        unnoticed=tuple(sorted(missed, key=lambda one: (not one.alters, -one.probe.worst))),
    )


def _counts(probe: Probe, reason: Reason | None) -> bool:
    return probe.changed or reason is None or reason.alters


def _missed(probe: Probe, reason: Reason | None) -> Missed:
    return Missed(
        probe=probe, reason=reason.reason if reason else "", alters=_counts(probe, reason)
    )


def tensor_kind(probe: Probe) -> str:
    """The target's name without its block's number."""
    return _BLOCK.sub("blk.", probe.target)


def _way(bound: Bound) -> str:
    machine = "" if bound.machine == "*" else f"{bound.machine}, "
    return f"{machine}{bound.backend}, KV {bound.cache}, {bound.form}"


def noticing(probe: Probe, limits: Limits) -> list[str]:
    """Names of the checks that a perturbation fails: groups, bounds, the start itself."""
    if probe.refused:
        return ["start"]
    names = [name for name in probe.failed if name != REFERENCES]
    names += [
        f"log-probabilities ({_way(bound)})"
        for bound in limits.bounds
        if probe.worst > max(bound.worst, bound.pictures or 0) or probe.median > bound.median
    ]
    return names


@dataclass(frozen=True, kw_only=True)
class _Count:
    """Counts rows; ``counted`` holds the keys of the perturbations that count."""

    counted: frozenset[str]
    limits: Limits

    def rows(self, found: Sequence[Probe], name: Callable[[Probe], str]) -> tuple[Row, ...]:
        groups: dict[str, list[Probe]] = {}
        for probe in found:
            groups.setdefault(name(probe), []).append(probe)
        return tuple(self.row(key, members) for key, members in sorted(groups.items()))

    def row(self, name: str, members: Sequence[Probe]) -> Row:
        checks: dict[str, int] = {}
        for probe in members:
            for check in noticing(probe, self.limits):
                checks[check] = checks.get(check, 0) + 1
        counted = [probe for probe in members if probe.key in self.counted]
        return Row(
            name=name,
            made=len(members),
            counted=len(counted),
            noticed=sum(probe.noticed for probe in counted),
            checks=checks,
        )
