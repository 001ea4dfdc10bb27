"""Run the suite on perturbed copies: what one worker process does."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild import process
from sparkbuild.canary.audit.records import Probe, Role, judged, moved
from sparkbuild.canary.drafts import acceptance, others_than, unasked
from sparkbuild.canary.drafts import judged as judged_drafts
from sparkbuild.canary.gguf.spoil import Spoil, spoilt
from sparkbuild.canary.model import Acceptance
from sparkbuild.canary.run import Setup, canary
from sparkbuild.canary.suite import Band, load_suite
from sparkbuild.errors import SmokeError

ONE_IN: Final = 12
"""Of the answers, asked with drafts first: one after another they take long."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all perturbations have in common: the suite, the healthy float32 files, the server."""

    suite: Path
    setup: Setup
    workdir: Path
    quick: bool = True
    """Whether the first check that notices a perturbation is enough, or all are asked."""
    healthy: Mapping[str, float | None] = field(default_factory=dict)
    """NMSE by reference of the files as they are: what a perturbation's are compared with."""


class Worker:
    """Copies of the healthy files, perturbed in place and restored again and again."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._suite, self._limits = load_suite(bench.suite)
        self._healthy: Acceptance | None = None
        folder = bench.workdir / f"worker-{os.getpid()}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._files: dict[Role, Path] = {"model": _copied(bench.setup.model, folder)}
        if bench.setup.vision:
            self._files["vision"] = _copied(bench.setup.vision, folder)
        self._setup = replace(
            bench.setup,
            model=self._files["model"],
            vision=self._files.get("vision"),
            scratch=folder / "server",
            log=folder / "server.log",
        )

    def healthy(self) -> Probe:
        """The suite on the copies as they are."""
        nothing = Probe(key="", role="model", target="", kind="changed", detail="")
        return self._tried(nothing, self._asked)

    def probe(self, wanted: Probe) -> Probe:
        """The suite on one perturbation; of the draft block's, drafts of some answers."""
        if wanted.drafts and self._healthy is None:
            self._healthy = self._accepted(one_in=1)
        spoil = Spoil(target=wanted.target, kind=wanted.kind, detail=wanted.detail)
        with spoilt(self._files[wanted.role], spoil):
            return self._tried(wanted, self._drafted if wanted.drafts else self._asked)

    def _tried(self, wanted: Probe, ask: Callable[[Probe], Probe]) -> Probe:
        """What ``ask`` finds; a server that does not come up is a finding too.

        Raises SmokeError where the machine's memory did not do: that says nothing of ``wanted``.
        """
        started = time.monotonic()
        try:
            found = ask(wanted)
        except SmokeError as error:
            if error.short_of_memory:
                error.evidence = ()  # the worker's folder goes; the log's tail is the detail
                raise
            problems = "; ".join([error.message, *error.problems])
            found = msgspec.structs.replace(wanted, refused=problems)
        return msgspec.structs.replace(found, seconds=round(time.monotonic() - started, 3))

    def _drafted(self, wanted: Probe) -> Probe:
        """Drafts of some answers, and of all where those of some are what they were."""
        before = self._healthy.counts if self._healthy else {}
        found = self._accepted(one_in=ONE_IN)
        if not found.wrong and not others_than(before, found):
            found = self._accepted(one_in=1)
        same = not found.wrong and not others_than(before, found)
        check = judged_drafts(found, self._band, "healthy", recorded=self._recorded)
        return msgspec.structs.replace(
            wanted,
            missed={_DRAFTS: 0.0 if same else round(1 - found.share, 4)},
            failed=(_DRAFTS,) if check.state == "failed" else (),
            moved=0.0 if same else None,
        )

    @property
    def _recorded(self) -> Mapping[str, tuple[int, int]] | None:
        """What the exact form's drafts have to be, where that is known of this depth."""
        drafted = self._suite.drafted
        return drafted.counts if drafted and drafted.depth == self._band.depth else None

    @property
    def _band(self) -> Band:
        """The deepest: a chain of drafts shows most."""
        return max(self._limits.drafts, key=lambda band: band.depth)

    def _accepted(self, *, one_in: int) -> Acceptance:
        skip = unasked(self._suite, self._limits, one_in=one_in)
        return acceptance(self._bench.suite, self._setup, depth=self._band.depth, skip=skip)

    def _asked(self, wanted: Probe) -> Probe:
        report = canary(self._bench.suite, self._setup, quick=self._bench.quick)
        nmse, failed, missed = judged(report)
        return msgspec.structs.replace(
            wanted,
            nmse=nmse,
            moved=moved(nmse, self._bench.healthy),
            failed=failed,
            missed=missed,
        )


_DRAFTS: Final = "drafts"


class _Here:
    """The worker of this process: a pool calls functions, not methods of what lives elsewhere."""

    worker: Worker | None = None


def prepare(bench: Bench) -> None:
    """Begin as a worker process, which ends with its parent."""
    process.end_with_parent()
    _Here.worker = Worker(bench)


def probe(wanted: Probe) -> Probe:
    """Probe one perturbation in a worker process."""
    assert _Here.worker is not None  # noqa: S101 - the pool has called prepare
    return _Here.worker.probe(wanted)


def _copied(file: Path, folder: Path) -> Path:
    return Path(shutil.copyfile(file, folder / file.name))
