"""Upstream's operator tests against real libraries: right ones, wrong ones, and ones that die."""

import json
import shutil
import subprocess  # noqa: TID251 - a test makes faulty libraries
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest
import tomli_w
from junitparser import JUnitXml

from sparkbuild.canary.forms import programs
from sparkbuild.canary_desk import Desk
from sparkbuild.errors import BinaryError, HostError, UsageError
from sparkbuild.manifest import find_recipes
from sparkbuild.report.ops import OpsReport
from sparkbuild.smoke import tiny
from sparkbuild.smoke.ops.suite import SUITE
from sparkbuild.smoke_ops import need_of_models, run_ops
from sparkbuild.smoke_ops_program import NAME, Program, _check_libraries, program_for
from sparkbuild.workspace import Workspace

pytestmark = pytest.mark.real

ASKED = ("MUL_MAT", "GET_ROWS", "SET_ROWS")
FAULTS = {
    # The kernel for matrices says that it is done, and has written nothing.
    "wrong": "_Bool llamafile_sgemm(void) { return 1; }",
    "dies": "void ggml_compute_forward_get_rows(void) { *(volatile int *) 0 = 1; }",
    "aborts": """
        void ggml_abort(const char *, int, const char *, ...);
        void ggml_compute_forward_get_rows(void) { ggml_abort("get_rows.c", 7, "CUDA error"); }
    """,
}

Children = Callable[[], list[psutil.Process]]


class Quiet:
    """An observer that looks away."""

    def started(self, stage: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finished(self, report: Any) -> None: ...


class Build(Protocol):
    """What the fixture ``real_build`` gives."""

    @property
    def bin(self) -> Path: ...
    @property
    def work(self) -> Path: ...
    @property
    def wheel(self) -> Path: ...
    @property
    def identity(self) -> str: ...


class Bench:
    """Asks a few operators of a build, with a fault before its libraries."""

    def __init__(self, build: Build, folder: Path, observer: Any) -> None:
        self.build, self.folder = build, folder
        self.work = Workspace(build.work)
        self.live = observer
        self.model = folder / tiny.FILE
        self.model.write_bytes(tiny.model_bytes())

    def suite(self) -> Path:
        """The questions of ``ASKED`` alone, with all else that ships."""
        facts = tomllib.loads(SUITE.read_text())
        facts["questions"] = [one for one in facts["questions"] if one["op"] in ASKED]
        file = self.folder / "ops.toml"
        file.write_text(tomli_w.dumps(facts))
        return file

    def preload(self, fault: str) -> dict[str, str]:
        source, library = self.folder / f"{fault}.c", self.folder / f"{fault}.so"
        source.write_text(FAULTS[fault])
        argv = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
        subprocess.run(argv, check=True)
        return {"LD_PRELOAD": str(library), "GGML_NO_BACKTRACE": "1"}

    def asks(
        self, fault: str = "", *, folder: Path | None = None, backend: str = "cpu"
    ) -> OpsReport:
        desk = Desk(
            data=self.folder,
            programs=programs(folder or self.build.bin),
            root=self.folder,
            live=self.live,
            backend=backend,  # type: ignore[arg-type]
        )
        environment = self.preload(fault) if fault else {}
        return run_ops(
            desk, self.work, find_recipes(None), need_of_models([self.model]),
            models=[self.model], file=self.suite(), environment=environment,
        )  # fmt: skip


@pytest.fixture
def bench(real_build: Build, tmp_path: Path, children: Children) -> Any:
    yield Bench(real_build, tmp_path, Quiet())
    assert not children()


def states(found: OpsReport) -> dict[str, str]:
    return {group.op: group.state for group in found.groups}


def test_a_right_build_is_right_and_what_ran_on_both_sides_alike_says_nothing(
    bench: Bench,
) -> None:
    found = bench.asks()
    assert states(found) == {
        "MUL_MAT": "passed",
        "GET_ROWS": "nothing to compare with",
        "SET_ROWS": "nothing to compare with",
    }
    assert found.exit_code == 0
    assert found.build.endswith(bench.build.identity)


def test_a_kernel_that_computes_nothing_is_wrong_and_the_others_are_not(bench: Bench) -> None:
    found = bench.asks("wrong")
    assert states(found)["MUL_MAT"] == "wrong"
    assert states(found)["GET_ROWS"] == "nothing to compare with"
    (group,) = {group for group in found.groups if group.failed}
    assert group.bound is not None
    assert group.wrong[0].told.startswith("[MUL_MAT]")
    assert (found.exit_code, found.crashes) == (14, ())


@pytest.mark.parametrize(
    ("fault", "kind", "message", "likely"),
    [("dies", "SIGSEGV", "", "on the CPU"), ("aborts", "SIGABRT", "CUDA error", "not be started")],
)
def test_a_kernel_that_ends_the_process_hides_no_other(
    bench: Bench, fault: str, kind: str, message: str, likely: str
) -> None:
    found = bench.asks(fault)
    assert states(found) == {
        "MUL_MAT": "passed", "GET_ROWS": "crashed", "SET_ROWS": "nothing to compare with",
    }  # fmt: skip
    assert found.exit_code == 14
    assert not any(group.failed for group in found.groups)
    for crash in found.crashes:
        assert (crash.op, crash.kind, crash.alone) == ("GET_ROWS", kind, True)
        assert crash.case.startswith("GET_ROWS(")
        assert crash.running.startswith("GET_ROWS")
        assert message in crash.message
        assert likely in crash.likely[0]


def test_a_device_that_is_not_there_is_refused_where_upstream_says_ok(bench: Bench) -> None:
    with pytest.raises(HostError, match="CUDA0"):
        bench.asks(backend="cuda")


def test_the_program_is_made_once_and_tests_the_very_libraries(
    bench: Bench, real_build: Build
) -> None:
    server, recipes = real_build.bin / "llama-server", find_recipes(None)
    first = program_for(server, bench.work, recipes, bench.live)
    made = first.path.stat().st_mtime_ns
    assert program_for(server, bench.work, recipes, bench.live) == first
    assert first.path.stat().st_mtime_ns == made
    assert not (real_build.bin / NAME).exists()
    elsewhere = bench.folder / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(BinaryError, match="would not test") as refused:
        _check_libraries(Program(path=first.path, libraries=elsewhere, version="", witness=True))
    assert any("libggml" in problem for problem in refused.value.problems)


def test_sources_that_are_only_in_the_store_are_enough(bench: Bench, real_build: Build) -> None:
    fetched = Workspace(bench.folder / "fetched")
    fetched.prepare()
    shutil.copytree(Workspace(real_build.work).store, fetched.store)
    shutil.copytree(Workspace(real_build.work).root / "ops", fetched.root / "ops")
    server = real_build.bin / "llama-server"
    found = program_for(server, fetched, find_recipes(None), bench.live)
    assert found.path.is_relative_to(fetched.root)
    assert found.witness
    assert any(fetched.sources.iterdir())


def test_without_sources_the_builds_own_program_is_taken_or_asked_for(bench: Bench) -> None:
    here = bench.folder / "bin"
    shutil.copytree(bench.build.bin, here)
    made = program_for(here / "llama-server", bench.work, find_recipes(None), bench.live).path
    bench.work = Workspace(bench.folder / "empty")
    bench.work.prepare()
    with pytest.raises(UsageError) as refused:
        bench.asks(folder=here)
    assert "sparkbuild source fetch --variant vision" in refused.value.next_step
    shutil.copyfile(made, here / NAME)
    (here / NAME).chmod(0o755)
    assert bench.asks(folder=here).program == str(here / NAME)


def test_the_command_takes_a_wheel_and_writes_all_its_reports(
    bench: Bench, real_build: Build, run_sparkbuild: Any
) -> None:
    junit = bench.folder / "ops.xml"
    done = run_sparkbuild(
        "smoke", str(real_build.wheel), "--suite", "ops", "--model", str(bench.model),
        "--work", str(real_build.work), "--junit", str(junit), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert (answer["result"], answer["exit_code"], answer["backend"]) == ("passed", 0, "cpu")
    assert answer["architectures"] == ["llama"]
    assert "nothing to compare with" in done.stderr
    suite = next(iter(JUnitXml.fromfile(str(junit))))
    assert suite.failures == 0
    assert 0 < suite.skipped < suite.tests
