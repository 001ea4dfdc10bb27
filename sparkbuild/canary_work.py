"""What ``sparkbuild canary`` does between its command line and the rooms: forms, passes, audits."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sparkbuild.canary import forms
from sparkbuild.canary.audit.audit import audit
from sparkbuild.canary.audit.probe import Bench
from sparkbuild.canary.audit.reasons import load_reasons
from sparkbuild.canary.audit.records import Probe
from sparkbuild.canary.audit.summary import Summary, summarise
from sparkbuild.canary.behaviour import checks
from sparkbuild.canary.catalogue import Canary
from sparkbuild.canary.forms import Place
from sparkbuild.canary.gguf.derive import Derived, Form
from sparkbuild.canary.model import (
    CanaryReport,
    DraftCheck,
    Item,
)
from sparkbuild.canary.run import canary
from sparkbuild.canary.suite import load_suite
from sparkbuild.canary_desk import Desk, files_of, setup_of
from sparkbuild.canary_drafting import DRAFTS, asked_drafts
from sparkbuild.errors import CanaryError, SmokeError, UsageError
from sparkbuild.report.canaries import Result
from sparkbuild.report.model import Failure, StageReport
from sparkbuild.stages import failure_of

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Made:
    """A derived form, and the seconds that it took; next to none where it was there."""

    derived: Derived
    seconds: float


@dataclass(kw_only=True)
class _Findings:
    """Of one canary, as they come."""

    ran: list[CanaryReport] = field(default_factory=list)
    drafts: tuple[DraftCheck, ...] = ()
    failures: dict[str, Failure] = field(default_factory=dict)

    def missed(self) -> frozenset[str]:
        """Answers that were not right in some form."""
        return missed_in(self.ran)


def missed_in(ran: Iterable[CanaryReport]) -> frozenset[str]:
    """Questions that were not answered rightly in some pass."""
    return frozenset(one.name for report in ran for one in report.items if not one.passed)


def chosen_forms(
    entry: Canary, wanted: Sequence[Form], *, named: bool, exact: bool = False
) -> tuple[Form, ...]:
    """The forms to run: the usual ones where none is asked for, ``exact`` as ``usual`` has it.

    Of canaries that were not named, forms that they do not have are left out. Raises UsageError for
    one that was.
    """
    if not wanted:
        return forms.usual(entry, exact=exact)
    have = forms.possible(entry)
    lacking = [form for form in wanted if form not in have]
    if lacking and named:
        raise UsageError(
            f"{entry.name} has no form {', '.join(lacking)}",
            next_step=f"--form: {', '.join(have)}",
        )
    return tuple(form for form in dict.fromkeys(wanted) if form in have)


def make_form(desk: Desk, entry: Canary, form: Form) -> Made:
    """One form of a canary, as ``derive`` makes and judges it."""
    with desk.holding(entry) as place:
        desk.live.started(f"{entry.name} {form}")
        started = time.monotonic()
        found = forms.derived(
            desk.data, entry, form, programs=desk.programs, place=place, log=place.log("form", form)
        )
        seconds = time.monotonic() - started
        desk.live.finished(_stage(f"{entry.name} {form}", seconds, found.how))
    return Made(derived=found, seconds=round(seconds, 3))


def run_canary(
    desk: Desk,
    entry: Canary,
    wanted: Sequence[Form],
    *,
    drafts: bool,
    missed: frozenset[str] = frozenset(),
) -> Result:
    """Every wanted form's pass, then the drafts; what fails in one is kept, and the rest goes on.

    ``missed`` are answers that were not right in a pass before this. Only the main thread of a
    process may call this.
    """
    found = _Findings()
    with desk.holding(entry) as place:
        flags = forms.backend_flags(desk.programs.server, desk.backend)
        for form in wanted:
            ran = _tried(desk, found, entry, form, lambda form=form: _pass(  # type: ignore[misc]
                desk, entry, form, place, flags
            ))  # fmt: skip
            found.ran += [ran] if ran else []
            if desk.first and not (ran and ran.passed):
                drafts = False
                break
        if drafts and entry.drafts:
            skip = missed | found.missed()
            checks = _tried(
                desk, found, entry, DRAFTS, lambda: asked_drafts(desk, entry, place, flags, skip)
            )
            found.drafts = checks or ()
    return Result(
        canary=entry.name, ran=tuple(found.ran), drafts=found.drafts, failures=found.failures
    )


def audit_canary(
    desk: Desk, entry: Canary, *, processes: int, only: str
) -> tuple[Summary, list[Probe]]:
    """Every perturbation whose name matches ``only``, summarised; goes on where one was stopped.

    Raises UsageError for a pattern that is none, or matches nothing.
    """
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise UsageError(f"--only {only!r} is no regular expression: {error}") from error
    live, label = desk.live, f"{entry.name} audit"
    with desk.holding(entry) as place:
        live.started(label)
        started = time.monotonic()
        files = files_of(desk, entry, "f32", place)
        flags = forms.backend_flags(desk.programs.server, desk.backend)
        cache = desk.cache_of(forms.EXACT)
        setup = setup_of(desk, place, files, "f32", flags, place.log("audit"), cache=cache)

        def told(probe: Probe, done: int, of: int) -> None:
            live.progress(done, of, f"{probe.target} {probe.kind}")
            if not probe.noticed:
                live.note(f"{probe.target} {probe.kind} {probe.detail}: not noticed")

        found = audit(
            Bench(suite=desk.data / entry.suite, setup=setup, workdir=place.audit),
            processes=processes,
            on_probe=told,
            only=lambda probe: bool(pattern.search(f"{probe.target} {probe.kind}")),
        )
        if not found:
            raise UsageError(f"{entry.name} has no perturbation that matches --only {only!r}")
        seconds = time.monotonic() - started
        live.finished(_stage(label, seconds, f"{len(found)} perturbations"))
    folder = desk.data / entry.suite
    return summarise(found, load_suite(folder)[1], load_reasons(folder)), found


def _tried(
    desk: Desk, found: _Findings, entry: Canary, what: str, do: Callable[[], tuple[_T, str, bool]]
) -> _T | None:
    """What ``do`` gives, with a line that says how it went; None after a refusal, which is kept."""
    label = desk.named(entry, what)
    desk.live.started(label)
    started = time.monotonic()
    try:
        value, summary, well = do()
    except (SmokeError, CanaryError) as error:
        found.failures[what] = failure_of(error)
        seconds = time.monotonic() - started
        desk.live.finished(_stage(label, seconds, error.message, well=False))
        return None
    desk.live.finished(_stage(label, time.monotonic() - started, summary, well=well))
    return value


def _pass(
    desk: Desk, entry: Canary, form: Form, place: Place, flags: tuple[str, ...]
) -> tuple[CanaryReport, str, bool]:
    folder = desk.data / entry.suite_of(form)
    suite = load_suite(folder)[0].in_form(form)
    cache, answers = desk.cache_of(form), form != forms.EXACT
    desk.live.progress(0, 0, f"making {form}")
    files = files_of(desk, entry, form, place)
    asked = len(suite.answers) + len(checks(suite, desk.slots)) if answers else 0
    total = len(suite.references) + 1 + asked
    done: list[Item] = []

    def told(one: Item) -> None:
        done.append(one)
        wrong = sum(not item.passed for item in done)
        text = f"{one.group}: {one.name}"
        desk.live.progress(len(done), total, f"{wrong} wrong, {text}" if wrong else text)

    log = place.log("run", form, desk.backend, cache, *re.findall(r"\w+", desk.label))
    setup = setup_of(desk, place, files, form, flags, log, cache=cache)
    report = canary(folder, setup, on_item=told, answers=answers, first=desk.first)
    right = sum(one.passed for one in report.items)
    faults = report.log.count("fault")
    summary = (
        f"{right}/{len(report.items)} right, {f'{faults} faults in the log, ' if faults else ''}"
        f"{files.model.how}, loaded in {report.load_seconds:.2f} s"
    )
    return report, summary, report.passed


def _stage(name: str, seconds: float, summary: str, *, well: bool = True) -> StageReport:
    return StageReport(
        name=name, state="done" if well else "failed", seconds=seconds, summary=summary
    )
