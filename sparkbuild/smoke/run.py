"""Run a smoke suite against a directory of binaries: every check that can run does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx

from sparkbuild.errors import DiskFullError, SmokeError, SparkbuildError
from sparkbuild.llama.memory import MIB
from sparkbuild.llama.server import Limits, Server, running, tail
from sparkbuild.smoke import checks, tiny
from sparkbuild.smoke.checks import Checker
from sparkbuild.smoke.compare import Comparisons
from sparkbuild.smoke.context import Context
from sparkbuild.smoke.model import Check, SmokeReport
from sparkbuild.smoke.suite import FOLDER, Suite, load_suite

_SERVER: Final = "llama-server"
_DEATH_WAIT: Final = 1.0
"""Seconds in which a server that dropped a connection is seen to have died."""


def smoke(
    executables_dir: Path,
    *,
    suite: str,
    build: int | None,
    identity: str,
    workdir: Path,
    log: Path,
    on_check: Callable[[Check], None],
    suites: Path = FOLDER,
) -> SmokeReport:
    """Start the binaries, compare what they say with the suite, and leave nothing behind.

    ``build`` (None where the pin does not know it) and ``identity`` are what the binaries must
    call themselves; ``workdir`` keeps the model, ``log`` is the server's, made fresh; ``suites``
    holds the suite. Only the main thread may call this. Raises SmokeError with every failing
    check, and the report so far as its ``report``.
    """
    loaded, logprobs = load_suite(suite, folder=suites)
    context = Context(
        suite=loaded,
        logprobs=logprobs,
        executable=executables_dir / _SERVER,
        model=workdir / "models" / tiny.FILE,
        build=build,
        identity=identity,
        log=log,
    )
    recorder = Recorder(context, on_check)
    log.unlink(missing_ok=True)
    with _shortage_kept(context), contextlib.ExitStack() as stack:
        recorder.run(Checker(name="model", expected="", function=_model, needs_server=False))
        if recorder.done[-1].passed:
            recorder.run(_starter(stack, workdir / "server"))
        else:
            context.absence = "it was not started: there is no model"
        for checker in checks.CHECKS:
            recorder.run(checker)
    report = SmokeReport(suite=suite, model_sha256=loaded.model.sha256, checks=tuple(recorder.done))
    if context.short or not report.passed:
        raise _refusal(report, context)
    return report


class Recorder:
    """Runs checks one after another; whatever one meets becomes its finding."""

    def __init__(self, context: Context, on_check: Callable[[Check], None]) -> None:
        self.context = context
        self.done: list[Check] = []
        self._on_check = on_check

    def run(self, checker: Checker) -> None:
        """Run one check, keep it and tell of it."""
        started = time.monotonic()
        compare = Comparisons(checker.expected)
        passed, found = self._outcome(checker, compare)
        check = Check(
            name=checker.name,
            passed=passed,
            seconds=round(time.monotonic() - started, 3),
            expected=compare.expected,
            found=found,
            evidence=(str(self.context.log),) if self.context.log.exists() else (),
        )
        self.done.append(check)
        self._on_check(check)

    def _outcome(self, checker: Checker, compare: Comparisons) -> tuple[bool, str]:
        server = self.context.server
        if checker.needs_server and server is None:
            return False, f"not asked, there is no server: {self.context.absence}"
        if checker.needs_server and server is not None and checker.name != "end":
            how = server.died()
            if how:
                return False, f"not asked, the server has ended: {how}"
        try:
            summary = checker.function(self.context, compare)
        except DiskFullError:
            raise  # says nothing of the binaries
        except SparkbuildError as error:
            return False, "; ".join([error.message, *error.problems])
        except httpx.TransportError as error:
            return False, f"{type(error).__name__}: {error}{_death(server)}"
        except Exception as error:  # noqa: BLE001 - whatever a server can provoke is a finding
            return False, f"{type(error).__name__}: {error}"
        return compare.passed, compare.found(summary)


def _death(server: Server | None) -> str:
    """What became of a server that stopped answering; empty where it still lives."""
    if server is None:
        return ""
    deadline = time.monotonic() + _DEATH_WAIT
    while not server.died() and time.monotonic() < deadline:
        time.sleep(0.02)
    return f"; the server has ended: {server.died()}" if server.died() else ""


@contextlib.contextmanager
def _shortage_kept(context: Context) -> Iterator[None]:
    """Keep what the memory guard's strike raises at the server's end: checks are reported too."""
    try:
        yield
    except SmokeError as error:
        if not error.short_of_memory:
            raise
        context.short = error


def _model(context: Context, compare: Comparisons) -> str:
    wanted = context.suite.model.sha256
    compare.expected = f"sha256 {wanted}"
    path = tiny.ensure(context.model.parent, sha256=wanted)
    compare.equal("file", context.model, path)
    return f"{path.name}, sha256 {wanted}"


def _starter(stack: contextlib.ExitStack, scratch: Path) -> Checker:
    def start(context: Context, compare: Comparisons) -> str:
        limits = _limits(context.suite)
        compare.expected = f"/health ok within {limits.start:g} s"
        started = time.monotonic()
        try:
            context.server = stack.enter_context(
                running(
                    context.executable,
                    context.suite.server.flags,
                    model=context.model,
                    scratch=scratch,
                    log=context.log,
                    limits=limits,
                )
            )
        except SparkbuildError as error:
            context.absence = error.message
            if isinstance(error, SmokeError) and error.short_of_memory:
                context.short = error
            raise
        compare.equal("state", "ready", context.server.state())
        return f"healthy after {time.monotonic() - started:.2f} s, port {context.server.port}"

    return Checker(name="start", expected="", function=start, needs_server=False)


def _limits(suite: Suite) -> Limits:
    return Limits(
        start=suite.server.start.limit,
        request=suite.server.request.limit,
        stop=suite.server.stop.limit,
        memory=suite.memory.wait.limit,
        missing=int(suite.memory.missing.limit) * MIB,
    )


def _refusal(report: SmokeReport, context: Context) -> SmokeError:
    failed = [check for check in report.checks if not check.passed]
    short = context.short
    told = f"{len(failed)} of {len(report.checks)} smoke checks of suite {report.suite} failed"
    error = SmokeError(
        f"{told}: {short.message}" if short else told,
        problems=[
            *(short.problems if short and context.server else ()),  # else "start" has found them
            *(f"{c.name}: expected {c.expected}, found {c.found}" for c in failed),
        ],
        evidence=[context.log] if context.log.exists() else [],
        next_step=short.next_step if short else f"read {context.log}; do not use these binaries",
        detail=tail(context.log),
    )
    error.short_of_memory = short is not None
    error.report = report
    return error
