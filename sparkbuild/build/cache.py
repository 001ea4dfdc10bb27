"""A compile cache that cannot lend one toolkit's objects to another: sccache, one folder each.

sccache caches nvcc by its steps and counts cicc and ptxas in their keys. That rests on what it
knows of nvcc, so every toolkit identity, which holds the digest of each part, also gets a folder
of its own: a part that changes finds an empty cache.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild import process
from sparkbuild.errors import HostError
from sparkbuild.toolkit.model import Toolkit

_PATIENCE: Final = 20.0
"""Seconds granted to the server to open its socket; it needs about 0.1."""

_IDENTITY_DIGITS: Final = 16


@dataclass(frozen=True, kw_only=True)
class CompileCache:
    """sccache's program, and the folder that belongs to one toolkit."""

    program: Path
    folder: Path


class CacheUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one run took from the cache: compile steps found and not found there."""

    hits: int = 0
    misses: int = 0


def compile_cache(root: Path, toolkit: Toolkit) -> CompileCache:
    """The cache of ``toolkit`` below ``root``. Raises HostError where sccache is missing."""
    folder = root.absolute() / toolkit.identity[:_IDENTITY_DIGITS]
    return CompileCache(program=process.python_program("sccache"), folder=folder)


@contextlib.contextmanager
def serving(
    cache: CompileCache | None, env: Mapping[str, str], *, log: Path
) -> Iterator[dict[str, str]]:
    """Run a cache server for as long as the block runs, and give the environment that reaches it.

    It listens on a socket in a folder that only this user may enter, never on a port, and reads
    no configuration but what is set here. Without a cache the environment is given unchanged.
    Raises HostError when the server does not start.
    """
    if cache is None:
        yield dict(env)
        return
    cache.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sparkbuild-") as place:
        own = {
            **env,
            "SCCACHE_CONF": str(Path(place) / "none"),
            "SCCACHE_DIR": str(cache.folder),
            "SCCACHE_IDLE_TIMEOUT": "0",
            "SCCACHE_SERVER_UDS": str(Path(place) / "socket"),
        }
        server = process.start(
            [str(cache.program)],
            log=log,
            env={**own, "SCCACHE_NO_DAEMON": "1", "SCCACHE_START_SERVER": "1"},
        )
        try:
            _wait(server, Path(place) / "socket", log)
            yield own
        finally:
            process.stop_session(server)


def use(cache: CompileCache, env: Mapping[str, str]) -> CacheUse:
    """What the running server has found so far; ``env`` is what ``serving`` gave."""
    answer = process.capture(
        [str(cache.program), "--show-stats", "--stats-format", "json"], env=env
    )
    return parse_use(answer.stdout)


def parse_use(text: str) -> CacheUse:
    """Hits and misses over all languages from sccache's JSON; zero where it says nothing."""
    try:
        stats = msgspec.json.decode(text, type=_Answer).stats
    except (msgspec.DecodeError, msgspec.ValidationError):
        return CacheUse()
    return CacheUse(
        hits=sum(stats.cache_hits.counts.values()), misses=sum(stats.cache_misses.counts.values())
    )


class _Counts(msgspec.Struct, frozen=True):
    counts: dict[str, int] = {}


class _Stats(msgspec.Struct, frozen=True):
    cache_hits: _Counts
    cache_misses: _Counts


class _Answer(msgspec.Struct, frozen=True):
    stats: _Stats


def _wait(server: process.Child, socket: Path, log: Path) -> None:
    limit = time.monotonic() + _PATIENCE
    while not socket.exists():
        if server.poll() is not None or time.monotonic() > limit:
            raise HostError(
                "the compile cache's server does not start",
                problems=[log.read_text(errors="replace")[-500:] if log.exists() else "no log"],
                evidence=[log],
                next_step="run the same command without --cache",
            )
        time.sleep(0.02)
