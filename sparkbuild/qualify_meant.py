"""Which compilers, for which targets, a command line of ``toolkit qualify`` means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkbuild.errors import UnknownNameError
from sparkbuild.manifest import Patchset, Recipes
from sparkbuild.qualify.kept import Subject
from sparkbuild.qualify_work import subject_of_root
from sparkbuild.source.model import PatchedTree
from sparkbuild.source.obtain import obtain
from sparkbuild.source.prepare import prepare
from sparkbuild.stages import Observer
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.choice.select import plain_architectures
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.identity.advise import DEFAULT_ARCHITECTURES
from sparkbuild.toolkit.model import Identity
from sparkbuild.toolkit_commands import identities
from sparkbuild.workspace import Workspace


def every_subject(  # noqa: PLR0917 - what a command line and its folders say
    names: Sequence[str],
    architectures: tuple[str, ...],
    platform: str,
    variant: str,
    recipes: Recipes,
    workspace: Workspace,
    live: Observer,
) -> Iterator[Subject]:
    """Every compiler that is meant, for every target, on the variant's patched source."""
    patchset, tree = _tree(recipes, variant, workspace, live)
    host = find_host_compiler()
    for identity, options, target in _subjects(names, architectures, platform, recipes, workspace):
        yield subject_of_root(identity, {**patchset.build.cmake, **options}, host, tree, target)


def _tree(
    recipes: Recipes, variant: str, workspace: Workspace, live: Observer
) -> tuple[Patchset, PatchedTree]:
    """The variant's patched source, fetched where it is not here."""
    patchset, manifest = recipes.patchset(variant)
    live.started(f"source of {variant}")
    source = obtain(patchset.source, manifest, workspace, live)
    return patchset, prepare(source, patchset, manifest, workspace, live)


def _subjects(
    names: Sequence[str],
    architectures: tuple[str, ...],
    platform: str,
    recipes: Recipes,
    workspace: Workspace,
) -> Iterator[tuple[Identity, dict[str, str], str]]:
    """Every root that is meant, with its toolchain's CMake options, once for each target."""
    targets = plain_architectures(architectures)
    book = read_book(recipes)
    every = [
        identity
        for name in names
        for identity in _meant(name, identities(name, recipes, book, workspace, targets), platform)
    ]
    for identity in every:
        chain = book.toolchains.get(identity.toolchain or "")
        own = chain.cuda.architectures if chain and chain.cuda else DEFAULT_ARCHITECTURES
        options = chain.options() if chain else {}
        for target in targets or own:
            yield identity, options, target


def _meant(name: str, found: Sequence[Identity], platform: str) -> list[Identity]:
    """The root that is named; of a release's roots the whole ones, as ``make`` takes them.

    Raises UnknownNameError where the release has none for the platform.
    """
    if "/" in name:
        return list(found)
    here = [identity for identity in found if identity.platform == platform]
    if not here:
        raise UnknownNameError(
            f"there is no {name} for {platform} on this machine",
            next_step=f"sparkbuild toolkit install {name} --compilers --platform {platform}",
        )
    return [one for one in here if one.state in {"good", "known bad"}] or here
