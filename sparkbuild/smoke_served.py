"""What ``sparkbuild smoke --model`` does: a start for each way to serve, then a report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec

from sparkbuild.canary.forms import backend_flags
from sparkbuild.canary.model import Backend
from sparkbuild.errors import ModelError, SmokeError, UsageError
from sparkbuild.files import exclusive, sha256_file, write_atomic
from sparkbuild.model.asked import this_machine
from sparkbuild.model.build import read_build
from sparkbuild.model.facts import facts
from sparkbuild.model.read import Model, read_model
from sparkbuild.report.model import StageReport
from sparkbuild.report.served import BEFORE, Served
from sparkbuild.smoke.model import ServedCheck
from sparkbuild.smoke.plan import names as plan_names
from sparkbuild.smoke.served import around, drafting, known, vision, ways
from sparkbuild.smoke.served.arm import CAN_DRAFT, GUARD, Arm, Bench, serve
from sparkbuild.smoke.served.before import Fits, fits, refuse_context
from sparkbuild.smoke.served.book import Book
from sparkbuild.smoke.served.load import Hint, is_served, load_hints, load_suite, names, suite_file
from sparkbuild.smoke.served.numbers import Run
from sparkbuild.smoke.served.pictures import draw
from sparkbuild.smoke.served.session import Recorder, Seen, Session
from sparkbuild.smoke.served.suite import Drafts, Suite, Way
from sparkbuild.smoke.served.vision import Drawings
from sparkbuild.smoke_before import pin_of
from sparkbuild.stages import Observer

_SERVER: Final = "llama-server"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be asked of which build and model."""

    build: Path
    """A folder with llama-server, or with bin/."""
    model: Path
    mmproj: Path | None
    suite: Path
    root: Path
    """Below it one folder for each suite, made fresh."""
    live: Observer
    backend: Backend | None = None
    """None is the suite's own."""
    context: int | None = None
    flags: tuple[str, ...] = ()
    """Of llama-server's, in every start, after all others."""


@dataclass(kw_only=True)
class _Work:
    """What the parts of one run share."""

    bench: Bench
    model: Model
    fits: Fits
    live: Observer
    drawings: Drawings
    runs: list[Run] = field(default_factory=list)
    speeds: drafting.Speeds = field(default_factory=dict)
    short: bool = False
    """The memory guard ended a server: nothing more is started."""

    @property
    def suite(self) -> Suite:
        """What is asked."""
        return self.bench.suite


def chosen_suite(name: str | None, model: Path | None) -> Path | None:
    """The file of the served suite that is meant; None where another kind of suite is.

    ``name`` is what ``--suite`` says, None where it is not given: then the model's architecture
    decides. Raises UsageError where the two do not go together, UnknownNameError, ModelError.
    """
    if model is None:
        if name is None or not is_served(name):
            return None
        raise UsageError(
            f"the suite {name} asks a real model, and none is named",
            next_step="add --model MODEL.gguf (the first of its shards), and --mmproj FILE.gguf",
        )
    if name is not None:
        if name in plan_names():
            raise UsageError(
                f"the suite {name} asks models of its own",
                next_step=f"leave out --model, or name one of: {', '.join(names())}",
            )
        return suite_file(name)
    kind = read_model(model).architecture
    fitting = [file for file in map(suite_file, names()) if kind in load_suite(file).architectures]
    if fitting:
        return fitting[0]
    raise UsageError(
        f"no suite that comes with sparkbuild is for {model.name}",
        problems=[f"general.architecture: {kind!r}; suites: {', '.join(names())}"],
        next_step="--suite FILE.toml: a copy of one of them with questions for this model",
    )


def run_served(request: Request) -> Served:
    """Every check of a suite; what fails in one way is kept, and the rest goes on.

    Nothing is started where a fault was found before. Only the main thread may call this. Raises
    UsageError for a context beyond the suite's limit, ManifestError, ModelError where a file cannot
    be read, HostError without a GPU for ``cuda``, BusyError.
    """
    suite = load_suite(request.suite)
    context = request.context or suite.server.context
    refuse_context(suite, context)
    server = server_in(request.build)
    model = read_model(request.model)
    _check_family(suite, model, request)
    tower = read_model(request.mmproj) if request.mmproj else None
    folder = request.root / suite.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.with_name(f"{folder.name}.lock"), what=f"the suite {suite.name}"):
        shutil.rmtree(folder, ignore_errors=True)
        found = fits(
            suite, model, tower, read_build(server.parent), this_machine(), context=context
        )
        backend = request.backend or suite.backend
        bench = Bench(
            suite=suite, server=server, model=model.path.absolute(),
            mmproj=tower.path.absolute() if tower else None, backend=backend, context=context,
            more=(*backend_flags(server, backend), *request.flags), pin=pin_of(server),
            book=Book(folder), recorder=Recorder(_teller(request.live)),
        )  # fmt: skip
        drawings = draw(suite.vision) if suite.vision and tower else {}
        work = _Work(bench=bench, model=model, fits=found, live=request.live, drawings=drawings)
        _finished(request.live, BEFORE, 0.0, _summary(found), well=not found.faults)
        if not found.faults:
            _asked(work)
        report = _report(work, tower, request.suite)
        write_atomic(folder / "report.json", msgspec.json.encode(report))
    return report


def server_in(build: Path) -> Path:
    """llama-server in a folder or in its ``bin``. Raises UsageError where it is in neither."""
    for folder in (build, build / "bin"):
        if (folder / _SERVER).is_file():
            return (folder / _SERVER).absolute()
    raise UsageError(
        f"{build} holds no build of llama.cpp",
        problems=[f"expected {build / _SERVER} or {build / 'bin' / _SERVER}, found neither"],
        next_step="name a folder with llama-server, or with bin/, or a wheel",
    )


def answer(found: Served, code: int) -> dict[str, object]:
    """Everything, for ``--json``."""
    plain = cast("dict[str, object]", msgspec.to_builtins(found))
    return {"result": "failed" if code else "passed", "exit_code": code, **plain}


def exit_code(found: Served) -> int:
    """ModelError's where nothing was started, SmokeError's where anything is wrong."""
    if found.faults:
        return ModelError.exit_code
    return 0 if found.passed else SmokeError.exit_code


def _check_family(suite: Suite, model: Model, request: Request) -> None:
    """Refuse a model that the suite's answers and bounds are not for."""
    wanted = " or ".join(suite.architectures)
    if model.architecture not in suite.architectures:
        raise UsageError(
            f"the suite {suite.name} is not for {model.path.name}",
            problems=[f"general.architecture: expected {wanted}, found {model.architecture!r}"],
            evidence=[request.suite],
            next_step="--suite FILE.toml: a copy of that file with questions for this model",
        )


def _asked(work: _Work) -> None:
    """Every way, then the drafts, each in a start of its own."""
    suite, bench = work.suite, work.bench
    if suite.vision and work.drawings:
        vision.keep(bench.book, suite.vision, work.drawings)
    first, *others = suite.ways
    _run(work, Arm(name=first.name, way=first, pictures=bool(bench.mmproj)), _first)
    for way in others:

        def other(work: _Work, session: Session, way: Way = way) -> None:
            ways.compare(session, way, work.runs)
            known.questions(session, every_way=True)

        _run(work, Arm(name=way.name, way=way), other)
    if suite.drafts:
        _drafts(work, suite.drafts, first)


def _first(work: _Work, session: Session) -> None:
    """All that is asked in one way only: the way that is served most."""
    suite = work.suite
    if work.bench.backend == "cuda":
        around.on_gpu(session, work.model)
    known.questions(session)
    if suite.needles:
        known.long_prompt(session, suite.needles)
    known.twice(session)
    known.together(session)
    if suite.long_run:
        known.long_run(session, suite.long_run)
    work.runs += ways.record(session)
    if suite.vision and work.drawings:
        vision.looks(session, suite.vision, work.drawings)
    if suite.drafts and not work.fits.no_drafts:
        work.speeds = drafting.undrafted(session, suite.drafts)
    known.speed(session, work.model)


def _drafts(work: _Work, drafts: Drafts, way: Way) -> None:
    for depth in drafts.depths:

        def text(work: _Work, session: Session, depth: int = depth) -> None:
            drafting.drafted(session, drafts, depth, work.speeds)
            known.speed(session, work.model)

        _run(work, Arm(name=f"drafts, depth {depth}", way=way, depth=depth), text)
    among = drafts.among
    if among and work.drawings:

        def mixed(work: _Work, session: Session) -> None:
            drafting.among_pictures(session, drafts, among, work.drawings)

        name = f"drafts and pictures, depth {among.depth}"
        _run(work, Arm(name=name, way=way, pictures=True, depth=among.depth), mixed)


def _run(work: _Work, arm: Arm, ask: Callable[[_Work, Session], None]) -> None:
    """One arm, and a line that says how it went."""
    recorder, before = work.bench.recorder, len(work.bench.recorder.done)
    work.live.started(arm.name)
    started = time.monotonic()
    if work.short:
        ran_out = Seen(wrong="not started: memory ran out before")
        recorder.add(arm.name, GUARD, "health", "memory", ran_out)
    elif arm.depth and work.fits.no_drafts:
        found = Seen(unsupported=work.fits.no_drafts)
        recorder.add(arm.name, drafting.DRAFTS, "drafts", CAN_DRAFT, found)
    else:
        work.short = not serve(work.bench, arm, partial(ask, work))
    done = recorder.done[before:]
    wrong = [one.name for one in done if one.state == "failed"]
    without = sum(one.state == "unsupported" for one in done)
    summary = f"{len(done) - len(wrong) - without} passed"
    summary += f", {without} unsupported" if without else ""
    summary += f", failed: {', '.join(wrong)}" if wrong else ""
    _finished(work.live, arm.name, time.monotonic() - started, summary, well=not wrong)


def _report(work: _Work, tower: Model | None, file: Path) -> Served:
    bench, told = work.bench, facts(work.model, tower)
    every, hints = bench.recorder.done, load_hints()
    failed = {one.group for one in every if one.state == "failed"}
    well = {one.group for one in every} - failed
    hint = _hint(hints, failed, well)
    build, commit = bench.pin
    return Served(
        suite=work.suite.name,
        suite_sha256=sha256_file(file),
        backend=bench.backend,
        build=f"b{build}, commit {commit}" if build is not None else commit,
        model=(*told.files, *(told.vision.files if told.vision else ())),
        context=bench.context,
        looked=work.fits.checks,
        findings=work.fits.findings,
        memory=work.fits.memory,
        checks=tuple(_explained(one, well, hints) for one in every),
        likely=hint.likely if hint else (),
        next_step=hint.next_step if hint else "",
        folder=str(bench.book.folder),
        kept=bench.book.kept(),
    )


def _explained(one: ServedCheck, well: set[str], hints: Sequence[Hint]) -> ServedCheck:
    """A failure with what its group points to."""
    hint = _hint(hints, {one.group}, well) if one.state == "failed" else None
    if hint is None:
        return one
    return msgspec.structs.replace(one, likely=hint.likely, next_step=hint.next_step)


def _hint(hints: Sequence[Hint], failed: set[str], well: set[str]) -> Hint | None:
    return next((hint for hint in hints if hint.fits(failed, well)), None)


def _summary(found: Fits) -> str:
    faults = ", ".join(one.name for one in found.faults)
    told = f"{found.checks} checks" + (f", faults: {faults}" if faults else "")
    return f"{told}; drafts are unsupported" if found.no_drafts else told


def _teller(live: Observer) -> Callable[[ServedCheck], None]:
    counted = [0, 0]

    def tell(one: ServedCheck) -> None:
        counted[0] += 1
        counted[1] += one.state == "failed"
        wrong = f"{counted[1]} wrong, " if counted[1] else ""
        live.progress(counted[0], 0, f"{wrong}{one.group}: {one.name}")

    return tell


def _finished(live: Observer, name: str, seconds: float, summary: str, *, well: bool) -> None:
    state = "done" if well else "failed"
    live.finished(StageReport(name=name, state=state, seconds=seconds, summary=summary))  # type: ignore[arg-type]
