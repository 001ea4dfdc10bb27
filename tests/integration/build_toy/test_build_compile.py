"""Build for real: progress, first errors, endings in the middle, the install tree."""

from __future__ import annotations

import os
import signal
import subprocess  # noqa: TID251 - a run is interrupted from outside, as a person does
import sys
import time
from pathlib import Path

import pytest

from sparkbuild.build import jobs
from sparkbuild.build.model import Binaries, Configuration
from sparkbuild.errors import BuildError, DiskFullError

from .conftest import TOY, Workshop

BUILD = """
import sys
from pathlib import Path
import msgspec
from sparkbuild.build.compile import build
from sparkbuild.build.model import Configuration
configuration = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Configuration)
folder = Path(sys.argv[1]).parent
build(
    configuration,
    ("llama-server", "llama-quantize"),
    install_dir=folder / "install",
    log=folder / "build.log",
    jobs=4,
    progress=lambda *step: print(*step, flush=True),
)
"""


def test_the_install_tree_is_exactly_the_closure(
    built: tuple[Workshop, Configuration, Binaries],
) -> None:
    _, _, binaries = built
    directory = Path(binaries.directory)
    assert binaries.executables == ("llama-quantize", "llama-server")
    assert binaries.libraries == ("libggml-base.so.0", "libllama.so.0")
    assert binaries.edges == 10
    names = sorted(path.name for path in directory.parent.rglob("*") if path.is_file())
    assert names == sorted([*binaries.executables, *binaries.libraries])
    assert not [path for path in directory.rglob("*") if path.is_symlink()]


def test_no_folder_of_this_machine_is_in_the_binaries(
    built: tuple[Workshop, Configuration, Binaries],
) -> None:
    shop, _, binaries = built
    for path in Path(binaries.directory).iterdir():
        content = path.read_bytes()
        assert str(TOY).encode() not in content
        assert str(shop.folder).encode() not in content
    base = (Path(binaries.directory) / "libggml-base.so.0").read_bytes()
    assert b"llama.cpp/engine/base.c" in base


def test_a_second_build_runs_no_step(built: tuple[Workshop, Configuration, Binaries]) -> None:
    shop, configuration, binaries = built
    again = shop.build(configuration)
    assert again.edges == 0
    assert again.executables == binaries.executables


def test_progress_counts_to_the_end_and_the_log_is_whole(workshop: Workshop) -> None:
    steps: list[tuple[int, int, str]] = []
    configuration = workshop.configure(TOY_MODULE="ON")
    binaries = workshop.build(configuration, progress=lambda *step: steps.append(step))
    assert [finished for finished, _, _ in steps] == list(range(1, 13))
    assert {total for _, total, _ in steps} == {12}
    assert steps[-1][2].startswith("0:00 left, ")
    assert any(text.endswith("server/server.cpp") for _, _, text in steps)
    assert "libggml-cpu.so" in binaries.libraries  # a module has no SONAME: its file name
    log = workshop.log("build").read_text()
    assert log.count("\n[") == 12
    assert log.rstrip().endswith("# exit status 0")


def test_the_first_compile_error_with_its_command(workshop: Workshop) -> None:
    configuration = workshop.configure(TOY_BROKEN_INCLUDE="ON")
    with pytest.raises(BuildError, match=r"quantize\.cpp:2:10: fatal error: no-such") as refusal:
        workshop.build(configuration)
    step, command = refusal.value.problems
    assert step.startswith("step: server/CMakeFiles/llama-quantize.dir/quantize.cpp.o")
    assert command.startswith(f"command: {workshop.toolkit.host.cxx} ")
    assert refusal.value.evidence == (workshop.log("build"),)
    assert not (workshop.folder / "install").exists()


def test_the_linker_s_error(workshop: Workshop) -> None:
    configuration = workshop.configure(TOY_BROKEN_LINK="ON")
    with pytest.raises(BuildError, match=r"undefined reference to .defined_nowhere") as refusal:
        workshop.build(configuration)
    assert refusal.value.problems[0] == "step: bin/llama-quantize"
    assert "in function" in refusal.value.detail


def test_a_full_disk_is_no_broken_source(workshop: Workshop) -> None:
    """A compile step meets /dev/full, so that the message is a real one."""
    launcher = workshop.folder / "launcher"
    launcher.write_text("#!/bin/sh\nexec cp /bin/sh /dev/full\n")
    launcher.chmod(0o755)
    configuration = workshop.configure(CMAKE_CXX_COMPILER_LAUNCHER=str(launcher))
    with pytest.raises(DiskFullError):
        workshop.build(configuration)
    assert "No space left on device" in workshop.log("build").read_text()


def start(folder: Path, configuration: Configuration) -> subprocess.Popen[str]:
    import msgspec

    request = folder / "configuration.json"
    request.write_bytes(msgspec.json.encode(configuration))
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(request)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def working_in(folder: Path) -> list[str]:
    """Commands of all live processes that name ``folder``, the test's own left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in command:
                found.append(command)
    return found


def wait_for(condition: str, folder: Path, child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not any(condition in command for command in working_in(folder)):
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < deadline, f"no {condition} within two minutes"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_ended_build_leaves_no_compiler_and_the_next_goes_on(
    number: signal.Signals, workshop: Workshop
) -> None:
    """Ctrl-C, a polite kill and SIGKILL: ninja, c++ and cc1plus all end with us."""
    configuration = workshop.configure(TOY_SLOW="ON")
    child = start(workshop.folder, configuration)
    try:
        wait_for("cc1plus", workshop.folder, child)
        child.send_signal(number)
        _, errors = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode != 0
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
    deadline = time.monotonic() + 30
    while working_in(workshop.folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert working_in(workshop.folder) == []
    assert not (workshop.folder / "install").exists()


def test_a_killed_build_is_finished_by_the_next(workshop: Workshop) -> None:
    configuration = workshop.configure()
    child = start(workshop.folder, configuration)
    assert child.stdout is not None
    child.stdout.readline()
    child.kill()
    child.communicate()
    while working_in(workshop.folder):
        time.sleep(0.02)
    binaries = workshop.build(configuration)
    assert workshop.inspect(binaries).version_line.endswith("(build 11434, commit 0123456789ab)")


def test_jobs_of_this_machine() -> None:
    assert 1 <= jobs.jobs_here(cuda=True) <= jobs.jobs_here(cuda=False)
    assert jobs.jobs_here(cuda=False) <= len(os.sched_getaffinity(0))
