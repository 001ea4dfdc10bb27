"""Arguments to calls to exit code: the only place that prints a result or exits."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import rich_click as click

from sparkbuild import __version__
from sparkbuild.bisect_commands import bisect_command
from sparkbuild.canary_commands import canary_group
from sparkbuild.canary_maker_commands import audit_suite, record_canary, train_canary
from sparkbuild.console import (
    CACHE,
    JOBS,
    JSON,
    JSON_SCHEMA,
    RECIPES,
    VARIANT,
    WORK,
    answer,
    console,
)
from sparkbuild.doctor_commands import doctor_command
from sparkbuild.errors import EXIT_INTERRUPTED, SparkbuildError, error_classes
from sparkbuild.faults_commands import faults_group
from sparkbuild.faults_report_commands import faults_report_command
from sparkbuild.history_commands import history_group
from sparkbuild.key_commands import key_group
from sparkbuild.model_commands import inspect_command
from sparkbuild.nightly_commands import nightly_group
from sparkbuild.patch_commands import patch_group
from sparkbuild.qualify_commands import qualify_command
from sparkbuild.report_commands import report_group
from sparkbuild.smoke_commands import smoke_command
from sparkbuild.toolkit_commands import toolkit_group
from sparkbuild.wheel_commands import wheel_group
from sparkbuild.wheel_compare_commands import compare_command
from sparkbuild.wheel_rebuild_commands import rebuild_command

if TYPE_CHECKING:
    from sparkbuild.manifest import Patchset

click.rich_click.TEXT_MARKUP = "rich"
click.rich_click.MAX_WIDTH = 100


def _exit_codes() -> str:
    rows = sorted((cls.exit_code, cls.title) for cls in error_classes())
    rows.append((EXIT_INTERRUPTED, "interrupted"))
    return "Exit codes: 0 done; " + "; ".join(f"{code} {title}" for code, title in rows) + "."


@click.group(epilog=_exit_codes(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sparkbuild")
def cli() -> None:
    """Build llama.cpp for NVIDIA GB10 and prove that the binaries tell the truth."""


@cli.command("make")
@VARIANT
@click.option(
    "--toolkit",
    metavar="NAME",
    help="CUDA release (13.0, 13.2.2), exact nvcc (13.0.88), a toolkit's root folder, or cpu. Left "
    "out on a machine without an NVIDIA driver: cpu, and said so.",
)
@click.option(
    "--arch",
    "architectures",
    multiple=True,
    metavar="ARCH",
    help="GPU architecture such as 121a or 90; may be given again. Default: the toolkit's (121a).",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist"),
    show_default=True,
    metavar="DIR",
    help="Where the wheel and the reports go.",
)
@JOBS
@click.option(
    "--accept",
    "accept",
    multiple=True,
    metavar="ID",
    help="Build in spite of this known-bad entry; it is said loudly, in the report and in the "
    "wheel. May be given again.",
)
@CACHE
@click.option(
    "--sign",
    "sign",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="NAME.key",
    envvar="SPARKBUILD_KEY",
    show_envvar=True,
    help="Sign provenance and SBOM of the wheel, in files beside it; may be given again.",
)
@RECIPES
@WORK
@JSON
def make_command(
    variant: str,
    toolkit: str | None,
    architectures: tuple[str, ...],
    out: Path,
    jobs: int | None,
    accept: tuple[str, ...],
    cache: Path | None,
    sign: tuple[Path, ...],
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """From a pinned source to a wheel whose binaries were seen to tell the truth.

    Finished stages are kept: run the same command again after a failure, a Ctrl-C or a power cut,
    and it goes on where it was. With nothing changed it does nothing.
    """
    from sparkbuild.live import Live
    from sparkbuild.report.json_report import encode
    from sparkbuild.report.terminal import closing
    from sparkbuild.run import Request, make

    request = Request(
        variant=variant,
        toolkit=toolkit,
        architectures=architectures,
        recipes=recipes,
        work=work,
        out=out,
        jobs=jobs,
        accept=accept,
        cache=cache.absolute() if cache else None,
        sign=sign,
        command=tuple(sys.argv),
    )
    screen = console(stderr=as_json)
    screen.print(f"[bold]sparkbuild make[/] variant {variant}", highlight=False)
    with Live(screen) as live:
        made = make(request, live)
    screen.print(closing(made.report, made.files), crop=False)
    if as_json:
        click.echo(encode(made.report))
    if isinstance(made.error, SparkbuildError):
        _show(made.error)
    sys.exit(made.report.exit_code)


@cli.group("source")
def source_group() -> None:
    """Fetch and verify pinned sources."""


@source_group.command("fetch")
@VARIANT
@RECIPES
@WORK
@JSON
def source_fetch(variant: str, recipes: Path | None, work: Path | None, as_json: bool) -> None:
    """Bring a variant's source into the store, checked against its pin.

    Origins are tried in the manifest's order. Once it is in the store, no network is needed.
    """
    from sparkbuild.live import Live
    from sparkbuild.source.obtain import obtain
    from sparkbuild.workspace import Workspace

    patchset, manifest = _patchset(variant, recipes)
    workspace = Workspace(work)
    workspace.prepare()
    screen = console(stderr=as_json)
    with Live(screen) as live:
        live.started("source")
        tree = obtain(patchset.source, manifest, workspace, live)
    facts = {"variant": variant, "digest": tree.digest, "commit": tree.commit, "tree": tree.tree,
             "origin": tree.origin, "warnings": list(tree.warnings),
             "store": str(workspace.store)}  # fmt: skip
    answer(facts, as_json=as_json, out=screen)


@source_group.command("verify")
@VARIANT
@RECIPES
@WORK
@JSON
def source_verify(variant: str, recipes: Path | None, work: Path | None, as_json: bool) -> None:
    """Read a variant's source back from the store, byte by byte, and compare it with its pin."""
    from sparkbuild.source.verify import verify
    from sparkbuild.workspace import Workspace

    patchset, manifest = _patchset(variant, recipes)
    facts = verify(patchset.source, manifest, Workspace(work))
    answer({"variant": variant, **facts}, as_json=as_json, out=console(stderr=as_json))


@cli.command("list")
@RECIPES
@JSON
def list_command(recipes: Path | None, as_json: bool) -> None:
    """Show the variants and toolchains that the recipes know."""
    from sparkbuild.manifest import find_recipes
    from sparkbuild.toolkit.book import read_book
    from sparkbuild.toolkit.choice.releases import refused

    known = find_recipes(recipes)
    book = read_book(known)
    bad = {
        name: [one.id for one in refused(book, chain)] for name, chain in book.toolchains.items()
    }
    facts = {
        "recipes": str(known.root),
        "variants": {name: known.patchset(name)[0].summary for name in known.patchset_names()},
        "toolchains": {name: known.toolchain(name)[0].summary for name in known.toolchain_names()},
        "known_bad": {name: " ".join(ids) for name, ids in bad.items() if ids},
    }
    answer(facts, as_json=as_json, out=console(stderr=as_json))


toolkit_group.add_command(qualify_command)
cli.add_command(toolkit_group)
cli.add_command(bisect_command)
cli.add_command(canary_group)
cli.add_command(doctor_command)
faults_group.add_command(faults_report_command)
cli.add_command(faults_group)
cli.add_command(history_group)
cli.add_command(inspect_command)
cli.add_command(key_group)
cli.add_command(nightly_group)
cli.add_command(patch_group)
cli.add_command(report_group)
cli.add_command(smoke_command)
cli.add_command(wheel_group)
wheel_group.add_command(compare_command)
wheel_group.add_command(rebuild_command)
for command in (audit_suite, train_canary, record_canary):
    canary_group.add_command(command)


def main() -> NoReturn:
    """Run the command line; every ending goes through here."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        code = cli.main(standalone_mode=False)
    except SparkbuildError as error:
        _refuse(error)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted: run the same command again to go on", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - nothing may end in a traceback on the screen
        from sparkbuild.stages import defect

        _refuse(defect(error))
    sys.exit(code if isinstance(code, int) else 0)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _refuse(error: SparkbuildError) -> NoReturn:
    if "--json" in sys.argv[1:]:
        from sparkbuild.stages import failure_of

        failure = failure_of(error)
        document = {"schema": JSON_SCHEMA, "result": "failed", "exit_code": error.exit_code,
                    "failure": {field: getattr(failure, field)
                                for field in failure.__struct_fields__}}  # fmt: skip
        click.echo(json.dumps(document, indent=2))
    _show(error)
    sys.exit(error.exit_code)


def _show(error: SparkbuildError) -> None:
    from sparkbuild.report.terminal import refusal

    console(stderr=True).print(refusal(error), crop=False)


def _patchset(variant: str, recipes: Path | None) -> tuple[Patchset, Path]:
    from sparkbuild.manifest import find_recipes

    return find_recipes(recipes).patchset(variant)
