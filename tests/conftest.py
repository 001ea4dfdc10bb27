"""Real things for the costly tests: one source, one build, made once a session as a user would."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess  # noqa: TID251 - tests run the product from outside
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

# A busy machine must not fail a property; and one thread is the fastest for arrays this small.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

SEED = 11434
KILLS: tuple[tuple[str | None, float], ...] = (
    *[(None, 0.5)] * 2,
    *[("toolkit", 1.0)] * 2,
    *[("qualify", 0.3)] * 2,
    *[("configure", 0.3)] * 1,
    *[("configure", 12.0)] * 4,
    *[("build", 0.2)] * 2,
    *[("inspect", 0.3)] * 3,
    *[("inspect", 20.0)] * 1,
    *[("smoke", 0.3)] * 3,
)
"""Twenty times: the stage that must have ended, and the seconds within which the kill comes. The
canaries take the smoke stage more than half a minute."""


def pytest_configure(config: pytest.Config) -> None:
    """Tests never see a user's shell: the product builds its own environments from this one."""
    for name in [name for name in os.environ if name.startswith(("SPARKBUILD_", "LLAMA_"))]:
        if not name.startswith("SPARKBUILD_TEST_"):
            del os.environ[name]
    # A shell that starts tests in the background ignores Ctrl-C for all below it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Closing lines that count what was skipped, by reason, so that no skip is silent."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {reason.removeprefix('Skipped: ')}")


@dataclass(frozen=True, kw_only=True)
class Made:
    """A finished ``sparkbuild make`` of the variant vision on the CPU."""

    work: Path
    out: Path
    report: dict[str, Any]
    wheel: Path
    bin: Path
    identity: str
    build: int
    kills: tuple[str, ...] = ()
    """The stage that each SIGKILL on the way met; empty where the work folder was warm."""


@dataclass(kw_only=True)
class Campaign:
    """Kills ``sparkbuild make`` with SIGKILL at random moments, stage by stage."""

    argv: Sequence[str]
    log: Path
    rng: random.Random
    met: list[str] = field(default_factory=list)

    def kill(self, after: str | None, within: float) -> None:
        """Wait until the stage ``after`` has ended, then kill within so many seconds.

        A run that ends by itself before that was too fast: the next try waits a third as long.
        """
        for _ in range(8):
            if self._try(after, within):
                return
            within /= 3

    def _try(self, after: str | None, within: float) -> bool:
        with self.log.open("wb") as out:
            child = subprocess.Popen(
                self.argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd="/"
            )
            while child.poll() is None and not self._ended(after):
                time.sleep(0.005)
            limit = time.monotonic() + self.rng.uniform(0.0, within)
            while child.poll() is None and time.monotonic() < limit:
                time.sleep(0.005)
            killed = child.poll() is None
            if killed:
                child.send_signal(signal.SIGKILL)
                self.met.append(self._stage())
            child.wait()
        return killed

    def _ended(self, stage: str | None) -> bool:
        return stage is None or stage in self._stages()

    def _stages(self) -> list[str]:
        ended = r"^\d/9 (\w+) +(?:done|reused|not applicable) "
        return re.findall(ended, self.log.read_text(errors="replace"), re.MULTILINE)

    def _stage(self) -> str:
        """The stage after the last one that ended."""
        order = ["", "toolkit", "source", "patches", "qualify", "configure", "build", "inspect",
                 "smoke", "package", "end"]  # fmt: skip
        done = self._stages()
        return order[order.index(done[-1]) + 1] if done else "toolkit"


def sparkbuild(
    *arguments: str, cwd: Path = Path("/"), timeout: float = 2400, **environment: str
) -> Any:
    """Run the installed command as a user would, from ``/``."""
    program = Path(sys.executable).parent / "sparkbuild"
    return subprocess.run(
        [str(program), *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="session")
def run_sparkbuild() -> Any:
    """The function ``sparkbuild(*arguments) -> CompletedProcess``."""
    return sparkbuild


@pytest.fixture(scope="session")
def children() -> Callable[[], list[psutil.Process]]:
    """The function ``children()``: the processes below this one that somebody should have ended.

    Not multiprocessing's resource tracker: once a pool was started, it lives as long as Python.
    """

    def found() -> list[psutil.Process]:
        return [
            child
            for child in psutil.Process().children(recursive=True)
            if child.status() != psutil.STATUS_ZOMBIE
            and "multiprocessing.resource_tracker" not in " ".join(child.cmdline())
        ]

    return found


@pytest.fixture(scope="session")
def real_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The work folder; ``SPARKBUILD_TEST_WORK`` keeps one between sessions of a developer."""
    kept = os.environ.get("SPARKBUILD_TEST_WORK")
    if kept:
        yield Path(kept)
        return
    folder = tmp_path_factory.mktemp("work")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def real_tree(real_work: Path) -> Any:
    """The pinned b11434 tree on disk, as the product itself materialised it."""
    from sparkbuild.manifest import find_recipes
    from sparkbuild.source.obtain import obtain
    from sparkbuild.source.prepare import prepare
    from sparkbuild.workspace import Workspace

    patchset, manifest = find_recipes(None).patchset("vision")
    work = Workspace(real_work)
    work.prepare()
    tree = obtain(patchset.source, manifest, work, Quiet())
    return prepare(tree, patchset, manifest, work, Quiet())


@pytest.fixture(scope="session")
def real_source(real_tree: Any) -> Path:
    """The folder of ``real_tree``."""
    return Path(real_tree.directory)


class Quiet:
    """An observer that looks away."""

    def started(self, stage: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finished(self, report: Any) -> None: ...


@pytest.fixture(scope="session")
def real_make(real_work: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """``sparkbuild make``: killed twenty times on a cold work folder, then a good run."""
    out = tmp_path_factory.mktemp("dist")
    program = str(Path(sys.executable).parent / "sparkbuild")
    argv = [program, "make", "--variant", "vision", "--toolkit", "cpu", "--out", str(out),
            "--work", str(real_work)]  # fmt: skip
    campaign = Campaign(argv=argv, log=out / "killed.log", rng=random.Random(SEED))  # noqa: S311
    if not (real_work / "builds").exists():
        for after, within in KILLS:
            campaign.kill(after, within)
    done = sparkbuild(*argv[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((out / "vision-cpu-report.json").read_text())
    wheel = Path(report["wheel"]["path"])
    binaries = next(s for s in report["stages"] if s["name"] == "build")["outputs"]
    version = next(s for s in report["stages"] if s["name"] == "inspect")["summary"]
    identity = re.search(r"build (\d+), commit ([0-9a-f]+)", version)
    assert identity, version
    return Made(
        work=real_work,
        out=out,
        report=report,
        wheel=out / wheel.name,
        bin=Path(binaries[0]["path"]).parent,
        identity=identity[2],
        build=int(identity[1]),
        kills=tuple(campaign.met),
    )


@pytest.fixture(scope="session")
def real_build(real_make: Made) -> Made:
    """The same build, for tests that only need its binaries."""
    return real_make


@dataclass(frozen=True, kw_only=True)
class Again:
    """``real_make``'s wheel made a second time, where all is different; its folders stay."""

    rebuilt: Any
    stages: tuple[str, ...]
    """The stages that began, in order."""
    place: Path
    """The second build's folder: its source, CMake's folder, what is installed."""


@pytest.fixture(scope="session")
def real_again(real_make: Made) -> Again:
    """A second whole build. Faults are planted in its folders once it was compared."""
    from sparkbuild.manifest import find_recipes
    from sparkbuild.wheel_rebuild import rebuild_and_compare
    from sparkbuild.workspace import Workspace

    class Log(Quiet):
        def __init__(self) -> None:
            self.stages: list[str] = []

        def started(self, stage: str) -> None:
            self.stages.append(stage)

    log = Log()
    rebuilt = rebuild_and_compare(
        real_make.wheel,
        recipes=find_recipes(None),
        workspace=Workspace(real_make.work),
        observer=log,
        keep=True,
    )
    (cache,) = real_make.work.glob("rebuilds/*/*/*/CMakeCache.txt")
    return Again(rebuilt=rebuilt, stages=tuple(log.stages), place=cache.parents[1])
