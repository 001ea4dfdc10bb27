"""The life of one llama-server: loopback, its own port and key, gone without a trace at the end."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import signal
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import httpx

from sparkbuild import process
from sparkbuild.errors import SmokeError
from sparkbuild.files import write_atomic
from sparkbuild.llama import guard, memory, room
from sparkbuild.llama.guard import Guard, Strike
from sparkbuild.llama.port import HOST, free_port, hang_up, listeners, wait_until_free

_ATTEMPTS: Final = 5
"""Ports to try; each was free when it was chosen, and two stolen in a row are hardly chance."""
_POLL: Final = 0.05
"""Seconds between two questions to a server that is not ready yet."""
_PROBE: Final = 2.0
"""Seconds for one answer of ``/health`` while a server starts; it is asked again."""
_OPENMP: Final = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait sleep: spinning at each of a tiny model's many barriers costs ten times the
computing itself as soon as other programs want the same cores."""
_PORT_TAKEN: Final = re.compile(r"couldn't bind|address already in use", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds from start to health, for an answer, from TERM to KILL, for memory to come back."""

    start: float
    request: float
    stop: float
    memory: float
    missing: int
    """Bytes that may lack after the end."""
    floor: int = guard.FLOOR
    """Bytes of MemAvailable that must stay there: at or below, the server is ended."""
    settle: float = room.SETTLE
    """Seconds before a start for more than the floor to be there, and what a strike left."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a server went, and what it left."""

    how: str
    """``exit status 0``, ``killed by SIGKILL``."""
    alive_until_asked: bool
    gentle: bool
    """TERM was enough."""
    port_free: bool
    before: memory.Memory
    after: memory.Memory
    lowest: int
    """Bytes of MemAvailable that were left at the least while it ran."""
    strike: Strike | None
    """What the memory guard did to it."""

    @property
    def missing(self) -> int:
        """Bytes that no process holds and that were available before the start."""
        return self.after.missing_since(self.before)


class Server:
    """A llama-server; ``client`` carries its key, ``stranger`` none."""

    def __init__(
        self,
        child: process.Child,
        port: int,
        key: str,
        *,
        log: Path,
        limits: Limits,
        before: memory.Memory,
        watch: Guard,
    ) -> None:
        self.port = port
        self.log = log
        self.limits = limits
        self.pid = child.pid
        self._child = child
        self._before = before
        self._guard = watch
        self._ending: Ending | None = None
        self.stranger = _client(port, limits, {})
        self.client = _client(port, limits, {"Authorization": f"Bearer {key}"})

    def died(self) -> str:
        """How the server ended by itself or by the memory guard; empty while it lives."""
        strike = self._guard.strike
        if strike:
            return str(strike)
        code = self._guard.poll()
        return "" if code is None else ending(code)

    def raise_if_struck(self) -> None:
        """Raise SmokeError where the memory guard ended the server; call it after the end."""
        strike = self._guard.strike
        if strike:
            raise strike.refusal(self.log, tail(self.log))

    def state(self) -> Literal["silent", "loading", "ready", "shared"]:
        """``ready`` where ``/health`` is ok and nobody but this server listens on the port.

        llama-server binds with SO_REUSEPORT: a second one of the same user gets the same port
        without an error (``shared``), and the kernel deals the requests out to both.
        """
        try:
            status = self.stranger.get("/health", timeout=_PROBE).status_code
        except httpx.ConnectError:
            return "silent"
        except httpx.HTTPError:
            status = 0
        found = listeners(self.port)
        if found > {self.pid}:
            return "shared"
        return "ready" if status == httpx.codes.OK and found == {self.pid} else "loading"

    def stop(self) -> Ending:
        """End the server: TERM, KILL after a grace period; return when port and memory are back.

        The second call returns the first one's answer.
        """
        if self._ending is None:
            died = self.died()
            gentle = self._end()
            self._ending = Ending(
                how=ending(self._child.returncode),
                alive_until_asked=not died,
                gentle=gentle,
                port_free=wait_until_free(self.port),
                before=self._before,
                after=memory.wait_until_back(
                    self._before, missing=self.limits.missing, seconds=self.limits.memory
                ),
                lowest=self._guard.lowest.available,
                strike=self._guard.strike,
            )
        return self._ending

    def abandon(self) -> None:
        """End a server that never got ready; nothing is measured."""
        self._end()

    def _end(self) -> bool:
        hang_up(self.port)  # closing alone does not reach threads that wait for an answer
        self.client.close()
        self.stranger.close()
        try:
            return self._guard.stop()
        except BaseException:  # a second Ctrl-C: no more patience, and still nothing left behind
            process.stop_session(self._child, grace=0.0)
            raise


@contextlib.contextmanager
def running(
    executable: Path,
    flags: Sequence[str],
    *,
    model: Path,
    scratch: Path,
    log: Path,
    limits: Limits,
    environment: Mapping[str, str] | None = None,
    choose_port: Callable[[], int] | None = None,
) -> Iterator[Server]:
    """Start llama-server with ``model``, wait until it is healthy, end it whatever happens.

    ``scratch`` is its home folder, made fresh and removed at the end; ``log`` is made fresh;
    ``environment`` has variables beside those that every program of ours gets. Raises
    SmokeError with the log's tail where the server ends early or is not healthy in time; where the
    machine has no memory for it, and nothing is started; and at the exit where the memory guard
    ended it, whatever error that made of the body.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    argv = [str(executable), "--model", str(model), *flags]
    try:
        server = _start(argv, scratch, log, limits, environment or {}, choose_port or free_port)
        try:
            yield server
        except Exception:
            server.stop()
            server.raise_if_struck()
            raise
        finally:
            server.stop()
        server.raise_if_struck()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _client(port: int, limits: Limits, headers: dict[str, str]) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://{HOST}:{port}",
        timeout=limits.request,
        headers=headers,
        # A proxy of the user's shell must not stand between us and the loopback.
        trust_env=False,
        # Plain HTTP: reading the system's certificates would take longer than the server's start.
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )


def ending(returncode: int) -> str:
    """How a process ended, in words."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def tail(log: Path) -> str:
    """The last lines of a log; empty where there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-process.TAIL_LINES :])


def _start(
    argv: Sequence[str],
    scratch: Path,
    log: Path,
    limits: Limits,
    environment: Mapping[str, str],
    choose_port: Callable[[], int],
) -> Server:
    key = secrets.token_hex(32)
    key_file = scratch / "api-key"
    write_atomic(key_file, f"{key}\n", mode=0o600)  # not in argv, where any user may read it
    env = process.environment(extra={"HOME": str(scratch), **_OPENMP, **environment})
    tried = []
    for _ in range(_ATTEMPTS):
        port = choose_port()
        tried.append(str(port))
        command = [*argv, "--host", HOST, "--port", str(port), "--api-key-file", str(key_file)]
        before = room.wait_for_room(
            floor=limits.floor, missing=limits.missing, seconds=limits.settle
        )
        cut = partial(hang_up, port)
        watch = Guard(before, floor=limits.floor, patience=limits.stop, hang_up=cut)
        # From `/`: a binary that finds its libraries only beside the current folder must not pass.
        child = watch.launch(partial(process.start, command, log=log, env=env, cwd=Path("/")))
        server = Server(child, port, key, log=log, limits=limits, before=before, watch=watch)
        try:
            if _wait_until_healthy(server):
                return server
        except Exception:
            server.abandon()
            server.raise_if_struck()
            raise
        except BaseException:
            server.abandon()
            raise
        server.abandon()
        server.raise_if_struck()
    raise SmokeError(
        "llama-server found no port to listen on",
        problems=[f"taken by others, one after another: {', '.join(tried)}"],
        evidence=[log],
        next_step="run the same command again",
        detail=tail(log),
    )


def _wait_until_healthy(server: Server) -> bool:
    """False where somebody else holds the port, so that another one is worth a try."""
    deadline = time.monotonic() + server.limits.start
    while (state := server.state()) != "ready":
        how = server.died()
        if state == "shared" or (how and _PORT_TAKEN.search(tail(server.log))):
            return False
        if how or time.monotonic() > deadline:
            late = f"not healthy within {server.limits.start:g} s"
            raise SmokeError(
                f"llama-server did not come up: {how or late}",
                problems=[f"/health: expected status 200, found {how or late}"],
                evidence=[server.log],
                next_step=f"read {server.log}",
                detail=tail(server.log),
            )
        time.sleep(_POLL)
    return True
