"""Which content is trained on and which is only ever asked: a hash decides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, TypeVar

from sparkbuild.canary.tasks.sample import Split

_ONE_IN: Final = 8
"""Share of all contents that is held out: enough to draw from, and little lost for training."""

T = TypeVar("T")


def split_of(content: str) -> Split:
    """The split that a content belongs to, the same on every machine and for every task."""
    first = hashlib.sha256(content.encode()).digest()[0]
    return "held-out" if first % _ONE_IN == 0 else "train"


def drawn(split: Split, make: Callable[[], T], content: Callable[[T], str]) -> T:
    """Makes things until one's content belongs to the split."""
    while True:
        made = make()
        if split_of(content(made)) == split:
            return made
