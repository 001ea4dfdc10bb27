"""What a night was asked to do, and what it starts from: pins, patches, sparkbuild itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.files import digest_of, files_below, sha256_file
from sparkbuild.history.model import Night, Run, Trouble
from sparkbuild.history.store import History
from sparkbuild.manifest import Recipes
from sparkbuild.nightly.argv import Places
from sparkbuild.nightly.model import Outcome, Release
from sparkbuild.nightly.plan import Plan
from sparkbuild.stages import Observer

FOLDER: Final = "nightly"
"""Below the history's root: what nights need while they run, and wheels that are not published."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a night was asked to do, and where. ``pause`` is the seconds before a second try.

    ``recipes`` is the folder with ``patchsets/`` and ``toolchains/``, ``root`` the history's.
    """

    plan: Plan
    plan_file: Path
    root: Path
    recipes: Path
    lock: Path
    work: Path | None = None
    cache: Path | None = None
    jobs: int | None = None
    sign: tuple[Path, ...] = ()
    program: tuple[str, ...] = (sys.executable, "-m", "sparkbuild")
    pause: float = 30.0

    @property
    def home(self) -> Path:
        """The folder that nights work in."""
        return self.root.absolute() / FOLDER

    @property
    def pins(self) -> dict[str, int | None]:
        """The build that each variant of the matrix pins, where its number is known."""
        known = Recipes(self.recipes)
        names = dict.fromkeys(line.variant for line in self.plan.matrix)
        return {name: known.patchset(name)[0].source.build for name in names}

    @property
    def patched(self) -> frozenset[str]:
        """The variants of the matrix that carry patches."""
        known = Recipes(self.recipes)
        names = {line.variant for line in self.plan.matrix}
        return frozenset(name for name in names if known.patchset(name)[0].patches)

    @property
    def pin_name(self) -> str:
        """The newest pinned base's name, for the night as a whole."""
        build = newest(self.pins)
        return "pin" if build is None else f"b{build}"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A night that came to its end, its runs, and what changed among the faults."""

    night: Night
    runs: tuple[Run, ...]
    troubles: tuple[Trouble, ...]
    folder: Path
    release: Release | None
    outcomes: tuple[Outcome, ...]


@dataclass(kw_only=True)
class State:
    """One night while it runs."""

    order: Order
    history: History
    night: Night
    folder: Path
    live: Observer
    outcomes: list[Outcome] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    release: Release | None = None

    @property
    def wheels(self) -> dict[str, str]:
        """The files made so far, by step id."""
        return {one.step.id: one.wheel for one in self.outcomes if one.wheel}

    def note(self, text: str) -> None:
        """Something that the night's record is to say, once."""
        if text not in self.notes:
            self.notes.append(text)
            self.live.note(text)


def places_of(state: State) -> Places:
    """Where a night works, as the commands get to know it."""
    order = state.order
    return Places(
        night=state.folder,
        recipes=order.recipes,
        renewed=state.folder / "recipes",
        home=order.plan_file.absolute().parent,
        index_home=order.root.absolute(),
        work=order.work.absolute() if order.work else None,
        cache=order.cache.absolute() if order.cache else None,
        jobs=order.jobs,
        sign=tuple(key.absolute() for key in order.sign),
        program=order.program,
    )


def newest(pins: dict[str, int | None]) -> int | None:
    """The newest build that a variant pins; None where none says its number."""
    return max((one for one in pins.values() if one is not None), default=None)


def product_digest(recipes: Path) -> str:
    """Of sparkbuild's code and recipes: where it changed, a failure may be of our own making."""
    package = Path(__file__).parent
    parts: dict[str, object] = {}
    for root in (package, recipes / "patchsets", recipes / "toolchains"):
        for file in files_below(root):
            if file.suffix != ".pyc" and file.is_file():
                parts[f"{root.name}/{file.relative_to(root)}"] = sha256_file(file)
    return digest_of(parts)


def summary(ended: Ended) -> Mapping[str, object]:
    """Everything, for ``--json``."""
    night = msgspec.to_builtins(ended.night)
    return {
        "result": "passed" if ended.night.state == "green" else "failed",
        **night,
        "runs": [msgspec.to_builtins(run) for run in ended.runs],
        "troubles": [msgspec.to_builtins(one) for one in ended.troubles],
    }
