"""The room's one door to git: GitPython runs it, nothing of the user's own git setup gets in."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from git.cmd import Git

from sparkbuild.errors import HostError
from sparkbuild.files import disk_full
from sparkbuild.process import end_with_parent, environment

_CONFIGURATION: Final = {
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.compression": "1",  # sources are small; speed matters more than their last 10 %
    "core.fsync": "committed,reference",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "credential.helper": "",
    "fastimport.unpackLimit": "1",  # always a pack: one file to fsync and to rename
    "fetch.unpackLimit": "1",
    "gc.auto": "0",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "30",
    "maintenance.auto": "false",
    "protocol.version": "2",
}
_ENVIRONMENT: Final = {
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",  # not ext, which runs commands
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=15",
    "GIT_TERMINAL_PROMPT": "0",
}
_NO_ROOM: Final = ("No space left on device", "Disk quota exceeded", "Out of diskspace")
"""How the C library and git itself put it."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a git command ended: exit status, bytes of stdout, text of stderr."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Stdout as text, without the last newline."""
        return self.out.decode(errors="replace").rstrip("\n")


class GitFailedError(Exception):
    """A git command ended badly; the text is what git said."""


class Repository:
    """A bare repository that git is run in. ``index`` stands in for the one it lacks."""

    def __init__(
        self, directory: Path, *, index: Path | None = None, home: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._extra = {
            **_ENVIRONMENT,
            "GIT_CONFIG_GLOBAL": os.devnull,
            **({"GIT_INDEX_FILE": str(index)} if index else {}),
            **(home or {}),
        }

    def run(
        self,
        *arguments: str,
        stdin: BinaryIO | None = None,
        seconds: float | None = None,
        network: bool = False,
    ) -> Answer:
        """Run git; ``seconds`` is when it is killed. Raises DiskFullError, HostError."""
        env = self._environment(network=network)
        with _started(arguments):
            status, out, err = Git(str(self.directory)).execute(
                self._command(arguments, env),
                istream=stdin,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                kill_after_timeout=seconds,
                env=env,
                preexec_fn=end_with_parent,
            )
        if status != 0 and any(text in err for text in _NO_ROOM):
            raise disk_full(self.directory)
        if err.startswith("Timeout: the command"):
            err = f"no end within {seconds:g} s"
        return Answer(status=status, out=out, err=err)

    def must(
        self,
        *arguments: str,
        stdin: BinaryIO | None = None,
        seconds: float | None = None,
        network: bool = False,
    ) -> Answer:
        """Like ``run``; raises GitFailedError with git's own words where it ended badly."""
        answer = self.run(*arguments, stdin=stdin, seconds=seconds, network=network)
        if answer.status != 0:
            raise GitFailedError(said(answer.err) or f"git {arguments[0]} ended badly")
        return answer

    @contextlib.contextmanager
    def reading(self, *arguments: str, stdin: BinaryIO) -> Iterator[BinaryIO]:
        """Run git and read its stdout as it comes; git is ended with the ``with``."""
        env = self._environment(network=False)
        with _started(arguments):
            child = Git(str(self.directory)).execute(
                self._command(arguments, env),
                istream=stdin,
                as_process=True,
                env=env,
                preexec_fn=end_with_parent,
            )
        try:
            yield child.stdout
        finally:
            child._terminate()  # the only way that closes its pipes too

    def _environment(self, *, network: bool) -> dict[str, str]:
        return environment(extra=self._extra, network=network)

    def _command(self, arguments: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """GitPython adds to the environment and cannot take away; ``env -u`` can, by name only."""
        foreign = [word for name in os.environ if name not in env for word in ("-u", name)]
        settings = [word for item in _CONFIGURATION.items() for word in ("-c", "=".join(item))]
        here = f"--git-dir={self.directory}"
        return ["env", *foreign, "git", *settings, here, *arguments]


def said(err: str) -> str:
    """The lines of git's stderr that say why, on one line."""
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return "; ".join(telling or lines[-2:])


@contextlib.contextmanager
def _started(arguments: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostError(
            f"cannot run git {arguments[0]}: {error.strerror}",
            next_step="check that `git --version` works in this shell",
        ) from error
