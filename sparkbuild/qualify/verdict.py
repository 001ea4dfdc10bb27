"""From what was gathered to one verdict, and the refusal that goes with a wrong one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from sparkbuild.errors import ToolkitMiscompilesError
from sparkbuild.qualify.bench import Gathered
from sparkbuild.qualify.model import (
    Compiler,
    FileCoverage,
    Mistake,
    Probed,
    Qualification,
    Unit,
    Verdict,
)

_SHOWN = 12
"""Wrong probes that a refusal lists; the report has all."""

_NOT_TOLD = (
    "a GPU does not tell which lines it executed, races, or what is read outside of a buffer: "
    "that, and coverage, is the executor's alone"
)


def conclude(
    compiler: Compiler,
    gathered: Gathered,
    *,
    uncovered: Sequence[str],
    coverage: Sequence[FileCoverage],
    seconds: float,
    key: str,
) -> Qualification:
    """One verdict over all probes."""
    probes, units = tuple(gathered.probes.values()), tuple(gathered.units.values())
    verdict, reason = _verdict(probes, units)
    return Qualification(
        verdict=verdict,
        reason=reason,
        compiler=compiler,
        probes=probes,
        units=units,
        coverage=tuple(coverage),
        uncovered=tuple(uncovered),
        remark=_NOT_TOLD if compiler.executor == "gpu" else "",
        same_bits=_same_bits(probes) if compiler.executor == "gpu" else None,
        seconds=seconds,
        key=key,
    )


def merged(found: Sequence[Qualification]) -> Qualification:
    """Several targets as one: the worst verdict, every probe's name with its target."""
    if len(found) == 1:
        return found[0]
    probes = tuple(
        structs.replace(probe, name=f"{one.compiler.architecture}/{probe.name}")
        for one in found
        if one.compiler
        for probe in one.probes
    )
    units = tuple(unit for one in found for unit in one.units)
    verdict, reason = _verdict(probes, units)
    first = found[0]
    targets = " ".join(one.compiler.architecture for one in found if one.compiler)
    return Qualification(
        verdict=verdict,
        reason=reason,
        compiler=first.compiler and structs.replace(first.compiler, architecture=targets),
        probes=probes,
        units=units,
        coverage=first.coverage,
        uncovered=first.uncovered,
        seconds=sum(one.seconds for one in found),
        cached=all(one.cached for one in found),
        key=" ".join(one.key for one in found),
    )


def refusal(found: Qualification, evidence: Sequence[Path]) -> ToolkitMiscompilesError:
    """The refusal of a compiler that emits wrong code for these sources."""
    wrong = found.wrong
    name = found.compiler.toolkit if found.compiler else "this toolkit"
    problems = [
        f"{probe.name}: {_told(probe.mistake)}" for probe in wrong[:_SHOWN] if probe.mistake
    ]
    if len(wrong) > _SHOWN:
        problems.append(f"and {len(wrong) - _SHOWN} more")
    types = ", ".join(found.broken_types) or "no tensor type by name"
    return ToolkitMiscompilesError(
        f"{name} emits wrong code for these sources ({types})",
        problems=problems,
        evidence=evidence,
        next_step="choose another release: `sparkbuild toolkit list` shows those of this machine, "
        "`sparkbuild toolkit install 13.0` makes one that is right",
    )


def _told(mistake: Mistake) -> str:
    where = mistake.where
    place = f", {where.source}" if where.source else ""
    line = f", PTX line {where.ptx_line} ({where.instruction})" if where.ptx_line else ""
    share = f", {mistake.wrong} of {mistake.compared} wrong" if mistake.compared else ""
    return f"{mistake.case}: {mistake.text}{share}{place}{line}"


def _same_bits(probes: Sequence[Probed]) -> int:
    return sum(
        one.against is not None and 0 < one.against.compared == one.against.equal for one in probes
    )


def _verdict(probes: Sequence[Probed], units: Sequence[Unit]) -> tuple[Verdict, str]:
    total = len(probes)
    wrong = [probe for probe in probes if probe.outcome == "wrong"]
    if wrong:
        types = sorted({name for probe in wrong for name in probe.types})
        named = f": {', '.join(types)}" if types else ""
        return "wrong", f"{len(wrong)} of {total} probes are wrong{named}"
    open_ones = [probe for probe in probes if probe.outcome != "right"]
    failed = [unit.name for unit in units if not unit.compiled]
    if not total:
        return "incomplete", "no probe was run"
    if open_ones:
        lost = f", {', '.join(failed)} did not compile" if failed else ""
        return "incomplete", f"{len(open_ones)} of {total} probes could not be judged{lost}"
    compared = sum(probe.compared for probe in probes)
    return "right", f"{total} probes executed, {compared} values right"
