"""A step's command lines: what a person would type, computed and not run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkbuild.nightly.model import Step
from sparkbuild.nightly.plan import Plan, RealModel


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a night works, and with which keys.

    ``night`` is its own folder, ``recipes`` those of the pinned base, ``renewed`` those that are
    carried to a newer one, ``home`` what relative paths of a plan count from. ``program`` is how
    sparkbuild is started.
    """

    night: Path
    recipes: Path
    renewed: Path
    home: Path
    index_home: Path
    work: Path | None = None
    cache: Path | None = None
    jobs: int | None = None
    sign: tuple[Path, ...] = ()
    program: tuple[str, ...] = (sys.executable, "-m", "sparkbuild")

    def out(self, step: Step) -> Path:
        """Where a step's wheel and reports go."""
        return self.night / "out" / step.id.replace(":", "_")

    def refresh(self, step: Step) -> Path:
        """The repository in which a variant's patches are carried to the newer base."""
        return self.night / "refresh" / step.variant


def commands(
    step: Step, plan: Plan, places: Places, base: str, wheels: Mapping[str, str]
) -> tuple[tuple[str, ...], ...]:
    """The step's commands, each run where those before it ended with 0.

    ``base`` is the newer base's name, ``wheels`` the files made so far, by step id.
    """
    work = _option("--work", places.work)
    match step.kind:
        case "make":
            lines = [_make(step, places)]
        case "patches":
            lines = [
                ["patch", "check", "--variant", step.variant, "--base", base, "--build",
                 "--recipes", str(places.renewed), *_compile(places), *work]
            ]  # fmt: skip
        case "refresh":
            folder = str(places.refresh(step))
            lines = [
                ["patch", "refresh", "--variant", step.variant, "--base", base, "--out", folder,
                 "--recipes", str(places.renewed), *work],
                ["patch", "refresh", "--continue", folder, *work],
            ]  # fmt: skip
        case "smoke":
            lines = [_smoke(step, plan, places, wheels)]
        case "faults":
            lines = [_faults(plan, places)]
        case "publish":
            lines = [_publish(step, plan, places, wheels)]
        case "upstream" | "compare":
            return ()
    return tuple((*places.program, *line, "--json") for line in lines)


def _make(step: Step, places: Places) -> list[str]:
    recipes = places.renewed if step.role == "candidate" else places.recipes
    return [
        "make", "--variant", step.variant, "--toolkit", step.toolkit,
        *(word for one in step.architectures for word in ("--arch", one)),
        "--out", str(places.out(step)), "--recipes", str(recipes),
        *(word for key in places.sign for word in ("--sign", str(key))),
        *_compile(places), *_option("--work", places.work),
    ]  # fmt: skip


def _smoke(step: Step, plan: Plan, places: Places, wheels: Mapping[str, str]) -> list[str]:
    model = model_of(step, plan)
    return [
        "smoke", wheels[step.needs[0]], "--model", str(places.home / model.path),
        *(["--mmproj", str(places.home / model.mmproj)] if model.mmproj else []),
        *(["--suite", model.suite] if model.suite else []), *_option("--work", places.work),
    ]  # fmt: skip


def model_of(step: Step, plan: Plan) -> RealModel:
    """The plan's model that a step serves."""
    return next(one for one in plan.models if one.name == step.model)


def _faults(plan: Plan, places: Places) -> list[str]:
    return [
        "faults", "run", *(["--fast"] if plan.faults.fast else []),
        *(word for one in plan.faults.only for word in ("--only", one)),
        *(["--catalogue", str(places.home / plan.faults.catalogue)]
          if plan.faults.catalogue else []),
        *_option("--work", places.work),
    ]  # fmt: skip


def _publish(step: Step, plan: Plan, places: Places, wheels: Mapping[str, str]) -> list[str]:
    """All wheels in one call, which publishes all of them or none."""
    keys = [word for one in plan.publish.keys for word in ("--key", str(places.home / one))]
    made = [word for one in step.needs if one in wheels for word in ("--add", wheels[one])]
    return ["wheel", "index", str(places.index_home / plan.publish.index), *made, *keys]


def _compile(places: Places) -> list[str]:
    return [*_option("--cache", places.cache), *_option("--jobs", places.jobs)]


def _option(name: str, value: object | None) -> list[str]:
    return [] if value is None else [name, str(value)]
