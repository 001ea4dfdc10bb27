"""A compile cache that cannot lend one toolkit's objects to another: sccache, one folder each.

sccache caches nvcc by its steps and counts cicc and ptxas in their keys. That rests on what it
knows of nvcc, so every toolkit identity, which holds the digest of each part, also gets a folder
of its own: a part that changes finds an empty cache. What sccache knows of nvcc can also be too
old (0.16 loses the cicc step of nvcc 13.5), so it is tried first; where it fails, CUDA is compiled
without it.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild import process
from sparkbuild.errors import HostError
from sparkbuild.files import write_atomic
from sparkbuild.toolkit.model import Toolkit

_PATIENCE: Final = 20.0
"""Seconds granted to the server to open its socket; it needs about 0.1."""

_IDENTITY_DIGITS: Final = 16


_ONE_KERNEL: Final = "__global__ void f(float * x) { x[threadIdx.x] *= 2.0f; }\n"


@dataclass(frozen=True, kw_only=True)
class CompileCache:
    """sccache's program, the folder that belongs to one toolkit, and whether it can drive nvcc."""

    program: Path
    folder: Path
    languages: tuple[str, ...] = ("C", "CXX", "CUDA")
    note: str = ""
    """Why CUDA is compiled without it, where it has a compiler."""


class CacheUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one run took from the cache: compile steps found and not found there."""

    hits: int = 0
    misses: int = 0


class _Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What one version of sccache made of one toolkit's nvcc: nothing, or its complaint."""

    sccache: str
    complaint: str


def compile_cache(root: Path, toolkit: Toolkit) -> CompileCache:
    """The cache of ``toolkit`` below ``root``, tried with its nvcc where it has one.

    Raises HostError where sccache is missing or does not start.
    """
    folder = root.absolute() / toolkit.identity[:_IDENTITY_DIGITS]
    cache = CompileCache(program=process.python_program("sccache"), folder=folder)
    if toolkit.root is None:
        return replace(cache, languages=("C", "CXX"))
    version = process.capture([str(cache.program), "--version"]).stdout.strip()
    record = folder / "nvcc.json"
    try:
        tried = msgspec.json.decode(record.read_bytes(), type=_Tried)
    except (OSError, msgspec.DecodeError):
        tried = _Tried(sccache="", complaint="")
    if tried.sccache != version:
        tried = _Tried(sccache=version, complaint=_complaint(cache, toolkit))
        write_atomic(record, msgspec.json.encode(tried))
    if not tried.complaint:
        return cache
    nvcc = toolkit.part("nvcc").version
    note = f"{version} cannot drive nvcc {nvcc} ({tried.complaint}): CUDA is compiled without it"
    return replace(cache, languages=("C", "CXX"), note=note)


def _complaint(cache: CompileCache, toolkit: Toolkit) -> str:
    """Compile one kernel through the cache: an empty text, or the last line of what was said."""
    arch = toolkit.architectures[0]
    with tempfile.TemporaryDirectory(prefix="sparkbuild-") as name:
        place = Path(name)
        (place / "one.cu").write_text(_ONE_KERNEL)
        env = process.environment(extra={"HOME": name})
        argv = [str(cache.program), f"{toolkit.root}/bin/nvcc", "-ccbin", toolkit.host.cxx,
                f"--generate-code=arch=compute_{arch},code=[sm_{arch}]",
                "-c", "one.cu", "-o", "one.o"]  # fmt: skip
        with serving(cache, env, log=place / "cache.log") as reached:
            done = process.run(argv, log=place / "one.log", env=reached, cwd=place)
        lines = [line for line in done.tail.splitlines() if line.strip()]
        return "" if done.returncode == 0 else (lines or [f"status {done.returncode}"])[0]


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
