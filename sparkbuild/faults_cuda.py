"""The CUDA build that faults in CUDA code are compiled beside: found here, or made for this GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sparkbuild.doctor.read.gpu import read_gpu
from sparkbuild.doctor.read.reader import Reader
from sparkbuild.errors import HostError
from sparkbuild.faults.lane import lane_of
from sparkbuild.workspace import Workspace

_ON: Final = re.compile(r"^GGML_CUDA:[A-Z]+=(?:ON|1|TRUE)$", re.MULTILINE)
_TARGETS: Final = re.compile(r"^CMAKE_CUDA_ARCHITECTURES:[A-Z]+=(?P<targets>.*)$", re.MULTILINE)
_SPECIFIC: Final = 100
"""From this architecture on the product builds for the GPU at hand alone, ``121a``."""


def architecture() -> str | None:
    """What ``make --arch`` has to be for the first GPU that is seen; None where it does not say."""
    for device in read_gpu(Reader()).devices:
        if device.capability:
            major, minor = device.capability
            number = 10 * major + minor
            return f"{number}a" if number >= _SPECIFIC else str(number)
    return None


def find_cuda(workspace: Workspace, toolkit: str | None, arch: str | None) -> Path | None:
    """CMake's folder of the newest finished CUDA build, made with this toolkit, for this GPU."""
    name = f"*-cuda-{toolkit}-*" if toolkit else "*"
    caches = workspace.root.glob(f"builds/{name}/cmake/CMakeCache.txt")
    for cache in sorted(caches, key=lambda cache: -cache.stat().st_mtime_ns):
        text = cache.read_text(errors="replace")
        targets = _TARGETS.search(text)
        built = re.findall(r"\d+[af]?", targets["targets"]) if targets else []
        fits = arch is None or arch in built
        if _ON.search(text) and fits and lane_of(workspace.root, cache.parent):
            return cache.parent.resolve()
    return None


def build_name(cuda: Path | None) -> str:
    """The name of a build's folder, which holds its key."""
    return cuda.parent.name if cuda else ""


def cuda_build(
    workspace: Workspace, toolkit: str | None, make: Callable[[tuple[str, ...]], None]
) -> Path:
    """CMake's folder of a CUDA build for this GPU: that which is here, else ``make`` makes one.

    ``make`` takes arguments of ``sparkbuild make``. Raises HostError.
    """
    arch = architecture()
    found = find_cuda(workspace, toolkit, arch)
    if found is None:
        make(make_arguments(toolkit, arch))
        found = find_cuda(workspace, toolkit, arch)
    if found is None:
        raise HostError(
            f"{workspace.root} holds no CUDA build after sparkbuild make",
            evidence=[workspace.root / "builds"],
        )
    return found


def make_arguments(toolkit: str | None, arch: str | None) -> tuple[str, ...]:
    """How ``sparkbuild make`` is asked for it. Raises HostError where no GPU says what it is.

    Without a toolkit's name ``make`` takes the newest good one that it finds.
    """
    if arch is None:
        raise HostError(
            "no GPU of this machine says what it is",
            problems=["expected an answer of NVML with its compute capability"],
            next_step="see `sparkbuild doctor`; or make a CUDA build in the same work folder first",
        )
    chosen = ("--toolkit", toolkit) if toolkit else ()
    return (*chosen, "--arch", arch)
