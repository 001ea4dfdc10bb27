"""Cases as groups: what an operator did with a type, and whether that says anything."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sparkbuild.report.ops import GroupState, OpCrash, OpGroup, Wrong, finite
from sparkbuild.smoke.ops.ask import Answers, Asked, Found
from sparkbuild.smoke.ops.console import Case
from sparkbuild.smoke.ops.suite import Question, Suite

_KEPT: Final = 20
"""Wrong cases of a group in the report; all are in the log."""


def groups_of(asked: Asked, answers: Answers, *, cpu: bool) -> Iterator[OpGroup]:
    """A question's results, one for each of its types."""
    question = asked.question
    cases = [case for case in answers.cases.values() if asked.holds(case)]
    for type_ in asked.types or ("",):
        planned = {
            f"{question.op}({p})"
            for p in asked.planned
            if not asked.types or question.type_of(p) == type_
        }
        mine = [
            case for case in cases if not asked.types or question.type_of(case.parameters) == type_
        ]
        crashed = any(
            one.op == question.op and (not asked.types or one.type == type_)
            for one in answers.crashes
        )
        yield _group(question, type_, mine, planned, answers, crashed=crashed, cpu=cpu)


def _group(
    question: Question,
    type_: str,
    cases: Sequence[Case],
    planned: set[str],
    answers: Answers,
    *,
    crashed: bool,
    cpu: bool,
) -> OpGroup:
    well = [case for case in cases if case.state == "ok"]
    compared = [case for case in well if not cpu or case.same is False]
    failed = [case for case in cases if case.state == "fail"]
    left = planned - {case.name for case in cases}
    worst = max(failed, default=None, key=_badness)
    group = OpGroup(
        op=question.op,
        type=type_,
        reason=question.reason,
        state="not tested",
        cases=len(planned | {case.name for case in cases}),
        passed=len(compared),
        failed=len(failed),
        same=len(well) - len(compared),
        unsupported=sum(case.state == "not supported" for case in cases),
        left=len(left),
        error=finite(worst.error) if worst else None,
        bound=finite(worst.bound) if worst else None,
        wrong=tuple(
            Wrong(case=case.name, told=case.told)
            for case in sorted(failed, key=_badness, reverse=True)[:_KEPT]
        ),
    )
    unreached = bool(left - answers.unallocated) and not crashed
    return msgspec.structs.replace(group, state=_state(group, crashed=crashed, unreached=unreached))


def _badness(case: Case) -> float:
    """How far a wrong case is from its bound; no number at all is the worst."""
    if case.error is None or case.bound is None:
        return 0.0
    return math.inf if math.isnan(case.error) else case.error / (case.bound or 1.0)


def _state(group: OpGroup, *, crashed: bool, unreached: bool) -> GroupState:
    if crashed:
        return "crashed"
    if group.failed:
        return "wrong"
    if unreached:
        return "not reached"
    if group.passed:
        return "passed"
    if group.same:
        return "nothing to compare with"
    return "not supported" if group.unsupported else "not tested"


def crash_of(found: Found, suite: Suite) -> OpCrash:
    """A crash with what is likely to be behind it."""
    crash = found.crash
    return OpCrash(
        op=found.op,
        type=found.type,
        case=found.case,
        alone=found.alone,
        kind=crash.kind,
        message=crash.message,
        running=crash.running,
        printed=crash.printed,
        likely=suite.likely_crash(crash.kind, "\n".join((crash.message, *crash.printed))),
    )
