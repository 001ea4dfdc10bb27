"""What every check is given."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sparkbuild.model.asked import Asked
from sparkbuild.model.book import Architecture, book
from sparkbuild.model.build import Build
from sparkbuild.model.finding import Finding
from sparkbuild.model.header import Tensor
from sparkbuild.model.read import Model

_BLOCK = re.compile(r"^blk\.(\d+)\.")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model, its mmproj, the build and the flags that it is to be served with."""

    model: Model
    vision: Model | None
    build: Build | None
    """None where what only a build can tell is not asked."""
    asked: Asked

    @property
    def known(self) -> Architecture:
        """What the book says of the model's architecture."""
        return book().of(self.model.architecture)

    @property
    def blocks(self) -> int:
        """``block_count``, 0 where the file does not state it."""
        return self.model.number(self.model.key("block_count")) or 0

    @property
    def nextn(self) -> int:
        """``nextn_predict_layers``."""
        return self.model.number(self.model.key("nextn_predict_layers")) or 0


Check = Callable[[Subject], Finding]


def block_of(tensor: Tensor) -> int | None:
    """The block that a tensor belongs to; None for those outside all blocks."""
    match = _BLOCK.match(tensor.name)
    return int(match[1]) if match else None
