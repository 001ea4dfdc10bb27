"""A file from anywhere, read in parts: what a damaged or hostile one can cost has a limit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

MOST_READS: Final = 300_000
"""Of one file's headers. libggml-cuda takes 700, an object file with 5,000 sections 70,000."""
_PAGE: Final = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Window:
    """A part of an open file, as bytes that are read when a slice of them is asked for."""

    handle: int
    start: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice, /) -> bytes:
        begin, end, step = part.indices(self.size)
        data = os.pread(self.handle, max(0, end - begin), self.start + begin)
        return data[::step] if step != 1 else data


class Metered:
    """An open file as a stream that gives up after ``MOST_READS`` reads.

    pyelftools follows whatever counts and sizes a file states. Each of its steps reads a little,
    so a limit on the steps bounds its time and its memory. Raises ValueError beyond.
    """

    def __init__(self, handle: int, size: int) -> None:
        self._handle = handle
        self._size = size
        self._at = 0
        self._reads = 0
        self._page = b""
        self._page_at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As of any stream."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """As of any stream."""
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        """As of any stream; raises ValueError beyond the limits."""
        self._reads += 1
        if self._reads > MOST_READS:
            raise ValueError(f"its headers take more than {MOST_READS} reads")
        left = max(0, self._size - self._at)
        wanted = left if size < 0 else min(size, left)
        if wanted > _PAGE:
            raise ValueError(f"a header of {wanted} bytes, expected at most {_PAGE}")
        inside = self._at - self._page_at
        if not 0 <= inside <= len(self._page) - wanted:
            self._page = os.pread(self._handle, _PAGE, self._at) if wanted else b""
            self._page_at, inside = self._at, 0
        data = self._page[inside : inside + wanted]
        self._at += len(data)
        return data
