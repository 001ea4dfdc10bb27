"""``sparkbuild canary audit`` and ``train``: for those who make canaries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import rich_click as click
from click import get_current_context

from sparkbuild.canary_commands import BACKEND, BUILD, CACHES, CANARIES, catalogue_in, desk_for
from sparkbuild.console import JSON, WORK, answer, console, print_json
from sparkbuild.errors import CanaryError, UsageError

if TYPE_CHECKING:
    from sparkbuild.canary.train.checks import Told
    from sparkbuild.live import Live

_EXTRA: Final = ("torch", "transformers", "safetensors", "PIL", "jinja2")
"""What the extra ``canary`` brings, by the names of the modules."""


@click.command("audit")
@click.argument("name", metavar="NAME")
@BUILD
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Servers at the same time. Default: one for each core.",
)
@click.option(
    "--only",
    default="",
    metavar="REGEX",
    help="Only perturbations whose target and kind match, such as 'indexer.* rolled'.",
)
@click.option(
    "--least",
    type=click.FloatRange(0, 1),
    default=0.98,
    show_default=True,
    metavar="SHARE",
    help="Exit code 19 where less is noticed of what alters the model.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Write the result into the catalogue of --data, and into the canary's model card.",
)
@BACKEND
@click.option(
    "--kv", type=click.Choice(CACHES), default="f32", show_default=True, help="Type of the cache."
)
@CANARIES
@WORK
@JSON
def audit_suite(
    name: str,
    build: Path,
    processes: int | None,
    only: str,
    least: float,
    keep: bool,
    backend: str,
    kv: str,
    data: Path | None,
    work: Path | None,
    as_json: bool,
) -> None:
    """Spoil each tensor and hyper-parameter of a canary in turn; show what its suite noticed.

    Runs on the form f32. Every result is kept as it comes: run the same command again after a
    Ctrl-C, and it goes on where it was. What is not noticed is listed with the reason that is
    recorded for it beside the suite, if any is.
    """
    from sparkbuild.build.jobs import usable_cores
    from sparkbuild.canary_answers import audit_answer, audit_screen
    from sparkbuild.canary_work import audit_canary
    from sparkbuild.live import Live

    if keep and (data is None or only):
        raise UsageError(
            "--keep needs --data DIR, and an audit of everything",
            next_step="name --data DIR and leave out --only, or leave out --keep",
        )
    folder, catalogue = catalogue_in(data)
    entry = catalogue.canary(name)
    screen = console(stderr=as_json)
    with Live(screen) as live:
        desk = desk_for(folder, build, work, live, backend=backend, cache=kv, threads=1)
        count = processes or max(1, int(usable_cores()))
        summary, found = audit_canary(desk, entry, processes=count, only=only)
    if keep:
        from sparkbuild.canary.train.making import keep_audit

        cache = desk.cache_of("f32")
        keep_audit(folder, entry, summary, backend=desk.backend, cache=cache)
    code = 0 if summary.total.share >= least else CanaryError.exit_code
    if as_json:
        print_json(audit_answer(name, summary, found, code))
    screen.print(audit_screen(summary), crop=False)
    if code:
        screen.print(
            f"\nexpected at least {least:.1%}: add prompts that what is listed changes, or train "
            "the canary so that it depends on it; --least takes another share",
            soft_wrap=True,
        )
    get_current_context().exit(code)


@click.command("train")
@click.argument("name", metavar="NAME")
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the checkpoint, its card and the state of an unfinished run go.",
)
@click.option("--seed", type=int, default=1, show_default=True, metavar="N", help="Seed of all.")
@click.option(
    "--device", metavar="NAME", help="PyTorch's device, such as cpu or cuda. Default: a GPU if any."
)
@click.option(
    "--steps", type=click.IntRange(min=1), metavar="N", help="Steps. Default: the recipe's."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that make samples. Default: one for each core but one.",
)
@JSON
def train_canary(
    name: str,
    out: Path,
    seed: int,
    device: str | None,
    steps: int | None,
    workers: int | None,
    as_json: bool,
) -> None:
    r"""Train a canary again from a seed; needs pip install 'sparkbuild\[canary]'.

    Minutes on a GPU, an hour or some on two cores. Run the same command again after a Ctrl-C or a
    kill, and it goes on where it was.
    """
    from sparkbuild.build.jobs import usable_cores
    from sparkbuild.live import Live

    _needs_extra()
    from sparkbuild.canary.train.run import train

    count = workers or max(1, int(usable_cores()) - 1)
    screen = console(stderr=as_json)
    with Live(screen) as live:
        trained = train(
            name,
            out.absolute(),
            seed=seed,
            device=device,
            steps=steps,
            workers=count,
            tell=_Lessons(name, live).tell,
        )
    facts = {
        "canary": name,
        "text": str(trained.text),
        "vision": str(trained.vision) if trained.vision else None,
        "key": trained.card.key,
        "seed": trained.card.seed,
    }
    answer(facts, as_json=as_json, out=screen)


@click.command("record")
@click.argument("name", metavar="NAME")
@click.option(
    "--trained",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="What `canary train` wrote: a folder with text, and vision where the canary sees.",
)
@click.option(
    "--source",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The llama.cpp tree whose converter is used (see `sparkbuild source fetch`).",
)
@click.option(
    "--data",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder with the catalogue, where the canary is put.",
)
@BUILD
@WORK
@JSON
def record_canary(
    name: str,
    trained: Path,
    source: Path,
    data: Path,
    build: Path,
    work: Path | None,
    as_json: bool,
) -> None:
    r"""Convert a trained canary and record its suite; needs pip install 'sparkbuild\[canary]'.

    More is asked than the suite keeps: only what the forms f32, f16 and q8_0 all answer rightly
    stays, and reference prompts whose numbers stand still. Limits are written by hand.
    """
    from sparkbuild.canary.forms import backend_flags, programs
    from sparkbuild.canary.run import Setup
    from sparkbuild.live import Live
    from sparkbuild.workspace import Workspace

    _needs_extra()
    from sparkbuild.canary.train.entering import enter_canary

    workspace, found = Workspace(work), programs(build)
    workspace.prepare()
    workdir = workspace.canaries / f"{name}-recording"
    setup = Setup(
        executable=found.server,
        model=data,
        vision=None,
        form="q8_0",
        backend="cpu",
        cache="f16",
        scratch=workdir / "server",
        log=workdir / "server.log",
        flags=backend_flags(found.server, "cpu"),
    )
    screen = console(stderr=as_json)
    with Live(screen) as live:
        live.started(f"{name} recording")
        entered = enter_canary(
            name,
            trained.absolute(),
            source=source.absolute(),
            setup=setup,
            quantiser=found.quantiser,
            data=data.absolute(),
            workdir=workdir,
            tell=live.note,
        )
    facts = {
        f"{kind} {group}": f"{right} of {tried}"
        for kind, one in entered.recorded.items()
        for group, (right, tried) in one.rates.items()
    }
    answer({"canary": name, **facts}, as_json=as_json, out=screen)


class _Lessons:
    """Shows what a training tells: a bar for each phase, notes and what was learned above it."""

    def __init__(self, name: str, live: Live) -> None:
        self._name = name
        self._live = live
        self._phase = ""

    def tell(self, told: Told) -> None:
        """Show one report."""
        if told.note:
            self._live.note(told.note)
            return
        if told.phase != self._phase:
            self._phase = told.phase
            self._live.started(f"{self._name} {told.phase}")
        values = " ".join(f"{name} {value:.3g}" for name, value in told.values.items())
        self._live.progress(told.step, told.steps, values)


def _needs_extra() -> None:
    from importlib.util import find_spec

    from sparkbuild.errors import HostError

    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise HostError(
            "training needs more than sparkbuild itself brings",
            problems=[f"the Python module {name} is missing" for name in missing],
            next_step="pip install 'sparkbuild[canary]'",
        )
