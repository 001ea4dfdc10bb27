"""How many compilers may run at once: what cores and memory allow."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

import psutil

GIB: Final = 1 << 30

CPP_BYTES: Final = int(1.5 * GIB)
"""One C++ compiler's share: the largest of b11434's sources peaks at 0.61 GiB with GCC 12 -O3."""

CUDA_BYTES: Final = 5 * GIB
"""One nvcc's share: builders of llama.cpp report several GiB for its largest kernels.

An MMQ instance for 121a peaks at 0.56 GiB; the flash attention templates were not measured. GB10
has 20 cores and 121 GiB, so that a generous share costs it nothing.
"""

RESERVED_BYTES: Final = 2 * GIB
"""Left to everything else. GB10 has unified memory and no clean out-of-memory: it livelocks."""


def job_count(cores: float, available: int, *, cuda: bool) -> int:
    """Parallel jobs for ``cores`` usable cores and ``available`` bytes; never less than one."""
    share = CUDA_BYTES if cuda else CPP_BYTES
    by_memory = max(0, available - RESERVED_BYTES) // share
    return max(1, min(math.ceil(cores), by_memory))


def usable_cores(cgroup_root: Path = Path("/sys/fs/cgroup")) -> float:
    """Cores that this process may use: its affinity, and every cpu.max above it (cgroup v2)."""
    cores = float(len(os.sched_getaffinity(0)))
    for group in _groups(cgroup_root):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            cores = min(cores, int(quota) / int(period))
    return cores


def available_memory(cgroup_root: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that may be used before the machine or a cgroup v2 limit above us runs out.

    MemAvailable, never MemFree: the page cache gives way to compilers.
    """
    available = int(psutil.virtual_memory().available)
    for group in _groups(cgroup_root):
        limit, used = _read(group / "memory.max"), _read(group / "memory.current")
        if limit.isdecimal() and used.isdecimal():
            available = min(available, max(0, int(limit) - int(used)))
    return available


def jobs_here(*, cuda: bool) -> int:
    """The number of jobs for this machine at this moment."""
    return job_count(usable_cores(), available_memory(), cuda=cuda)


def _groups(root: Path) -> list[Path]:
    """Our cgroup v2 directory and all above it."""
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::/"):
            own = root / line.removeprefix("0::/")
            return [own, *(parent for parent in own.parents if parent.is_relative_to(root))]
    return [root]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
