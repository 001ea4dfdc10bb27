"""How fast a model can be at the most: every active weight is read from memory for each pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparkbuild.model.facts import facts
from sparkbuild.model.read import Model
from sparkbuild.smoke.served.suite import Speed
from sparkbuild.smoke.served.talk import Times

LEAST_TOKENS: Final = 16
"""Of an answer whose speed counts: the time of fewer is mostly that of the request itself."""


@dataclass(frozen=True, kw_only=True)
class Active:
    """Bytes of weights that one token needs, and how they come about."""

    bytes: int
    how: str


def active(model: Model) -> Active:
    """What a pass for one token reads, by the model's headers; 0 where nothing is known.

    Of routed experts those that are used; no embeddings, of which one row is read, but where the
    file has no head they are the head; no NextN blocks, which only drafts read.
    """
    found = facts(model)
    experts = found.experts
    share = experts.used / experts.count if experts and experts.count else 1.0
    by_role = {one.role: one.bytes for one in found.roles}
    routed = by_role.pop("routed experts", 0)
    by_role.pop("NextN block", None)
    embeddings = by_role.pop("embeddings", 0)
    whole = sum(by_role.values()) + (0 if "head" in by_role else embeddings)
    used = f", {experts.used} of {experts.count} experts" if experts else ""
    return Active(bytes=whole + round(routed * share), how=f"{whole:,} bytes{used}")


def limit(model: Model, speed: Speed) -> float:
    """Passes a second at the most; infinite where the headers tell no weights."""
    need = active(model).bytes
    return speed.bandwidth.limit * speed.slack.limit / need if need else float("inf")


def fastest(spoken: list[Times]) -> tuple[float, float] | None:
    """The highest speed in passes and in tokens a second; None where nothing was long enough."""
    long = [one for one in spoken if one.predicted_n >= LEAST_TOKENS and one.speed > 0]
    if not long:
        return None
    return (
        max(one.speed * one.passes / one.predicted_n for one in long),
        max(one.speed for one in long),
    )
