"""One start of a server: what it is asked, its log, and how it went."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.canary.model import Backend
from sparkbuild.errors import SmokeError
from sparkbuild.llama.log import Context
from sparkbuild.llama.memory import MIB
from sparkbuild.llama.server import Limits, running
from sparkbuild.smoke.served import around, drafting
from sparkbuild.smoke.served.book import Book
from sparkbuild.smoke.served.flags import flags
from sparkbuild.smoke.served.session import Recorder, Seen, Session
from sparkbuild.smoke.served.suite import Suite, Way
from sparkbuild.smoke.served.talk import Talk

GUARD: Final = "memory guard"
START: Final = "start"
CAN_DRAFT: Final = "a build that can draft with this model"
_LAYERS: Final[dict[Backend, int]] = {"cpu": 0, "cuda": 99}
_NO_JIT: Final = {"CUDA_DISABLE_PTX_JIT": "1"}
"""A build without code for this very GPU must fail at once, not be compiled by the driver."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What every start of one run shares."""

    suite: Suite
    server: Path
    """llama-server."""
    model: Path
    mmproj: Path | None
    backend: Backend
    context: int
    more: tuple[str, ...]
    """Flags after all others."""
    pin: tuple[int | None, str]
    """Build number and commit that the server has to name."""
    book: Book
    recorder: Recorder


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to serve: with pictures or without, with drafts of a depth or (0) without."""

    name: str
    way: Way
    pictures: bool = False
    depth: int = 0

    @property
    def file(self) -> str:
        """Its name as that of a file."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.casefold()).strip("-")

    def context(self, backend: Backend) -> frozenset[Context]:
        """What lines of its log mean depends on it."""
        told: dict[Context, bool] = {
            "pictures": self.pictures,
            "drafts": self.depth > 0,
            "cuda": backend == "cuda",
        }
        return frozenset(name for name, holds in told.items() if holds)


def serve(bench: Bench, arm: Arm, ask: Callable[[Session], None]) -> bool:
    """Start a server, ask it, end it; False where the memory guard ended it.

    Only the main thread may call this.
    """
    suite, recorder = bench.suite, bench.recorder
    log = bench.book.folder / "logs" / f"{arm.file}.log"
    started = time.monotonic()
    try:
        with running(
            bench.server,
            _flags(bench, arm),
            model=bench.model,
            scratch=bench.book.folder / "server",
            log=log,
            limits=_limits(suite),
            environment={**_NO_JIT, **suite.server.environment, **arm.way.environment},
        ) as server:
            seconds = time.monotonic() - started
            well = Seen(well=f"healthy after {seconds:.1f} s", figures={"start seconds": seconds})
            recorder.add(arm.name, START, "health", "ok, started from /", well, seconds)
            talk = Talk(server, arm.name, suite.request, bench.book)
            session = Session(
                way=arm.name, suite=suite, server=server, talk=talk, book=bench.book,
                recorder=recorder, log=log,
            )  # fmt: skip
            around.alive(session, pictures=arm.pictures, pin=bench.pin)
            ask(session)
            ending = server.stop()
        around.gone(recorder, suite, arm.name, log, ending)
    except SmokeError as error:
        if not _kept(bench, arm, log, error):
            return True
        if error.short_of_memory:
            return False
    around.read_log(recorder, suite, arm.name, log, arm.context(bench.backend))
    return True


def _kept(bench: Bench, arm: Arm, log: Path, error: SmokeError) -> bool:
    """Keep why a server did not come up or was ended; False where that is no failure."""
    reason = drafting.unsupported(log) if arm.depth and not error.short_of_memory else ""
    if reason:
        found = Seen(unsupported=reason, evidence=(str(log),))
        bench.recorder.add(arm.name, drafting.DRAFTS, "drafts", CAN_DRAFT, found)
        return False
    told = "; ".join([error.message, *error.problems])
    last = next((line for line in reversed(error.detail.splitlines()) if line.strip()), "")
    told += f"; its log ends with: {last}" if last else ""
    group = GUARD if error.short_of_memory else START
    found = Seen(wrong=told, evidence=(str(log),))
    expected = "a server that is healthy, and stays so"
    bench.recorder.add(arm.name, group, "health", expected, found)
    return True


def _flags(bench: Bench, arm: Arm) -> list[str]:
    return flags(
        bench.suite,
        arm.way,
        context=bench.context,
        vision=bench.mmproj if arm.pictures else None,
        layers=_LAYERS[bench.backend],
        depth=arm.depth,
        more=bench.more,
    )


def _limits(suite: Suite) -> Limits:
    server = suite.server
    return Limits(
        start=server.start.limit,
        request=server.request.limit,
        stop=server.stop.limit,
        memory=server.wait.limit,
        missing=int(server.missing.limit) * MIB,
    )
