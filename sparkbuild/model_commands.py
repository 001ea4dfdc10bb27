"""``sparkbuild inspect``: what a model file is, and whether it fits a build and this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rich_click as click
from click import get_current_context

from sparkbuild.console import JSON, console, print_json
from sparkbuild.errors import UsageError
from sparkbuild.model.mend.place import LINKED, Linked
from sparkbuild.model.types import CACHE_TYPES

if TYPE_CHECKING:
    from sparkbuild.model.asked import Machine

DRAFTS: Final = (
    "draft-mtp", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
)  # fmt: skip
"""What llama-server's ``--spec-type`` takes (common/speculative.cpp of b11434), less what needs a
draft model besides: its memory could not be added up."""

_SIZE: Final = re.compile(
    r"(?P<number>\d{1,15}(?:\.\d{1,9})?) ?(?:(?P<unit>[kmgt])(?P<kind>i?b)?|b)?", re.IGNORECASE
)
_UNITS: Final = " kmgt"
_COUNT: Final = click.IntRange(min=1)
_CACHE: Final = click.Choice(CACHE_TYPES)


def size_of(text: str) -> int:
    """Bytes of a size: K, M, G and T are powers of 1024 (as KiB ...), KB ... those of 1000.

    Raises UsageError where the text is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is no size",
            problems=["expected a number of bytes, or one with a unit: 119G, 2048MiB, 64GB"],
            next_step="give --available such a size",
        )
    base = 1000 if (match["kind"] or "").lower() == "b" else 1024
    power = _UNITS.index((match["unit"] or " ").lower())
    return int(float(match["number"]) * base**power)


@click.command("inspect")
@click.argument("path", type=click.Path(path_type=Path), metavar="MODEL")
@click.option(
    "--mmproj",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The model's vision tower.",
)
@click.option(
    "--build",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The build that is to serve it: a folder with llama-server and its libraries, or with "
    "bin/. It may be one for another machine: nothing is started. Without it, what only a build "
    "can tell is not tried.",
)
@click.option(
    "--ctx",
    "context",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Tokens of all slots together (--ctx-size). Default: what the model was trained for.",
)
@click.option(
    "--slots",
    type=_COUNT,
    default=1,
    show_default=True,
    metavar="N",
    help="Slots (--parallel).",
)
@click.option(
    "--kv",
    type=_CACHE,
    default="f16",
    show_default=True,
    metavar="TYPE",
    help=f"Type of the KV cache (--cache-type-k): {', '.join(CACHE_TYPES)}.",
)
@click.option(
    "--kv-v",
    type=_CACHE,
    metavar="TYPE",
    help="Type of its values (--cache-type-v). Default: as --kv.",
)
@click.option(
    "--drafts",
    multiple=True,
    type=click.Choice(DRAFTS),
    metavar="KIND",
    help="What drafts (--spec-type); may be given again. draft-mtp is the model's own NextN block; "
    f"{', '.join(DRAFTS[1:])} take earlier text. Default: nothing.",
)
@click.option(
    "--depth",
    type=_COUNT,
    default=3,
    show_default=True,
    metavar="N",
    help="Tokens of a draft (--spec-draft-n-max).",
)
@click.option(
    "--ubatch",
    type=_COUNT,
    default=512,
    show_default=True,
    metavar="N",
    help="Tokens computed at once (--ubatch-size).",
)
@click.option(
    "--flash-attn/--no-flash-attn",
    default=True,
    help="Whether flash attention is on (--flash-attn). Default: yes.",
)
@click.option(
    "--available",
    metavar="SIZE",
    help="Memory that the server can have, such as 119G. Default: MemAvailable of this machine.",
)
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
@JSON
def inspect_command(
    path: Path,
    mmproj: Path | None,
    build: Path | None,
    context: int,
    slots: int,
    kv: str,
    kv_v: str | None,
    drafts: tuple[str, ...],
    depth: int,
    ubatch: int,
    flash_attn: bool,
    available: str | None,
    serve: bool,
    out: Path | None,
    links: Linked,
    as_json: bool,
) -> None:
    """Say what a model file is, and whether it fits a build and the memory, before it is started.

    Only headers are read, of MODEL (a GGUF file, or the first of its shards) and of its --mmproj,
    and the strings of the build's libraries. A fault ends with exit code 20: with these flags the
    server would not start, not answer, or answer wrongly.
    """
    if out is not None:
        _mend(path, out, links, as_json=as_json)
        return
    from dataclasses import replace

    from sparkbuild.model.asked import Asked
    from sparkbuild.model.build import read_build
    from sparkbuild.model.inspection import document, inspect
    from sparkbuild.model.read import read_model
    from sparkbuild.model.serve import choose, line
    from sparkbuild.report.models import inspection_view

    machine = _machine(available)
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
    model, vision = read_model(path), read_model(mmproj) if mmproj else None
    known = read_build(build) if build else None
    served = None
    if serve:
        here = replace(asked, machine=machine)
        asked, left_out = choose(model, vision, known, here, _given())
        served = line(model, vision, known, asked, left_out)
    found = replace(inspect(model, vision, known, asked, machine), served=served)
    if as_json:
        print_json(document(found))
    else:
        console().print(inspection_view(found), crop=False)
    get_current_context().exit(found.exit_code)


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


_MENDS: Final = frozenset({"path", "out", "links", "as_json"})
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
