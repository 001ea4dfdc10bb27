"""``sparkbuild inspect``: what a model, a program or a wheel is, and whether it will serve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rich_click as click
from click import get_current_context
from rich.markup import escape

from sparkbuild.console import JSON, RECIPES, WORK, console, print_json
from sparkbuild.errors import UsageError
from sparkbuild.model.mend.place import LINKED, Linked
from sparkbuild.model_options import server_options, size_of
from sparkbuild.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkbuild.inspect_seen import Seen
    from sparkbuild.inspect_work import Wanted
    from sparkbuild.model.asked import Machine


@click.command("inspect")
@click.argument(
    "paths", type=click.Path(path_type=Path), metavar="FILE...", nargs=-1, required=True
)
@server_options
@click.option(
    "--serve",
    is_flag=True,
    help="Print the llama-server line for MODEL on this machine, and why each flag is there. What "
    "is not asked for is chosen: the context to begin with, cache types, drafts.",
)
@click.option(
    "--fix",
    "out",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Mend MODEL's metadata instead (an mmproj's too), in a new file: OUT.gguf, or in the "
    "folder OUT under its own name with links to the other shards beside it. MODEL stays as it is.",
)
@click.option(
    "--links",
    type=click.Choice(LINKED),
    default="symbolic",
    show_default=True,
    help="How --fix has the other shards in the folder OUT.",
)
@click.option(
    "--digest",
    is_flag=True,
    help="Add the SHA-256 of every file. It reads them whole: minutes for 108 GB.",
)
@RECIPES
@WORK
@JSON
def inspect_command(
    paths: tuple[Path, ...],
    out: Path | None,
    links: Linked,
    digest: bool,
    as_json: bool,
    **told: Any,
) -> None:
    """Say what a file is, and whether it will serve, before it is started.

    FILE is a model (a GGUF file, any shard of several), an mmproj, a program, a library or a
    wheel: its bytes tell. Headers are read, and the strings of libraries; no program is run. A
    fault ends with exit code 20 of a model, 13 of a program, 15 of a wheel: with these flags the
    server would not start, not answer, or answer wrongly.
    """
    if out is not None:
        _mend(_only(paths, "--fix"), out, links, as_json=as_json)
        return
    from sparkbuild.inspect_work import see, see_all

    if told["mmproj"] is not None:
        _only(paths, "--mmproj")
    wanted = _wanted(**told)
    alone = len(paths) == 1
    _answered([see(paths[0], wanted)] if alone else see_all(paths, wanted), digest, as_json)


def _wanted(
    *,
    context: int,
    slots: int,
    kv: str,
    kv_v: str | None,
    drafts: tuple[str, ...],
    depth: int,
    ubatch: int,
    flash_attn: bool,
    available: str | None,
    architectures: tuple[str, ...],
    **more: Any,
) -> Wanted:
    """What the options ask of every file."""
    from sparkbuild.inspect_work import Wanted
    from sparkbuild.model.asked import Asked
    from sparkbuild.toolkit.choice.select import plain_architectures

    asked = Asked(
        context=context,
        slots=slots,
        cache_k=kv,
        cache_v=kv_v or kv,
        speculation=tuple(dict.fromkeys(drafts)),
        draft_depth=depth,
        micro_batch=ubatch,
        flash_attention=flash_attn,
    )
    return Wanted(
        asked=asked,
        machine=_machine(available),
        architectures=plain_architectures(architectures),
        given=_given(),
        **more,
    )


def _answered(seen: Iterable[Seen], digest: bool, as_json: bool) -> None:
    """Print what was seen of each file, and end with the first exit code that is not 0."""
    from sparkbuild.inspect_work import exit_code, together

    found: list[Seen] = []
    for one in seen:
        hashed = _hashed(one.files) if digest else None
        if hashed is not None:
            one.document["digests"] = hashed
        if not as_json:
            screen = console()
            if found:
                screen.print()
            screen.print(one.view, crop=False)
            for name, value in (hashed or {}).items():
                screen.print(escape(f"sha256 {value}  {visible(name)}"), soft_wrap=True)
        found.append(one)
    if as_json:
        print_json(found[0].document if len(found) == 1 else together(found))
    get_current_context().exit(exit_code(found))


def _hashed(files: tuple[str, ...]) -> dict[str, str]:
    from sparkbuild.inspect_work import digests
    from sparkbuild.live import Live

    with Live(console(stderr=True)) as live:
        live.started("digest")
        return digests(files, live.progress)


def _only(paths: tuple[Path, ...], option: str) -> Path:
    """The one file. Raises UsageError where there are several."""
    if len(paths) != 1:
        raise UsageError(
            f"{option} goes with one file",
            problems=[f"expected one FILE, found {len(paths)}"],
            next_step="run the command for each of them",
        )
    return paths[0]


_FIELDS: Final = {
    "context": "context", "kv": "cache_k", "kv_v": "cache_k", "drafts": "speculation",
    "depth": "draft_depth",
}  # fmt: skip
"""Of the arguments whose values are chosen where nobody gave one: the field that each becomes."""


def _machine(available: str | None) -> Machine:
    """Memory of the machine that this runs on, or as much as is said."""
    from dataclasses import replace

    from sparkbuild.model.asked import this_machine
    from sparkbuild.report.machine import machine_facts

    machine = this_machine(unified="GB10" in machine_facts()["gpu"])
    return machine if available is None else replace(machine, available=size_of(available))


def _spelled() -> frozenset[str]:
    """The arguments that stand on the command line."""
    from click.core import ParameterSource

    context = get_current_context()
    return frozenset(
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


def _given() -> frozenset[str]:
    return frozenset(_FIELDS[name] for name in _spelled() if name in _FIELDS)


_MENDS: Final = frozenset({"paths", "out", "links", "as_json"})
"""Arguments that mending has a use for."""


def _mend(path: Path, out: Path, linked: Linked, *, as_json: bool) -> None:
    """``--fix``: say what is mended and why, where it is now; say so where there is nothing."""
    from sparkbuild.live import Live
    from sparkbuild.model.mend.document import document
    from sparkbuild.model.mend.place import place
    from sparkbuild.model.mend.plan import accepted, plan
    from sparkbuild.model.mend.write import write
    from sparkbuild.model.read import read_model
    from sparkbuild.report.mends import mended_view

    if idle := _spelled() - _MENDS:
        raise UsageError(
            "--fix looks at one file's metadata alone",
            problems=[f"expected no flags of a server, found {', '.join(sorted(idle))}"],
            next_step="leave them out; an mmproj is mended by a command of its own",
        )
    planned = accepted(plan(read_model(path)))
    written = None
    if planned.edits:
        where = place(planned.model, out, linked)
        with Live(console(stderr=True)) as live:
            live.started("mend")
            written = write(planned, where, live.progress)
    if as_json:
        print_json(document(planned, written))
    else:
        console().print(mended_view(planned, written), crop=False)
