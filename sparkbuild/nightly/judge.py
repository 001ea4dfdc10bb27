"""What a night's outcomes mean: green or red, and whom the evidence points to.

The control, the pinned base, was good before: where it fails, machine, toolkit or sparkbuild are to
blame, and nothing is said of upstream. Only where it passes does a candidate's failure speak of
upstream or of our patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparkbuild.errors import (
    BusyError,
    DiskFullError,
    FaultsError,
    HostError,
    InternalError,
    PatchError,
    SourceUnavailableError,
    ToolkitMiscompilesError,
    ToolkitMismatchError,
)
from sparkbuild.history.model import Blame
from sparkbuild.nightly.model import Judgement, Outcome

MACHINE_FAULTS: Final = frozenset(
    one.exit_code for one in (HostError, DiskFullError, BusyError, SourceUnavailableError)
)
"""Exit codes that prove a fault of the machine or its network: these alone are tried once more."""

_TOOLKIT: Final = frozenset(
    one.exit_code for one in (ToolkitMismatchError, ToolkitMiscompilesError)
)
_PRODUCT: Final = frozenset(one.exit_code for one in (InternalError, FaultsError))
_ENDED: Final = frozenset({"cancelled", "timed out"})


def judge(outcomes: Sequence[Outcome], *, changed: bool, patched: frozenset[str]) -> Judgement:
    """The verdict on a night.

    ``changed`` tells whether sparkbuild itself is another than on the last good night, ``patched``
    which variants carry patches. What did not run because of another step is not looked at twice.
    """
    failed = [one for one in outcomes if not one.passed]
    if not outcomes:
        reason = "the plan asked for nothing, or nothing ran"
        return Judgement(state="red", blame="sparkbuild", reason=reason)
    if not failed:
        return Judgement(state="green", blame="nothing", reason=_well(outcomes))
    roots = causes(failed)
    control = [one for one in roots if one.step.role == "control"]
    blame, why = (
        _of_control(control, outcomes, changed=changed)
        if control
        else _of_candidate(roots, outcomes, patched)
    )
    first = (control or roots)[0]
    return Judgement(state="red", blame=blame, reason=f"{why}: {told(first)}")


def told(outcome: Outcome) -> str:
    """One line about a failure."""
    where = " ".join(part for part in (outcome.stage, outcome.check) if part)
    text = f"{outcome.step.id} {outcome.state}"
    if outcome.exit_code:
        text += f" with exit code {outcome.exit_code}"
    if where:
        text += f" at {where}"
    return f"{text}: {outcome.message}" if outcome.message else text


def _well(outcomes: Sequence[Outcome]) -> str:
    control = sum(one.step.role == "control" for one in outcomes)
    rest = sum(one.step.role != "control" and one.step.kind != "upstream" for one in outcomes)
    tail = f" and {rest} of a newer base" if rest else "; no newer base was to be tried"
    return f"all passed: {control} steps of the pinned base{tail}"


def causes(failed: Sequence[Outcome]) -> list[Outcome]:
    """Failures that follow from no other: what a failure kept from running comes after it."""
    names = {one.step.id for one in failed}
    roots = [
        one
        for one in failed
        if one.state != "did not run" or not names.intersection(one.step.needs)
    ]
    return roots or list(failed)


def _of_control(
    roots: Sequence[Outcome], outcomes: Sequence[Outcome], *, changed: bool
) -> tuple[Blame, str]:
    first = roots[0]
    if first.exit_code in MACHINE_FAULTS or first.state in {*_ENDED, "did not run"}:
        return "machine", "the pinned base failed, and the machine is to blame"
    if first.exit_code in _TOOLKIT:
        return "toolkit", "the pinned base failed, and the toolkit is to blame"
    if first.exit_code in _PRODUCT:
        return "sparkbuild", "sparkbuild itself failed"
    if changed:
        return "sparkbuild", "the pinned base failed, and sparkbuild is another than last time"
    if _one_toolkit(roots, outcomes):
        return "toolkit", f"the pinned base failed with toolkit {first.step.toolkit} alone"
    return "machine", "the pinned base failed, which was good before with the same sparkbuild"


def _one_toolkit(roots: Sequence[Outcome], outcomes: Sequence[Outcome]) -> bool:
    """Whether one toolkit fails wherever it is used, and another passes."""
    bad = {one.step.toolkit for one in roots}
    builds = [one for one in outcomes if one.step.kind == "make" and one.step.role == "control"]
    with_it = [one for one in builds if one.step.toolkit in bad]
    others = [one for one in builds if one.step.toolkit not in bad]
    return (
        len(bad) == 1
        and "" not in bad
        and bool(others)
        and all(one.passed for one in others)
        and not any(one.passed for one in with_it)
    )


def _of_candidate(
    roots: Sequence[Outcome], outcomes: Sequence[Outcome], patched: frozenset[str]
) -> tuple[Blame, str]:
    first = roots[0]
    control = "the pinned base passed, the newer one failed"
    by_code: dict[int | None, tuple[Blame, str]] = {
        **dict.fromkeys(MACHINE_FAULTS, ("machine", f"{control}, and the machine is to blame")),
        **dict.fromkeys(_TOOLKIT, ("toolkit", f"{control}: wrong code of its sources")),
        InternalError.exit_code: ("sparkbuild", "sparkbuild itself failed on the newer base"),
        PatchError.exit_code: ("patches", f"{control}: patches do not hold on it"),
    }
    if first.state in _ENDED:
        return "machine", f"{control}: it did not end by itself"
    if first.exit_code in by_code:
        return by_code[first.exit_code]
    if first.step.kind == "upstream":
        return "upstream", "the pinned base passed, and no newer one was to be had"
    bare = [one for one in outcomes if _builds(one) and one.step.variant not in patched]
    if bare and all(one.passed for one in bare):
        return "patches", f"{control}, and passed without patches"
    if bare:
        return "upstream", f"{control}, without patches too"
    return "upstream", f"{control}; whether patches have a part in it is open (none built without)"


def _builds(outcome: Outcome) -> bool:
    return outcome.step.role == "candidate" and outcome.step.kind in {"make", "smoke", "compare"}
