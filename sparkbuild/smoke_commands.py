"""``sparkbuild smoke``: does a build tell the truth, and what is wrong where it does not."""

from __future__ import annotations

import contextlib
from pathlib import Path

import rich_click as click
from click import get_current_context
from rich.markup import escape

from sparkbuild.canary_commands import BACKEND, CANARIES, JUNIT, THREADS, catalogue_in, desk_for
from sparkbuild.console import JSON, WORK, console, print_json


@click.command("smoke")
@click.argument("build", metavar="BUILD|WHEEL", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--suite",
    default="canary",
    show_default=True,
    metavar="NAME|FILE",
    help="Which suite: one that comes with sparkbuild, or a file like them, FILE.toml.",
)
@BACKEND
@THREADS
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Servers at the same time. Default: one for each core that there is memory for.",
)
@click.option(
    "--diagnose",
    is_flag=True,
    help="Change one switch at a time where something fails, and name the first that cures it.",
)
@JUNIT
@CANARIES
@WORK
@JSON
def smoke_command(
    build: Path,
    suite: str,
    backend: str,
    threads: int,
    processes: int | None,
    diagnose: bool,
    junit: Path | None,
    data: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Ask a build everything that its suite knows, in every way that it will be served.

    BUILD is a folder with llama-server and llama-quantize, or with bin/; a WHEEL is unpacked after
    its files were compared with its RECORD. Exit code 14 where an answer, a number, a draft or a
    line of the log is wrong. What failed together points to kinds of cause, told in order.
    """
    from sparkbuild.canary.catalogue import verify
    from sparkbuild.live import Live
    from sparkbuild.package.unpack import unpacked
    from sparkbuild.report.smoke import smoke_view
    from sparkbuild.smoke.plan import load_plan, plan_file
    from sparkbuild.smoke_pool import processes as default_processes
    from sparkbuild.smoke_work import answer, exit_code, run_plan
    from sparkbuild.workspace import Workspace

    file = plan_file(suite)
    plan = load_plan(file)
    folder, catalogue = catalogue_in(data)
    verify(folder, names=tuple(entry.name for entry in catalogue.canaries))
    workspace = Workspace(work)
    workspace.prepare()
    screen = console(stderr=as_json)
    with contextlib.ExitStack() as stack:
        if build.is_file():
            build = stack.enter_context(unpacked(build, workspace.root))
        live = stack.enter_context(Live(screen))
        desk = desk_for(folder, build, work, live, backend=backend, threads=threads)
        found = run_plan(
            desk,
            catalogue,
            plan,
            file=file,
            at_once=processes or default_processes(),
            diagnose=diagnose,
        )
    if junit:
        from sparkbuild.files import write_atomic
        from sparkbuild.report.junit_smoke import smoke_junit

        write_atomic(junit, smoke_junit(found))
    code = exit_code(found)
    if as_json:
        print_json(answer(found, code))
    screen.print(smoke_view(found), crop=False)
    screen.print(f"\nlogs are in {escape(str(desk.root))}/NAME/logs", soft_wrap=True)
    get_current_context().exit(code)
