"""The one door to other programs: argument lists only, built environments, logs, clean endings.

Every child gets its own session, so that the whole tree below it can be stopped, and the kernel
ends it when sparkbuild itself is killed (``PR_SET_PDEATHSIG``, which follows the thread that
started the child: only the main thread may call ``run``, ``start`` and ``capture``).
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess  # noqa: TID251 - this is the door
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sparkbuild.errors import HostError
from sparkbuild.files import disk_full_refused

TAIL_LINES: Final = 40
"""Lines of a log that a refusal shows; about one terminal page."""

_PR_SET_PDEATHSIG: Final = 1
"""From linux/prctl.h."""

_INHERITED: Final = ("HOME", "LOGNAME", "TMPDIR", "USER")
_INHERITED_FOR_NETWORK: Final = (
    "ALL_PROXY", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY",
    "REQUESTS_CA_BUNDLE", "SSH_AUTH_SOCK", "SSL_CERT_DIR", "SSL_CERT_FILE", "all_proxy",
    "https_proxy", "http_proxy", "no_proxy",
)  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)

Child = subprocess.Popen[bytes]
"""What ``start`` gives and ``stop_session`` takes."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A program that ended: what ran, how it ended, after how many seconds, its last lines."""

    argv: tuple[str, ...]
    returncode: int
    seconds: float
    tail: str


@dataclass(frozen=True, kw_only=True)
class Captured:
    """A short program's whole output, as text."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


def environment(
    *,
    path: Sequence[Path] = (),
    extra: Mapping[str, str] | None = None,
    network: bool = False,
) -> dict[str, str]:
    """The environment of a child, built from nothing.

    ``path`` goes before the user's own ``PATH``. Compiler, linker, loader and CMake variables of
    the user's shell (``CFLAGS``, ``CPATH``, ``LD_LIBRARY_PATH``, ``CUDA_PATH`` ...) never get in;
    proxies and certificates do where ``network`` says that the child may use the network.
    """
    names = _INHERITED + (_INHERITED_FOR_NETWORK if network else ())
    result = {name: os.environ[name] for name in names if name in os.environ}
    search = [str(entry) for entry in path] + [os.environ.get("PATH", os.defpath)]
    result["PATH"] = os.pathsep.join(search)
    result["LC_ALL"] = "C.UTF-8"
    result.update(extra or {})
    return result


def quoted(argv: Sequence[str]) -> str:
    """A command as a person would type it."""
    return shlex.join(argv)


def find_program(name: str, *, env: Mapping[str, str] | None = None) -> Path | None:
    """The absolute path that ``name`` resolves to on the ``PATH`` that a child would get."""
    found = shutil.which(name, path=(env or environment())["PATH"])
    return Path(found) if found else None


def python_program(name: str) -> Path:
    """A program that a Python package of sparkbuild's own installation brings (cmake, ninja).

    Raises HostError when the installation is incomplete.
    """
    candidate = Path(sys.executable).parent / name
    if candidate.is_file():
        return candidate
    found = find_program(name)
    if found is None:
        raise HostError(
            f"{name} is missing from sparkbuild's own installation",
            problems=[f"expected at {candidate}"],
            next_step=f"{sys.executable} -m pip install --force-reinstall sparkbuild",
        )
    return found


def capture(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60.0,
) -> Captured:
    """Run a short program and return its output; a failure to start reads as exit status 127."""
    try:
        done = subprocess.run(
            list(argv),
            env=dict(environment() if env is None else env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    except subprocess.TimeoutExpired:
        text = f"no end within {timeout} s"
        return Captured(argv=tuple(argv), returncode=124, stdout="", stderr=text)
    except OSError as error:
        return Captured(argv=tuple(argv), returncode=127, stdout="", stderr=str(error))
    return Captured(
        argv=tuple(argv), returncode=done.returncode, stdout=done.stdout, stderr=done.stderr
    )


def run(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    keep_open: Sequence[int] = (),
) -> Finished:
    """Run a long program: every line goes to ``log`` and to ``on_line``; stdout and stderr as one.

    ``keep_open`` are file descriptors that the child inherits (a lock, see ``files.exclusive``).
    On any exception, Ctrl-C included, the child's whole session is stopped before it goes on.
    """
    started = time.monotonic()
    tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
    with open_log(log, argv) as out:
        child = _start(argv, env=env, cwd=cwd, stdout=subprocess.PIPE, keep_open=keep_open)
        assert child.stdout is not None  # noqa: S101 - asked for with PIPE
        try:
            for raw in child.stdout:
                line = raw.decode(errors="replace").rstrip("\r\n")
                with disk_full_refused(log):
                    out.write(line + "\n")
                tail.append(line)
                if on_line is not None:
                    on_line(line)
            child.wait()
        except BaseException:
            stop_session(child)
            raise
        finally:
            child.stdout.close()
        with disk_full_refused(log):
            out.write(f"# exit status {child.returncode}\n")
    return Finished(
        argv=tuple(argv),
        returncode=child.returncode,
        seconds=time.monotonic() - started,
        tail="\n".join(tail),
    )


def start(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path | None = None,
    keep_open: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a server with a fresh log file; the caller ends it with ``stop_session``."""
    log.unlink(missing_ok=True)
    with open_log(log, argv) as out:
        return _start(argv, env=env, cwd=cwd, stdout=out, keep_open=keep_open)


def stop_session(
    child: subprocess.Popen[bytes],
    *,
    grace: float = 10.0,
    poll: float = 0.02,
    hurry: Callable[[], bool] = lambda: False,
) -> bool:
    """End a child and all that it started: TERM, then KILL after ``grace`` seconds.

    ``hurry``, asked every ``poll`` seconds, brings KILL forward. Returns True when TERM was enough.
    KILL in the middle of CUDA work leaked about 20 GiB on GB10 (field reports), so it is the last
    resort.
    """
    gentle = True
    _signal_session(child, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while child.poll() is None or _session(child):
        if time.monotonic() > deadline or hurry():
            gentle = False
            _signal_session(child, signal.SIGKILL)
            child.wait()
            break
        time.sleep(poll)
    return gentle


@contextlib.contextmanager
def open_log(log: Path, argv: Sequence[str]) -> Iterator[IO[str]]:
    """Append to a log, line by line, below a heading that is the command."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with disk_full_refused(log), log.open("a", buffering=1, encoding="utf-8") as out:
        out.write(f"$ {quoted(argv)}\n")
        yield out


def _start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None,
    stdout: int | IO[str],
    keep_open: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(keep_open),
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call into a loaded library
        )
    except OSError as error:
        raise HostError(
            f"cannot start {argv[0]}: {error.strerror}",
            problems=[f"the command was: {quoted(argv)}"],
            next_step=f"check that {argv[0]} exists and may be executed",
        ) from error


def end_with_parent() -> None:
    """``preexec_fn`` for a library that starts children itself: the kernel ends them with us."""
    _end_with_parent()


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_session(child: Child, number: signal.Signals) -> None:
    for pid in _session(child):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _session(child: Child) -> list[int]:
    """Live processes of a child's session.

    The child's number stays taken while its session has members: a process that bears it after
    the child was reaped is a stranger, and so is that one's session.
    """
    members = _session_members(child.pid)
    return [] if child.returncode is not None and child.pid in members else members


def _session_members(leader: int) -> list[int]:
    """Live processes whose session is ``leader``: ninja gives each compiler its own group."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                members.append(int(entry.name))
    return members
