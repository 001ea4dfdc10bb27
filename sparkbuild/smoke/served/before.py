"""Before anything starts: does the model fit the build and the machine, with these flags."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkbuild.errors import UsageError
from sparkbuild.model.asked import Asked, Machine
from sparkbuild.model.build import Build
from sparkbuild.model.checks.drafts import MTP
from sparkbuild.model.finding import Finding
from sparkbuild.model.fit import fit
from sparkbuild.model.read import Model
from sparkbuild.smoke.served.suite import Suite, Way

_GRAPH = "MTP graph"
"""The check that says that a build or model cannot draft at all."""


@dataclass(frozen=True, kw_only=True)
class Fits:
    """What was found: for what is served without drafts, and for drafts besides."""

    findings: tuple[Finding, ...]
    """Every warning and fault, once."""
    checks: int
    memory: Finding
    """The sum, at the asked context, of the way that needs most."""
    no_drafts: str = ""
    """Why this build or model cannot draft; nothing is asked of drafts then."""

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What would keep it from starting, or from answering."""
        return tuple(one for one in self.findings if one.state == "fault")


def refuse_context(suite: Suite, context: int) -> None:
    """Raise UsageError where a context is beyond the suite's limit: memory is not even asked."""
    most = suite.server.most
    if context > most.limit:
        raise UsageError(
            f"a context of {context:,} tokens is not started with the suite {suite.name}",
            problems=[f"expected at most {most.limit:,.0f}, found {context:,}: {most.reason}"],
            next_step=f"--ctx-size {suite.server.context}, and more once that is well",
        )


def fits(
    suite: Suite,
    model: Model,
    vision: Model | None,
    build: Build,
    machine: Machine,
    *,
    context: int,
) -> Fits:
    """Every way and the drafts, with the files' headers, the build's libraries and the memory."""
    served = [finding for way in suite.ways for finding in fit(
        model, vision, build, asked_of(suite, way, machine, context)
    )]  # fmt: skip
    drafted: tuple[Finding, ...] = ()
    if suite.drafts:
        deepest = max(suite.drafts.depths)
        asked = asked_of(suite, suite.ways[0], machine, context, depth=deepest)
        drafted = fit(model, vision if suite.drafts.among else None, build, asked)
    graph = next((one for one in drafted if one.name == _GRAPH and one.state == "fault"), None)
    findings = [*served, *(() if graph else drafted)]
    memory = [one for one in findings if one.name == "memory"]
    return Fits(
        findings=tuple(_once(one for one in findings if one.state in {"warning", "fault"})),
        checks=len(findings),
        memory=next((one for one in memory if one.state == "fault"), memory[-1]),
        no_drafts=f"{graph.found} ({graph.reason})" if graph else "",
    )


def asked_of(suite: Suite, way: Way, machine: Machine, context: int, *, depth: int = 0) -> Asked:
    """A start, as far as it decides whether a model fits."""
    return Asked(
        context=context,
        slots=suite.server.slots,
        unified_cache="--kv-unified" in suite.server.flags,
        cache_k=way.cache_k,
        cache_v=way.cache_v,
        flash_attention=way.flash_attention,
        micro_batch=suite.server.micro_batch,
        checkpoints=suite.server.checkpoints,
        prompt_cache=0,
        speculation=(MTP,) if depth else (),
        draft_depth=depth or 3,
        machine=machine,
    )


def _once(found: Iterable[Finding]) -> Iterable[Finding]:
    seen: dict[str, Finding] = {}
    for one in found:
        seen.setdefault(f"{one.name} {one.state}", one)
    return seen.values()
