"""What every command of the command line shares: options, the terminal, JSON answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

if TYPE_CHECKING:
    from rich.console import Console

JSON_SCHEMA: Final = 1

RECIPES = click.option(
    "--recipes",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder with patchsets/ and toolchains/, instead of those that come with sparkbuild.",
)
WORK = click.option(
    "--work",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    envvar="SPARKBUILD_WORK",
    show_envvar=True,
    help="Where sources, builds and logs are kept. Default: the user's cache folder.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON to standard output.")
JOBS = click.option(
    "--jobs", "-j", type=int, metavar="N", help="Compile jobs. Default: cores and memory."
)
CACHE = click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    envvar="SPARKBUILD_CACHE",
    show_envvar=True,
    help="Compile through sccache, with one folder below DIR for each toolkit identity.",
)
VARIANT = click.option("--variant", required=True, metavar="NAME", help="Which patch set.")


def console(*, stderr: bool = False) -> Console:
    """The terminal, or whatever stands in for it."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def print_json(facts: dict[str, Any]) -> None:
    """Print an answer as JSON, with the version of its schema."""
    click.echo(json.dumps({"schema": JSON_SCHEMA, **facts}, indent=2))


def answer(facts: dict[str, Any], *, as_json: bool, out: Console) -> None:
    """Print an answer as JSON or as a table of names and values."""
    if as_json:
        print_json(facts)
        return
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        if isinstance(value, dict):
            table.add_row(f"[bold]{name}[/]", "")
            for key, text in value.items():
                table.add_row(f"  {key}", str(text))
        else:
            text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            table.add_row(f"[bold]{name}[/]", text or "none")
    out.print(table)
