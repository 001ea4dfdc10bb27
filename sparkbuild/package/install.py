"""Install a wheel where nothing else is, and start it where nothing helps it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild import process
from sparkbuild.build.model import BinaryFacts
from sparkbuild.errors import HostError, PackageError
from sparkbuild.files import disk_full, sha256_file
from sparkbuild.package.identity import IMPORT_NAME
from sparkbuild.package.model import Wheel

_SCRATCH: Final = ".installing-"

_ORIGIN: Final = "$ORIGIN"

_BARE: Final = {"CUDA_VISIBLE_DEVICES": "-1"}
"""The environment of the installed programs: no PATH, no HOME, no locale, no library path. The
GPU is hidden because a version needs none, and asking a busy one has cut output short on GB10."""

_ASK: Final = f"""\
import json, sys
import {IMPORT_NAME} as package
files = {{name: str(package.path_of(name)) for name in package.build_info()["binaries"]}}
sys.stdout.write(json.dumps({{"version": package.build_info()["version"], "files": files}}))
"""


class _Answer(msgspec.Struct, frozen=True):
    """What the installed package says about itself."""

    version: str
    files: dict[str, str]


def install_and_run(
    wheel: Wheel,
    *,
    facts: BinaryFacts,
    workdir: Path,
    log: Path,
    program: str = "llama-server",
    beside: Sequence[Path] = (),
    keep_open: Sequence[int] = (),
) -> str:
    """Install into an empty virtual environment and start ``program --version`` there.

    It runs from ``/`` and from a directory full of traps (modules and libraries with the names
    that the script needs), without ``PATH``; the line that inspection read must be in its output.
    The installed files must have the digests that inspection recorded. ``beside`` are libraries
    that other wheels bring: they are put where those wheels have them, as the RUNPATH says, and no
    search path is set. Returns that line. The environment is removed again. Raises PackageError,
    HostError where no environment can be made.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    for left in workdir.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(dir=workdir, prefix=_SCRATCH))
    try:
        environment = scratch / "venv"
        _create(environment, log=log, keep_open=keep_open)
        _install(Path(wheel.path), environment, log=log, keep_open=keep_open)
        _put_beside(environment, beside, facts)
        traps = _traps(scratch / "traps", facts)
        problems = [
            *_script_problems(wheel, environment),
            *_package_problems(wheel, facts, environment, traps),
            *_version_problems(facts, environment / "bin" / program, [Path("/"), traps], log),
        ]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if problems:
        raise PackageError(
            f"{Path(wheel.path).name}, installed, is not what was tested",
            problems=problems,
            evidence=[Path(wheel.path), log],
            next_step=f"see for yourself: install {wheel.path} into an empty virtual environment "
            f"and run {program} --version from /",
        )
    return facts.version_line


def _create(environment: Path, *, log: Path, keep_open: Sequence[int]) -> None:
    """Without pip inside where this interpreter's own pip can install from outside."""
    own_pip = importlib.util.find_spec("pip") is not None
    if not own_pip and importlib.util.find_spec("ensurepip") is None:
        raise HostError(
            "this Python can make no virtual environment that installs wheels",
            problems=[f"{sys.executable} has neither pip nor ensurepip"],
            next_step="install one of them (Debian and Ubuntu: apt install python3-venv)",
        )
    options = ["--without-pip"] if own_pip else []
    _run(["-m", "venv", *options, str(environment)], "make a virtual environment", log, keep_open)


def _install(wheel: Path, environment: Path, *, log: Path, keep_open: Sequence[int]) -> None:
    python = environment / "bin" / "python"
    inside = not (environment / "bin" / "pip").exists()
    options = ["--isolated", "--disable-pip-version-check", "--no-input"]
    if inside:
        options += ["--python", str(python)]
    _run(
        ["-m", "pip", *options, "install", "--no-index", "--no-deps", "--no-cache-dir", str(wheel)],
        f"install {wheel.name}",
        log,
        keep_open,
        python=Path(sys.executable) if inside else python,
    )


def _put_beside(environment: Path, libraries: Sequence[Path], facts: BinaryFacts) -> None:
    """Link every library into each folder that a RUNPATH names outside the package."""
    package = next(environment.glob(f"lib/python*/site-packages/{IMPORT_NAME}"), None)
    if package is None or not libraries:
        return
    entries = {entry for binary in facts.binaries for entry in binary.runpath}
    for entry in sorted(entries - {_ORIGIN}):
        folder = Path(os.path.normpath(entry.replace(_ORIGIN, str(package / "bin"), 1)))
        folder.mkdir(parents=True, exist_ok=True)
        for library in libraries:
            (folder / library.name).symlink_to(library)


def _run(
    arguments: Sequence[str],
    what: str,
    log: Path,
    keep_open: Sequence[int],
    *,
    python: Path | None = None,
) -> None:
    argv = [str(python or sys.executable), "-I", *arguments]
    # A file of the user's could make pip install elsewhere; the null device means: read none.
    env = process.environment(extra={"PIP_CONFIG_FILE": "/dev/null"})
    done = process.run(argv, log=log, env=env, keep_open=keep_open)
    if done.returncode == 0:
        return
    if "No space left on device" in done.tail:
        raise disk_full(log)
    raise PackageError(
        f"cannot {what}: exit status {done.returncode}",
        evidence=[log],
        next_step=process.quoted(argv),
        detail=done.tail,
    )


def _traps(place: Path, facts: BinaryFacts) -> Path:
    """A working directory that breaks a program which looks for its parts in it."""
    place.mkdir()
    for module in (IMPORT_NAME, "json", "os", "pathlib", "signal"):
        (place / f"{module}.py").write_text("raise ImportError('found in the working directory')\n")
    for binary in facts.binaries:
        (place / binary.name).write_bytes(b"no ELF file\n")
    return place


def _script_problems(wheel: Wheel, environment: Path) -> list[str]:
    return [
        f"the console script {name} was not installed"
        for name in wheel.scripts
        if not (environment / "bin" / name).is_file()
    ]


def _package_problems(wheel: Wheel, facts: BinaryFacts, environment: Path, cwd: Path) -> list[str]:
    argv = [str(environment / "bin" / "python"), "-I", "-c", _ASK]
    said = process.capture(argv, env=_BARE, cwd=cwd)
    try:
        answer = msgspec.json.decode(said.stdout.encode(), type=_Answer)
    except msgspec.DecodeError:
        return [f"import {IMPORT_NAME} failed (status {said.returncode}): {_last(said.stderr)}"]
    problems = []
    if answer.version != wheel.version:
        problems.append(f"build_info() says {answer.version}, the wheel {wheel.version}")
    for binary in facts.binaries:
        found = _digest(answer.files, binary.name)
        if found != binary.sha256:
            problems.append(f"{binary.name}: expected sha256 {binary.sha256}, installed {found}")
    return problems


def _digest(files: Mapping[str, str], name: str) -> str:
    path = Path(files.get(name, "/nonexistent"))
    return sha256_file(path) if path.is_file() else "nothing"


def _version_problems(
    facts: BinaryFacts, script: Path, places: Sequence[Path], log: Path
) -> list[str]:
    if not script.is_file():
        return []
    problems = []
    for place in places:
        lines: list[str] = []
        done = process.run(
            [str(script), "--version"], log=log, env=_BARE, cwd=place, on_line=lines.append
        )
        if done.returncode != 0 or facts.version_line not in lines:
            found = json.dumps(_last(done.tail))
            problems.append(
                f"{script.name} --version from {place}: expected {facts.version_line!r}, "
                f"found status {done.returncode} and {found}"
            )
    return problems


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
