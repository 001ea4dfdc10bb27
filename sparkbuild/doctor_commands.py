"""``sparkbuild doctor``: whether this machine can build, verify and serve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from click import get_current_context

from sparkbuild.console import JSON, RECIPES, WORK, console, print_json
from sparkbuild.errors import UsageError

if TYPE_CHECKING:
    from sparkbuild.doctor.captured import Machine
    from sparkbuild.doctor.model import Diagnosis

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("doctor")
@click.option(
    "--fix",
    is_flag=True,
    help="Print a shell script that mends what commands can mend, and change nothing.",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Ask no place on the network.",
)
@click.option(
    "--capture",
    "out",
    type=_FILE,
    metavar="FILE.json",
    help="Write all that was read to a file, for a bug report: without names of users and hosts, "
    "serial numbers, and network addresses.",
)
@click.option(
    "--from",
    "captured",
    type=_FILE,
    metavar="FILE.json",
    help="Judge a captured machine instead of this one.",
)
@RECIPES
@WORK
@JSON
def doctor_command(
    fix: bool,
    offline: bool,
    out: Path | None,
    captured: Path | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Tell whether this machine can build, verify and serve, and what is in the way.

    Everything is only read. To measure a disk, a file is made below the work folder where no
    large one is there, read, and removed. A fault ends with exit code 16; warnings do not.
    """
    if fix and as_json:
        raise UsageError("--fix prints a script, --json a document", next_step="leave one out")
    if captured is not None and (out is not None or offline):
        raise UsageError(
            "--from reads no machine", next_step="leave --capture and --offline out beside it"
        )
    from sparkbuild.doctor.captured import load, save
    from sparkbuild.doctor.diagnose import diagnose
    from sparkbuild.doctor.redact import for_strangers
    from sparkbuild.doctor.script import script
    from sparkbuild.report.doctor import diagnosis_view

    machine = load(captured) if captured else _this_machine(recipes, work, offline=offline)
    if out is not None:
        save(for_strangers(machine), out)
    found = diagnose(machine)
    if fix:
        click.echo(script(found), nl=False)
    elif as_json:
        print_json(document(found))
    else:
        console().print(diagnosis_view(found), crop=False)
    get_current_context().exit(found.exit_code)


def document(found: Diagnosis) -> dict[str, object]:
    """A diagnosis as JSON has it."""
    from msgspec import to_builtins

    return {
        "verdict": found.verdict,
        "exit_code": found.exit_code,
        "abilities": found.abilities(),
        **to_builtins(found),
    }


def _this_machine(recipes: Path | None, work: Path | None, *, offline: bool) -> Machine:
    from sparkbuild.doctor_work import examine
    from sparkbuild.live import Live
    from sparkbuild.manifest import find_recipes
    from sparkbuild.workspace import Workspace

    known = find_recipes(recipes)
    with Live(console(stderr=True)) as live:
        live.started("doctor")
        return examine(
            known,
            Workspace(work),
            offline=offline,
            tell=lambda what: live.progress(0, 0, what),
        )
