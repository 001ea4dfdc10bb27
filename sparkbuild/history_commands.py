"""``sparkbuild history``: every run and night that was kept, and what its figures came to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from sparkbuild.console import JSON, console, print_json
from sparkbuild.errors import HistoryError

if TYPE_CHECKING:
    from sparkbuild.history.model import Night, Role, Run, State, What
    from sparkbuild.history.store import History

WHATS: Final = ("make", "smoke", "faults", "patches", "bisect")
ROLES: Final = ("control", "candidate", "by hand")
STATES: Final = ("passed", "failed", "cancelled", "timed out", "did not run")
"""Those of ``history.model``, spelled out: the command line starts without msgspec."""

HISTORY = click.option(
    "--history",
    "root",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    envvar="SPARKBUILD_HISTORY",
    show_envvar=True,
    help="The history's folder. Default: history/ in the user's data folder.",
)
_LAST = click.option("--last", type=click.IntRange(min=1), metavar="N", help="The newest N alone.")


@click.group("history")
def history_group() -> None:
    """What was run, when, with what result and which figures."""


@history_group.command("list")
@click.option("--nights", is_flag=True, help="Nights instead of runs.")
@click.option("--night", metavar="ID", help="Runs of this night alone.")
@click.option("--what", type=click.Choice(WHATS), help="Runs of this kind alone.")
@click.option("--role", type=click.Choice(ROLES), help="Runs in this role alone.")
@click.option("--variant", metavar="NAME", help="Runs of this variant alone.")
@click.option("--toolchain", metavar="NAME", help="Runs with this toolchain alone.")
@click.option("--state", type=click.Choice(STATES), help="Runs that ended so alone.")
@_LAST
@HISTORY
@JSON
def list_command(
    nights: bool,
    night: str | None,
    what: What | None,
    role: Role | None,
    variant: str | None,
    toolchain: str | None,
    state: State | None,
    last: int | None,
    root: Path | None,
    as_json: bool,
) -> None:
    """Runs by their start, the newest last, each with its first failure."""
    from msgspec import to_builtins

    from sparkbuild.report.history import nights_view, runs_view

    with existing(root) as history:
        if nights:
            found = history.nights(last=last)
            facts: dict[str, Any] = {"nights": to_builtins(found)}
            view = nights_view(found)
        else:
            runs = history.runs(
                night=night, what=what, role=role, variant=variant, toolchain=toolchain,
                state=state, last=last,
            )  # fmt: skip
            facts, view = {"runs": to_builtins(runs)}, runs_view(runs)
        notes = list(history.notes)
    if as_json:
        print_json({**facts, "notes": notes})
        return
    console().print(view, crop=False)
    _say(notes)


@history_group.command("show")
@click.argument("id_", metavar="ID")
@HISTORY
@JSON
def show_command(id_: str, root: Path | None, as_json: bool) -> None:
    """One run or night: what it came to, its figures with the noise band, its evidence.

    ID is a run's, its start where no other begins so, or a night's.
    """
    from msgspec import to_builtins

    from sparkbuild.history.noise import band, noise
    from sparkbuild.report.history import night_view, run_view

    with existing(root) as history:
        night, runs = side(history, id_)
        if night is not None:
            facts = {"night": to_builtins(night), "runs": to_builtins(runs)}
            view = night_view(night, runs)
        else:
            run = runs[0]
            control = history.readings(
                what=run.what, role="control", variant=run.variant, toolchain=run.toolchain
            )
            noises = {
                name: noise([one for one in past if one.run != run.id and one.base == run.base])
                for name, past in control.items()
            }
            bands = {name: band(found) for name, found in noises.items() if found}
            facts = {"run": to_builtins(run), "bands": to_builtins(bands)}
            view = run_view(run, bands, history.root)
    if as_json:
        print_json(facts)
    else:
        console().print(view, crop=False)


@history_group.command("compare")
@click.argument("first")
@click.argument("second")
@HISTORY
@JSON
def compare_command(first: str, second: str, root: Path | None, as_json: bool) -> None:
    """FIRST and SECOND, two runs or two nights, figure by figure.

    Beside each difference stands what noise explains: the control's own, from restart to restart,
    with its n. Fewer than six nights are not enough to tell.
    """
    from msgspec import to_builtins

    from sparkbuild.history.compare import compared
    from sparkbuild.report.history import compared_view

    with existing(root) as history:
        ours, theirs = side(history, first)[1], side(history, second)[1]
        rows = compared(
            ours,
            theirs,
            lambda what, variant, toolchain: history.readings(
                what=what, role="control", variant=variant, toolchain=toolchain
            ),
        )
    if as_json:
        print_json({"first": first, "second": second, "rows": to_builtins(rows)})
    else:
        console().print(compared_view(first, second, rows), crop=False)


@history_group.command("export")
@click.option(
    "--csv/--json", "as_csv", default=False, help="CSV, a row for each figure, or JSON (default)."
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write to FILE. Default: standard output.",
)  # fmt: skip
@_LAST
@HISTORY
def export_command(as_csv: bool, out: Path | None, last: int | None, root: Path | None) -> None:
    """All runs, nights and troubles as JSON, or the figures of all runs as CSV."""
    import json

    from sparkbuild.console import JSON_SCHEMA
    from sparkbuild.files import write_atomic
    from sparkbuild.history import export

    with existing(root) as history:
        runs = history.runs(last=last)
        if as_csv:
            text = export.as_csv(runs)
        else:
            document = export.as_document(runs, history.nights(), history.troubles())
            text = json.dumps({"schema": JSON_SCHEMA, **document}, indent=2) + "\n"
    if out is None:
        click.echo(text, nl=False)
    else:
        write_atomic(out, text)


def existing(root: Path | None) -> History:
    """The history that is there. Raises HistoryError where nothing was ever kept."""
    from sparkbuild.history.store import FILE, History, default_root

    folder = root or default_root()
    if not (folder / FILE).exists() and not (folder / "runs").is_dir():
        raise HistoryError(
            f"no history is in {folder}",
            problems=[f"expected {FILE} or runs/ there"],
            next_step="`sparkbuild nightly run` writes one; --history DIR names another folder",
        )
    return History(folder)


def side(history: History, id_: str) -> tuple[Night | None, Sequence[Run]]:
    """A night with its runs, or None and one run. Raises HistoryError where there is neither."""
    for night in history.nights():
        if night.id == id_:
            return night, history.runs(night=id_)
    return None, [history.run(id_)]


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        console(stderr=True).print(f"note: {note}", markup=False, soft_wrap=True)
