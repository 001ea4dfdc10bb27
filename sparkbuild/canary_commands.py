"""``sparkbuild canary``: small trained models whose right answers and right numbers are known."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import rich_click as click
from click import get_current_context
from rich.markup import escape

from sparkbuild.console import JSON, WORK, answer, console, print_json
from sparkbuild.report.text import visible

if TYPE_CHECKING:
    from sparkbuild.canary.catalogue import Catalogue
    from sparkbuild.canary.gguf.derive import Form
    from sparkbuild.canary.model import Backend, CacheType
    from sparkbuild.canary_desk import Desk
    from sparkbuild.live import Live
    from sparkbuild.manifest import Ability

_FORMS: Final = ("f32", "f16", "bf16", "q8_0", "mix")
"""Of ``sparkbuild.canary.gguf.derive``, which loads numpy."""
CACHES: Final = ("f32", "f16", "q8_0")

CANARIES = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder with a catalogue.toml, instead of the canaries that come with sparkbuild.",
)
BUILD = click.option(
    "--build",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The build to use: a folder with llama-server and llama-quantize, or with bin/.",
)
_FORM = click.option(
    "--form",
    "wanted",
    multiple=True,
    type=click.Choice(_FORMS),
    help="Which form; may be given again. Default: what ships (q8_0), and all that the catalogue "
    "has recorded; a run on the CPU also compares the numbers of f32.",
)
BACKEND = click.option(
    "--backend",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where to compute; each has bounds of its own. With cuda a GPU has to be seen.",
)
THREADS = click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Threads of llama-server; a canary is too small for more.",
)

JUNIT = click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write every question as a test case of JUnit XML.",
)


@click.group("canary")
def canary_group() -> None:
    """Ask small trained models whose right answers and right numbers are known."""


@canary_group.command("list")
@CANARIES
@JSON
def list_canaries(data: Path | None, as_json: bool) -> None:
    """Show the canaries that ship: what they are, what they weigh, what they are asked."""
    from sparkbuild.canary_answers import entry_facts, list_screen

    folder, catalogue = catalogue_in(data)
    facts = [entry_facts(folder, entry) for entry in catalogue.canaries]
    if as_json:
        print_json({"canaries": facts})
        return
    screen = console()
    screen.print(list_screen(facts), crop=False)
    for fact in facts:
        screen.print(f"  [bold]{fact['name']}[/] {escape(visible(fact['summary']))}")
        screen.print(f"    forms: {', '.join(fact['forms'])}")


@canary_group.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@CANARIES
@JSON
def verify_canaries(names: tuple[str, ...], data: Path | None, as_json: bool) -> None:
    """Compare every file of the canaries, or of those named, with the catalogue's digests."""
    from sparkbuild.canary.catalogue import DATA, verify

    folder = data or DATA
    catalogue = verify(folder, names=names)
    entries = [entry for entry in catalogue.canaries if not names or entry.name in names]
    facts = {
        "canaries": [entry.name for entry in entries],
        "files": sum(len(entry.files) for entry in entries),
        "bytes": sum(file.bytes for entry in entries for file in entry.files),
        "folder": str(folder),
        "result": "every digest as recorded",
    }
    answer(facts, as_json=as_json, out=console(stderr=as_json))


@canary_group.command("derive")
@click.argument("name", metavar="NAME")
@_FORM
@BUILD
@CANARIES
@WORK
@JSON
def derive_forms(
    name: str,
    wanted: tuple[str, ...],
    build: Path,
    data: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Make forms of a canary with a build's own llama-quantize, and check every tensor of them.

    A form is right where it has recorded bytes, or where each type's error against the master is
    what was recorded; anything else ends with exit code 19. What was made is kept and found again.
    """
    from sparkbuild.canary_answers import form_facts, forms_screen
    from sparkbuild.canary_work import chosen_forms, make_form
    from sparkbuild.live import Live

    folder, catalogue = catalogue_in(data)
    entry = catalogue.canary(name)
    forms = chosen_forms(entry, cast("tuple[Form, ...]", wanted), named=True)
    screen = console(stderr=as_json)
    with Live(screen) as live:
        desk = desk_for(folder, build, work, live)
        made = [make_form(desk, entry, form) for form in forms]
    if as_json:
        print_json({"canary": name, "forms": [form_facts(one) for one in made]})
        return
    screen.print(forms_screen(made), crop=False)
    for one in made:
        path = escape(visible(str(one.derived.path)))
        screen.print(f"  [bold]{one.derived.form:<5}[/] {path}", soft_wrap=True)


@canary_group.command("run")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@BUILD
@_FORM
@BACKEND
@click.option(
    "--kv",
    type=click.Choice(CACHES),
    help="Type of the KV cache; each has bounds of its own. Default: f16; of the form f32, f32. "
    "With f32, flash attention is off.",
)
@THREADS
@click.option(
    "--drafts/--no-drafts",
    default=True,
    help="Whether draft blocks are asked too: healthy and damaged, at each depth. Default: yes.",
)
@JUNIT
@CANARIES
@WORK
@JSON
def run_canaries(
    names: tuple[str, ...],
    build: Path,
    wanted: tuple[str, ...],
    backend: str,
    kv: str | None,
    threads: int,
    drafts: bool,
    junit: Path | None,
    data: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Ask a build's llama-server everything that the canaries know, and compare the numbers.

    Forms are derived first, by the build's own llama-quantize. All of them are asked, whatever
    fails on the way. Exit code 14 where an answer, a number or a draft is wrong; what a build does
    not support is said and is no failure.
    """
    from sparkbuild.canary.catalogue import verify
    from sparkbuild.canary_answers import passes_answer, worst_code
    from sparkbuild.canary_work import chosen_forms, run_canary
    from sparkbuild.files import write_atomic
    from sparkbuild.live import Live
    from sparkbuild.report.canaries import result_view

    folder, catalogue = catalogue_in(data)
    entries = [catalogue.canary(name) for name in names] or list(catalogue.canaries)
    verify(folder, names=tuple(entry.name for entry in entries))
    forms = {
        entry.name: chosen_forms(
            entry, cast("tuple[Form, ...]", wanted), named=bool(names), exact=backend == "cpu"
        )
        for entry in entries
    }
    screen = console(stderr=as_json)
    with Live(screen) as live:
        desk = desk_for(folder, build, work, live, backend=backend, cache=kv, threads=threads)
        results = [
            run_canary(desk, entry, forms[entry.name], drafts=drafts)
            for entry in entries
            if forms[entry.name]
        ]
    if junit:
        from sparkbuild.report.junit_canaries import canaries_junit

        write_atomic(junit, canaries_junit(results))
    code = worst_code(results)
    if as_json:
        print_json(passes_answer(results, code))
    for result in results:
        screen.print(result_view(result), crop=False)
    screen.print(f"\nlogs are in {escape(str(desk.root))}/NAME/logs", soft_wrap=True)
    get_current_context().exit(code)


def catalogue_in(data: Path | None) -> tuple[Path, Catalogue]:
    """``--data`` as a whole path, and the catalogue in it."""
    from sparkbuild.canary.catalogue import DATA, load_catalogue

    folder = (data or DATA).absolute()
    return folder, load_catalogue(folder)


def desk_for(
    data: Path,
    build: Path,
    work: Path | None,
    live: Live,
    *,
    backend: str = "cpu",
    cache: str | None = None,
    threads: int = 1,
    abilities: Collection[Ability] = (),
    first: bool = False,
) -> Desk:
    """What work on canaries has in hand; ``backend`` and ``cache`` as their options have them."""
    from sparkbuild.canary.forms import programs
    from sparkbuild.canary_desk import Desk
    from sparkbuild.workspace import Workspace

    workspace = Workspace(work)
    workspace.prepare()
    return Desk(
        data=data,
        programs=programs(build),
        root=workspace.canaries,
        live=live,
        backend=cast("Backend", backend),
        cache=cast("CacheType | None", cache),
        threads=threads,
        abilities=frozenset(abilities),
        first=first,
    )
