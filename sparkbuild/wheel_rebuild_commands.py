"""``sparkbuild wheel rebuild``: the same wheel, made again where everything else is different."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from click import get_current_context

from sparkbuild.console import JSON, RECIPES, WORK, console, print_json
from sparkbuild.wheel_compare_commands import DIFFERENT, show

if TYPE_CHECKING:
    from sparkbuild.wheel_rebuild import Rebuilt


@click.command("rebuild")
@click.argument(
    "wheel", metavar="WHEEL", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--toolkit",
    metavar="NAME",
    help="As for make: a release, an exact nvcc or a root. Default: the wheel's own toolchain.",
)
@click.option("--jobs", "-j", type=click.IntRange(1), metavar="N", help="Compile jobs.")
@RECIPES
@WORK
@JSON
def rebuild_command(
    wheel: Path,
    toolkit: str | None,
    jobs: int | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Build a wheel again under a deliberately different environment, and compare the two.

    Other folders, user, time zone, locale, umask, number of jobs, order of files, no compile cache,
    and a shell full of compiler flags. Exit code 0 where the same bytes came out, 1 where not; 15
    where the recipes, the toolkit or the host compiler here are others than the wheel's.
    """
    found = rebuilt(wheel, toolkit=toolkit, jobs=jobs, recipes=recipes, work=work, as_json=as_json)
    get_current_context().exit(0 if found.comparison.identical else DIFFERENT)


def rebuilt(
    wheel: Path,
    *,
    toolkit: str | None,
    jobs: int | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> Rebuilt:
    """Rebuild, compare, and print what came of it; for ``wheel verify --rebuild`` too."""
    from msgspec import to_builtins

    from sparkbuild.live import Live
    from sparkbuild.manifest import find_recipes
    from sparkbuild.wheel_rebuild import rebuild_and_compare
    from sparkbuild.workspace import Workspace

    workspace = Workspace(work)
    workspace.prepare()
    screen = console(stderr=as_json)
    with Live(screen) as live:
        found = rebuild_and_compare(
            wheel,
            recipes=find_recipes(recipes),
            workspace=workspace,
            observer=live,
            toolkit=toolkit,
            jobs=jobs,
        )
    if as_json:
        print_json(
            {
                "identical": found.comparison.identical,
                "rebuilt": str(found.wheel),
                "different": dict(found.different),
                "carried": list(found.carried),
                "comparison": to_builtins(found.comparison),
            }
        )
    show(found.comparison, screen)
    if found.carried:
        screen.print(f"taken over, not made again: {', '.join(found.carried)}", soft_wrap=True)
    screen.print(f"the second wheel: {found.wheel}", soft_wrap=True)
    return found
