"""``sparkbuild toolkit``: which toolkits are here, what they consist of, one made from wheels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import rich_click as click
from click import get_current_context
from rich.markup import escape

from sparkbuild.console import JSON, RECIPES, WORK, answer, console, print_json
from sparkbuild.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkbuild.manifest import Recipes, Toolchain
    from sparkbuild.report.toolkits import Listed
    from sparkbuild.toolkit.book import Book
    from sparkbuild.toolkit.choice.cmake_view import CMakeChoice
    from sparkbuild.toolkit.lock import Platform
    from sparkbuild.toolkit.model import Identity
    from sparkbuild.toolkit.provision.provision import Provisioned
    from sparkbuild.workspace import Workspace

_ARCH = click.option(
    "--arch",
    "architectures",
    multiple=True,
    metavar="ARCH",
    help="Architecture that known-bad entries are judged for; may be given again. Default: 121a.",
)


@click.group("toolkit")
def toolkit_group() -> None:
    """Identify, list, install and lock CUDA toolkits."""


@toolkit_group.command("show")
@click.argument("name", metavar="ROOT|RELEASE")
@_ARCH
@RECIPES
@WORK
@JSON
def show(
    name: str,
    architectures: tuple[str, ...],
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Show every part of a toolkit: its version, where that was read, the digest of its files.

    ROOT is a folder; RELEASE is 13.0, or an exact nvcc such as 13.0.88, wherever it is on this
    machine. Exit code 0 for a good root, 9 where parts are missing or disagree, 10 for a known-bad
    one, 3 where there is none.
    """
    from sparkbuild.errors import ToolkitMiscompilesError, ToolkitMismatchError
    from sparkbuild.report.toolkits import Warned, identity_view
    from sparkbuild.toolkit.book import read_book
    from sparkbuild.toolkit.choice.select import plain_architectures

    known = _recipes(recipes)
    book = read_book(known)
    asked = plain_architectures(architectures)
    found = identities(name, known, book, _workspace(work), asked)
    if as_json:
        from msgspec import to_builtins

        print_json({"toolkits": to_builtins(found)})
    else:
        screen = console()
        for number, identity in enumerate(found):
            if number:
                screen.print()
            matched = [
                Warned(id=entry.id, refuses=entry.action == "refuse", effect=entry.effect)
                for entry in book.known_bad.advisory
                if entry.id in identity.advisories
            ]
            screen.print(identity_view(identity, matched), crop=False)
    states = {identity.state for identity in found}
    if not states & {"good", "unknown"}:
        bad = "known bad" in states
        error = ToolkitMiscompilesError if bad else ToolkitMismatchError
        get_current_context().exit(error.exit_code)


@toolkit_group.command("list")
@RECIPES
@WORK
@JSON
def list_toolkits(recipes: Path | None, work: Path | None, as_json: bool) -> None:
    """List the toolkits of this machine, their state, and which one CMake would take by itself."""
    from sparkbuild.report.toolkits import list_view
    from sparkbuild.toolkit.book import read_book
    from sparkbuild.toolkit.choice.cmake_view import cmake_choice

    known = _recipes(recipes)
    book = read_book(known)
    workspace = _workspace(work)
    roots = _discovered(book, workspace)
    choices = cmake_choice()
    if as_json:
        from msgspec import to_builtins

        print_json(
            {
                "toolkits": [
                    {"found_as": list(root.where), **to_builtins(root.identity)} for root in roots
                ],
                "cmake": [_plain(choice) for choice in choices],
                "known": {name: chain.summary for name, chain in book.toolchains.items()},
            }
        )
        return
    console().print(list_view(roots, [_sentence(choice) for choice in choices]), crop=False)


@toolkit_group.command("install")
@click.argument("name", metavar="RELEASE")
@click.option(
    "--platform",
    "platform_name",
    type=click.Choice(["linux-x86_64", "linux-aarch64"]),
    help="Which platform's wheels. Default: this machine's.",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The root to make. Default: below the work folder, where --toolkit RELEASE finds it.",
)
@click.option(
    "--compilers",
    is_flag=True,
    help="Leave out cuBLAS, four fifths of a release: enough for `toolkit qualify`.",
)
@RECIPES
@WORK
@JSON
def install(
    name: str,
    platform_name: str | None,
    into: Path | None,
    compilers: bool,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Make a complete toolkit root from NVIDIA's wheels, each one as its lock has it.

    Needs no root rights. What is downloaded is kept: a cut line or a Ctrl-C costs nothing, and a
    second install needs no network.
    """
    from sparkbuild.files import DigestCache
    from sparkbuild.live import Live
    from sparkbuild.manifest import current_platform
    from sparkbuild.toolkit.book import read_book
    from sparkbuild.toolkit.identity.identify import identity_of
    from sparkbuild.toolkit.provision.provision import install as provision
    from sparkbuild.toolkit.provision.tree import default_root

    known = _recipes(recipes)
    toolchain = _toolchain(known, name)
    workspace = _workspace(work)
    workspace.prepare()
    platform = cast("Platform", platform_name or current_platform())
    folder = f"{toolchain.name}.compilers" if compilers else toolchain.name
    root = into.absolute() if into else default_root(workspace.toolkits, folder, platform)
    screen = console(stderr=as_json)
    with Live(screen) as live:
        live.started(f"toolkit {toolchain.name}")
        book = read_book(known)
        made = provision(
            book,
            toolchain.name,
            platform,
            root=root,
            downloads=workspace.downloads,
            progress=live.progress,
            compilers=compilers,
        )
        live.progress(0, 0, "reading every part")
        identity = identity_of(Path(made.root), book, DigestCache(workspace.digests))
    if as_json:
        print_json(_installed(made, identity))
        return
    for line in _told(made, identity):
        screen.print(line, highlight=False, soft_wrap=True)


@toolkit_group.command("lock")
@click.argument("names", nargs=-1, metavar="[RELEASE]...")
@click.option("--check", is_flag=True, help="Write nothing; exit code 4 where a lock would change.")
@click.option("--version", metavar="VERSION", help="Version of the metapackage to lock.")
@click.option("--update", is_flag=True, help="Lock the newest one that pins the same nvcc.")
@RECIPES
@JSON
def lock(
    names: tuple[str, ...],
    check: bool,
    version: str | None,
    update: bool,
    recipes: Path | None,
    as_json: bool,
) -> None:
    """Ask the package index what a release consists of, and write its lock into the recipes.

    Wheels by digest for each platform, and the digest of every part that identity looks at. All
    CUDA toolchains of the recipes are locked where none is named. A lock that exists keeps its
    metapackage unless --version or --update says otherwise.
    """
    from sparkbuild.errors import ManifestError
    from sparkbuild.files import write_atomic
    from sparkbuild.live import Live
    from sparkbuild.toolkit.book import read_book
    from sparkbuild.toolkit.lock import lock_path
    from sparkbuild.toolkit.provision.locking import kept_version, lock_text, make_lock

    known = _recipes(recipes)
    book = read_book(known)
    chains = [_toolchain(known, name) for name in names] or list(book.toolchains.values())
    screen = console(stderr=as_json)
    changed: dict[str, str] = {}
    with Live(screen) as live:
        for chain in chains:
            live.started(f"lock {chain.name}")
            had = book.locks.get(chain.name)
            made = make_lock(chain, kept_version(had, asked=version, update=update), live.progress)
            if made != had:
                changed[chain.name] = str(lock_path(known, chain.name))
                if not check:
                    write_atomic(lock_path(known, chain.name), lock_text(made))
    facts = {"locked": [chain.name for chain in chains], "changed": changed}
    answer(facts, as_json=as_json, out=screen)
    if check and changed:
        get_current_context().exit(ManifestError.exit_code)


def _installed(made: Provisioned, identity: Identity) -> dict[str, object]:
    return {
        "root": made.root,
        "state": identity.state,
        "files": made.files,
        "size": made.size,
        "downloaded": made.downloaded,
        "reused": made.reused,
        "licence": made.licence,
        "licence_texts": f"{made.root}/licenses",
        "notes": list(made.notes),
    }


def _told(made: Provisioned, identity: Identity) -> Iterator[str]:
    words = "was there already" if made.reused else "made"
    whole = f"{identity.toolchain}, {len(identity.parts)} parts, {identity.state}"
    yield f"{made.root} {words}: {whole}"
    yield f"  {made.files} files, {made.size / 1e6:.0f} MB, {made.downloaded / 1e6:.0f} MB fetched"
    yield f"  licence: {made.licence}; by using it you accept its texts in {made.root}/licenses"
    for note in made.notes:
        yield f"  [yellow]![/] {escape(visible(note))}"


def _sentence(choice: CMakeChoice) -> str:
    version = choice.toolkit_version or "unknown version"
    found = f"toolkit {choice.toolkit} ({version})" if choice.toolkit else "no toolkit"
    compiler = f"compiler {choice.compiler}" if choice.compiler else "no CUDA compiler"
    if choice.compiler and choice.compiler_root not in {None, choice.compiler.parent.parent}:
        compiler += f" of {choice.compiler_root}"
    verdict = "" if choice.agrees else ": they are not one toolkit"
    return f"CMake {choice.version} would take by itself {found}, {compiler}{verdict}"


def _plain(choice: CMakeChoice) -> dict[str, object]:
    from dataclasses import asdict

    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in {**asdict(choice), "agrees": choice.agrees}.items()
    }


def _recipes(given: Path | None) -> Recipes:
    from sparkbuild.manifest import find_recipes

    return find_recipes(given)


def _workspace(work: Path | None) -> Workspace:
    from sparkbuild.workspace import Workspace

    return Workspace(work)


def _toolchain(recipes: Recipes, name: str) -> Toolchain:
    from sparkbuild.errors import UsageError
    from sparkbuild.toolkit.choice.select import choose

    chosen = choose(recipes, name).toolchain
    if chosen.cuda is None:
        raise UsageError(
            f"{name} is no CUDA toolkit", next_step="name a release, such as 13.0 or 13.2.2"
        )
    return chosen


def _discovered(book: Book, workspace: Workspace) -> Sequence[Listed]:
    from sparkbuild.files import DigestCache
    from sparkbuild.report.toolkits import Listed
    from sparkbuild.toolkit.choice.discover import discover

    workspace.prepare()
    found = discover(book, DigestCache(workspace.digests), provisioned=workspace.toolkits)
    return [Listed(identity=root.identity, where=root.where) for root in found]


def identities(
    name: str, recipes: Recipes, book: Book, workspace: Workspace, architectures: tuple[str, ...]
) -> list[Identity]:
    """The roots that a folder or a release means. Raises UnknownNameError where there is none."""
    from sparkbuild.errors import UnknownNameError
    from sparkbuild.files import DigestCache
    from sparkbuild.toolkit.identity.identify import identity_of

    if "/" in name or Path(name).is_dir():
        workspace.prepare()
        digests = DigestCache(workspace.digests)
        root = Path(name).absolute()
        return [identity_of(root, book, digests, architectures=architectures)]
    toolchain = _toolchain(recipes, name)
    found = [
        root.identity
        for root in _discovered(book, workspace)
        if root.identity.toolchain == toolchain.name
    ]
    if not found:
        raise UnknownNameError(
            f"there is no {toolchain.name} on this machine",
            next_step=f"sparkbuild toolkit install {name} (to qualify it, --compilers is enough), "
            "or name its root: sparkbuild toolkit show /path/to/cuda",
        )
    return found
