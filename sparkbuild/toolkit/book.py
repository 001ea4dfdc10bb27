"""Everything that the recipes know of CUDA toolkits, read once."""

from __future__ import annotations

from dataclasses import dataclass

from sparkbuild.manifest import CudaSection, Recipes, Toolchain
from sparkbuild.toolkit.advisories import KnownBad, read_known_bad
from sparkbuild.toolkit.lock import Lock, LockedPlatform, Platform, read_locks


@dataclass(frozen=True, kw_only=True)
class Book:
    """CUDA toolchains and locks by name, and the known-bad list."""

    toolchains: dict[str, Toolchain]
    locks: dict[str, Lock]
    known_bad: KnownBad

    @classmethod
    def empty(cls) -> Book:
        """A book that knows nothing: a CPU build asks it nothing."""
        return cls(toolchains={}, locks={}, known_bad=KnownBad(schema=1))

    def by_nvcc(self, version: str) -> Toolchain | None:
        """The toolchain of an exact nvcc version, None where the recipes have none."""
        return next(
            (chain for chain in self.toolchains.values() if cuda(chain).nvcc == version), None
        )

    def locked(self, toolchain: str, platform: Platform) -> LockedPlatform | None:
        """What a toolchain's lock says of a platform, None where it says nothing."""
        lock = self.locks.get(toolchain)
        return lock.platform.get(platform) if lock else None


def cuda(toolchain: Toolchain) -> CudaSection:
    """The CUDA section of a toolchain in the book. Raises ValueError for one without."""
    if toolchain.cuda is None:
        raise ValueError(f"{toolchain.name} is no CUDA toolchain")
    return toolchain.cuda


def read_book(recipes: Recipes) -> Book:
    """Read the recipes' toolchains, locks and known-bad list. Raises ManifestError."""
    chains = {name: recipes.toolchain(name)[0] for name in recipes.toolchain_names()}
    return Book(
        toolchains={name: chain for name, chain in chains.items() if chain.cuda is not None},
        locks=read_locks(recipes),
        known_bad=read_known_bad(recipes),
    )
