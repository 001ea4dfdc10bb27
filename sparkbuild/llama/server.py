"""The life of one llama-server: loopback, its own port and key, gone without a trace at the end."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import httpx
import psutil

from sparkbuild import process
from sparkbuild.errors import SmokeError
from sparkbuild.files import write_atomic
from sparkbuild.llama import memory

HOST: Final = "127.0.0.1"
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
_PORT_WAIT: Final = 5.0
"""Seconds for the kernel to give a port back after its last holder is gone."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds from start to health, for an answer, from TERM to KILL, for memory to come back."""

    start: float
    request: float
    stop: float
    memory: float
    missing: int
    """Bytes that may lack after the end."""


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
    ) -> None:
        self.port = port
        self.log = log
        self.limits = limits
        self.pid = child.pid
        self._child = child
        self._before = before
        self._ending: Ending | None = None
        self.stranger = _client(port, limits, {})
        self.client = _client(port, limits, {"Authorization": f"Bearer {key}"})

    def died(self) -> str:
        """How the server ended by itself; empty while it lives."""
        return "" if self._child.poll() is None else ending(self._child.returncode)

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
        listeners = self._listeners()
        if listeners > {self.pid}:
            return "shared"
        return "ready" if status == httpx.codes.OK and listeners == {self.pid} else "loading"

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
                port_free=_wait_until_free(self.port),
                before=self._before,
                after=memory.wait_until_back(
                    self._before, missing=self.limits.missing, seconds=self.limits.memory
                ),
            )
        return self._ending

    def abandon(self) -> None:
        """End a server that never got ready; nothing is measured."""
        self._end()

    def _end(self) -> bool:
        self.client.close()
        self.stranger.close()
        try:
            return process.stop_session(self._child, grace=self.limits.stop)
        except BaseException:  # a second Ctrl-C: no more patience, and still nothing left behind
            process.stop_session(self._child, grace=0.0)
            raise

    def _listeners(self) -> set[int | None]:
        """Process ids that listen on the port, None for processes that are not ours to see."""
        return {
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == self.port
        }


@contextlib.contextmanager
def running(
    executable: Path,
    flags: Sequence[str],
    *,
    model: Path,
    scratch: Path,
    log: Path,
    limits: Limits,
    choose_port: Callable[[], int] | None = None,
) -> Iterator[Server]:
    """Start llama-server with ``model``, wait until it is healthy, end it whatever happens.

    ``scratch`` is its home folder, made fresh and removed at the end; ``log`` is made fresh. Raises
    SmokeError with the log's tail where the server ends early or is not healthy in time.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    argv = [str(executable), "--model", str(model), *flags]
    try:
        server = _start(argv, scratch, log, limits, choose_port or free_port)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def free_port() -> int:
    """A port that nobody holds at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


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
    argv: Sequence[str], scratch: Path, log: Path, limits: Limits, choose_port: Callable[[], int]
) -> Server:
    key = secrets.token_hex(32)
    key_file = scratch / "api-key"
    write_atomic(key_file, f"{key}\n", mode=0o600)  # not in argv, where any user may read it
    env = process.environment(extra={"HOME": str(scratch), **_OPENMP})
    tried = []
    for _ in range(_ATTEMPTS):
        port = choose_port()
        tried.append(str(port))
        command = [*argv, "--host", HOST, "--port", str(port), "--api-key-file", str(key_file)]
        before = memory.reading()
        # From `/`: a binary that finds its libraries only beside the current folder must not pass.
        child = process.start(command, log=log, env=env, cwd=Path("/"))
        server = Server(child, port, key, log=log, limits=limits, before=before)
        try:
            ready = _wait_until_healthy(server)
        except BaseException:
            server.abandon()
            raise
        if ready:
            return server
        server.abandon()
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


def _wait_until_free(port: int) -> bool:
    deadline = time.monotonic() + _PORT_WAIT
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            # Connections in TIME_WAIT do not count, a listener does.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
