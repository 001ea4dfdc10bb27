"""A root that was found, with what it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sparkbuild.errors import ToolkitMismatchError
from sparkbuild.files import DigestCache
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.choice.places import Place
from sparkbuild.toolkit.identity.identify import identity_of
from sparkbuild.toolkit.model import Identity


@dataclass(frozen=True, kw_only=True)
class Found:
    """A root, every name under which it was found, and what it is."""

    root: Path
    where: tuple[str, ...]
    identity: Identity


def identified(
    there: Iterable[Place],
    book: Book,
    digests: DigestCache,
    architectures: tuple[str, ...] = (),
) -> Iterator[Found]:
    """The places that hold a toolkit or a part of one, read through."""
    for place in there:
        with contextlib.suppress(ToolkitMismatchError):
            identity = identity_of(place.root, book, digests, architectures=architectures)
            yield Found(root=place.root, where=place.where, identity=identity)
