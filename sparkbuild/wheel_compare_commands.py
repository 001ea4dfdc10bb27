"""``sparkbuild wheel compare``: what differs between two wheels, down to a function or kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import rich_click as click
from click import get_current_context

from sparkbuild.console import JSON, console, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from sparkbuild.package.differences import Comparison, Difference

SHOWN: Final = 40
"""Differences in the list; ``--all`` and ``--json`` give every one."""
DIFFERENT: Final = 1
"""Exit code of ``cmp`` and ``diff`` where two files differ."""

_WHEEL: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_GPU: Final = {
    "same bytes": "GPU code: the same bytes",
    "same code": "GPU code: the same machine code and constants in every kernel; only names, or "
    "what lies around the code, differ",
    "differs": "GPU code differs",
    "unread": "GPU code differs in a form that cannot be looked into",
}


@click.command("compare")
@click.argument("first", metavar="WHEEL", type=_WHEEL)
@click.argument("second", metavar="WHEEL", type=_WHEEL)
@click.option("--all", "everything", is_flag=True, help=f"Show more than {SHOWN} differences.")
@click.option(
    "--diffoscope",
    "listing",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write what diffoscope says of the two, where it is installed.",
)
@JSON
def compare_command(
    first: Path, second: Path, everything: bool, listing: Path | None, as_json: bool
) -> None:
    """Say which member of two wheels differs, and in it which section, function or GPU kernel.

    Exit code 0 where they are the same bytes, 1 where they are not. GPU code is compared kernel by
    kernel: the same machine code under other names is told from code that differs.
    """
    from msgspec import to_builtins

    from sparkbuild.package.compare import compare

    found = compare(first, second)
    screen = console(stderr=as_json)
    if as_json:
        print_json({"identical": found.identical, **to_builtins(found)})
    show(found, screen, everything=everything)
    if listing and not found.identical:
        _diffoscope(first, second, listing, screen)
    get_current_context().exit(0 if found.identical else DIFFERENT)


def show(found: Comparison, screen: Console, *, everything: bool = False) -> None:
    """The comparison as a verdict and a list."""
    from rich.markup import escape

    if found.identical:
        screen.print(f"[green]the same bytes[/]: sha256 {found.first.sha256}", soft_wrap=True)
        return
    screen.print(
        f"[red]different[/]: {len(found.differences)} differences; {found.equal} of "
        f"{found.members} members are the same bytes"
    )
    shown = found.differences if everything else found.differences[:SHOWN]
    for line in _lines(shown):
        screen.print(line, soft_wrap=True)
    if len(shown) < len(found.differences):
        screen.print(f"and {len(found.differences) - len(shown)} more: --all shows them")
    if found.gpu_code in _GPU:
        screen.print(escape(_GPU[found.gpu_code]))


def _lines(differences: Sequence[Difference]) -> Iterator[str]:
    """Each member once, and below it what differs of it: a line each, whatever its length."""
    from rich.markup import escape

    last = None
    for one in differences:
        if one.member != last:
            yield f"[bold]{escape(one.member or 'the archive')}[/]"
        last = one.member
        place = f"{one.place}: " if one.place else ""
        what = one.what.replace("\n", "\n             ")
        yield f"  {one.kind:<9}{escape(place + what)}"


def _diffoscope(first: Path, second: Path, listing: Path, screen: Console) -> None:
    """Ask diffoscope; a machine without it is told so, and nothing else changes."""
    from sparkbuild import process

    program = process.find_program("diffoscope")
    if program is None:
        screen.print("diffoscope is not installed: nothing more was written")
        return
    argv = [str(program), "--text", str(listing), str(first), str(second)]
    process.run(argv, log=listing.with_name(f"{listing.name}.log"), env=process.environment())
    screen.print(f"diffoscope's words are in {listing}", soft_wrap=True)
