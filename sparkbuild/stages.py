"""Run one stage: reuse a finished result for the same inputs, or run, record and report it."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from sparkbuild.errors import EXIT_INTERRUPTED, InternalError, SparkbuildError
from sparkbuild.files import (
    digest_of,
    disk_full,
    fingerprint,
    sha256_bytes,
    sha256_file,
    write_atomic,
)
from sparkbuild.report.model import Failure, FileRef, StageReport, State

STAGES: Final = (
    "toolkit",
    "source",
    "patches",
    "qualify",
    "configure",
    "build",
    "inspect",
    "smoke",
    "package",
)
"""The nine stages, in order."""

_RECORD_SCHEMA: Final = 1

T = TypeVar("T", bound=msgspec.Struct)


class Observer(Protocol):
    """Whoever watches a run: the terminal, or nobody."""

    def started(self, stage: str) -> None:
        """A stage begins."""

    def progress(self, done: int, total: int, text: str) -> None:
        """``done`` of ``total`` units of the running stage; ``text`` is what goes on now."""

    def note(self, text: str) -> None:
        """Something that must be seen even when all is well."""

    def finished(self, report: StageReport) -> None:
        """A stage ended, well or not."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A finished stage on disk; written last, so that its presence means it finished."""

    schema: int
    inputs: dict[str, str]
    fingerprint: str
    """Of the files in ``watched``, as they were when the stage ended."""
    watched: tuple[str, ...]
    result: msgspec.Raw
    report: StageReport


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage's report says beyond its result."""

    summary: str
    outputs: tuple[Path, ...] = ()
    """Files whose presence, unchanged, the result stands for."""
    evidence: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    state: State = "done"


class Runner:
    """Runs stages one after another and keeps their reports."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.reports: list[StageReport] = []

    def always(
        self,
        name: str,
        action: Callable[[], T],
        describe: Callable[[T], Outcome],
        *,
        inputs: Mapping[str, str],
    ) -> T:
        """A stage that is cheap to repeat and checks by itself what it may reuse."""
        return self._run(name, action, describe, dict(inputs))[0]

    def resumable(
        self,
        name: str,
        record: Path,
        kind: type[T],
        action: Callable[[], T],
        describe: Callable[[T], Outcome],
        *,
        inputs: Mapping[str, str],
    ) -> T:
        """A stage whose finished result is reused while its inputs and its files are unchanged."""
        wanted = {**inputs, "sparkbuild": code_digest(name)}
        reused = _read(record, wanted, kind)
        if reused is not None:
            result, report = reused
            self.observer.started(name)
            self._keep(msgspec.structs.replace(report, state="reused", seconds=0.0))
            return result
        record.unlink(missing_ok=True)
        result, report, outcome = self._run(name, action, describe, wanted)
        watched = tuple(sorted(str(path) for path in outcome.outputs))
        entry = _Record(
            schema=_RECORD_SCHEMA,
            inputs=wanted,
            fingerprint=fingerprint(map(Path, watched)),
            watched=watched,
            result=msgspec.Raw(msgspec.json.encode(result)),
            report=report,
        )
        write_atomic(record, msgspec.json.format(msgspec.json.encode(entry)))
        return result

    def not_reached(self) -> tuple[StageReport, ...]:
        """Reports for the stages that never began."""
        return tuple(
            StageReport(name=name, state="not reached", seconds=0.0, summary="")
            for name in STAGES[len(self.reports) :]
        )

    def _run(
        self,
        name: str,
        action: Callable[[], T],
        describe: Callable[[T], Outcome],
        inputs: dict[str, str],
    ) -> tuple[T, StageReport, Outcome]:
        self.observer.started(name)
        started = time.monotonic()
        try:
            result = action()
            outcome = describe(result)
            outputs = tuple(
                FileRef(path=str(path), sha256=sha256_file(path)) for path in outcome.outputs
            )
        except BaseException as error:
            refusal = _as_refusal(error)
            seconds = time.monotonic() - started
            self._keep(_failed(name, seconds, inputs, refusal))
            if refusal is error or not isinstance(error, Exception):
                raise
            raise refusal from error
        report = StageReport(
            name=name,
            state=outcome.state,
            seconds=round(time.monotonic() - started, 3),
            summary=outcome.summary,
            inputs=inputs,
            result=_digest(result),
            outputs=outputs,
            evidence=tuple(str(path) for path in outcome.evidence),
            notes=outcome.notes,
        )
        self._keep(report)
        return result, report, outcome

    def _keep(self, report: StageReport) -> None:
        self.reports.append(report)
        self.observer.finished(report)


def code_digest(stage: str) -> str:
    """Digest of the code that makes a stage's result, so that a mended sparkbuild runs it again."""
    package = Path(__file__).parent
    room = {"configure": "build", "inspect": "build"}.get(stage, stage)
    files = sorted((package / room).rglob("*"))
    if room == "build":
        files.append(package / "fatbin.py")  # what inspect believes of GPU code
    if room == "smoke":
        files += _asking(package)
    return digest_of(
        {
            str(file.relative_to(package)): sha256_bytes(file.read_bytes())
            for file in files
            if file.is_file() and file.suffix != ".pyc"
        }
    )


def _asking(package: Path) -> list[Path]:
    """What the canaries are asked with; the catalogue has the digests of their files."""
    code = [*(package / "canary").rglob("*.py"), *(package / "llama").rglob("*")]
    work = [*package.glob("canary_*.py"), *package.glob("smoke_*.py")]
    return sorted([*code, *work, package / "canary/data/catalogue.toml"])


def read_record(record: Path, kind: type[T]) -> T:
    """The result that a record holds, believed as it is. Raises OSError, msgspec.DecodeError."""
    entry = msgspec.json.decode(record.read_bytes(), type=_Record)
    return msgspec.json.decode(entry.result, type=kind)


def _read(record: Path, wanted: Mapping[str, str], kind: type[T]) -> tuple[T, StageReport] | None:
    try:
        entry = msgspec.json.decode(record.read_bytes(), type=_Record)
        if entry.schema != _RECORD_SCHEMA or entry.inputs != wanted:
            return None
        if fingerprint(map(Path, entry.watched)) != entry.fingerprint:
            return None
        result = msgspec.json.decode(entry.result, type=kind)
        # What was edited by hand, or written by other code, is not what the stage gave.
        return (result, entry.report) if _digest(result) == entry.report.result else None
    except (OSError, msgspec.DecodeError):
        return None


def _digest(result: object) -> str:
    """Of a stage's result as it is read back, where a number 0 of a float field is 0.0."""
    read_back = msgspec.convert(msgspec.to_builtins(result), type(result))
    return digest_of({"result": msgspec.to_builtins(read_back)})


def _as_refusal(error: BaseException) -> SparkbuildError:
    if isinstance(error, SparkbuildError):
        return error
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return disk_full(Path(error.filename) if error.filename else Path.cwd())
    if isinstance(error, KeyboardInterrupt):
        return SparkbuildError("interrupted", next_step="run the same command again to go on")
    return defect(error)


def defect(error: BaseException) -> InternalError:
    """An exception that nobody foresaw, as a refusal with its traceback."""
    return InternalError(
        f"{type(error).__name__}: {error}",
        detail="".join(traceback.format_exception(error)),
        next_step="this is a defect of sparkbuild: please report it with the text above",
    )


def _failed(
    name: str, seconds: float, inputs: dict[str, str], refusal: SparkbuildError
) -> StageReport:
    return StageReport(
        name=name,
        state="failed",
        seconds=round(seconds, 3),
        summary=refusal.message,
        inputs=inputs,
        evidence=tuple(str(path) for path in refusal.evidence),
        failure=failure_of(refusal),
    )


def failure_of(refusal: SparkbuildError) -> Failure:
    """A refusal as reports hold it; what is no refusal of ours was an interrupt."""
    interrupted = type(refusal) is SparkbuildError
    return Failure(
        title="interrupted" if interrupted else refusal.title,
        exit_code=EXIT_INTERRUPTED if interrupted else refusal.exit_code,
        message=refusal.message,
        problems=refusal.problems,
        next_step=refusal.next_step,
        detail=refusal.detail,
    )


def paths(values: Sequence[str | Path]) -> tuple[Path, ...]:
    """Strings of a result as paths."""
    return tuple(Path(value) for value in values)
