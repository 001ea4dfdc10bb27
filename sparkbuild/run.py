"""One ``make`` from request to report: whatever happens on the way, the report is written."""

from __future__ import annotations

import datetime as dt
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkbuild import __version__
from sparkbuild.errors import EXIT_INTERRUPTED, SparkbuildError, UsageError
from sparkbuild.files import exclusive, write_atomic
from sparkbuild.job import Job, Known
from sparkbuild.manifest import find_recipes
from sparkbuild.pipeline import run_stages
from sparkbuild.report.model import FileRef, Report
from sparkbuild.stages import Observer, Runner
from sparkbuild.toolkit.book import Book, read_book
from sparkbuild.toolkit.choice.select import choose, plain_architectures
from sparkbuild.workspace import Workspace, make_folder

if TYPE_CHECKING:
    from sparkbuild.package.keys import SigningKey


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``make`` was asked for; empty ``architectures`` and no ``toolkit`` mean the defaults."""

    variant: str
    toolkit: str | None = None
    architectures: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    recipes: Path | None = None
    work: Path | None = None
    out: Path = Path("dist")
    jobs: int | None = None
    cache: Path | None = None
    sign: tuple[Path, ...] = ()
    """Private keys that sign what lies beside the wheel."""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Made:
    """The report, the files it was written to, and the refusal that ended the run, if one did."""

    report: Report
    files: tuple[Path, ...]
    error: SparkbuildError | KeyboardInterrupt | None


def make(request: Request, observer: Observer) -> Made:
    """Run the nine stages and write the report.

    Raises SparkbuildError only where the run could not begin (unknown variant, broken manifest,
    another sparkbuild at the same recipe): no report of an earlier run is touched then.
    """
    if request.jobs is not None and request.jobs < 1:
        raise UsageError(f"--jobs {request.jobs}: at least 1 is needed", next_step="--jobs 1")
    started, clock = dt.datetime.now(dt.UTC), time.monotonic()
    _signers(request)  # a key that cannot sign is refused now, not after the build
    job = _prepare(request, observer)
    known = Known()
    error: SparkbuildError | KeyboardInterrupt | None = None
    with exclusive(job.folder / "lock", what=f"recipe {job.folder.name}"):
        try:
            run_stages(job, known)
        except (SparkbuildError, KeyboardInterrupt) as refusal:
            error = refusal
        report = Report(
            sparkbuild=__version__,
            variant=job.patchset.name,
            toolchain=job.choice.toolchain.name,
            command=request.command,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 3),
            result="failed" if error else "passed",
            exit_code=_exit_code(error),
            key=known.key,
            machine=_machine(),
            accepted=known.accepted,
            stages=(*job.runner.reports, *job.runner.not_reached()),
            smoke_checks=known.smoke.checks if known.smoke else (),
            wheel=_wheel(known) if error is None else None,
        )
        files = _write(report, job, request.out, known if error is None else Known())
        if error is None and request.sign:
            files += _sign(request, files)
    return Made(report=report, files=files, error=error)


def _prepare(request: Request, observer: Observer) -> Job:
    recipes = find_recipes(request.recipes)
    architectures = plain_architectures(request.architectures)
    patchset, manifest = recipes.patchset(request.variant)
    choice = choose(recipes, request.toolkit)
    observer.note(f"toolchain {choice.toolchain.name}: {choice.reason}")
    work = Workspace(request.work)
    work.prepare()
    make_folder(request.out, "--out")
    return Job(
        patchset=patchset,
        manifest=manifest,
        choice=choice,
        architectures=architectures,
        accept=request.accept,
        book=read_book(recipes) if choice.toolchain.cuda or request.accept else Book.empty(),
        jobs=request.jobs,
        cache=request.cache,
        work=work,
        folder=work.run(patchset.name, choice.toolchain.name, architectures),
        runner=Runner(observer),
    )


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    return error.exit_code if isinstance(error, SparkbuildError) else EXIT_INTERRUPTED


def _machine() -> dict[str, str]:
    from sparkbuild.report.machine import machine_facts

    return machine_facts()


def _wheel(known: Known) -> FileRef | None:
    return FileRef(path=known.wheel.path, sha256=known.wheel.sha256) if known.wheel else None


def _write(report: Report, job: Job, out: Path, known: Known) -> tuple[Path, ...]:
    """Write the report beside the run's logs and, with the wheel, to the output folder."""
    from sparkbuild.report.json_report import encode
    from sparkbuild.report.junit import junit_xml

    name = f"{job.folder.name}-report"
    texts = {".json": encode(report), ".xml": junit_xml(report)}
    written = []
    for suffix, text in texts.items():
        write_atomic(job.folder / f"report{suffix}", text)
        write_atomic(out / f"{name}{suffix}", text)
        written.append(out / f"{name}{suffix}")
    if known.wheel is not None:
        wheel = Path(known.wheel.path)
        target = out / wheel.name
        if not (target.is_file() and _same(wheel, target)):
            partial = target.with_name(f".{target.name}.part")
            shutil.copyfile(wheel, partial)
            partial.replace(target)
        written.insert(0, target)
    return tuple(written)


def _signers(request: Request) -> list[SigningKey]:
    """The keys that are to sign. Raises TrustError where one cannot."""
    if not request.sign:
        return []
    from sparkbuild.package.keys import read_private

    now = dt.datetime.now(dt.UTC)
    return [read_private(path, now=now) for path in request.sign]


def _sign(request: Request, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Sign the wheel in the output folder, with the report that was written there."""
    from sparkbuild.package.signed import sign_wheel

    (wheel,) = [path for path in files if path.suffix == ".whl"]
    (report,) = [path for path in files if path.suffix == ".json"]
    return sign_wheel(wheel, report, _signers(request), now=dt.datetime.now(dt.UTC))


def _same(a: Path, b: Path) -> bool:
    from sparkbuild.files import sha256_file

    return a.stat().st_size == b.stat().st_size and sha256_file(a) == sha256_file(b)
