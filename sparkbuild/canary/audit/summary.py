"""An audit in numbers: what was noticed, in every kind of tensor, and by which check."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from sparkbuild.canary.audit.records import Probe
from sparkbuild.canary.suite import REFERENCES, Limits

_BLOCK: Final = re.compile(r"\bblk\.\d+\.")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of tensor, or one kind of perturbation.

    Of ``made`` perturbations, ``changed`` made a difference to anything that was asked, and
    ``noticed`` made a check fail; ``checks`` counts those by check.
    """

    name: str
    made: int
    changed: int
    noticed: int
    checks: dict[str, int]

    @property
    def share(self) -> float:
        """Noticed of changed; 1 where nothing changed."""
        return self.noticed / self.changed if self.changed else 1.0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The whole audit."""

    total: Row
    by_tensor: tuple[Row, ...]
    """Blocks taken together: ``blk.attn_q.weight``; hyper-parameters by key."""
    by_kind: tuple[Row, ...]
    unnoticed: tuple[Probe, ...]
    """Changed the function, and no check failed: the largest change first."""
    unchanged: tuple[Probe, ...]
    """Made no difference to anything that was asked."""


def summarise(found: Sequence[Probe], limits: Limits) -> Summary:
    """Count what an audit found; bounds of other ways to run are applied to the same numbers."""
    changed = [probe for probe in found if probe.changed]
    return Summary(
        total=_row("all", found, limits),
        by_tensor=_rows(found, limits, tensor_kind),
        by_kind=_rows(found, limits, lambda probe: probe.kind),
        unnoticed=tuple(
            sorted(
                (probe for probe in changed if not probe.noticed),
                key=lambda probe: probe.worst,
                reverse=True,
            )
        ),
        unchanged=tuple(probe for probe in found if not probe.changed),
    )


def tensor_kind(probe: Probe) -> str:
    """The target's name without its block's number."""
    return _BLOCK.sub("blk.", probe.target)


def noticing(probe: Probe, limits: Limits) -> list[str]:
    """Names of the checks that a perturbation fails: groups, bounds, the start itself."""
    if probe.refused:
        return ["start"]
    names = [name for name in probe.failed if name != REFERENCES]
    names += [
        f"log-probabilities ({bound.backend}, KV {bound.cache}, {bound.form})"
        for bound in limits.bounds
        if probe.worst > bound.worst or probe.median > bound.median
    ]
    return names


def _rows(found: Sequence[Probe], limits: Limits, name: Callable[[Probe], str]) -> tuple[Row, ...]:
    groups: dict[str, list[Probe]] = {}
    for probe in found:
        groups.setdefault(name(probe), []).append(probe)
    return tuple(_row(key, members, limits) for key, members in sorted(groups.items()))


def _row(name: str, members: Sequence[Probe], limits: Limits) -> Row:
    checks: dict[str, int] = {}
    for probe in members:
        for check in noticing(probe, limits):
            checks[check] = checks.get(check, 0) + 1
    return Row(
        name=name,
        made=len(members),
        changed=sum(probe.changed for probe in members),
        noticed=sum(probe.changed and probe.noticed for probe in members),
        checks=checks,
    )
