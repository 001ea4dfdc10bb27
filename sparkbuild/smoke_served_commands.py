"""``sparkbuild smoke --model``: which suite is meant, and what a person gets to see."""

from __future__ import annotations

import contextlib
from pathlib import Path

from click import get_current_context
from click.core import ParameterSource
from rich.markup import escape

from sparkbuild.console import console, print_json
from sparkbuild.errors import UsageError
from sparkbuild.files import write_atomic
from sparkbuild.live import Live
from sparkbuild.package.unpack import unpacked
from sparkbuild.report.served import served_junit, served_view
from sparkbuild.smoke_served import Request, answer, chosen_suite, exit_code, run_served
from sparkbuild.workspace import Workspace

_CANARIES = ("diagnose", "processes", "data", "variant")
"""Options that only canaries have."""


def served_suite(
    suite: str, model: Path | None, mmproj: Path | None, context: int | None
) -> Path | None:
    """The suite's file where a real model is to be asked. Raises UsageError."""
    if model is None and (mmproj or context):
        raise UsageError(
            "--mmproj and --ctx-size are for a real model",
            next_step="add --model MODEL.gguf, or leave them out",
        )
    return chosen_suite(suite if _given("suite") else None, model)


def ask_served(
    build: Path,
    model: Path,
    suite: Path,
    *,
    mmproj: Path | None,
    context: int | None,
    junit: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Serve a real model, ask it, and exit as what was found says.

    ``--backend`` and ``--threads`` count where they were given: a suite has its own.
    """
    given = get_current_context().params
    for name in _CANARIES:
        if given[name]:
            raise UsageError(
                f"--{name} is for canaries, not for a real model",
                next_step=f"leave out --{name}, or --model",
            )
    workspace = Workspace(work)
    workspace.prepare()
    screen = console(stderr=as_json)
    with contextlib.ExitStack() as stack:
        if build.is_file():
            build = stack.enter_context(unpacked(build, workspace.root))
        request = Request(
            build=build,
            model=model,
            mmproj=mmproj,
            suite=suite,
            root=workspace.root / "served",
            live=stack.enter_context(Live(screen)),
            backend=given["backend"] if _given("backend") else None,
            context=context,
            flags=("--threads", str(given["threads"])) if _given("threads") else (),
        )
        found = run_served(request)
    if junit:
        write_atomic(junit, served_junit(found))
    code = exit_code(found)
    if as_json:
        print_json(answer(found, code))
    screen.print(served_view(found), crop=False)
    screen.print(f"\nlogs, pictures and answers are in {escape(found.folder)}", soft_wrap=True)
    get_current_context().exit(code)


def _given(name: str) -> bool:
    """Whether a person gave an option, rather than its default."""
    return get_current_context().get_parameter_source(name) not in {None, ParameterSource.DEFAULT}
