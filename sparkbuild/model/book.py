"""What sparkbuild knows of architectures and projectors: ``architectures.toml``, read once."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.errors import InternalError

BOOK: Final = Path(__file__).with_name("architectures.toml")
_Names = tuple[str, ...]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Architecture(_Entry, frozen=True, kw_only=True):
    """What a file of one architecture holds; names of keys follow the architecture's."""

    name: str
    required: _Names = ()
    blocks: _Names = ()
    """Arrays with an entry for every block."""
    trunk: _Names = ()
    """Arrays with an entry for every block but NextN's."""
    exactly: dict[str, int] = {}
    nextn: dict[str, int | Literal["as all others"]] = {}
    """What an array says of a NextN block, where one that leaves it out can be told."""
    recurrent: Literal["", "interval", "no-kv-heads"] = ""
    """Which blocks carry a state instead of a cache."""
    interval: int = 0
    indexer_rows: int = 1
    """Rows of ``attention.indexer.key_length`` that the indexer's cache has for a token."""
    skips_nextn: bool = False
    """Whether NextN blocks are left out of memory by a server that does not draft with them."""
    trunk_alone: bool = False
    """Whether a file loads whose NextN block was split off while its key stayed."""


class Twin(_Entry, frozen=True, kw_only=True):
    """Two names of one thing, upstream's first."""

    kind: Literal["architecture", "projector"]
    names: Annotated[_Names, msgspec.Meta(min_length=2)]
    reason: str
    remedy: str
    source: _Names


class Graph(_Entry, frozen=True, kw_only=True):
    """An architecture whose MTP graph is another one's."""

    architecture: str
    of: str


class Refusal(_Entry, frozen=True, kw_only=True):
    """A text that a library holds because it throws it instead of building an MTP graph."""

    architecture: str
    text: str
    reason: str
    remedy: str
    source: _Names


class Vision(_Entry, frozen=True, kw_only=True):
    """Keys of every vision tower."""

    required: _Names


class Projector(_Entry, frozen=True, kw_only=True):
    """What an mmproj with one projector holds."""

    name: str
    width: str
    axis: int
    tensors: _Names
    tokens: _Names
    required: _Names = ()
    renamed: dict[str, str] = {}
    """Keys under the names that files from elsewhere have for them."""
    picture: tuple[int, int] | None = None
    """Tokens that a picture becomes at least and at most, where files may leave it out."""


class Ending(_Entry, frozen=True, kw_only=True):
    """Tokens that end a turn in a family of models."""

    family: str
    eos: str
    tokens: _Names
    reason: str
    source: _Names


class Book(_Entry, frozen=True, kw_only=True):
    """The whole file."""

    schema: Literal[1]
    required: _Names
    blocks: _Names
    architecture: tuple[Architecture, ...]
    twin: tuple[Twin, ...]
    graph: tuple[Graph, ...]
    refusal: tuple[Refusal, ...]
    vision: Vision
    projector: tuple[Projector, ...]
    ending: tuple[Ending, ...]

    def known(self, architecture: str) -> Architecture | None:
        """What is known of an architecture."""
        return next((entry for entry in self.architecture if entry.name == architecture), None)

    def of(self, architecture: str) -> Architecture:
        """The same, or the general rules under that name."""
        return self.known(architecture) or Architecture(name=architecture)

    def projects(self, name: str) -> Projector | None:
        """What is known of a projector."""
        return next((entry for entry in self.projector if entry.name == name), None)

    def twin_of(self, kind: str, name: str) -> Twin | None:
        """The pair that a name belongs to."""
        return next((t for t in self.twin if t.kind == kind and name in t.names), None)


@functools.cache
def book() -> Book:
    """The book that ships. Raises InternalError where it is not what it should be."""
    try:
        return msgspec.toml.decode(BOOK.read_bytes(), type=Book)
    except (msgspec.DecodeError, OSError) as error:
        raise InternalError(f"{BOOK}: {error}", evidence=[BOOK]) from error
