"""PTX becomes a cubin for one device: the toolkit's own nvcc calls its own ptxas, as a build does.

What is made for another target than the device's is retargeted: the same PTX with another
``.target``. Kernels that need instructions which the device lacks are left out, each with ptxas's
words, and the others of the unit are assembled without them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild import process
from sparkbuild.files import sha256_file, write_atomic
from sparkbuild.qualify.compile import Nvcc
from sparkbuild.qualify.model import Made, Unit

_ARCHITECTURE: Final = re.compile(r"(\d+)(\d)([af]?)")
_TARGET: Final = re.compile(r"^\.target\s+sm_\w+", re.MULTILINE)
_KERNEL: Final = re.compile(r"^(?:\.visible\s+)?\.entry\s+([\w$]+)", re.MULTILINE)
_HIDDEN: Final = re.compile(r"^\.entry\b", re.MULTILINE)
_AT_LINE: Final = re.compile(r"line (\d+); error\s*:\s*(.*)")
_ROUNDS: Final = 8
"""ptxas names every kernel that it refuses at once; what is left may call for a second look."""
LONGEST: Final = 600.0
"""Seconds for one unit; two on one core."""


class Assembled(msgspec.Struct, frozen=True, kw_only=True):
    """One unit as machine code; paths are absolute.

    ``left_out`` has the kernels that the device cannot run, with ptxas's reason.
    """

    name: str
    ptx: str
    ptx_sha256: str
    target: str
    made: Made
    cubin: str = ""
    cubin_sha256: str = ""
    left_out: Mapping[str, str] = {}
    error: str = ""
    """Why there is no cubin."""


def runs(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether a cubin for ``architecture`` (``121a``, ``86``) runs on a device, by the PTX manual.

    A plain one runs on its major's later minors, one with ``f`` within its family, which is that
    too; one with ``a`` on its very own alone.
    """
    match = _ARCHITECTURE.fullmatch(architecture)
    if match is None:
        return False
    major, minor = int(match[1]), int(match[2])
    if match[3] == "a":
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


def assemble_unit(nvcc: Nvcc, unit: Unit, target: str, made: Made) -> Assembled:
    """Assemble a compiled unit for ``target`` beside its PTX; a failure is in the result."""
    ptx = Path(unit.ptx)
    text = prepared(ptx.read_text(encoding="utf-8"), target if made == "retargeted" else "")
    work, cubin = ptx.with_suffix(".gpu.ptx"), ptx.with_suffix(".cubin")
    left_out: dict[str, str] = {}
    error = "kernels were left out again and again"
    for _ in range(_ROUNDS):
        write_atomic(work, text)
        cubin.unlink(missing_ok=True)
        said = _assemble(nvcc, work, cubin, target)
        if said is None:
            error = ""
            break
        refused = _refused(text, said) if made == "retargeted" else {}
        if not refused:
            error = _first_error(said)
            break
        left_out |= refused
        text = without(text, refused)
    work.unlink()
    return Assembled(
        name=unit.name,
        ptx=unit.ptx,
        ptx_sha256=unit.ptx_sha256,
        target=target,
        made=made,
        cubin="" if error else str(cubin),
        cubin_sha256="" if error else sha256_file(cubin),
        left_out=left_out,
        error=error,
    )


def prepared(text: str, target: str) -> str:
    """PTX as it is assembled: for ``target`` where one is given, every kernel to be found by name.

    A kernel of internal linkage, as nvcc makes of templates, is a local symbol of the cubin, which
    the driver does not look up; its linkage changes nothing in its code.
    """
    if target:
        text = _TARGET.sub(f".target sm_{target}", text, count=1)
    return _HIDDEN.sub(".visible .entry", text)


def without(text: str, kernels: Mapping[str, str]) -> str:
    """The text without these kernels; every line keeps its number."""
    lines = text.split("\n")
    for name, first, end in _spans(lines):
        if name in kernels:
            lines[first:end] = [""] * (end - first)
    return "\n".join(lines)


def _spans(lines: list[str]) -> Iterator[tuple[str, int, int]]:
    """Kernels with their first line and the one after their last: the first ``}`` at its start."""
    name, first = "", 0
    for number, line in enumerate(lines):
        found = _KERNEL.match(line)
        if found:
            name, first = found[1], number
        elif name and line.startswith("}"):
            yield name, first, number + 1
            name = ""


def _refused(text: str, said: str) -> dict[str, str]:
    """Kernels that ptxas named a line of, with what it said of the first; lines count from 1."""
    spans = list(_spans(text.split("\n")))
    found: dict[str, str] = {}
    for line in said.splitlines():
        match = _AT_LINE.search(line)
        if match:
            at = int(match[1]) - 1
            for name, first, end in spans:
                if first <= at < end:
                    found.setdefault(name, f"ptxas: {match[2].strip()}")
    return found


def _first_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    wrong = next((line for line in lines if "error" in line or "fatal" in line), "")
    return wrong or (lines[0] if lines else "ptxas ended without a word")


def _assemble(nvcc: Nvcc, ptx: Path, cubin: Path, target: str) -> str | None:
    """Run it; what was said where it failed. Flags go along, for those that reach ptxas."""
    argv = [
        *nvcc.emulator,
        str(Path(nvcc.root) / "bin/nvcc"),
        *("-ccbin", nvcc.host),
        *nvcc.flags,
        *(f"-arch=sm_{target}", "-cubin", "-o", os.fspath(cubin), os.fspath(ptx)),
    ]
    done = process.capture(argv, env=nvcc.environment(), cwd=ptx.parent, timeout=LONGEST)
    if done.returncode == 0 and cubin.is_file():
        return None
    return f"{done.stdout}{done.stderr}" or f"status {done.returncode}"
