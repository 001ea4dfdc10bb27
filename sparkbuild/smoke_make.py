"""The smoke stage of ``make``: sparkbuild's own model, then every canary, as one list of checks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.canary.catalogue import DATA, verify
from sparkbuild.canary.forms import backend_flags, programs
from sparkbuild.canary.model import Backend, CanaryReport, DraftCheck
from sparkbuild.canary_desk import Desk
from sparkbuild.errors import HostError, SmokeError
from sparkbuild.files import write_atomic
from sparkbuild.manifest import Ability
from sparkbuild.report.canaries import wrong_items
from sparkbuild.report.model import StageReport
from sparkbuild.report.smoke import Fitting, Part, Smoked
from sparkbuild.smoke.model import Check, SmokeReport
from sparkbuild.smoke.plan import FOLDER as PLANS
from sparkbuild.smoke.plan import load_plan, names
from sparkbuild.smoke.run import smoke
from sparkbuild.smoke_pool import processes
from sparkbuild.smoke_work import answer, exit_code, run_plan
from sparkbuild.stages import Observer

_FOUND: Final = "canaries.json"
_SHOWN: Final = 3
"""Wrong items of a group that a check quotes; all are in the file."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A build that has to tell the truth.

    ``suite`` is a plan's name, or that of a suite of ``suites/`` alone; ``build`` (None where the
    pin does not know it) and ``identity`` are what the programs must call themselves; ``cuda`` says
    that they compute on a GPU where there is one; ``abilities`` are what the patches bring.
    """

    binaries: Path
    suite: str
    build: int | None
    identity: str
    cuda: bool
    workdir: Path
    log: Path
    variant: str = ""
    """What the build is of, where its patches bring abilities."""
    abilities: frozenset[Ability] = frozenset()


def smoke_build(
    asked: Asked, *, on_check: Callable[[Check], None], observer: Observer
) -> SmokeReport:
    """Every check of a suite; what canaries were asked is kept in full beside the log.

    Only the main thread may call this. Raises SmokeError with every failing check, and the report
    so far as its ``report``.
    """
    plan = load_plan(PLANS / f"{asked.suite}.toml") if asked.suite in names() else None
    basics = plan.basics if plan else asked.suite
    done: list[Check] = []

    def told(check: Check) -> None:
        done.append(check)
        on_check(check)

    sha256, backend = "", "cpu"
    if basics:
        sha256 = smoke(
            asked.binaries,
            suite=basics,
            build=asked.build,
            identity=asked.identity,
            workdir=asked.workdir,
            log=asked.log,
            on_check=told,
        ).model_sha256
    if plan:
        catalogue = verify(DATA, names=tuple(entry.canary for entry in plan.passes))
        desk = _desk(asked, observer)
        backend = desk.backend
        plan = msgspec.structs.replace(plan, basics=None)
        file = PLANS / f"{asked.suite}.toml"
        found = run_plan(desk, catalogue, plan, file=file, at_once=processes(), diagnose=False)
        kept = asked.log.with_name(_FOUND)
        write_atomic(kept, msgspec.json.encode(answer(found, exit_code(found))))
        for check in checks(found, kept, desk.root):
            told(check)
        # Derived files are made again in a few seconds; of the largest canary they are 300 MB.
        for folder in desk.root.glob("*/forms"):
            shutil.rmtree(folder, ignore_errors=True)
    report = SmokeReport(suite=asked.suite, model_sha256=sha256, checks=tuple(done))
    if not report.passed:
        raise _refusal(report, asked, backend)
    return report


def checks(found: Smoked, kept: Path, root: Path) -> Iterator[Check]:
    """A plan's findings as checks, one for each group of questions; ``root`` holds the logs."""
    for fitting in found.fitting:
        yield _fits(fitting, kept)
    for part in found.parts:
        for what, failure in part.result.failures.items():
            yield Check(
                name=f"{part.name} {what}",
                passed=False,
                seconds=0.0,
                expected="an answer",
                found="; ".join([failure.message, *failure.problems]),
                evidence=(str(kept),),
            )
        evidence = (str(kept), str(root / part.result.canary / "logs"))
        for ran in part.result.ran:
            yield from _groups(part, ran, evidence)
        for check in part.result.drafts:
            yield _drafts(part, check, evidence)


def _fits(fitting: Fitting, kept: Path) -> Check:
    faults = "; ".join(f"{one.name}: {one.found}" for one in fitting.faults)
    return Check(
        name=f"{fitting.canary} fits the build",
        passed=not fitting.faults,
        seconds=0.0,
        expected="no fault before the start",
        found=faults or f"{fitting.checks} things looked at",
        evidence=(str(kept),),
    )


def _groups(part: Part, ran: CanaryReport, evidence: tuple[str, ...]) -> Iterator[Check]:
    for group in ran.groups:
        wrong = [item for item in wrong_items(ran) if item.group == group.name]
        told = [f"{one.name}: expected {one.expected}, found {one.found}" for one in wrong[:_SHOWN]]
        yield Check(
            name=f"{part.name} {ran.form}: {group.name}",
            passed=group.passed,
            seconds=round(sum(one.seconds for one in ran.items if one.group == group.name), 3),
            expected=f"at least {group.minimum:.0%} of {group.of}",
            found="; ".join([f"{group.right} of {group.of}", *told]),
            evidence=evidence,
        )


def _drafts(part: Part, check: DraftCheck, evidence: tuple[str, ...]) -> Check:
    sign = "at least" if check.head == "healthy" else "at most"
    count = f"{check.accepted} of {check.drafted} accepted, {check.wrong} answers changed"
    others = f"; not as recorded: {', '.join(check.others)}" if check.others else ""
    unsupported = check.state == "unsupported"
    return Check(
        name=f"{part.name} drafts: depth {check.depth}, {check.how}",
        passed=check.passed,
        seconds=0.0,
        expected=f"{sign} {check.bound:.1%} accepted, or no graph for drafts",
        found=f"unsupported: {check.reason}" if unsupported else count + others,
        evidence=evidence,
    )


def _desk(asked: Asked, observer: Observer) -> Desk:
    found = programs(asked.binaries)
    backend: Backend = "cpu"
    if asked.cuda:
        try:
            backend_flags(found.server, "cuda")
            backend = "cuda"
        except HostError as error:
            observer.note(f"canaries are computed on the CPU: {error.message}")
    return Desk(
        data=DATA,
        programs=found,
        root=asked.workdir / "canaries",
        live=_Inside(observer),
        backend=backend,
        abilities=asked.abilities,
    )


class _Inside:
    """Units of the canaries inside a stage, which has one bar and one closing line."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._name = observer, ""

    def started(self, stage: str) -> None:
        """See Observer."""
        self._name = stage

    def progress(self, done: int, total: int, text: str) -> None:
        """See Observer."""
        self._observer.progress(done, total, text or self._name)

    def note(self, text: str) -> None:
        """See Observer."""
        self._observer.note(text)

    def finished(self, report: StageReport) -> None:
        """See Observer; what is well needs no line of its own."""
        if report.state == "failed":
            self._observer.note(f"{report.name}: {report.summary}")


def _refusal(report: SmokeReport, asked: Asked, backend: str) -> SmokeError:
    failed = [check for check in report.checks if not check.passed]
    kept = asked.log.with_name(_FOUND)
    # A fault of the GPU's kernels would not be found on the CPU.
    where = "" if backend == "cpu" else f" --backend {backend}"
    where += f" --variant {asked.variant}" if asked.abilities else ""
    error = SmokeError(
        f"{len(failed)} of {len(report.checks)} smoke checks of suite {report.suite} failed",
        problems=[f"{one.name}: expected {one.expected}, found {one.found}" for one in failed],
        evidence=[kept] if kept.exists() else [asked.log],
        next_step=f"sparkbuild smoke {asked.binaries}{where} --diagnose; do not use these binaries",
    )
    error.report = report
    return error
