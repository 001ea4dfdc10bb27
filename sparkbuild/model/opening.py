"""Files opened so that nothing waits, nothing is set off, and a device is never read."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "no regular file (a pipe)"),
    (stat.S_ISSOCK, "no regular file (a socket)"),
    (stat.S_ISCHR, "no regular file (a device)"),
    (stat.S_ISBLK, "no regular file (a device)"),
)


class IrregularError(ValueError):
    """The path leads to something that is no file; the text says to what."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[int, int]]:
    """A file descriptor to read from, and the file's size in bytes.

    Raises IrregularError for a folder, a pipe, a socket or a device, none of which is opened:
    a pipe's other end may never come, and to open a device may set it off. Raises OSError.
    """
    _regular(path.stat())
    # It may have been replaced meanwhile, so the opening does not wait and is looked at again.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(handle)
        _regular(status)
        yield handle, status.st_size
    finally:
        os.close(handle)


def _regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((word for is_one, word in _KINDS if is_one(status.st_mode)), "no regular file")
        raise IrregularError(kind)
