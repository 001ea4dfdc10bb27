"""``sparkbuild nightly``: run a night, and say whether the last good one is too old."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rich_click as click
from click import get_current_context
from rich.markup import escape

from sparkbuild.console import CACHE, JOBS, JSON, RECIPES, WORK, console, print_json
from sparkbuild.errors import NightError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from sparkbuild.nightly.alarm import Standing
    from sparkbuild.nightly_order import Ended

_LOCKS: Final = Path("/run/lock")
_PLAN_NAME: Final = Path("ci/nightly.toml")

_PLAN = click.option(
    "--plan",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What a night is asked to do. Default: ci/nightly.toml of this folder.",
)
_HISTORY = click.option(
    "--history",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    envvar="SPARKBUILD_HISTORY",
    show_envvar=True,
    help="Where runs, nights and faults are kept. Default: the user's data folder.",
)


@click.group("nightly")
def nightly_group() -> None:
    """Build, ask and publish each night; find out who broke what, and never cry wolf."""


@nightly_group.command("run")
@_PLAN
@_HISTORY
@JOBS
@CACHE
@click.option(
    "--sign",
    "sign",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="NAME.key",
    envvar="SPARKBUILD_KEY",
    show_envvar=True,
    help="Sign provenance and SBOM of each wheel; may be given again.",
)
@click.option(
    "--lock",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What two nightlies of one machine meet at. Default: /run/lock/sparkbuild-nightly.lock.",
)
@RECIPES
@WORK
@JSON
def run_command(
    plan: Path | None,
    history: Path | None,
    jobs: int | None,
    cache: Path | None,
    sign: tuple[Path, ...],
    lock: Path | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Build and ask the pinned base, then the newest release of upstream, and judge both.

    The pinned base is the control: where it fails, the machine, the toolkit or sparkbuild is to
    blame; where only the newer base fails, upstream or the patches are. A night that was killed or
    interrupted is gone on with by the same command. Exit code 25 where the night is red, 18 where
    another nightly runs on this machine.
    """
    from sparkbuild.history.store import default_root
    from sparkbuild.live import Live
    from sparkbuild.manifest import find_recipes
    from sparkbuild.nightly.plan import read_plan
    from sparkbuild.nightly_order import Order, summary
    from sparkbuild.nightly_tell import after
    from sparkbuild.nightly_work import run_night

    file = _plan_file(plan)
    order = Order(
        plan=read_plan(file),
        plan_file=file.absolute(),
        root=history or default_root(),
        recipes=find_recipes(recipes).root.absolute(),
        lock=(lock or _LOCKS / "sparkbuild-nightly.lock").absolute(),
        work=work,
        cache=cache,
        jobs=jobs,
        sign=sign,
    )
    screen = console(stderr=as_json)
    with Live(screen) as live:
        ended = run_night(order, live)
        told = after(order, ended, live, token=os.environ.get("SPARKBUILD_GITHUB_TOKEN", ""))
    code = 0 if ended.night.state == "green" else NightError.exit_code
    if as_json:
        print_json({"exit_code": code, **summary(ended), "told": list(told)})
    _show_night(screen, ended, told)
    get_current_context().exit(code)


@nightly_group.command("status")
@_PLAN
@_HISTORY
@JSON
def status_command(plan: Path | None, history: Path | None, as_json: bool) -> None:
    """Say how old the last good night is, and which faults are open.

    Exit code 25 where it is older than the plan allows, where none is known, or where a night is
    dated to come: for any monitor, whether nights run or not.
    """
    import msgspec

    from sparkbuild.history.store import History, default_root
    from sparkbuild.nightly.alarm import standing
    from sparkbuild.nightly.plan import read_plan

    limit = read_plan(_plan_file(plan)).alarm.good_night_hours
    with History(history or default_root()) as known:
        nights, troubles = known.nights(), known.troubles(open_only=True)
        notes = tuple(known.notes)
    found = standing(nights, now=dt.datetime.now(dt.UTC), limit_hours=limit)
    code = NightError.exit_code if found.alarm else 0
    screen = console(stderr=as_json)
    if as_json:
        last_good = msgspec.to_builtins(found.last_good) if found.last_good else None
        print_json(
            {
                "result": "failed" if code else "passed",
                "exit_code": code,
                "alarm": list(found.alarm),
                "notes": [*found.notes, *notes],
                "hours": found.hours,
                "limit_hours": limit,
                "last": msgspec.to_builtins(found.last) if found.last else None,
                "last_good": last_good,
                "troubles": [msgspec.to_builtins(one) for one in troubles],
            }
        )
    _show_standing(screen, found, [one.title for one in troubles], notes)
    get_current_context().exit(code)


def _plan_file(given: Path | None) -> Path:
    """The plan that was named, or that of this folder. Raises UsageError."""
    file = given or _PLAN_NAME
    if not file.is_file():
        raise UsageError(
            f"there is no plan {file}",
            problems=["expected a file such as sparkbuild's own ci/nightly.toml"],
            next_step="name it: --plan FILE",
        )
    return file


def _show_night(screen: Console, ended: Ended, told: tuple[str, ...]) -> None:
    night = ended.night
    colour = "bold green" if night.state == "green" else "bold red"
    screen.print(f"[{colour}]{night.state}[/] night {night.id}: {escape(night.reason)}")
    if night.state != "green":
        screen.print(f"  points to: [bold]{night.blame}[/]")
    for run in ended.runs:
        mark = "✓" if run.state == "passed" else "✗"
        cell = " ".join(part for part in (run.variant, run.toolchain, run.base) if part)
        line = f"  {mark} {run.role:<9} {run.what:<7} {cell}  {run.state}, {run.seconds:.0f} s"
        screen.print(escape(line), soft_wrap=True)
    for text in (*night.notes, *told):
        screen.print(f"  [yellow]note[/] {escape(text)}", soft_wrap=True)
    for name in night.published:
        screen.print(f"  published {escape(name)}", soft_wrap=True)
    screen.print(f"  everything is in {escape(str(ended.folder))}", soft_wrap=True)


def _show_standing(
    screen: Console, found: Standing, troubles: list[str], notes: tuple[str, ...]
) -> None:
    if found.last_good is not None and found.hours is not None:
        text = f"the last good night, {found.last_good.id}, ended {found.hours:.1f} hours ago"
        screen.print(f"[green]ok[/] {text}" if not found.alarm else text, soft_wrap=True)
    for text in found.alarm:
        screen.print(f"[bold red]alarm[/] {escape(text)}", soft_wrap=True)
    for text in (*found.notes, *notes):
        screen.print(f"[yellow]note[/] {escape(text)}", soft_wrap=True)
    for title in troubles:
        screen.print(f"  open: {escape(title)}", soft_wrap=True)
