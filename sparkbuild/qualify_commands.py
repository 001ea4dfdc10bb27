"""``sparkbuild toolkit qualify``: a compiler tried on the very sources, before any build."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from click import get_current_context

from sparkbuild.console import JSON, RECIPES, VARIANT, WORK, console, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from sparkbuild.live import Live
    from sparkbuild.manifest import Patchset, Recipes
    from sparkbuild.qualify.model import Probed, Qualification, Sowed
    from sparkbuild.source.model import PatchedTree
    from sparkbuild.stages import Observer
    from sparkbuild.toolkit.model import Identity
    from sparkbuild.workspace import Workspace

FEW = 4
"""From so many verdicts on only the table is shown."""
NOTICED = 0.95
"""Of seeded faults that change an output, at least so many have to be caught."""


@click.command("qualify")
@click.argument("names", metavar="ROOT|RELEASE...", nargs=-1, required=True)
@VARIANT
@click.option(
    "--arch",
    "architectures",
    multiple=True,
    metavar="ARCH",
    help="Target to compile for; may be given again. Default: the toolchain's own, 121a.",
)
@click.option(
    "--platform",
    "platform_name",
    type=click.Choice(["linux-x86_64", "linux-aarch64"]),
    help="Which platform's compilers of a RELEASE; another one's run under qemu-user. "
    "Default: this machine's.",
)
@click.option("--probe", "only", multiple=True, metavar="NAME", help="This probe or kind alone.")
@click.option("--first", is_flag=True, help="Stop at the first probe that is wrong.")
@click.option("--fresh", is_flag=True, help="Judge again, though the verdict is known.")
@click.option(
    "--seeded",
    type=click.IntRange(1),
    metavar="N",
    help="Then make N instructions wrong, one at a time, and count which the probes notice.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses those N.")
@click.option("--missed", is_flag=True, help="Name every device function that was not executed.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes. Default: one for each core.")
@RECIPES
@WORK
@JSON
def qualify_command(
    names: tuple[str, ...],
    variant: str,
    architectures: tuple[str, ...],
    platform_name: str | None,
    only: tuple[str, ...],
    first: bool,
    fresh: bool,
    seeded: int | None,
    seed: int,
    missed: bool,
    jobs: int | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Compile a variant's own device code to PTX, execute it on the CPU, and compare.

    Needs no GPU. ROOT is a folder, also one that holds compilers alone; RELEASE is 13.0, or an
    exact nvcc; of several compilers and targets a table is shown. A verdict is kept for as long as
    compiler, source, flags and probes stay the same. Exit code 0 where everything is right, 10
    where code is wrong, 21 where nothing is wrong and something could not be judged, or where less
    than 95 % of seeded faults were noticed.
    """
    from sparkbuild.live import Live
    from sparkbuild.manifest import current_platform

    asked = _Asked(
        names=names, architectures=architectures, platform=platform_name or current_platform(),
        only=only, first=first, fresh=fresh, seeded=seeded, seed=seed, jobs=jobs,
    )  # fmt: skip
    from_recipes, workspace = _places(recipes, work)
    screen = console(stderr=as_json)
    with Live(screen) as live:
        results, sowed = _judged(asked, variant, from_recipes, workspace, live)
    _show(results, sowed, missed=missed, screen=None if as_json else screen)
    _exit(results, sowed)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is to be judged, how far, and how many seeded faults come after it."""

    names: tuple[str, ...]
    architectures: tuple[str, ...]
    platform: str
    only: tuple[str, ...]
    first: bool
    fresh: bool
    seeded: int | None
    seed: int
    jobs: int | None


def _judged(
    asked: _Asked, variant: str, recipes: Recipes, workspace: Workspace, live: Live
) -> tuple[list[Qualification], list[Sowed]]:
    """Every compiler that is meant, for every target; one that lies in two places once."""
    from sparkbuild.qualify_work import qualify, sow, subject_of_root
    from sparkbuild.toolkit.host import find_host_compiler

    patchset, tree = _tree(recipes, variant, workspace, live)
    host, folder = find_host_compiler(), workspace.qualifications
    results: dict[str, Qualification] = {}
    sowed: list[Sowed] = []
    for identity, options, target in _subjects(asked, recipes, workspace):
        live.started(f"qualify {identity.toolchain or identity.root} {target}")
        every = {**patchset.build.cmake, **options}
        subject = subject_of_root(identity, every, host, tree, target)
        if subject.key in results:
            continue
        results[subject.key] = found = qualify(
            subject, folder=folder, live=live, at_once=asked.jobs, only=asked.only,
            first=asked.first, fresh=asked.fresh, found=lambda probed: _told(live, probed),
        )  # fmt: skip
        if asked.seeded:
            made = sow(
                subject, found, folder=folder, live=live, count=asked.seeded, seed=asked.seed,
                at_once=asked.jobs, only=asked.only,
            )  # fmt: skip
            sowed.append(made)
    return list(results.values()), sowed


def _show(
    results: list[Qualification], sowed: list[Sowed], *, missed: bool, screen: Console | None
) -> None:
    """All as JSON where there is no screen."""
    from msgspec import to_builtins

    from sparkbuild.report.qualification import grid_view, qualification_view, sowed_view

    if screen is None:
        facts = {"qualifications": to_builtins(results)}
        print_json({**facts, **({"seeded": to_builtins(sowed)} if sowed else {})})
        return
    for result in results if len(results) < FEW else ():
        screen.print(qualification_view(result, missed=missed), crop=False)
    if len(results) > 1:
        screen.print(grid_view(results), crop=False)
    for one in sowed:
        screen.print(sowed_view(one), crop=False)


def _exit(results: list[Qualification], sowed: list[Sowed]) -> None:
    from sparkbuild.errors import QualificationIncompleteError, ToolkitMiscompilesError

    verdicts = {result.verdict for result in results}
    if "wrong" in verdicts:
        get_current_context().exit(ToolkitMiscompilesError.exit_code)
    if "incomplete" in verdicts or any(one.share < NOTICED for one in sowed):
        get_current_context().exit(QualificationIncompleteError.exit_code)


def _told(live: Observer, probed: Probed) -> None:
    """A wrong probe is said at once: the rest may take half a minute."""
    if probed.mistake:
        live.note(f"{probed.name}: {probed.mistake.text}")


def _places(recipes: Path | None, work: Path | None) -> tuple[Recipes, Workspace]:
    from sparkbuild.manifest import find_recipes
    from sparkbuild.workspace import Workspace

    workspace = Workspace(work)
    workspace.prepare()
    return find_recipes(recipes), workspace


def _tree(
    recipes: Recipes, variant: str, workspace: Workspace, live: Observer
) -> tuple[Patchset, PatchedTree]:
    """The variant's patched source, fetched where it is not here."""
    from sparkbuild.source.obtain import obtain
    from sparkbuild.source.prepare import prepare

    patchset, manifest = recipes.patchset(variant)
    live.started(f"source of {variant}")
    source = obtain(patchset.source, manifest, workspace, live)
    return patchset, prepare(source, patchset, manifest, workspace, live)


def _subjects(
    asked: _Asked, recipes: Recipes, workspace: Workspace
) -> Iterator[tuple[Identity, dict[str, str], str]]:
    """Every root that is meant, with its toolchain's CMake options, once for each target."""
    from sparkbuild.toolkit.book import read_book
    from sparkbuild.toolkit.choice.select import plain_architectures
    from sparkbuild.toolkit.identity.advise import DEFAULT_ARCHITECTURES
    from sparkbuild.toolkit_commands import identities

    targets = plain_architectures(asked.architectures)
    book = read_book(recipes)
    every = [
        identity
        for name in asked.names
        for identity in _meant(
            name, identities(name, recipes, book, workspace, targets), asked.platform
        )
    ]
    for identity in every:
        chain = book.toolchains.get(identity.toolchain or "")
        own = chain.cuda.architectures if chain and chain.cuda else DEFAULT_ARCHITECTURES
        options = chain.options() if chain else {}
        for target in targets or own:
            yield identity, options, target


def _meant(name: str, found: Sequence[Identity], platform: str) -> list[Identity]:
    """The root that is named; of a release's roots the whole ones, as ``make`` takes them.

    Raises UnknownNameError where the release has none for the platform.
    """
    from sparkbuild.errors import UnknownNameError

    if "/" in name:
        return list(found)
    here = [identity for identity in found if identity.platform == platform]
    if not here:
        raise UnknownNameError(
            f"there is no {name} for {platform} on this machine",
            next_step=f"sparkbuild toolkit install {name} --compilers --platform {platform}",
        )
    return [one for one in here if one.state in {"good", "known bad"}] or here
