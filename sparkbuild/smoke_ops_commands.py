"""The command line of ``sparkbuild smoke --suite ops``; loaded only where that is asked for."""

from __future__ import annotations

import contextlib
from pathlib import Path

from click import get_current_context
from click.core import ParameterSource
from rich.markup import escape

from sparkbuild.canary_commands import catalogue_in, desk_for
from sparkbuild.console import console, print_json
from sparkbuild.errors import UsageError
from sparkbuild.files import write_atomic
from sparkbuild.live import Live
from sparkbuild.manifest import find_recipes
from sparkbuild.package.unpack import unpacked
from sparkbuild.report.ops import ops_junit, ops_view
from sparkbuild.smoke_ops import need_of_canaries, need_of_models, ops_answer, run_ops
from sparkbuild.workspace import Workspace

_NOT_HERE = ("context", "diagnose", "processes", "threads", "variant")
"""Options of the command that are about servers."""


def ask_operators(
    build: Path,
    models: tuple[Path, ...],
    *,
    backend: str,
    junit: Path | None,
    data: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Ask upstream's operator tests for what ``models`` use, or all canaries; exit as they say."""
    _refuse_options()
    workspace = Workspace(work)
    workspace.prepare()
    screen = console(stderr=as_json)
    folder, catalogue = catalogue_in(data)
    if models:
        need, files = need_of_models(models), list(models)
    else:
        need, files = need_of_canaries(folder, catalogue)
    with contextlib.ExitStack() as stack:
        wheel = build if build.is_file() else None
        if wheel:
            build = stack.enter_context(unpacked(wheel, workspace.root))
        live = stack.enter_context(Live(screen))
        desk = desk_for(folder, build, work, live, backend=backend)
        found = run_ops(desk, workspace, find_recipes(None), need, models=files, wheel=wheel)
    if junit:
        write_atomic(junit, ops_junit(found))
    if as_json:
        print_json(ops_answer(found))
    screen.print(ops_view(found), crop=False)
    screen.print(f"\nlogs are in {escape(found.logs)}", soft_wrap=True)
    get_current_context().exit(found.exit_code)


def _refuse_options() -> None:
    context = get_current_context()
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        if param.name in _NOT_HERE and source not in {None, ParameterSource.DEFAULT}:
            raise UsageError(
                f"{param.opts[0]} is for servers, and no server is started for operators",
                next_step=f"leave out {param.opts[0]}, or take another --suite",
            )
