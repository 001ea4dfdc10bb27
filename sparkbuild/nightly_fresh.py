"""What makes a night a measurement: builds made anew, and figures against the control's noise."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparkbuild.errors import BusyError
from sparkbuild.files import exclusive, write_atomic
from sparkbuild.history.model import Judgement, Run
from sparkbuild.history.noise import night_judged
from sparkbuild.history.store import History
from sparkbuild.nightly.model import Outcome, Step
from sparkbuild.nightly.troubles import cell_of
from sparkbuild.nightly_keep import slug
from sparkbuild.nightly_step import now
from sparkbuild.workspace import Workspace

_NIGHTS = 60


def forget(history: History, work: Path | None, step: Step, folder: Path) -> None:
    """Take away what earlier nights built in this step, once a night.

    ``make`` reuses what is finished: the control would pass without having been run, and would have
    no figures. Builds that no night made, or that somebody uses now, stay.
    """
    marker = folder / "fresh" / slug(step.id)
    if marker.exists():
        return
    place = Workspace(work)
    runs = history.runs(what="make", role=step.role, variant=step.variant, last=_NIGHTS)
    for key, toolchain in {(run.key, run.toolchain) for run in runs if _of(run, step)}:
        build = place.build(step.variant, toolchain, key)
        if build.root.is_dir():
            what = f"build {key[:12]}"
            with contextlib.suppress(BusyError), exclusive(build.lock, what=what, wait=0.5):
                shutil.rmtree(build.root, ignore_errors=True)
    write_atomic(marker, "")


def _of(run: Run, step: Step) -> bool:
    return bool(run.key) and cell_of(run) == slug(step.id)


def compared(
    history: History, runs: Sequence[Run], night: str
) -> Iterator[tuple[Run, list[Judgement]]]:
    """Each passed candidate's run with its figures against the control's of the same night."""
    for run in runs:
        if run.role != "candidate" or run.what not in {"make", "smoke"} or run.state != "passed":
            continue
        ours, control = (
            history.readings(what=run.what, role=role, variant=run.variant, toolchain=run.toolchain)
            for role in ("candidate", "control")
        )
        yield run, night_judged(ours, control, night)


def slower(run: Run, judged: Sequence[Judgement]) -> Outcome | None:
    """A step's outcome for figures that are worse a second time, beyond what noise explains."""
    bad = [one for one in judged if one.state == "fault"]
    if not bad:
        return None
    started = time.monotonic()
    step = Step(
        id=f"candidate:compare:{run.variant}:{run.toolchain}:{run.what}",
        kind="compare",
        role="candidate",
        variant=run.variant,
        toolkit=run.toolchain,
        minutes=1,
    )
    return Outcome(
        step=step,
        state="failed",
        exit_code=0,
        started=now(),
        seconds=time.monotonic() - started,
        toolchain=run.toolchain,
        stage="figures",
        check=bad[0].name,
        message="; ".join(one.text for one in bad[:5]),
    )
