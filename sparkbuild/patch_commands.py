"""``sparkbuild patch``: what became of patches on a base, made anew, still needed or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from click import get_current_context

from sparkbuild.console import JSON, RECIPES, VARIANT, WORK, answer, console, print_json

if TYPE_CHECKING:
    from sparkbuild.job import Job
    from sparkbuild.live import Live
    from sparkbuild.patch_work import Desk
    from sparkbuild.report.patches import DropChecked

_BASE = click.option(
    "--base",
    default="pin",
    show_default=True,
    metavar="REF",
    help="What the patches are tried on: the variant's own pin, a name of patchsets/bases.toml "
    "(b11401), a folder with a source tree, or REPOSITORY#COMMIT.",
)
_JOBS = click.option(
    "--jobs", "-j", type=int, metavar="N", help="Compile jobs. Default: cores and memory."
)
_CACHE = click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    envvar="SPARKBUILD_CACHE",
    show_envvar=True,
    help="Compile through sccache, with one folder below DIR for each toolkit identity.",
)


@click.group("patch")
def patch_group() -> None:
    """Judge, renew and drop the patches that a variant carries."""
    from sparkbuild.source.obtain import require_git

    require_git()


@patch_group.command("check")
@VARIANT
@_BASE
@click.option("--build", is_flag=True, help="Compile what applied, for the CPU.")
@_JOBS
@_CACHE
@RECIPES
@WORK
@JSON
def check_command(
    variant: str,
    base: str,
    build: bool,
    jobs: int | None,
    cache: Path | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Apply all patches of a variant to a base, go on after a failure, and report every one.

    A patch applies, applies with offset, is already upstream, conflicts (both sides are shown), is
    misplaced (git would put it into another function than it was made for), is refused, or is held
    up by one that it needs. Values that model files hold are compared before and after. Exit code 8
    where anything but "applies" is there.
    """
    from msgspec import structs

    from sparkbuild.errors import PatchError
    from sparkbuild.live import Live
    from sparkbuild.patch_work import applied_commit, check_on, document
    from sparkbuild.report.patches import check_view

    screen = console(stderr=as_json)
    with Live(screen) as live:
        desk = _desk(variant, recipes, work, live)
        found, ground = check_on(desk, base)
        if build:
            from sparkbuild.patch_build import compile_tree, on_disk

            commit = applied_commit(desk, found, ground)
            job = _job(desk, recipes, jobs, cache)
            compiled = compile_tree(job, on_disk(desk.store, commit, found.tree, job))
            found = structs.replace(found, compiled=compiled)
    code = 0 if found.passed else PatchError.exit_code
    if as_json:
        print_json(dict(document(found, code)))
    screen.print(check_view(found), crop=False)
    get_current_context().exit(code)


@patch_group.command("table")
@VARIANT
@click.option(
    "--base",
    "bases",
    multiple=True,
    metavar="REF",
    help="A base; may be given again. Default: the pin and every base of patchsets/bases.toml.",
)
@click.option("--prove", is_flag=True, help="Also ask on each base which patches are needed.")
@_JOBS
@_CACHE
@RECIPES
@WORK
@JSON
def table_command(
    variant: str,
    bases: tuple[str, ...],
    prove: bool,
    jobs: int | None,
    cache: Path | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Show which patches of a variant apply on which base, and with --prove which are needed there.

    The table is an answer, not a verdict: exit code 8 only where a base could not be looked at.
    """
    from msgspec import structs

    from sparkbuild.errors import PatchError
    from sparkbuild.live import Live
    from sparkbuild.patch_work import all_bases, document, on_bases
    from sparkbuild.report.patches import bases_view

    screen = console(stderr=as_json)
    with Live(screen) as live:
        desk = _desk(variant, recipes, work, live)
        found = on_bases(desk, bases or all_bases(desk))
        if prove:
            dropped = tuple(
                _drop_check(desk, one.base, recipes, jobs, cache) for one in found.checked
            )
            found = structs.replace(found, dropped=dropped)
    code = 0 if found.passed else PatchError.exit_code
    if as_json:
        print_json(dict(document(found, code)))
    screen.print(bases_view(found), crop=False)
    get_current_context().exit(code)


@patch_group.command("drop-check")
@VARIANT
@_BASE
@_JOBS
@_CACHE
@RECIPES
@WORK
@JSON
def drop_check_command(
    variant: str,
    base: str,
    jobs: int | None,
    cache: Path | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Ask of each patch whether it is still needed at a base, by running its proof without it.

    The base is built with all patches, then for each patch without it and those that need it, in
    one folder in which only what differs is compiled again, through a compile cache beside it
    where --cache names no other. A patch's `proof` in the manifest is a program beside the
    manifest (its arguments are the build, its sources, and a folder to write to) or a test of the
    folder with patchsets/ (its build is in SPARKBUILD_TEST_BUILD). Exit code 8 where a patch was
    not shown to be needed.
    """
    from sparkbuild.errors import PatchError
    from sparkbuild.live import Live
    from sparkbuild.patch_work import document
    from sparkbuild.report.patches import dropped_view

    screen = console(stderr=as_json)
    with Live(screen) as live:
        desk = _desk(variant, recipes, work, live)
        found = _drop_check(desk, base, recipes, jobs, cache)
    code = 0 if found.passed else PatchError.exit_code
    if as_json:
        print_json(dict(document(found, code)))
    screen.print(dropped_view(found), crop=False)
    get_current_context().exit(code)


@patch_group.command("refresh")
@click.option("--variant", metavar="NAME", help="Which patch set.")
@_BASE
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder to make: a git repository with the base and a commit for each patch.",
)
@click.option(
    "--continue",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Go on in that folder after a merge by hand.",
)
@RECIPES
@WORK
@JSON
def refresh_command(
    variant: str | None,
    base: str,
    out: Path | None,
    folder: Path | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Carry a variant's patches to a base, and make patch files and manifest anew.

    Patches become commits on the base that they were made for, and are picked onto REF one by one.
    Where one conflicts, or merges into another function, the run stops: merge by hand in DIR, where
    REFRESH.txt says how, then go on with --continue DIR. When all are through, --continue DIR
    writes the patch files, their digests and the tree's id. Exit code 8 while a patch waits.
    """
    from sparkbuild.errors import PatchError, UsageError
    from sparkbuild.live import Live
    from sparkbuild.patch_refresh import refresh, refreshed, told
    from sparkbuild.workspace import Workspace

    if (folder is None) == (variant is None or out is None):
        raise UsageError(
            "a refresh begins with --variant and --out, and goes on with --continue",
            next_step="sparkbuild patch refresh --variant NAME --base REF --out DIR",
        )
    screen = console(stderr=as_json)
    with Live(screen) as live:
        if folder is not None:
            workspace = Workspace(work)
            workspace.prepare()
            reached, done = refreshed(folder.absolute(), workspace, live)
        else:
            assert variant is not None  # noqa: S101 - looked at above
            assert out is not None  # noqa: S101 - looked at above
            folder = out.absolute()
            reached, done = refresh(_desk(variant, recipes, work, live), base, folder), None
    code = PatchError.exit_code if reached.state.waiting else 0
    answer(told(reached, done, folder, code), as_json=as_json, out=screen)
    get_current_context().exit(code)


def _drop_check(
    desk: Desk, base: str, recipes: Path | None, jobs: int | None, cache: Path | None
) -> DropChecked:
    from sparkbuild.patch_build import kept_build
    from sparkbuild.patch_proof import check_proofs, prover
    from sparkbuild.patch_work import drop_check

    proofs = tuple(proof for patch in desk.patchset.patches for proof in patch.proof)
    check_proofs(desk.manifest, proofs)
    root = desk.work.patches(desk.patchset.name)
    kept = kept_build(_job(desk, recipes, jobs, cache or root / "cache"), root)
    prove = prover(desk.manifest, root / "proofs", lambda line: desk.live.progress(0, 0, line))
    return drop_check(desk, base, kept.build, prove, root / "logs")[0]


def _desk(variant: str, recipes: Path | None, work: Path | None, live: Live) -> Desk:
    from sparkbuild.manifest import find_recipes
    from sparkbuild.patch_work import Desk
    from sparkbuild.workspace import Workspace

    patchset, manifest = find_recipes(recipes).patchset(variant)
    workspace = Workspace(work)
    workspace.prepare()
    return Desk(patchset=patchset, manifest=manifest, work=workspace, live=live)


def _job(desk: Desk, recipes: Path | None, jobs: int | None, cache: Path | None) -> Job:
    from sparkbuild.manifest import find_recipes
    from sparkbuild.patch_build import cpu_job

    return cpu_job(
        desk.patchset,
        desk.manifest,
        find_recipes(recipes),
        desk.work,
        desk.live,
        jobs=jobs,
        cache=cache.absolute() if cache else None,
    )
