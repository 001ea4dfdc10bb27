"""What ``sparkbuild canary`` does between its command line and the rooms: forms, passes, audits."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sparkbuild.canary import forms
from sparkbuild.canary.audit.audit import audit
from sparkbuild.canary.audit.probe import Bench
from sparkbuild.canary.audit.reasons import load_reasons
from sparkbuild.canary.audit.records import Probe
from sparkbuild.canary.audit.summary import Summary, summarise
from sparkbuild.canary.behaviour import checks
from sparkbuild.canary.catalogue import Canary
from sparkbuild.canary.drafts import acceptance, compared, damage, judged, unasked
from sparkbuild.canary.forms import Files, Place, Programs
from sparkbuild.canary.gguf.derive import Derived, Form
from sparkbuild.canary.gguf.spoil import spoilt
from sparkbuild.canary.model import (
    Acceptance,
    Backend,
    CacheType,
    CanaryReport,
    DraftCheck,
    Head,
    Item,
)
from sparkbuild.canary.run import SLOTS, Setup, canary
from sparkbuild.canary.suite import load_suite
from sparkbuild.errors import CanaryError, SmokeError, UsageError
from sparkbuild.files import disk_full_refused, exclusive
from sparkbuild.live import Live
from sparkbuild.report.canaries import Result
from sparkbuild.report.model import Failure, StageReport
from sparkbuild.stages import failure_of

DRAFTS: Final = "drafts"
_DRAFTED: Final[Form] = "f32"
"""The form that a draft block is damaged in, so both heads are asked in it."""
_SERVED: Final[CacheType] = "f16"
"""llama-server's own type of cache; drafts are asked with it, whatever the form is."""
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What all work on canaries has in hand."""

    data: Path
    programs: Programs
    root: Path
    """Below it one folder for each canary."""
    live: Live
    backend: Backend = "cpu"
    cache: CacheType | None = None
    """For every form; by default each has its own."""
    threads: int = 1
    flags: tuple[str, ...] = ()
    """Of llama-server's, in every start, after all others."""
    environment: Mapping[str, str] = field(default_factory=dict)
    slots: int = SLOTS
    label: str = ""
    """What is said of all that is done, beside the canary and the form."""

    def named(self, entry: Canary, what: str) -> str:
        """A piece of work, for a person."""
        return ", ".join(filter(None, (f"{entry.name} {what}", self.label)))

    @property
    def exact(self) -> bool:
        """Whether the form in float32 gives what was recorded here, but for the order of sums."""
        return self.backend == "cpu" and self.cache_of(forms.EXACT) == "f32" and not self.flags

    def cache_of(self, form: Form) -> CacheType:
        """The cache's type for a form: of float32 weights float32, of others what is served."""
        return self.cache or ("f32" if form == forms.EXACT else _SERVED)

    def place(self, entry: Canary) -> Place:
        """Where a canary's things lie."""
        return Place(root=self.root / entry.name)

    @contextmanager
    def holding(self, entry: Canary) -> Iterator[Place]:
        """The only right to write there. Raises BusyError, DiskFullError."""
        place = self.place(entry)
        with disk_full_refused(self.root):
            place.root.mkdir(parents=True, exist_ok=True)
            with exclusive(place.lock, what=f"the canary {entry.name}"):
                yield place


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
        return frozenset(one.name for ran in self.ran for one in ran.items if not one.passed)


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


def run_canary(desk: Desk, entry: Canary, wanted: Sequence[Form], *, drafts: bool) -> Result:
    """Every wanted form's pass, then the drafts; what fails in one is kept, and the rest goes on.

    Only the main thread may call this.
    """
    found = _Findings()
    with desk.holding(entry) as place:
        flags = forms.backend_flags(desk.programs.server, desk.backend)
        for form in wanted:
            ran = _tried(desk, found, entry, form, lambda form=form: _pass(  # type: ignore[misc]
                desk, entry, form, place, flags
            ))  # fmt: skip
            found.ran += [ran] if ran else []
        if drafts and entry.drafts:
            missed = found.missed()
            checks = _tried(
                desk, found, entry, DRAFTS, lambda: _drafts(desk, entry, place, flags, missed)
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
        files = _files(desk, entry, "f32", place)
        flags = forms.backend_flags(desk.programs.server, desk.backend)
        cache = desk.cache_of(forms.EXACT)
        setup = _setup(desk, place, files, "f32", flags, place.log("audit"), cache=cache)

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
    suite, _ = load_suite(folder)
    cache, answers = desk.cache_of(form), form != forms.EXACT
    desk.live.progress(0, 0, f"making {form}")
    files = _files(desk, entry, form, place)
    suite = msgspec.structs.replace(suite, answers=suite.asked(form))
    asked = len(suite.answers) + len(checks(suite, desk.slots)) if answers else 0
    total = len(suite.references) + 1 + asked
    done: list[Item] = []

    def told(one: Item) -> None:
        done.append(one)
        wrong = sum(not item.passed for item in done)
        text = f"{one.group}: {one.name}"
        desk.live.progress(len(done), total, f"{wrong} wrong, {text}" if wrong else text)

    log = place.log("run", form, desk.backend, cache, *re.findall(r"\w+", desk.label))
    setup = _setup(desk, place, files, form, flags, log, cache=cache)
    report = canary(folder, setup, on_item=told, answers=answers)
    right = sum(one.passed for one in report.items)
    faults = report.log.count("fault")
    summary = (
        f"{right}/{len(report.items)} right, {f'{faults} faults in the log, ' if faults else ''}"
        f"{files.model.how}, loaded in {report.load_seconds:.2f} s"
    )
    return report, summary, report.passed


def _drafts(
    desk: Desk, entry: Canary, place: Place, flags: tuple[str, ...], missed: frozenset[str]
) -> tuple[tuple[DraftCheck, ...], str, bool]:
    folder = desk.data / entry.suite
    suite, limits = load_suite(folder)
    skip = missed | unasked(suite, limits)
    if not limits.drafts:
        raise CanaryError(
            f"no acceptance of drafts is recorded for {entry.name}",
            evidence=[folder],
            next_step="record bands in its limits.toml, or leave drafts out with --no-drafts",
        )
    files = _files(desk, entry, _DRAFTED, place)
    with tempfile.TemporaryDirectory(dir=place.root, prefix="damaged-") as name:
        copy = Path(shutil.copyfile(files.model.path, Path(name) / files.model.path.name))
        spoil = damage(copy)

        def ask(head: Head, depth: int, model: Path) -> Acceptance:
            def told(answer: str, done: int, of: int) -> None:
                desk.live.progress(done, of, f"depth {depth}, {head} head: {answer}")

            log = place.log(DRAFTS, head, str(depth))
            cache = desk.cache or _SERVED
            setup = _setup(desk, place, files, _DRAFTED, flags, log, cache=cache, model=model)
            return acceptance(folder, setup, depth=depth, skip=skip, on_answer=told)

        def measure(head: Head, depth: int) -> Acceptance:
            if head == "healthy":
                return ask(head, depth, files.model.path)
            with spoilt(copy, spoil):
                return ask(head, depth, copy)

        checks = tuple(compared(limits.drafts, measure))
    if desk.exact and not any(check.state == "unsupported" for check in checks):
        checks += _exact(desk, entry, place, flags)
    states = [check.state for check in checks]
    summary = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return checks, summary, all(check.passed for check in checks)


def _exact(
    desk: Desk, entry: Canary, place: Place, flags: tuple[str, ...]
) -> tuple[DraftCheck, ...]:
    """Of the form that rounds nothing, every answer's drafts against those recorded, if any are."""
    folder = desk.data / entry.suite
    suite, limits = load_suite(folder)
    band = next(
        (b for b in limits.drafts if suite.drafted and b.depth == suite.drafted.depth), None
    )
    if suite.drafted is None or band is None:
        return ()

    def told(answer: str, done: int, of: int) -> None:
        desk.live.progress(done, of, f"exact drafts: {answer}")

    files = _files(desk, entry, forms.EXACT, place)
    log = place.log(DRAFTS, "exact")
    setup = _setup(desk, place, files, forms.EXACT, flags, log, cache=desk.cache_of(forms.EXACT))
    skip = unasked(suite, limits)
    found = acceptance(folder, setup, depth=band.depth, skip=skip, on_answer=told)
    return (judged(found, band, "healthy", recorded=suite.drafted.counts),)


def _files(desk: Desk, entry: Canary, form: Form, place: Place) -> Files:
    log = place.log("form", form)
    return forms.files(desk.data, entry, form, programs=desk.programs, place=place, log=log)


def _setup(
    desk: Desk,
    place: Place,
    files: Files,
    form: Form,
    flags: tuple[str, ...],
    log: Path,
    *,
    cache: CacheType,
    model: Path | None = None,
) -> Setup:
    return Setup(
        executable=desk.programs.server,
        model=model or files.model.path,
        vision=files.vision,
        form=form,
        backend=desk.backend,
        cache=cache,
        scratch=place.scratch,
        log=log,
        flags=(*flags, *desk.flags),
        environment=desk.environment,
        threads=desk.threads,
        slots=desk.slots,
    )


def _stage(name: str, seconds: float, summary: str, *, well: bool = True) -> StageReport:
    return StageReport(
        name=name, state="done" if well else "failed", seconds=seconds, summary=summary
    )
