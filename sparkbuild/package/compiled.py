"""Which files the compilers of a build really read: ninja's own record of every object's inputs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sparkbuild import process
from sparkbuild.errors import PackageError


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """Files that were read, as paths below the source tree and below the toolkit's root."""

    source: tuple[str, ...]
    toolkit: tuple[str, ...] = ()


def compiled_files(
    binary_dir: Path, *, source: Path, toolkit: Path | None, ninja: Path
) -> Compiled:
    """Ask ninja's dependency log of a finished build.

    Raises PackageError where the log holds no file of the source tree: an SBOM made of it would
    be silent about everything.
    """
    argv = [str(ninja), "-C", str(binary_dir), "-t", "deps"]
    done = process.capture(argv, timeout=600.0)
    found = parse_deps(done.stdout.splitlines())
    read = Compiled(
        source=below(found, source, binary_dir),
        toolkit=canonical(below(found, toolkit, binary_dir)),
    )
    if done.returncode != 0 or not read.source:
        raise PackageError(
            "the build does not tell which files its compilers read",
            problems=[
                f"expected files of {source}, found none",
                f"ninja ended with status {done.returncode}: {done.stderr.strip() or 'silent'}",
            ],
            evidence=[binary_dir / ".ninja_deps"],
            next_step=f"{process.quoted(argv)}; to build again, delete {binary_dir}",
        )
    return read


def parse_deps(lines: Iterable[str]) -> set[str]:
    """Inputs of every object whose entry is valid, as ninja wrote them.

    An entry is ``object: #deps N, deps mtime T (VALID)`` and one indented line for each input;
    what an older build left is ``(STALE)``.
    """
    inputs: set[str] = set()
    valid = False
    for line in lines:
        if line.startswith("    "):
            if valid:
                inputs.add(line[4:])
        elif line:
            valid = line.endswith("(VALID)")
    return inputs


def canonical(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths below a toolkit's root as wheels have them: NVIDIA's packages nest them by platform."""
    return tuple(sorted(re.sub(r"^targets/[^/]+/", "", path) for path in paths))


def below(paths: Iterable[str], root: Path | None, cwd: Path) -> tuple[str, ...]:
    """Those that lie below ``root``, relative to it, links resolved, sorted."""
    if root is None:
        return ()
    top = os.path.realpath(root) + os.sep
    real = {os.path.realpath(cwd / path) for path in paths}
    return tuple(sorted(path.removeprefix(top) for path in real if path.startswith(top)))
