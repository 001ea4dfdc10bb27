"""The references together: numpy where gguf can, the source's own C code for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sparkbuild.errors import HostError
from sparkbuild.qualify.reference import numpy_quants
from sparkbuild.qualify.reference.library import Library


@dataclass(slots=True, eq=False)
class References:
    """What is right, for any type that one of the two can read.

    ``build`` gives the source's CPU side; it is called once, when a type first needs it. None where
    there is no host compiler: then only what gguf knows can be judged.
    """

    build: Callable[[], Library] | None = None
    _library: Library | None = field(default=None, init=False)

    @property
    def library(self) -> Library:
        """The source's CPU side, built now if it was not, and found to agree with numpy.

        Raises HostError where it cannot be built, or where the two differ, naming each type.
        """
        if self._library is None:
            if self.build is None:
                raise HostError("the CPU side of the source is needed, and was not built")
            library = self.build()
            numpy_quants.require_agreement(library, library.types)
            self._library = library
        return self._library

    def can(self, name: str) -> bool:
        """Whether ``values`` would know the type, without building anything."""
        return numpy_quants.numpy_can(name) or self.build is not None

    def values(self, name: str, blocks: NDArray[np.uint8]) -> NDArray[np.float64]:
        """What blocks, shape (n, block bytes), stand for: float64 of shape (n, elements)."""
        if numpy_quants.numpy_can(name):
            return numpy_quants.dequantize(name, blocks).astype(np.float64)
        return self.library.dequantize(name, blocks).astype(np.float64)
