"""What surrounds CMake, ninja and the compilers: an environment from nothing, and an identity.

llama.cpp asks ``git`` who it is. In a source archive there is no answer (``build 0, commit
unknown``); below somebody else's repository there is a wrong one. So the only ``git`` that a build
can reach is a script that knows this tree's identity and nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.files import write_atomic

SOURCE_DATE_EPOCH: Final = 315_532_800
"""1980-01-01, the oldest date that a zip archive holds: ``__DATE__`` must not tell the day."""

GIT_VERSION: Final = "2.39.0"
"""A version that CMake's FindGit accepts; the script is no git of any version."""

_SYSTEM_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Where binutils and the shell are. The user's own PATH would bring linkers and packages."""

TOOLS_DIRECTORY: Final = ".sparkbuild"
"""Below a binary directory: the ``git`` script, and the sign that the directory is ours."""

_IDENTITY: Final = re.compile(r"[0-9a-f]{7,40}")

_SCRIPT: Final = """\
#!/bin/sh
# Answers for a source tree that is no repository: its pinned identity, and nothing else.
case "$*" in
  --version) echo "git version {version}" ;;
  "rev-parse --short HEAD") echo {identity} ;;
  "rev-list --count HEAD") echo {build} ;;
  "diff-index --quiet HEAD"*) ;;
  "log -1 --format=%ad"*) echo "Tue Jan 1 00:00:00 1980" ;;
  *) exit 1 ;;
esac
"""


def git_script(identity: str, build: int | None) -> str:
    """The stand-in for ``git``; an unknown build number (a fork's) reads 0, as upstream has it."""
    if not _IDENTITY.fullmatch(identity):
        raise ValueError(f"not a commit: {identity!r}")
    return _SCRIPT.format(version=GIT_VERSION, identity=identity, build=int(build or 0))


def install_git(directory: Path, identity: str, build: int | None) -> Path:
    """Write the stand-in into ``directory`` and return its path."""
    program = directory / "git"
    write_atomic(program, git_script(identity, build), mode=0o755)
    return program


def build_environment(tools: Path, compilers: Iterable[str]) -> dict[str, str]:
    """The environment of configure and build; ``tools`` is the directory with the ``git`` script.

    ``HOME`` is that directory too: CMake looks for its package registry below the real one.
    """
    beside = [Path(compiler).parent for compiler in compilers]
    search = dict.fromkeys([tools, *beside, *map(Path, _SYSTEM_PATH)])
    return process.environment(
        extra={
            "HOME": str(tools),
            "PATH": os.pathsep.join(map(str, search)),
            "SOURCE_DATE_EPOCH": str(SOURCE_DATE_EPOCH),
        }
    )


def fresh_directory(directory: Path, marker: Path) -> None:
    """Empty ``directory`` but for ``marker`` in it: nothing of an interrupted configure is used.

    The marker comes first and stays, so that a run killed here still leaves a known directory.
    """
    marker.mkdir(parents=True, exist_ok=True)
    for child in directory.iterdir():
        if child == marker:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()
