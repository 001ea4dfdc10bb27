"""Memory as the kernel tells it, and what /proc/meminfo leaves out."""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import Final, Literal

from sparkbuild.doctor.captured import Memory, Mount, Swap
from sparkbuild.doctor.read.reader import Reader, meminfo

_KIB: Final = 1024
_SHM_SIZE: Final = "size"
_SHM_ATTACHED: Final = "nattch"
_IN_MEMORY: Final = {"tmpfs", "ramfs"}
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def read_memory(reader: Reader) -> Memory:
    """Everything about memory below the reader's root."""
    return Memory(
        meminfo=meminfo(reader.text("proc/meminfo", "memory.meminfo") or ""),
        swaps=read_swaps(reader),
        zram=_zram(reader),
        orphans=read_orphans(reader),
        tmpfs=read_tmpfs(reader),
        swappiness=reader.number("proc/sys/vm/swappiness", "memory.swappiness"),
        watermark_scale_factor=reader.number(
            "proc/sys/vm/watermark_scale_factor", "memory.watermark_scale_factor"
        ),
    )


def read_swaps(reader: Reader) -> tuple[Swap, ...] | None:
    """/proc/swaps."""
    text = reader.text("proc/swaps", "memory.swaps")
    if text is None:
        return None
    rows = (line.split() for line in text.splitlines()[1:])
    return tuple(
        Swap(
            path=(path := octal(row[0])),
            kind=_kind(path, row[-4]),
            size=int(row[-3]) * _KIB,
            used=int(row[-2]) * _KIB,
            priority=int(row[-1]),
        )
        for row in rows
        if len(row) >= 5
    )


def _kind(path: str, told: str) -> Literal["zram", "file", "partition"]:
    if PurePath(path).name.startswith("zram"):
        return "zram"
    return "file" if told == "file" else "partition"


def octal(text: str) -> str:
    """A path as it is: /proc writes spaces, tabs, line breaks and backslashes in octal."""
    return _OCTAL.sub(lambda code: chr(int(code[1], 8)), text)


def _zram(reader: Reader) -> int | None:
    """The third number of mm_stat is what a device takes (Linux' admin-guide/blockdev/zram.rst)."""
    stats = sorted((reader.root / "sys/block").glob("zram*/mm_stat"))
    rows = [(reader.text(str(path.relative_to(reader.root))) or "").split() for path in stats]
    return sum(int(row[2]) for row in rows if len(row) > 2) if rows else None


def read_orphans(reader: Reader) -> int | None:
    """Bytes of System V segments that no process is attached to."""
    text = reader.text("proc/sysvipc/shm", "memory.orphans")
    lines = [line.split() for line in (text or "").splitlines()]
    if text is None or not lines or not {_SHM_SIZE, _SHM_ATTACHED} <= set(lines[0]):
        return None
    size, attached = lines[0].index(_SHM_SIZE), lines[0].index(_SHM_ATTACHED)
    return sum(int(row[size]) for row in lines[1:] if len(row) > attached and row[attached] == "0")


def read_tmpfs(reader: Reader) -> tuple[Mount, ...] | None:
    """File systems in memory that hold something, each once."""
    text = reader.text("proc/self/mounts", "memory.tmpfs")
    if text is None:
        return None
    found: dict[int, Mount] = {}
    for row in (line.split() for line in text.splitlines()):
        if len(row) < 3 or row[2] not in _IN_MEMORY:
            continue
        path = octal(row[1])
        try:
            state, device = os.statvfs(path), os.stat(path).st_dev  # noqa: PTH116 - beside statvfs
        except OSError:
            continue  # another user's, or below something that was mounted over it
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        if used > 0:
            found.setdefault(device, Mount(path=path, used=used))
    return tuple(found.values())
