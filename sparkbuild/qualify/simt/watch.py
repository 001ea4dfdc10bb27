"""One element of a buffer is watched: which instruction wrote it last, and which thread."""

from __future__ import annotations

from dataclasses import dataclass

from sparkbuild.qualify.ptx.model import Instruction


@dataclass(slots=True, eq=False)
class Watch:
    """The byte ``offset`` of the global buffer ``buffer``; ``writer`` is None until one wrote it.

    ``thread`` is (block, thread) as linear indices. An instruction counts that was about to write
    there: an atomic too, and a copy when it was issued.
    """

    buffer: str
    offset: int
    writer: Instruction | None = None
    thread: tuple[int, int] = (0, 0)
