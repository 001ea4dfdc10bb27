"""``sparkbuild bisect``: which release or commit brought a change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from click import get_current_context
from rich.markup import escape

from sparkbuild.console import JOBS, JSON, RECIPES, VARIANT, WORK, console, print_json
from sparkbuild.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sparkbuild.bisect_work import Ask, Found, Trees
    from sparkbuild.job import Job
    from sparkbuild.live import Live
    from sparkbuild.patch_work import Desk

_PROGRAM = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("bisect")
@click.option("--good", required=True, metavar="BASE", help="Where the check passes.")
@click.option("--bad", required=True, metavar="BASE", help="Where it fails, later.")
@VARIANT
@click.option(
    "--check",
    metavar="NAME",
    help="A stage of make (patches, configure, build, inspect, smoke ...), or a smoke check by its "
    "name in the report: each point is made as `sparkbuild make` would.",
)
@click.option(
    "--command",
    "program",
    type=_PROGRAM,
    metavar="PROGRAM",
    help="A program that is given the folder of a CPU build: exit status 0 good, 125 cannot be "
    "tested, others to 124 bad.",
)
@click.option(
    "--source-command",
    "source_program",
    type=_PROGRAM,
    metavar="PROGRAM",
    help="The same for the folder of the source tree; nothing is compiled.",
)
@click.option(
    "--repo",
    metavar="URL|DIR",
    help="A git repository: its commits between the ends are asked. Without it: the releases of "
    "patchsets/bases.toml.",
)
@click.option(
    "--toolkit", default="cpu", show_default=True, metavar="NAME", help="For --check: as of make."
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.01),
    default=240.0,
    show_default=True,
    metavar="N",
    help="Limit of one command.",
)
@click.option(
    "--history",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    envvar="SPARKBUILD_HISTORY",
    show_envvar=True,
    help="Also write what was found to this history of runs.",
)
@click.option("--fresh", is_flag=True, help="Forget what an earlier, stopped search found out.")
@JOBS
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    envvar="SPARKBUILD_CACHE",
    show_envvar=True,
    help="Compile through sccache. Default: a folder of the search.",
)
@RECIPES
@WORK
@JSON
def bisect_command(
    good: str,
    bad: str,
    variant: str,
    check: str | None,
    program: Path | None,
    source_program: Path | None,
    repo: str | None,
    toolkit: str,
    minutes: float,
    history: Path | None,
    fresh: bool,
    jobs: int | None,
    cache: Path | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Find the release or commit that brought a change, with the variant's patches where they hold.

    Both ends are asked first. Points whose patches do not hold, or that do not build, are skipped
    and stay suspects: the end is one culprit, or the smallest range. Answers are kept, so that the
    same command goes on after a stop. Exit code 26 where an end is not what it was said to be.
    """
    if sum(one is not None for one in (check, program, source_program)) != 1:
        raise UsageError(
            "a search asks one thing",
            problems=["expected one of --check, --command and --source-command"],
            next_step="sparkbuild bisect --good A --bad B --variant NAME --check smoke",
        )
    asked = _Asked(
        variant=variant, check=check, program=program, source_program=source_program,
        toolkit=toolkit, minutes=minutes, jobs=jobs, cache=cache,
    )  # fmt: skip
    screen = console(stderr=as_json)
    ends = (good, bad)
    found, folder = _searched(asked, ends, repo, recipes, work, fresh=fresh, screen=screen)
    document = _document(found, folder)
    if history is not None:
        from sparkbuild.bisect_keep import keep

        name = check or str(asked.chosen)
        keep(history, found, document, variant=variant, toolkit=toolkit, check=name)
    if as_json:
        print_json(document)
    screen.print(_view(found), crop=False)
    _show_end(found, folder, screen)
    get_current_context().exit(0)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is asked of each point, and how it is built."""

    variant: str
    check: str | None
    program: Path | None
    source_program: Path | None
    toolkit: str
    minutes: float
    jobs: int | None
    cache: Path | None

    @property
    def chosen(self) -> Path | None:
        """The user's program, whichever it is given."""
        return self.program or self.source_program


def _searched(
    asked: _Asked,
    ends: tuple[str, str],
    repo: str | None,
    recipes: Path | None,
    work: Path | None,
    *,
    fresh: bool,
    screen: Console,
) -> tuple[Found, Path]:
    """Make the row of points and search it; the folder has every answer."""
    from sparkbuild.bisect_ground import commits, names_of, releases
    from sparkbuild.bisect_work import Quest, Trees, forget, key_of, runnable, search
    from sparkbuild.live import Live
    from sparkbuild.manifest import find_recipes
    from sparkbuild.patch_work import Desk
    from sparkbuild.source.obtain import require_git
    from sparkbuild.source.patching.bases import base_table
    from sparkbuild.workspace import Workspace

    require_git()
    known = find_recipes(recipes)
    patchset, manifest = known.patchset(asked.variant)
    workspace = Workspace(work)
    workspace.prepare()
    home = workspace.root / "bisect"
    with Live(screen) as live:
        table = base_table(known.root)
        points = commits(repo, *ends, home) if repo else releases(table, *ends, known.root)
        live.note(f"{len(points)} points from {points[0].name} to {points[-1].name}")
        facts = {
            "points": names_of(points),
            "variant": asked.variant,
            "check": asked.check,
            "tree": asked.source_program is not None,
            "toolkit": asked.toolkit,
            "patches": [patch.sha256 for patch in patchset.patches],
        }
        folder = home / key_of(facts, runnable(asked.chosen) if asked.chosen else None)
        if fresh:
            forget(folder)
        desk = Desk(patchset=patchset, manifest=manifest, work=workspace, live=live)
        ask = _asking(Trees(desk=desk, folder=home / asked.variant), live, asked, known.root)
        return search(Quest(points=points, ask=ask, folder=folder, note=live.note)), folder


def _asking(trees: Trees, live: Live, asked: _Asked, recipes: Path) -> Ask:
    """What is asked of each point."""
    from sparkbuild.bisect_work import by_build, by_source, runnable

    if asked.source_program is not None:
        return by_source(trees, runnable(asked.source_program), asked.minutes)
    compiled = (asked.cache or trees.folder / "cache").absolute()
    if asked.check is not None:
        from sparkbuild.bisect_make import Made

        return Made(
            variant=asked.variant,
            toolkit=asked.toolkit,
            check=asked.check,
            recipes=recipes,
            work=trees.desk.work.root,
            minutes=asked.minutes,
            jobs=asked.jobs,
            cache=compiled,
        ).ask
    from sparkbuild.patch_build import kept_build

    job = _job(trees.desk, recipes, asked.jobs, compiled)
    live.started("toolkit")
    kept = kept_build(job, trees.folder / "build")
    assert asked.program is not None  # noqa: S101 - one of the three is there
    return by_build(trees, kept, runnable(asked.program), asked.minutes)


def _job(desk: Desk, recipes: Path, jobs: int | None, cache: Path) -> Job:
    from sparkbuild.manifest import Recipes
    from sparkbuild.patch_build import cpu_job

    return cpu_job(
        desk.patchset, desk.manifest, Recipes(recipes), desk.work, desk.live, jobs=jobs,
        cache=cache,
    )  # fmt: skip


def _document(found: Found, folder: Path) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(found)
    result = "found" if found.culprit else "range"
    return {"result": result, "exit_code": 0, "folder": str(folder), **plain}


def _view(found: Found) -> Table:
    """The last good point and the first bad one, side by side."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("", f"good: {found.good.point}", f"bad: {found.bad.point}"):
        table.add_column(escape(name), overflow="fold")
    rows = (
        ("title", "title"), ("failing check", "check"), ("said", "reason"), ("commit", "commit"),
        ("report", "report"), ("log", "log"),
    )  # fmt: skip
    for title, field in rows:
        left, right = getattr(found.good, field), getattr(found.bad, field)
        if left or right:
            table.add_row(title, escape(left or "-"), escape(right or "-"))
    return table


def _show_end(found: Found, folder: Path, screen: Console) -> None:
    skipped = [one for one in found.asked if one.verdict == "skip"]
    from sparkbuild.bisect_keep import told

    screen.print(f"[bold]{escape(told(found))}[/]", soft_wrap=True)
    for one in skipped:
        screen.print(f"  skipped {one.point}: {escape(one.reason)}", soft_wrap=True)
    asked = f"{len(found.asked)} of {found.points} points were asked"
    screen.print(f"{asked}; answers are in {escape(str(folder))}", soft_wrap=True)
