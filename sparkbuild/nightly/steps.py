"""Which steps a night has and in which order; the control first: it says what the rest means."""

from __future__ import annotations

from collections.abc import Iterator

from sparkbuild.history.model import Role
from sparkbuild.nightly.model import Step
from sparkbuild.nightly.plan import Line, Plan

UPSTREAM = "upstream"
PUBLISH = "publish"


def steps(plan: Plan) -> tuple[Step, ...]:
    """Every step of a plan, in order; each comes after all that it needs."""
    return (
        *_makes(plan, "control"),
        *_models(plan, "control"),
        *_faults(plan),
        *_upstream(plan),
        *_patches(plan),
        *_makes(plan, "candidate"),
        *_models(plan, "candidate"),
        *_publish(plan),
    )


def variants(plan: Plan, role: Role) -> tuple[str, ...]:
    """The variants that are built in a role, each once, in the plan's order."""
    return tuple(dict.fromkeys(line.variant for line in plan.matrix if role in line.roles))


def candidates(plan: Plan) -> bool:
    """Whether a newer base is tried at all."""
    return plan.upstream is not None and bool(variants(plan, "candidate"))


def make_id(role: Role, variant: str, toolkit: str, architectures: tuple[str, ...] = ()) -> str:
    """The id of a build's step."""
    return ":".join((role, "make", variant, "-".join((toolkit, *architectures))))


def _makes(plan: Plan, role: Role) -> Iterator[Step]:
    if role == "candidate" and not candidates(plan):
        return
    for line in plan.matrix:
        if role not in line.roles:
            continue
        for toolkit in line.toolkits:
            yield Step(
                id=make_id(role, line.variant, toolkit, line.architectures),
                kind="make",
                role=role,
                variant=line.variant,
                toolkit=toolkit,
                architectures=line.architectures,
                minutes=plan.limits.make_minutes,
                needs=(f"candidate:refresh:{line.variant}",) if role == "candidate" else (),
            )


def _models(plan: Plan, role: Role) -> Iterator[Step]:
    if role == "candidate" and not candidates(plan):
        return
    for model in plan.models:
        if role in model.roles:
            line = _line(plan, model.variant, model.toolkit, role)
            yield Step(
                id=f"{role}:smoke:{model.name}:{model.variant}:{model.toolkit}",
                kind="smoke",
                role=role,
                variant=model.variant,
                toolkit=model.toolkit,
                model=model.name,
                minutes=plan.limits.smoke_minutes,
                needs=(make_id(role, model.variant, model.toolkit, line.architectures),),
            )


def _line(plan: Plan, variant: str, toolkit: str, role: Role) -> Line:
    """The line that builds it; ``read_plan`` has seen that there is one."""
    return next(
        line
        for line in plan.matrix
        if line.variant == variant and toolkit in line.toolkits and role in line.roles
    )


def _faults(plan: Plan) -> Iterator[Step]:
    if plan.faults.run:
        minutes = plan.limits.faults_minutes
        yield Step(id="control:faults", kind="faults", role="control", minutes=minutes)


def _upstream(plan: Plan) -> Iterator[Step]:
    if candidates(plan):
        minutes = plan.limits.upstream_minutes
        yield Step(id=UPSTREAM, kind="upstream", role="candidate", minutes=minutes)


def _patches(plan: Plan) -> Iterator[Step]:
    """Every variant's patches on the new base, then the recipe that builds it."""
    if not candidates(plan):
        return
    minutes = plan.limits.patches_minutes
    for variant in variants(plan, "candidate"):
        check = f"candidate:patches:{variant}"
        yield Step(
            id=check,
            kind="patches",
            role="candidate",
            variant=variant,
            minutes=minutes,
            needs=(UPSTREAM,),
        )
        yield Step(
            id=f"candidate:refresh:{variant}",
            kind="refresh",
            role="candidate",
            variant=variant,
            minutes=minutes,
            needs=(UPSTREAM,),
        )


def _publish(plan: Plan) -> Iterator[Step]:
    """Last, and only where all else in the roles that are published passed: complete or nothing."""
    if not plan.publish.index:
        return
    needs: list[str] = []
    for role in plan.publish.roles:
        needs += [step.id for step in (*_makes(plan, role), *_models(plan, role))]
    if "control" in plan.publish.roles:
        needs += [step.id for step in _faults(plan)]
    yield Step(
        id=PUBLISH,
        kind="publish",
        role="candidate" if "candidate" in plan.publish.roles else "control",
        minutes=plan.limits.publish_minutes,
        needs=tuple(dict.fromkeys(needs)),
    )
