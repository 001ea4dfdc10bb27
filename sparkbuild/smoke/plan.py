"""Smoke plans: what is asked of a build beside the tiny model, and what helps where it fails.

A plan names canaries and forms, switches that will be served, a ladder of switches that may cure a
failure, and what failed groups together point to. Questions, numbers and bounds are the canaries'.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.canary.model import Backend, CacheType
from sparkbuild.errors import ManifestError
from sparkbuild.manifest import Name, Table, load, unknown_name

FOLDER: Final = Path(__file__).parent / "plans"

Text = Annotated[str, msgspec.Meta(min_length=1)]
Variable = Annotated[str, msgspec.Meta(pattern="^[A-Z][A-Z0-9_]*$")]
_EVERY: Final[tuple[Backend, ...]] = ("cpu", "cuda")


class Pass(Table, frozen=True, kw_only=True):
    """A canary as it is served."""

    canary: Text
    forms: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    """``f32``, which has the exact numbers, is asked on the CPU alone."""
    drafts: bool = False


class Way(Table, frozen=True, kw_only=True):
    """What one start of llama-server has that others have not."""

    name: Text
    backends: tuple[Backend, ...] = _EVERY
    cache: CacheType | None = None
    flags: tuple[Text, ...] = ()
    environment: dict[Variable, str] = msgspec.field(default_factory=dict)
    slots: Annotated[int, msgspec.Meta(ge=1)] | None = None
    reason: Text


class Switch(Way, frozen=True, kw_only=True):
    """A way to serve, in which a canary has to be as right as in any other."""

    canary: Text
    form: Text


class Rung(Way, frozen=True, kw_only=True):
    """One switch that is changed to see whether a failure goes; ``reason``: what it then was."""


class Cause(Table, frozen=True, kw_only=True):
    """What is likely where certain groups failed.

    ``failed`` and ``well`` are regular expressions over a group's whole name: every failed group
    matches ``failed``, and at least one that is well matches ``well``, where it is given.
    """

    failed: Text
    well: str = ""
    likely: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    """The most likely first."""

    def fits(self, failed: Collection[str], well: Collection[str]) -> bool:
        """Whether it speaks of these groups."""
        seen = bool(failed) and all(re.fullmatch(self.failed, name) for name in failed)
        return seen and (not self.well or any(re.fullmatch(self.well, name) for name in well))


class Plan(Table, frozen=True, kw_only=True):
    """``plans/<name>.toml``."""

    schema: Literal[1]
    name: Name
    summary: Text
    fitting: bool = False
    """Whether each canary's headers are compared with the build and the machine first."""
    basics: Name | None = None
    """A suite of ``suites/``, asked before the canaries."""
    passes: Annotated[tuple[Pass, ...], msgspec.Meta(min_length=1)]
    switches: tuple[Switch, ...] = ()
    ladder: tuple[Rung, ...] = ()
    causes: tuple[Cause, ...] = ()

    def likely(self, failed: Collection[str], well: Collection[str]) -> tuple[str, ...]:
        """Kinds of cause, the most likely first; of the first entry that fits."""
        found = (cause.likely for cause in self.causes if cause.fits(failed, well))
        return next(found, ())


def names(folder: Path = FOLDER) -> list[str]:
    """The plans that exist."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def plan_file(name: str, *, folder: Path = FOLDER) -> Path:
    """The file of a plan that comes with sparkbuild, or ``name`` itself where that ends in .toml.

    Raises UnknownNameError.
    """
    path = Path(name).absolute() if name.endswith(".toml") else folder / f"{name}.toml"
    if path.stem not in names(path.parent):
        raise unknown_name("smoke suite", path.stem, names(path.parent), path.parent)
    return path


def load_plan(path: Path) -> Plan:
    """A plan from its file. Raises ManifestError naming the file and what is wrong."""
    name = path.stem
    plan = load(path, Plan)
    problems = [] if plan.name == name else [f"`name` is {plan.name!r}, its place says {name!r}"]
    for index, cause in enumerate(plan.causes):
        for key, pattern in (("failed", cause.failed), ("well", cause.well)):
            try:
                re.compile(pattern)
            except re.error as error:
                problems.append(f"`causes[{index}].{key}` is no regular expression: {error}")
    ways = [way.name for way in (*plan.switches, *plan.ladder)]
    problems += [
        f"two ways are named {way!r}" for way in sorted({w for w in ways if ways.count(w) > 1})
    ]
    if problems:
        raise ManifestError(
            f"{path}: {'; '.join(problems)}", evidence=[path], next_step=f"correct {path}"
        )
    return plan
