"""``sparkbuild toolkit qualify``: a compiler tried on the very sources, before any build."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from click import get_current_context

from sparkbuild.console import JSON, RECIPES, WORK, answer, console, print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from rich.console import Console

    from sparkbuild.live import Live
    from sparkbuild.manifest import Recipes
    from sparkbuild.qualify.gpu.carried import Carried
    from sparkbuild.qualify.kept import Subject
    from sparkbuild.qualify.model import Probed, Qualification, Sowed
    from sparkbuild.stages import Observer
    from sparkbuild.workspace import Workspace

FEW = 4
"""From so many verdicts on only the table is shown."""
NOTICED = 0.95
"""Of seeded faults that change an output, at least so many have to be caught."""


@click.command("qualify")
@click.argument("names", metavar="ROOT|RELEASE...", nargs=-1)
@click.option("--variant", metavar="NAME", help="Which patch set. Needed, but for --from.")
@click.option(
    "--arch",
    "architectures",
    multiple=True,
    metavar="ARCH",
    help="Target to compile for; may be given again. Default: the toolchain's own, 121a.",
)
@click.option(
    "--platform",
    "platform_name",
    type=click.Choice(["linux-x86_64", "linux-aarch64"]),
    help="Which platform's compilers of a RELEASE; another one's run under qemu-user. "
    "Default: this machine's.",
)
@click.option("--probe", "only", multiple=True, metavar="NAME", help="This probe or kind alone.")
@click.option("--first", is_flag=True, help="Stop at the first probe that is wrong.")
@click.option("--fresh", is_flag=True, help="Judge again, though the verdict is known.")
@click.option(
    "--seeded",
    type=click.IntRange(1),
    metavar="N",
    help="Then make N instructions wrong, one at a time, and count which the probes notice.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses those N.")
@click.option("--missed", is_flag=True, help="Name every device function that was not executed.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes. Default: one for each core.")
@click.option(
    "--on",
    "executor",
    type=click.Choice(["cpu", "gpu"]),
    default="cpu",
    show_default=True,
    help="Execute the PTX, or what the toolkit's ptxas makes of it for this machine's GPU.",
)
@click.option(
    "--assemble",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="With --on gpu: run nothing, write what another machine needs to run it with --from.",
)
@click.option(
    "--device",
    metavar="TARGET",
    help="With --assemble: that machine's GPU as nvcc names it, 90a or 121a.",
)
@click.option(
    "--from",
    "carried",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="With --on gpu: run what --assemble wrote. No toolkit and no variant is named then.",
)
@RECIPES
@WORK
@JSON
def qualify_command(
    names: tuple[str, ...],
    variant: str | None,
    architectures: tuple[str, ...],
    platform_name: str | None,
    only: tuple[str, ...],
    first: bool,
    fresh: bool,
    seeded: int | None,
    seed: int,
    missed: bool,
    jobs: int | None,
    executor: str,
    assemble: Path | None,
    device: str | None,
    carried: Path | None,
    recipes: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Compile a variant's own device code to PTX, execute it on the CPU, and compare.

    Needs no GPU; with --on gpu one runs the same probes, and is compared with the executor too.
    ROOT is a folder, also one that holds compilers alone; RELEASE is 13.0, or an exact nvcc; of
    several compilers and targets a table is shown. A verdict is kept for as long as compiler,
    source, flags and probes stay the same. Exit code 0 where everything is right, 10 where code is
    wrong, 21 where nothing is wrong and something could not be judged, or where less than 95 % of
    seeded faults were noticed, 27 where there is no GPU that can run what is asked.
    """
    from sparkbuild.live import Live
    from sparkbuild.manifest import current_platform
    from sparkbuild.qualify_gpu_work import carried_facts

    asked = _Asked(
        names=names, architectures=architectures, platform=platform_name or current_platform(),
        only=only, first=first, fresh=fresh, seeded=seeded, seed=seed, jobs=jobs,
        executor=executor, assemble=assemble, device=device, carried=carried,
    )  # fmt: skip
    _refuse_together(asked, variant)
    from_recipes, workspace = _places(recipes, work)
    screen = console(stderr=as_json)
    sowed: list[Sowed] = []
    with Live(screen) as live:
        if carried:
            results = [_carried(asked, carried, workspace, live)]
        elif assemble:
            made = _assembled(asked, variant or "", from_recipes, workspace, live)
        else:
            results, sowed = _judged(asked, variant or "", from_recipes, workspace, live)
    if assemble:
        answer(carried_facts(made, assemble), as_json=as_json, out=console())
        return
    _show(results, sowed, missed=missed, screen=None if as_json else screen)
    _exit(results, sowed)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is to be judged, how far, and how many seeded faults come after it."""

    names: tuple[str, ...]
    architectures: tuple[str, ...]
    platform: str
    only: tuple[str, ...]
    first: bool
    fresh: bool
    seeded: int | None
    seed: int
    jobs: int | None
    executor: str = "cpu"
    assemble: Path | None = None
    device: str | None = None
    carried: Path | None = None


def _refuse_together(asked: _Asked, variant: str | None) -> None:
    """Raises UsageError where options do not go together."""
    from sparkbuild.errors import UsageError

    on_gpu = asked.executor == "gpu"
    named = {"--assemble": asked.assemble, "--device": asked.device, "--from": asked.carried}
    problems = [f"{name} needs --on gpu" for name, value in named.items() if value and not on_gpu]
    if asked.seeded and on_gpu:
        problems.append("--seeded edits PTX for the executor alone: leave out --on gpu")
    if bool(asked.assemble) != bool(asked.device):
        problems.append("--assemble and --device are given together or not at all")
    if asked.carried and (asked.assemble or asked.names or asked.architectures):
        problems.append("--from takes compiler and target from its folder: name nothing else")
    if not asked.carried and not asked.names:
        problems.append("name a RELEASE or a ROOT")
    if not asked.carried and not variant:
        problems.append("name a patch set with --variant")
    if problems:
        raise UsageError(
            "this cannot be qualified so",
            problems=problems,
            next_step="sparkbuild toolkit qualify --help",
        )


def _judged(
    asked: _Asked, variant: str, recipes: Recipes, workspace: Workspace, live: Live
) -> tuple[list[Qualification], list[Sowed]]:
    """Every compiler that is meant, for every target; one that lies in two places once."""
    from sparkbuild.qualify_work import sow

    qualify, folder = _judge(asked), workspace.qualifications
    results: dict[str, Qualification] = {}
    sowed: list[Sowed] = []
    for subject in _every_subject(asked, variant, recipes, workspace, live):
        if subject.key in results:
            continue
        live.started(f"qualify {subject.compiler.toolkit} {subject.compiler.architecture}")
        results[subject.key] = found = qualify(
            subject, folder=folder, live=live, at_once=asked.jobs, only=asked.only,
            first=asked.first, fresh=asked.fresh, found=lambda probed: _told(live, probed),
        )  # fmt: skip
        if asked.seeded:
            made = sow(
                subject, found, folder=folder, live=live, count=asked.seeded, seed=asked.seed,
                at_once=asked.jobs, only=asked.only,
            )  # fmt: skip
            sowed.append(made)
    return list(results.values()), sowed


def _judge(asked: _Asked) -> Callable[..., Qualification]:
    """What judges a subject. Raises GpuError where a GPU is asked for and there is none."""
    from sparkbuild.qualify_work import qualify

    if asked.executor == "cpu":
        return qualify
    from sparkbuild.qualify.gpu.cuda import Cuda
    from sparkbuild.qualify_gpu_work import gather_with, subject_on

    opener = Cuda()
    device = opener.look()

    def on_gpu(subject: Subject, **options: Any) -> Qualification:
        options["gather"] = gather_with(opener, device)
        return qualify(subject_on(subject, device), **options)

    return on_gpu


def _carried(asked: _Asked, folder: Path, workspace: Workspace, live: Live) -> Qualification:
    """What was assembled elsewhere, on this machine's GPU."""
    from sparkbuild.qualify.gpu.cuda import Cuda
    from sparkbuild.qualify_gpu_work import qualify_carried
    from sparkbuild.toolkit.host import find_host_compiler

    live.started(f"qualify {folder}")
    return qualify_carried(
        folder, Cuda(), find_host_compiler(), folder=workspace.qualifications,
        live=live, at_once=asked.jobs, only=asked.only, first=asked.first,
        found=lambda probed: _told(live, probed),
    )  # fmt: skip


def _assembled(
    asked: _Asked, variant: str, recipes: Recipes, workspace: Workspace, live: Live
) -> Carried:
    """The one compiler that is meant, for its one target. Others are refused."""
    from sparkbuild.qualify_gpu_work import assemble, only_one

    subject = only_one(_every_subject(asked, variant, recipes, workspace, live))
    live.started(f"assemble {subject.compiler.toolkit} {subject.compiler.architecture}")
    return assemble(
        subject, asked.device or "", asked.assemble or Path(), folder=workspace.qualifications,
        live=live, at_once=asked.jobs, only=asked.only,
    )  # fmt: skip


def _every_subject(
    asked: _Asked, variant: str, recipes: Recipes, workspace: Workspace, live: Live
) -> Iterator[Subject]:
    from sparkbuild.qualify_meant import every_subject

    return every_subject(
        asked.names, asked.architectures, asked.platform, variant, recipes, workspace, live
    )


def _show(
    results: list[Qualification], sowed: list[Sowed], *, missed: bool, screen: Console | None
) -> None:
    """All as JSON where there is no screen."""
    from msgspec import to_builtins

    from sparkbuild.report.qualification import grid_view, qualification_view, sowed_view

    if screen is None:
        facts = {"qualifications": to_builtins(results)}
        print_json({**facts, **({"seeded": to_builtins(sowed)} if sowed else {})})
        return
    for result in results if len(results) < FEW else ():
        screen.print(qualification_view(result, missed=missed), crop=False)
    if len(results) > 1:
        screen.print(grid_view(results), crop=False)
    for one in sowed:
        screen.print(sowed_view(one), crop=False)


def _exit(results: list[Qualification], sowed: list[Sowed]) -> None:
    from sparkbuild.errors import QualificationIncompleteError, ToolkitMiscompilesError

    verdicts = {result.verdict for result in results}
    if "wrong" in verdicts:
        get_current_context().exit(ToolkitMiscompilesError.exit_code)
    if "incomplete" in verdicts or any(one.share < NOTICED for one in sowed):
        get_current_context().exit(QualificationIncompleteError.exit_code)


def _told(live: Observer, probed: Probed) -> None:
    """A wrong probe is said at once: the rest may take half a minute."""
    if probed.mistake:
        live.note(f"{probed.name}: {probed.mistake.text}")


def _places(recipes: Path | None, work: Path | None) -> tuple[Recipes, Workspace]:
    from sparkbuild.manifest import find_recipes
    from sparkbuild.workspace import Workspace

    workspace = Workspace(work)
    workspace.prepare()
    return find_recipes(recipes), workspace
