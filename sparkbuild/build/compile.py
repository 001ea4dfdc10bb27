"""Stage 6: run ninja, tell how far it is, show the first error, stage the install tree."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sparkbuild import process
from sparkbuild.build import cache, install_tree, ninja, surroundings
from sparkbuild.build.jobs import jobs_here
from sparkbuild.build.model import Binaries, Configuration
from sparkbuild.build.progress import minutes, remaining_seconds
from sparkbuild.build.tools import Tools, find_tools
from sparkbuild.errors import BuildError
from sparkbuild.files import disk_full


class _Watch:
    """Turns ninja's lines into progress, and keeps them for the refusal."""

    def __init__(self, progress: Callable[[int, int, str], None]) -> None:
        self.lines: list[str] = []
        self.edges = 0
        self._progress = progress
        self._started = self._last = time.monotonic()
        self._remaining: float | None = None

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        status = ninja.parse_status(line)
        if status is None:
            return
        now = time.monotonic()
        self._remaining = remaining_seconds(
            self._remaining,
            finished=status.finished,
            total=status.total,
            seconds=now - self._started,
            since=now - self._last,
        )
        self._last = now
        self.edges = status.finished
        self._progress(status.finished, status.total, self._text(status))

    def _text(self, status: ninja.Status) -> str:
        subject = ninja.subject(status.description)
        left = "" if self._remaining is None else f"{minutes(self._remaining)} left, "
        return left + subject


def build(
    configuration: Configuration,
    targets: Sequence[str],
    *,
    install_dir: Path,
    log: Path,
    jobs: int | None = None,
    keep_open: Sequence[int] = (),
    progress: Callable[[int, int, str], None] = lambda *_: None,
    tools: Tools | None = None,
) -> Binaries:
    """Build ``targets`` and copy what they make, with all libraries below, to ``install_dir``/bin.

    A killed build goes on where it was: ninja trusts only what its own log says was finished.
    ``jobs`` is chosen from cores and memory where none is given. ``keep_open`` are descriptors
    that compilers inherit (a lock). ``progress`` gets (finished edges, all edges, the time that
    is left and the file that just ended). Raises BuildError with the
    first failing command and its error, DiskFullError, BinaryError for an impossible tree.
    """
    tools = tools or find_tools()
    jobs = jobs or jobs_here(cuda=bool(configuration.cuda_architectures))
    binary_dir = Path(configuration.binary_dir)
    log.unlink(missing_ok=True)
    watch = _Watch(progress)
    own = binary_dir / surroundings.TOOLS_DIRECTORY
    env = surroundings.build_environment(own, [c.path for c in configuration.compilers])
    with cache.serving(tools.cache, env, log=log.with_name("cache.log")) as reached:
        done = process.run(
            [str(tools.ninja), "-C", str(binary_dir), "-j", str(jobs), *targets],
            log=log,
            env={**reached, "NINJA_STATUS": ninja.STATUS_FORMAT},
            on_line=watch,
            keep_open=keep_open,
        )
        used = cache.use(tools.cache, reached) if tools.cache else cache.CacheUse()
    if done.returncode != 0:
        if ninja.disk_is_full(watch.lines):
            raise disk_full(binary_dir)
        raise _failed(done, watch, log, jobs)
    entries = install_tree.plan_tree(configuration.artifacts, binary_dir)
    install_tree.write_tree(entries, install_dir)
    return Binaries(
        directory=str(install_dir / install_tree.BIN),
        executables=tuple(sorted(entry.name for entry in entries if entry.program)),
        libraries=tuple(sorted(entry.name for entry in entries if not entry.program)),
        edges=watch.edges,
        cache_hits=used.hits,
        cache_misses=used.misses,
    )


def _failed(done: process.Finished, watch: _Watch, log: Path, jobs: int) -> BuildError:
    failure = ninja.parse_failure(watch.lines)
    if failure is None:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"{done.returncode}"
        return BuildError(
            f"ninja ended ({ended}) and named no failing step",
            evidence=[log],
            detail=done.tail,
            next_step=f"read the end of {log}",
        )
    step = f"correct what the error names; every line is in {log}"
    if failure.out_of_memory:
        step = f"memory ran out: build with fewer jobs than {jobs} (--jobs {max(1, jobs // 2)})"
    problems = [f"step: {failure.outputs}"] if failure.outputs else []
    if failure.command:
        problems.append(f"command: {failure.command}")
    return BuildError(
        failure.headline or f"{failure.outputs} failed with status {failure.code}, saying nothing",
        problems=problems,
        evidence=[log],
        detail=failure.excerpt,
        next_step=step,
    )
