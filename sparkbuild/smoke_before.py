"""What ``sparkbuild smoke`` asks besides the canaries: do they fit, and does the server behave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from sparkbuild import process
from sparkbuild.canary.catalogue import Canary
from sparkbuild.canary.suite import load_suite
from sparkbuild.canary_desk import Desk
from sparkbuild.errors import PackageError, SmokeError
from sparkbuild.model.asked import Asked, Machine, this_machine
from sparkbuild.model.build import Build, read_build
from sparkbuild.model.fit import fit
from sparkbuild.model.read import read_model
from sparkbuild.report.model import StageReport
from sparkbuild.report.smoke import Fitting
from sparkbuild.smoke.identity import parse_version
from sparkbuild.smoke.model import Check, SmokeReport
from sparkbuild.smoke.run import smoke

_INFO = "build-info.json"
"""What a wheel says of itself, beside its ``bin``."""


class _Source(msgspec.Struct, frozen=True):
    build: int | None
    identity: str

    @property
    def pin(self) -> tuple[int | None, str]:
        return self.build, self.identity


class _Info(msgspec.Struct, frozen=True):
    source: _Source


def fitting(desk: Desk, entries: Sequence[Canary]) -> tuple[Fitting, ...]:
    """Whether each canary fits the build and this machine: read, nothing is started.

    Raises UsageError or BinaryError where the folder holds no build.
    """
    desk.live.started("before the start")
    build, machine = read_build(desk.programs.server.parent), this_machine()
    found = tuple(_fitting(desk, entry, build, machine) for entry in entries)
    faults = sum(len(one.faults) for one in found)
    summary = f"{len(found)} models, {faults} faults" if faults else f"{len(found)} models fit"
    _ended(desk, "before the start", 0.0, summary, well=not faults)
    return found


def _fitting(desk: Desk, entry: Canary, build: Build, machine: Machine) -> Fitting:
    suite, _ = load_suite(desk.data / entry.suite)
    model = read_model(desk.data / entry.model)
    vision = read_model(desk.data / entry.vision) if entry.vision else None
    asked = Asked(
        context=desk.slots * suite.context, slots=desk.slots, prompt_cache=0, machine=machine
    )
    findings = fit(model, vision, build, asked)
    return Fitting(
        canary=entry.name,
        checks=len(findings),
        findings=tuple(one for one in findings if one.state in {"warning", "fault"}),
    )


def basics(desk: Desk, suite: str) -> SmokeReport:
    """Every check of a suite on sparkbuild's own model: version, key, tokenizer, chat, end.

    Only the main thread may call this. Raises PackageError where a wheel does not say what it is.
    """
    build, identity = pin_of(desk.programs.server)
    done: list[Check] = []

    def told(check: Check) -> None:
        done.append(check)
        desk.live.progress(len(done), 0, check.name)

    desk.live.started(f"suite {suite}")
    folder = desk.root / "basics"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        report = smoke(
            desk.programs.server.parent,
            suite=suite,
            build=build,
            identity=identity,
            workdir=folder,
            log=folder / "server.log",
            on_check=told,
        )
    except SmokeError as error:
        if not isinstance(error.report, SmokeReport):
            raise
        report = error.report
    failed = [check.name for check in report.checks if not check.passed]
    summary = f"failed: {', '.join(failed)}" if failed else f"{len(report.checks)} checks passed"
    seconds = sum(check.seconds for check in report.checks)
    _ended(desk, f"suite {suite}", seconds, summary, well=not failed)
    return report


def pin_of(server: Path) -> tuple[int | None, str]:
    """Build number and commit that the programs have to call themselves.

    A wheel says them beside its programs; of a bare folder the server's own word is taken, which
    its other answers then have to repeat.
    """
    info = server.parent.parent / _INFO
    if info.is_file():
        try:
            return msgspec.json.decode(info.read_bytes(), type=_Info).source.pin
        except msgspec.DecodeError as error:
            raise PackageError(
                f"{info.name} does not say what the programs are",
                problems=[str(error)],
                evidence=[info],
                next_step="name a wheel that sparkbuild make made, or the folder of a build",
            ) from error
    done = process.capture([str(server), "--version"], cwd=Path("/"))
    return parse_version(f"{done.stdout}\n{done.stderr}") or (None, "that it names itself")


def _ended(desk: Desk, name: str, seconds: float, summary: str, *, well: bool) -> None:
    state = "done" if well else "failed"
    desk.live.finished(StageReport(name=name, state=state, seconds=seconds, summary=summary))  # type: ignore[arg-type]
