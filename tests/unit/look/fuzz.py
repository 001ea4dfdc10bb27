"""Mutations from a seed, and a file in memory that takes the place of one on a disk."""

from __future__ import annotations

import os
import random
import resource
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparkbuild.errors import SparkbuildError

_WORDS = (0, 1, 2, 7, 8, 9, 31, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF,
          1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
"""Counts, lengths and offsets that go wrong somewhere."""
_TEXTS = (b"\0", b"\x1b[31m", b"\n\r\t", b"\xff\xfe", "\u202e".encode(), b"..", b"/", b"%s" * 8)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` with one to four changes: bits, words, texts, pieces lost, doubled or moved."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if not found:
            break
        at = rng.randrange(len(found))
        match rng.randrange(8):
            case 0:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                found[at] = rng.randrange(256)
            case 2:
                found[at : at + 8] = struct.pack("<Q", rng.choice(_WORDS))
            case 3:
                found[at : at + 4] = struct.pack("<I", rng.choice(_WORDS) & 0xFFFFFFFF)
            case 4:
                found[at:at] = rng.choice(_TEXTS) * rng.choice((1, 1, 9))
            case 5:
                del found[at : at + rng.choice((1, 4, 8, 100))]
            case 6:
                del found[at:]
            case _:
                end = min(len(found), at + rng.choice((4, 8, 64, 512)))
                where = rng.randrange(len(found))
                found[where:where] = found[at:end]
    return bytes(found)


@contextmanager
def in_memory() -> Iterator[tuple[Path, Callable[[bytes], None]]]:
    """A regular file without a disk, and what gives it other bytes."""
    handle = os.memfd_create("fuzz")

    def put(data: bytes) -> None:
        os.ftruncate(handle, 0)
        os.pwrite(handle, data, 0)

    try:
        yield Path(f"/proc/self/fd/{handle}"), put
    finally:
        os.close(handle)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass
class Campaign:
    """Many files, one after another: each is taken or refused, and costs no more than others."""

    seed: int
    slowest: float = 0.0
    """Seconds of processor time that a file took."""
    taken: int = 0
    refused: int = 0
    _memory: int = field(default_factory=_peak)

    def run(self, count: int, samples: list[bytes], look: Callable[[Path, int], object]) -> None:
        """``look`` is given each file and its number."""
        rng = random.Random(self.seed)  # noqa: S311 - the same files every time
        with in_memory() as (path, put):
            for number in range(count):
                data = mutated(samples[number % len(samples)], rng)
                put(data)
                begin = time.process_time()
                try:
                    look(path, number)
                except SparkbuildError as error:
                    assert error.problems, (number, error)  # noqa: PT017 - both ends are right
                    self.refused += 1
                except BaseException as error:
                    error.add_note(f"file {number} of seed {self.seed}")
                    raise
                else:
                    self.taken += 1
                self.slowest = max(self.slowest, time.process_time() - begin)

    @property
    def grown(self) -> int:
        """Bytes of memory at the peak beyond those before."""
        return _peak() - self._memory
