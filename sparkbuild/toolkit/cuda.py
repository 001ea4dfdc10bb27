"""A CUDA toolkit's root: where one may be, and what its parts say of themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sparkbuild.errors import ToolkitMismatchError
from sparkbuild.files import DigestCache
from sparkbuild.manifest import CudaSection
from sparkbuild.process import capture
from sparkbuild.toolkit.model import Part

_TOOLS: Final = {"nvcc": "bin/nvcc", "ptxas": "bin/ptxas", "fatbinary": "bin/fatbinary"}
"""Programs of the toolkit that print their version."""

_LIBRARIES: Final = ("cudart", "cublas", "cublasLt")
"""Libraries that llama.cpp's CUDA back end links."""


def candidate_roots(release: str, env: Mapping[str, str] = os.environ) -> list[Path]:
    """Existing toolkit roots on this machine, each once, links resolved, best guess first."""
    places = [Path(env[name]) for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)]
    places += [Path(f"/usr/local/cuda-{release}"), Path("/usr/local/cuda")]
    places += sorted(Path("/usr/local").glob("cuda-*")) + sorted(Path("/opt").glob("cuda*"))
    roots: dict[Path, None] = {}
    for place in places:
        if (place / "bin/nvcc").is_file():
            roots.setdefault(place.resolve())
    return list(roots)


def tool_version(program: Path) -> str | None:
    """The ``V13.0.88`` of a toolkit program, without the V; None where it does not answer."""
    answer = capture([str(program), "--version"])
    found = re.search(r"\bV(\d+\.\d+\.\d+)", answer.stdout)
    return found[1] if answer.returncode == 0 and found else None


def cudart_version(header: str) -> str | None:
    """``13.0`` from the ``CUDART_VERSION 13000`` of cuda_runtime_api.h."""
    found = re.search(r"^#define\s+CUDART_VERSION\s+(\d+)", header, re.MULTILINE)
    if not found:
        return None
    number = int(found[1])
    return f"{number // 1000}.{number % 1000 // 10}"


def identify(root: Path, expected: CudaSection, digests: DigestCache) -> tuple[Part, ...]:
    """Every part below ``root``.

    Raises ToolkitMismatchError with all that is missing or differs.
    """
    problems: list[str] = []
    found = [
        *_tools(root, digests, problems),
        _cicc(root, digests, problems),
        _header(root, digests, problems),
        *(_library(root, name, digests, problems) for name in _LIBRARIES),
    ]
    parts = [part for part in found if part is not None]
    problems += _disagreements(parts, expected)
    if problems:
        raise ToolkitMismatchError(
            f"{root} is not a whole CUDA {expected.release} toolkit",
            problems=problems,
            evidence=[root],
            next_step=f"install CUDA {expected.release} completely (nvcc {expected.nvcc}), or name "
            "another root: --toolkit /path/to/cuda",
        )
    return tuple(parts)


def _tools(root: Path, digests: DigestCache, problems: list[str]) -> list[Part]:
    parts = []
    for name, place in _TOOLS.items():
        path = root / place
        version = tool_version(path) if path.is_file() else None
        if version is None:
            problems.append(f"{path}: {'prints no version' if path.is_file() else 'missing'}")
            continue
        parts.append(_part(name, version, f"{place} --version", path, digests))
    return parts


def _cicc(root: Path, digests: DigestCache, problems: list[str]) -> Part | None:
    path = root / "nvvm/bin/cicc"
    if not path.is_file():
        problems.append(f"{path}: missing")
        return None
    # cicc prints no version: its digest is its identity.
    return _part("cicc", "unstated", "digest only", path, digests)


def _header(root: Path, digests: DigestCache, problems: list[str]) -> Part | None:
    path = root / "include/cuda_runtime_api.h"
    version = cudart_version(path.read_text(errors="replace")) if path.is_file() else None
    if version is None:
        problems.append(f"{path}: {'states no CUDART_VERSION' if path.is_file() else 'missing'}")
        return None
    return _part("cudart headers", version, "CUDART_VERSION", path, digests)


def _library(root: Path, name: str, digests: DigestCache, problems: list[str]) -> Part | None:
    link = root / f"lib64/lib{name}.so"
    if not link.is_file():
        problems.append(f"{link}: missing")
        return None
    real = link.resolve()
    version = real.name.partition(".so.")[2] or "unstated"
    return _part(f"lib{name}", version, "file name", real, digests)


def _part(name: str, version: str, read_from: str, path: Path, digests: DigestCache) -> Part:
    return Part(
        name=name,
        version=version,
        read_from=read_from,
        path=str(path),
        sha256=digests.sha256(path.resolve()),
    )


def _disagreements(parts: Sequence[Part], expected: CudaSection) -> list[str]:
    found = {part.name: part for part in parts}
    wanted = {
        "nvcc": expected.nvcc,
        "ptxas": expected.nvcc,
        "cudart headers": expected.cudart,
    }
    return [
        f"{name} is {found[name].version} ({found[name].path}), expected {version}"
        for name, version in wanted.items()
        if name in found and found[name].version != version
    ]
