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
@click.option(
    "--model",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A real model to serve and ask (the first of its shards), with the suite that is for it.",
)
@click.option(
    "--mmproj",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The model's vision tower; without it no picture is asked.",
)
@click.option(
    "--ctx-size",
    "context",
    type=click.IntRange(min=256),
    metavar="N",
    help="Tokens of all slots together for --model. Default: the suite's.",
)
@click.option(
    "--variant",
    metavar="NAME",
    help="Which variant BUILD is of: what its patches bring is asked too, as `make` does.",
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
@click.option(
    "--first",
    is_flag=True,
    help="Stop at the first thing that is wrong; the quickest are asked first.",
)
@JUNIT
@CANARIES
@WORK
@JSON
def smoke_command(
    build: Path,
    suite: str,
    model: Path | None,
    mmproj: Path | None,
    context: int | None,
    variant: str | None,
    backend: str,
    threads: int,
    processes: int | None,
    diagnose: bool,
    first: bool,
    junit: Path | None,
    data: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Ask a build everything that its suite knows, in every way that it will be served.

    BUILD is a folder with llama-server and llama-quantize, or with bin/; a WHEEL is unpacked after
    its files were compared with its RECORD. Exit code 14 where an answer, a number, a draft or a
    line of the log is wrong. What failed together points to kinds of cause, told in order.

    With --suite ops upstream's test-backend-ops is asked instead of a server, for the tensor and KV
    types and the operators that the files of --model and --mmproj use, or all canaries together.

    With --model a real model is served and asked, each way to serve in a start of its own, where it
    fits the build and the memory; otherwise nothing is started, and the exit code is 20.
    """
    if suite == "ops":
        from sparkbuild.smoke_ops_commands import ask_operators

        models = tuple(path for path in (model, mmproj) if path)
        ask_operators(
            build, models, backend=backend, junit=junit, data=data, work=work, as_json=as_json
        )
        return
    from sparkbuild.smoke_served_commands import ask_served, served_suite

    served = served_suite(suite, model, mmproj, context)
    if served and model:
        ask_served(
            build, model, served, mmproj=mmproj, context=context, junit=junit, work=work,
            as_json=as_json,
        )  # fmt: skip
        return
    _ask_plan(
        build, suite, variant=variant, backend=backend, threads=threads, processes=processes,
        diagnose=diagnose, first=first, junit=junit, data=data, work=work, as_json=as_json,
    )  # fmt: skip


def _ask_plan(
    build: Path,
    suite: str,
    *,
    variant: str | None,
    backend: str,
    threads: int,
    processes: int | None,
    diagnose: bool,
    first: bool,
    junit: Path | None,
    data: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Ask canaries, and exit as what was found says."""
    from sparkbuild.canary.catalogue import verify
    from sparkbuild.live import Live
    from sparkbuild.manifest import find_recipes
    from sparkbuild.package.unpack import unpacked
    from sparkbuild.report.smoke import smoke_view
    from sparkbuild.smoke.plan import load_plan, plan_file
    from sparkbuild.smoke_pool import processes as default_processes
    from sparkbuild.smoke_work import answer, exit_code, run_plan
    from sparkbuild.workspace import Workspace

    abilities = find_recipes(None).patchset(variant)[0].smoke.abilities if variant else ()
    plan = load_plan(plan_file(suite))
    folder, catalogue = catalogue_in(data)
    verify(folder, names=tuple(entry.name for entry in catalogue.canaries))
    workspace = Workspace(work)
    workspace.prepare()
    screen = console(stderr=as_json)
    with contextlib.ExitStack() as stack:
        if build.is_file():
            build = stack.enter_context(unpacked(build, workspace.root))
        live = stack.enter_context(Live(screen))
        desk = desk_for(
            folder, build, work, live, backend=backend, threads=threads, abilities=abilities,
            first=first,
        )  # fmt: skip
        found = run_plan(
            desk,
            catalogue,
            plan,
            file=plan_file(suite),
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
