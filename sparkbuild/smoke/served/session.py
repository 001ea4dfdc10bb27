"""One server in one way to serve: what its checks share, and how each becomes a finding."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeVar

import httpx

from sparkbuild.errors import DiskFullError
from sparkbuild.llama.client import UnexpectedAnswerError
from sparkbuild.llama.server import Server
from sparkbuild.smoke.model import ServedCheck
from sparkbuild.smoke.served.book import Book
from sparkbuild.smoke.served.suite import Suite
from sparkbuild.smoke.served.talk import Reply, Talk
from sparkbuild.smoke.served.words import Wrong

ALIVE: Final = "alive"
_DEATH_WAIT: Final = 1.0
"""Seconds in which a server that dropped a connection is seen to have died."""
_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a check saw; ``wrong`` is empty where all is well."""

    well: str = ""
    wrong: str = ""
    group: str = ""
    """Of what is wrong, where that belongs to another group than the check."""
    unsupported: str = ""
    reason: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()


def seen(wrong: Wrong | None, well: str, **more: float) -> Seen:
    """What came of judging an answer."""
    if wrong is None:
        return Seen(well=well, figures=more)
    return Seen(wrong=wrong.text, group=wrong.group, figures=more)


class Recorder:
    """Keeps every check in order and tells of it."""

    def __init__(self, tell: Callable[[ServedCheck], None]) -> None:
        self.done: list[ServedCheck] = []
        self._tell = tell

    def add(
        self, way: str, group: str, name: str, expected: str, found: Seen, seconds: float = 0.0
    ) -> None:
        """Keep one check."""
        state: Literal["passed", "failed", "unsupported"] = "failed" if found.wrong else "passed"
        check = ServedCheck(
            way=way,
            group=(found.group or group) if found.wrong else group,
            name=name,
            state="unsupported" if found.unsupported else state,
            seconds=round(seconds, 3),
            expected=expected,
            found=found.unsupported or found.wrong or found.well,
            reason=found.reason,
            evidence=found.evidence,
            figures=dict(found.figures),
        )
        self.done.append(check)
        self._tell(check)


@dataclass(kw_only=True)
class Session:
    """A server that is asked, and what it has answered so far."""

    way: str
    suite: Suite
    server: Server
    talk: Talk
    book: Book
    recorder: Recorder
    log: Path
    replies: dict[str, Reply] = field(default_factory=dict)
    """First answers to questions, by name."""
    silent: bool = False

    def check(self, group: str, name: str, expected: str, ask: Callable[[], Seen]) -> None:
        """Make one check; whatever the server provokes is its finding."""
        started = time.monotonic()
        how = self.server.died()
        if how:
            found = Seen(wrong=f"not asked, the server has ended: {how}", group=ALIVE)
        else:
            found = self._asked(ask)
        if found.wrong and not found.evidence:
            found = Seen(**{**found.__dict__, "evidence": (str(self.log),)})
        seconds = time.monotonic() - started
        self.recorder.add(self.way, group, name, expected, found, seconds)

    def _asked(self, ask: Callable[[], Seen]) -> Seen:
        try:
            return ask()
        except DiskFullError:
            raise  # says nothing of the server
        except httpx.TransportError as error:
            wrong = f"{type(error).__name__}: {error}{self._death()}"
            return Seen(wrong=wrong, group=ALIVE)
        except (httpx.HTTPError, UnexpectedAnswerError) as error:
            return Seen(wrong=f"{type(error).__name__}: {error}")

    def _death(self) -> str:
        deadline = time.monotonic() + _DEATH_WAIT
        while not self.server.died() and time.monotonic() < deadline:
            time.sleep(0.02)
        how = self.server.died()
        return f"; the server has ended: {how}" if how else ""


def at_once(ask: Callable[[_T], _U], items: Sequence[_T]) -> list[_U]:
    """What each gives, all of them asked at the same time."""
    pool = ThreadPoolExecutor(max_workers=max(1, len(items)))
    try:
        return [job.result() for job in [pool.submit(ask, item) for item in items]]
    finally:  # no waiting: after Ctrl-C the server is stopped, which ends the requests
        pool.shutdown(wait=False, cancel_futures=True)
