"""``ci/nightly.toml``: what a night is asked to do, as data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.errors import ManifestError
from sparkbuild.history.model import Role
from sparkbuild.manifest import Name, Table, load

Text = Annotated[str, msgspec.Meta(min_length=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Architecture = Annotated[str, msgspec.Meta(pattern="^[0-9]{2,3}[af]?$")]
_ROLES: Final[tuple[Role, ...]] = ("control", "candidate")


class Upstream(Table, frozen=True, kw_only=True):
    """Where releases come from, and how long one must have been out before it is tried.

    ``tags`` is a pattern with one group, the build number. ``look_back`` newest tags are asked for
    their times. A young tag may still be taken back, or lack files that are made for it.
    """

    url: Text
    tags: Text = r"b([0-9]+)"
    minimum_age_hours: Annotated[float, msgspec.Meta(ge=0)] = 6.0
    look_back: Annotated[int, msgspec.Meta(ge=1, le=500)] = 40


class Line(Table, frozen=True, kw_only=True):
    """A variant on some toolkits; ``roles``: the pinned base, a newer one, or both."""

    variant: Name
    toolkits: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    architectures: tuple[Architecture, ...] = ()
    roles: Annotated[tuple[Role, ...], msgspec.Meta(min_length=1)] = _ROLES


class RealModel(Table, frozen=True, kw_only=True):
    """A model of this machine that wheels of a variant and toolkit are to serve."""

    name: Name
    path: Text
    mmproj: str = ""
    suite: str = ""
    variant: Name
    toolkit: Text
    roles: tuple[Role, ...] = _ROLES


class Faults(Table, frozen=True, kw_only=True):
    """Which seeded faults are planted; ``run`` is false where none are."""

    run: bool = True
    fast: bool = True
    only: tuple[Text, ...] = ()
    catalogue: str = ""


class Limits(Table, frozen=True, kw_only=True):
    """Minutes that each kind of step may take, and what must be free on the disk before it."""

    upstream_minutes: Positive = 20.0
    patches_minutes: Positive = 60.0
    make_minutes: Positive = 120.0
    smoke_minutes: Positive = 120.0
    faults_minutes: Positive = 180.0
    publish_minutes: Positive = 20.0
    free_gigabytes: Annotated[float, msgspec.Meta(ge=0)] = 20.0
    resume_hours: Positive = 18.0
    """A night that was killed is gone on with for so long; then a new one begins."""
    keep_nights: Annotated[int, msgspec.Meta(ge=1)] = 14
    """Folders of nights with their wheels that stay; the history itself is never shortened."""


class Alarm(Table, frozen=True, kw_only=True):
    """After how many hours without a good night ``nightly status`` ends with an error."""

    good_night_hours: Positive = 50.0


class Publish(Table, frozen=True, kw_only=True):
    """The package index that whole nights go to; a relative folder counts from the history's.

    ``roles`` are whose wheels. ``keys`` are public keys that each wheel is verified with, relative
    to the plan.
    """

    index: str = ""
    roles: tuple[Role, ...] = ("control",)
    keys: tuple[Text, ...] = ()


class Proposal(Table, frozen=True, kw_only=True):
    """What a green night with a newer base writes for a person to take.

    ``drop_check`` asks of each patch whether the new base still needs it, which builds it without.
    """

    write: bool = True
    drop_check: bool = True
    drop_check_minutes: Positive = 240.0


class GitHub(Table, frozen=True, kw_only=True):
    """The repository that gets one issue for each fault, where a token is in the environment."""

    repository: Annotated[str, msgspec.Meta(pattern=r"^$|^[\w.-]+/[\w.-]+$")] = ""
    api: Text = "https://api.github.com"
    labels: tuple[Text, ...] = ("nightly",)


class Plan(Table, frozen=True, kw_only=True):
    """Version 1 of ``nightly.toml``."""

    schema: Literal[1]
    summary: str
    upstream: Upstream | None = None
    """None: no newer base is tried."""
    matrix: tuple[Line, ...] = ()
    models: tuple[RealModel, ...] = ()
    faults: Faults = Faults()
    limits: Limits = Limits()
    alarm: Alarm = Alarm()
    publish: Publish = Publish()
    proposal: Proposal = Proposal()
    github: GitHub = GitHub()


def read_plan(file: Path) -> Plan:
    """A plan from its file. Raises ManifestError naming the key that is wrong."""
    plan = load(file, Plan)
    problems = [*_bad_pattern(plan), *_twice(plan), *_homeless(plan)]
    if problems:
        raise ManifestError(
            f"{file}: the plan cannot be carried out",
            problems=problems,
            evidence=[file],
            next_step=f"correct {file}",
        )
    return plan


def _bad_pattern(plan: Plan) -> list[str]:
    if plan.upstream is None:
        return []
    problems = []
    if plan.upstream.url.startswith("-"):
        problems.append("`upstream.url` must not start with a dash")
    try:
        groups = re.compile(plan.upstream.tags).groups
    except re.error as error:
        return [*problems, f"`upstream.tags` is no pattern: {error}"]
    if groups != 1:
        problems.append(f"`upstream.tags`: expected one group (the build number), found {groups}")
    return problems


def _twice(plan: Plan) -> list[str]:
    """Cells of the matrix that two lines ask for: their results would overwrite each other."""
    seen: set[tuple[str, str, tuple[str, ...]]] = set()
    problems = []
    for line in plan.matrix:
        for toolkit in line.toolkits:
            cell = (line.variant, toolkit, line.architectures)
            if cell in seen:
                problems.append(f"`matrix` has {line.variant} with {toolkit} more than once")
            seen.add(cell)
    return problems


def _homeless(plan: Plan) -> list[str]:
    """Real models whose variant and toolkit the matrix does not build in each of their roles."""
    built = {
        (line.variant, toolkit, role)
        for line in plan.matrix
        for toolkit in line.toolkits
        for role in line.roles
    }
    return [
        f"`models` {model.name}: the matrix builds no {role} of {model.variant} with "
        f"{model.toolkit}"
        for model in plan.models
        for role in model.roles
        if (model.variant, model.toolkit, role) not in built
    ]
