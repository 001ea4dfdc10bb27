"""Ask a point one of the product's own checks: a stage of ``make``, or a check of smoke by name."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sparkbuild.bisect_ground import Point
from sparkbuild.bisect_work import Answer
from sparkbuild.errors import EXIT_INTERRUPTED, HostError
from sparkbuild.files import write_atomic
from sparkbuild.nightly.judge import MACHINE_FAULTS
from sparkbuild.nightly.read import document_in, read
from sparkbuild.nightly.search import Verdict
from sparkbuild.nightly_step import command
from sparkbuild.stages import STAGES


@dataclass(frozen=True, kw_only=True)
class Made:
    """How points are made: as a person would, with recipes that were carried to each.

    ``check`` is a stage, or the name of a smoke check as the report has it.
    """

    variant: str
    toolkit: str
    check: str
    recipes: Path
    work: Path
    minutes: float
    jobs: int | None = None
    cache: Path | None = None
    program: tuple[str, ...] = (sys.executable, "-m", "sparkbuild")

    def ask(self, point: Point, place: Path) -> Answer:
        """Carry the patches to the point and make it. Raises HostError for a machine's fault."""
        recipes, tree = place / "recipes", place / "refresh"
        for old in (recipes, tree):
            shutil.rmtree(old, ignore_errors=True)
        for name in ("patchsets", "toolchains"):
            shutil.copytree(self.recipes / name, recipes / name)
        words = ["patch", "refresh", "--variant", self.variant, "--base", point.ref]
        begin = [*words, "--out", str(tree), "--recipes", str(recipes)]
        for number, line in enumerate((begin, ["patch", "refresh", "--continue", str(tree)])):
            code, document, log = self._run(line, place / f"refresh-{number}.log")
            if code != 0:
                verdict: Verdict = "bad" if self.check == "patches" else "skip"
                why = read("refresh", document).wrong or f"patch refresh ended with {code}"
                return Answer(point=point.name, verdict=verdict, reason=why, log=str(log),
                              check="patches")  # fmt: skip
        line = ["make", "--variant", self.variant, "--toolkit", self.toolkit, "--recipes",
                str(recipes), "--out", str(place / "out"),
                *(["--jobs", str(self.jobs)] if self.jobs else []),
                *(["--cache", str(self.cache)] if self.cache else [])]  # fmt: skip
        code, document, log = self._run(line, place / "make.log")
        report = place / "report.json"
        write_atomic(report, msgspec.json.format(msgspec.json.encode(document)))
        answer = judged(document, self.check)
        return msgspec.structs.replace(
            answer, point=point.name, log=str(log), report=str(report),
            commit=str(document.get("key") or ""),
        )  # fmt: skip

    def _run(self, words: list[str], log: Path) -> tuple[int, dict[str, Any], Path]:
        argv = [*self.program, *words, "--work", str(self.work), "--json"]
        ended = command(argv, log, time.monotonic() + self.minutes * 60)
        document = document_in(log.read_text(encoding="utf-8", errors="replace")) or {}
        code = ended.code
        if code is None or code < 0 or code in {*MACHINE_FAULTS, EXIT_INTERRUPTED} or not document:
            told = (
                f"no end within {self.minutes:g} minutes" if code is None else f"ended with {code}"
            )
            raise HostError(
                f"the machine kept {words[0]} from an answer: {told}",
                problems=[read("make", document).wrong] if document else [],
                evidence=[log],
                next_step="see to the machine; the same command then goes on",
            )
        return code, document, log


def judged(document: Mapping[str, Any], check: str) -> Answer:
    """What a report of ``make`` says of one check; skipped where it never came to it."""
    told = read("make", document)
    failed = STAGES.index(told.stage) if told.stage in STAGES else len(STAGES)
    if check in STAGES:
        asked = STAGES.index(check)
        if failed < asked:
            return _skip(f"stage {told.stage} failed before it: {told.wrong}")
        if failed == asked:
            return Answer(point="", verdict="bad", reason=told.wrong, check=told.check or check)
        return Answer(point="", verdict="good")
    for one in document.get("smoke_checks", ()):
        if one["name"] == check:
            wrong = f"expected {one['expected']}, found {one['found']}"
            good = bool(one["passed"])
            return Answer(
                point="", verdict="good" if good else "bad", reason="" if good else wrong,
                check="" if good else check,
            )  # fmt: skip
    reason = told.wrong or "its suite has no such check"
    return _skip(f"no smoke check {check!r} was made: {reason}")


def _skip(reason: str) -> Answer:
    return Answer(point="", verdict="skip", reason=reason)
