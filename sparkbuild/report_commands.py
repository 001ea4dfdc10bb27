"""``sparkbuild report``: pages for people, made of what was kept."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from sparkbuild.console import JSON, console, print_json
from sparkbuild.history_commands import HISTORY, existing


@click.group("report")
def report_group() -> None:
    """Pages for people, made of what was kept."""


@report_group.command("site")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    metavar="N",
    help="The newest N nights.",
)
@HISTORY
@JSON
def site_command(folder: Path, last: int, root: Path | None, as_json: bool) -> None:
    r"""Write the history as pages to DIR, which any browser shows without a server or a network.

    Nights as a calendar, figures over time with the control's noise, toolkits and variants, the
    runs with their stages and logs, the fault matrix, troubles. All of DIR is replaced at once.
    Needs pip install 'sparkbuild\[site]'.
    """
    from sparkbuild.site_work import write

    with existing(root) as history:
        book, files = write(history, folder, last=last)
    facts = {
        "index": str(folder.absolute() / "index.html"),
        "pages": files,
        "nights": len(book.nights),
        "runs": len(book.runs),
        "notes": list(book.notes),
    }
    if as_json:
        print_json(facts)
        return
    console().print(
        f"{files} pages of {len(book.nights)} nights and {len(book.runs)} runs: {facts['index']}",
        markup=False, soft_wrap=True,
    )  # fmt: skip
    for note in book.notes:
        console(stderr=True).print(f"note: {note}", markup=False, soft_wrap=True)
