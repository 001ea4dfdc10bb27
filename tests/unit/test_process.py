"""The one door to other programs."""

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from sparkbuild.errors import HostError
from sparkbuild.process import capture, environment, run, start, stop_session

HOSTILE = {
    "CFLAGS": "-O0", "CPATH": "/evil", "LD_LIBRARY_PATH": "/evil", "CUDA_PATH": "/evil",
    "CUDACXX": "/evil/nvcc", "CMAKE_PREFIX_PATH": "/evil", "LLAMA_ARG_MODEL": "/evil",
    "PYTHONPATH": "/evil", "LD_PRELOAD": "", "GIT_DIR": "/evil", "CC": "/evil/cc",
}  # fmt: skip


def test_environments_are_built_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    assert not set(HOSTILE) & set(environment())
    assert "https_proxy" not in environment()
    assert environment(network=True)["https_proxy"] == "http://proxy:1"
    assert environment(path=[Path("/first")])["PATH"].startswith("/first:")


def test_run_logs_every_line_and_returns_the_tail(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import sys; [print(i) for i in range(100)]; print('err', file=sys.stderr); sys.exit(3)"
    done = run(
        [sys.executable, "-u", "-c", code],
        log=tmp_path / "log",
        env=environment(),
        on_line=lines.append,
    )
    assert done.returncode == 3
    assert len(lines) == 101
    assert done.tail.splitlines() == lines[-40:]
    log = (tmp_path / "log").read_text().splitlines()
    assert log[0].startswith("$ ")
    assert log[1:-1] == lines
    assert log[-1] == "# exit status 3"


def test_undecodable_output_is_kept_as_text(tmp_path: Path) -> None:
    code = r"import sys; sys.stdout.buffer.write(b'\xff\xfe\r\n')"
    done = run([sys.executable, "-c", code], log=tmp_path / "log", env=environment())
    assert done.tail == "\ufffd\ufffd"


def test_a_missing_program_is_a_refusal_or_status_127(tmp_path: Path) -> None:
    assert capture(["/no/such/program"]).returncode == 127
    with pytest.raises(HostError) as caught:
        run(["/no/such/program", "an arg"], log=tmp_path / "log", env=environment())
    assert "'an arg'" in caught.value.problems[0]


def test_capture_ends_a_program_that_hangs() -> None:
    answer = capture([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.3)
    assert answer.returncode == 124


def test_an_exception_stops_the_whole_session(tmp_path: Path) -> None:
    """A grandchild in its own process group, as ninja makes them, ends too."""
    pids = tmp_path / "pids"
    code = textwrap.dedent(f"""
        import subprocess, sys, os
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                                 process_group=0)
        open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
        print("ready", flush=True)
        child.wait()
    """)

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            [sys.executable, "-c", code], log=tmp_path / "log", env=environment(), on_line=interrupt
        )
    for pid in map(int, pids.read_text().split()):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


def test_stop_is_gentle_first_and_final_in_the_end(tmp_path: Path) -> None:
    polite = start(["/bin/sleep", "60"], log=tmp_path / "a", env=environment())
    assert stop_session(polite, grace=5)
    assert polite.returncode == -signal.SIGTERM
    code = textwrap.dedent("""
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(1, flush=True)
        time.sleep(60)
    """)
    stubborn = start([sys.executable, "-c", code], log=tmp_path / "b", env=environment())
    while "1" not in (tmp_path / "b").read_text().splitlines():
        time.sleep(0.02)
    assert not stop_session(stubborn, grace=0.3)
    assert stubborn.returncode == -signal.SIGKILL


def test_kill_comes_forward_where_there_is_hurry(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    argv = [sys.executable, "-c", f"{code}; time.sleep(60)"]
    stubborn = start(argv, log=tmp_path / "log", env=environment())
    while "1" not in (tmp_path / "log").read_text().splitlines():
        time.sleep(0.02)
    asked = iter([False, False, True])
    assert not stop_session(stubborn, grace=float("inf"), hurry=lambda: next(asked))
    assert stubborn.returncode == -signal.SIGKILL
    assert list(asked) == []


def test_a_stranger_with_the_number_of_a_reaped_child_is_left_alone(tmp_path: Path) -> None:
    stranger = start(["/bin/sleep", "60"], log=tmp_path / "a", env=environment())
    child = start(["/bin/true"], log=tmp_path / "b", env=environment())
    child.wait()
    child.pid = stranger.pid  # what the kernel does once it has gone round all numbers
    assert stop_session(child, grace=0)
    assert stranger.poll() is None
    stop_session(stranger)


def test_a_killed_sparkbuild_takes_its_children_along(tmp_path: Path) -> None:
    code = textwrap.dedent(f"""
        from pathlib import Path
        from sparkbuild.process import environment, run
        run(["/bin/sh", "-c", "echo $$ && exec sleep 60"], log=Path({str(tmp_path / "log")!r}),
            env=environment(), on_line=lambda line: print(line, flush=True))
    """)
    read, write = os.pipe()
    parent = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", code],
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)],
    )
    os.close(write)
    with os.fdopen(read) as out:
        child = int(out.readline())
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(child)
