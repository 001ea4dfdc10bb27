"""Where a CUDA toolkit may lie on this machine: folders, variables, programs, environments.

The order is that of preference, used where several roots hold the same bytes: the variables
``CUDA_HOME``, ``CUDA_PATH``, ``CUDACXX``; ``/usr/local/cuda-X.Y``; the rest of the system
(``/usr/local``, ``/opt``, ``PATH``, conda); what sparkbuild installed; Python environments.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.process import capture
from sparkbuild.toolkit.provision.tree import provisioned_roots

_SIGNS: Final = ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "include/cuda_runtime_api.h")
"""A folder with any of these holds at least a part of a toolkit."""

_VERSIONED: Final = re.compile(r"cuda-\d+\.\d+(\.\d+)?")
_PACKAGED: Final = re.compile(r"cu\d+|cuda_nvcc")
"""Folders below ``site-packages/nvidia``: one root since 13, one folder for each part before."""

_TOP: Final = re.compile(r"^#\$ TOP=(?P<top>/.*)$", re.MULTILINE)
"""How ``nvcc --dryrun`` states the folder above its ``bin``."""

_EXEC: Final = re.compile(r'^exec (?P<program>/\S+/nvcc) "\$@"$', re.MULTILINE)
"""The one line of most wrappers."""

_SCRIPT: Final = 4096
"""Bytes of a script that are read; a wrapper of one line has 60."""

_DRYRUN_SECONDS: Final = 10.0
"""A dry run took 0.1 s; a program that takes a hundred times that is no wrapper of nvcc."""


@dataclass(frozen=True, kw_only=True)
class System:
    """Folders of this machine; a test gives its own."""

    local: Path = Path("/usr/local")
    opt: Path = Path("/opt")
    python: Path = Path(sys.prefix)


THIS_MACHINE: Final = System()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A root with its links resolved, and every name under which it was found."""

    root: Path
    where: tuple[str, ...]


def places(
    *, provisioned: Path, env: Mapping[str, str] = os.environ, system: System = THIS_MACHINE
) -> tuple[Place, ...]:
    """Every folder that holds at least a part of a toolkit, each once, in order of preference.

    Nothing is believed yet. The only programs that may run are those called ``nvcc`` that are no
    compiler themselves: a wrapper is asked which one it starts.
    """
    found: dict[Path, dict[str, None]] = {}
    for folder, name in _all(provisioned, env, system):
        root = _real(folder)
        if any(_is_file(root / sign) for sign in _SIGNS):
            link = "" if root == folder.absolute() else f" -> {root}"
            found.setdefault(root, {})[f"{name}{link}"] = None
    return tuple(Place(root=root, where=tuple(names)) for root, names in found.items())


def root_of(program: Path) -> tuple[Path, Path | None]:
    """The root that a program called ``nvcc`` belongs to, and the program that it runs instead.

    A compiler's root is the folder above its ``bin``, links followed. A script of one ``exec`` is
    read; another one, or a link to a program of another name, is asked with a dry run. Where that
    leads to no compiler, its own place is given with no other program, so that it is seen for
    what it is.
    """
    real = _real(program)
    if real.name == "nvcc" and is_elf(real):
        return real.parent.parent, None
    named = _EXEC.search(_beginning(real))
    started = _real(Path(named["program"])) if named else real
    if started != real and started.name == "nvcc" and is_elf(started):
        return started.parent.parent, started
    answer = capture([str(program), "--dryrun", "-E", "-x", "cu", os.devnull],
                     timeout=_DRYRUN_SECONDS)  # fmt: skip
    top = dryrun_top(answer.stdout + answer.stderr)
    if top is None or not _is_file(top / "bin/nvcc"):
        return program.absolute().parent.parent, None
    return top, top / "bin/nvcc"


def dryrun_top(text: str) -> Path | None:
    """The ``TOP`` of a dry run, ``/usr/local/cuda-13.0`` for ``/usr/local/cuda-13.0/bin/..``."""
    found = _TOP.search(text)
    return _real(Path(found["top"])) if found and "\0" not in found["top"] else None


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_SCRIPT).decode(errors="replace")
    except OSError:
        return ""


def is_elf(path: Path) -> bool:
    """True where a file begins as an ELF file does; False where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _real(path: Path) -> Path:
    """Links followed, in a circle of links as far as it goes."""
    return Path(os.path.realpath(path))


def _is_file(path: Path) -> bool:
    """False as well where the folder may not be read."""
    try:
        return path.is_file()
    except OSError:
        return False


_Named = Iterator[tuple[Path, str]]
"""Folders, and under which name each was found."""


def _all(provisioned: Path, env: Mapping[str, str], system: System) -> _Named:
    yield from _variables(env)
    yield from _local(system.local)
    yield from _opt(system.opt)
    yield from _path(env)
    yield from _conda(env)
    yield from _installed(provisioned)
    yield from _python(env, system)


def _variables(env: Mapping[str, str]) -> _Named:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(name):
            yield Path(env[name]), f"{name}={env[name]}"
    compiler = (
        shutil.which(env["CUDACXX"], path=env.get("PATH", "")) if env.get("CUDACXX") else None
    )
    if compiler is not None:
        yield from _program(Path(compiler), f"CUDACXX={env['CUDACXX']}")


def _program(program: Path, name: str) -> _Named:
    root, runs = root_of(program)
    yield root, f"{name} runs {runs}" if runs else name


def _local(folder: Path) -> _Named:
    """Those that name a release first."""
    found = sorted(folder.glob("cuda*"))
    for path in sorted(found, key=lambda path: _VERSIONED.fullmatch(path.name) is None):
        yield path, str(path)


def _opt(folder: Path) -> _Named:
    """NVIDIA's HPC SDK has ``hpc_sdk/<platform>/<version>/cuda/<release>``."""
    for pattern in ("cuda*", "nvidia/cuda*", "nvidia/hpc_sdk/*/*/cuda/*"):
        for path in sorted(folder.glob(pattern)):
            yield path, str(path)


def _path(env: Mapping[str, str]) -> _Named:
    for program in _on_path("nvcc", env):
        yield from _program(program, f"PATH: {program}")


def _on_path(name: str, env: Mapping[str, str]) -> Iterator[Path]:
    folders = dict.fromkeys(env.get("PATH", "").split(os.pathsep))
    for folder in folders:
        program = Path(folder) / name
        if folder and _is_file(program) and os.access(program, os.X_OK):
            yield program


def _conda(env: Mapping[str, str]) -> _Named:
    """The active prefix, and those that conda keeps a list of."""
    if env.get("CONDA_PREFIX"):
        yield Path(env["CONDA_PREFIX"]), f"conda: {env['CONDA_PREFIX']}"
    try:
        lines = (_home(env) / ".conda/environments.txt").read_text(errors="replace").splitlines()
    except OSError:
        return
    for prefix in map(str.strip, lines):
        if prefix.startswith("/") and "\0" not in prefix:
            yield Path(prefix), f"conda: {prefix}"


def _installed(provisioned: Path) -> _Named:
    for path in provisioned_roots(provisioned):
        yield path, f"sparkbuild toolkit install: {path.relative_to(provisioned)}"


def _python(env: Mapping[str, str], system: System) -> _Named:
    for prefix in dict.fromkeys(_prefixes(env, system)):
        for path in sorted(prefix.glob("lib*/python3*/*-packages/nvidia/cu*")):
            if _PACKAGED.fullmatch(path.name):
                yield path, f"Python: {path}"


def _prefixes(env: Mapping[str, str], system: System) -> Iterator[Path]:
    """Prefixes of Python environments; no interpreter is started for it.

    A virtual environment's ``python`` is a link: both ends count. The programs of a version
    manager in ``shims`` stand for all the versions beside that folder.
    """
    yield system.python
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if env.get(name):
            yield Path(env[name])
    for name in ("python", "python3"):
        for program in _on_path(name, env):
            if program.parent.name == "shims":
                yield from sorted((program.parent.parent / "versions").glob("*"))
            else:
                yield from (program.parent.parent, _real(program).parent.parent)
    yield from (_home(env) / ".local", system.local)


def _home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()
