"""``sparkbuild faults``: seeded faults, and whether the product refuses each in time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from click import get_current_context

from sparkbuild.console import JSON, WORK, console, print_json

if TYPE_CHECKING:
    from sparkbuild.faults.catalogue import Faults

CATALOGUE = click.option(
    "--catalogue",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The faults' data. Default: tests/faults of the checkout.",
)
_ONLY = click.option(
    "--only", multiple=True, metavar="ID", help="This fault alone; may be given again."
)
_KIND = click.option(
    "--class",
    "kinds",
    multiple=True,
    type=click.Choice(("toolkit", "source", "speculation", "vision", "file", "server", "pipeline")),
    help="Faults of this kind alone; may be given again.",
)
_FAST = click.option(
    "--fast", is_flag=True, help="Those alone that are planted and caught quickly."
)


@click.group("faults")
def faults_group() -> None:
    """Plant faults in the product, and see that it refuses each."""


@faults_group.command("run")
@_ONLY
@_KIND
@_FAST
@click.option(
    "--clean",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Run smoke so many times on builds without a fault: a refusal there is a false alarm.",
)
@click.option("--fresh", is_flag=True, help="Run again what an earlier run has finished.")
@click.option(
    "--lanes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Faults at the same time, each with a build of its own. Default: one for two cores that "
    "there is memory for.",
)
@click.option(
    "--toolkit",
    metavar="NAME",
    help="CUDA release of the build for faults in CUDA code. Default: of a CUDA build that is in "
    "the work folder, else the newest good toolkit.",
)
@CATALOGUE
@WORK
@JSON
def run_command(
    only: tuple[str, ...],
    kinds: tuple[str, ...],
    fast: bool,
    clean: int,
    fresh: bool,
    lanes: int | None,
    toolkit: str | None,
    catalogue: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Plant each fault, run the product on it as a user would, and say which stage refused it.

    A fault is caught where the product refuses it at or before the stage that the catalogue names,
    in words that tell what is wrong. Exit code 23 where one was not, where a clean run was refused,
    or where a fault could not be planted; what this machine has no part for is told and is none of
    these. A run that was stopped goes on where it was.
    """
    from sparkbuild.errors import FaultsError
    from sparkbuild.faults.document import document, problems
    from sparkbuild.faults_work import Order, lanes_here, run_faults
    from sparkbuild.live import Live
    from sparkbuild.report.faults import matrix_view
    from sparkbuild.workspace import Workspace

    faults = _loaded(catalogue)
    chosen = faults.chosen(only=only, kinds=kinds, fast=fast)
    workspace = Workspace(work)
    workspace.prepare()
    screen = console(stderr=as_json)
    order = Order(
        faults=faults, chosen=chosen, workspace=workspace, lanes=lanes or lanes_here(),
        clean=clean, toolkit=toolkit, fresh=fresh,
    )  # fmt: skip
    with Live(screen) as live:
        matrix = run_faults(order, live)
    wrong = problems(matrix, faults.every)
    code = FaultsError.exit_code if wrong else 0
    if as_json:
        print_json(document(matrix, wrong, code))
    screen.print(matrix_view(matrix, faults.every, wrong), crop=False)
    get_current_context().exit(code)


@faults_group.command("list")
@_ONLY
@_KIND
@_FAST
@CATALOGUE
@JSON
def list_command(
    only: tuple[str, ...],
    kinds: tuple[str, ...],
    fast: bool,
    catalogue: Path | None,
    as_json: bool,
) -> None:
    """Every fault of the catalogue: what it is, what it imitates, which stage has to refuse it."""
    from msgspec import to_builtins

    from sparkbuild.report.faults import faults_view

    faults = _loaded(catalogue)
    chosen = faults.chosen(only=only, kinds=kinds, fast=fast)
    if as_json:
        print_json({"catalogue": faults.digest, "faults": [to_builtins(one) for one in chosen]})
        return
    console().print(faults_view(chosen), crop=False)


def _loaded(catalogue: Path | None) -> Faults:
    from sparkbuild.faults.catalogue import find_catalogue, load_faults

    return load_faults(find_catalogue(catalogue))
