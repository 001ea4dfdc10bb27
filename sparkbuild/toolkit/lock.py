"""Locks: which wheels are a CUDA release on a platform, and what each part in them is.

``toolchains/locks/<toolchain>.toml``, written by ``sparkbuild toolkit lock``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from sparkbuild.manifest import Name, Recipes, Sha256, Table, load

Platform = Literal["linux-x86_64", "linux-aarch64"]
PLATFORMS: tuple[Platform, ...] = ("linux-x86_64", "linux-aarch64")

WheelFile = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\.whl$")]


class Metapackage(Table, frozen=True):
    """The package whose metadata pins every part of the release."""

    project: Name
    version: str
    file: WheelFile
    sha256: Sha256


class LockedWheel(Table, frozen=True):
    """One wheel, by digest; ``size`` in bytes."""

    project: Name
    version: str
    file: WheelFile
    sha256: Sha256
    size: int


class LockedPart(Table, frozen=True):
    """A part as its wheel brings it: the wheel's version, ``part_digest`` of its files."""

    version: str
    sha256: Sha256


class LockedPlatform(Table, frozen=True):
    """What a release is on one platform.

    ``missing`` names parts that no wheel of the release brings: such a release can be identified
    and cannot be provisioned.
    """

    wheels: tuple[LockedWheel, ...]
    parts: dict[str, LockedPart]
    missing: tuple[str, ...] = ()


class Lock(Table, frozen=True):
    """A CUDA release as the package index holds it."""

    schema: Literal[1]
    name: Name
    metapackage: Metapackage
    platform: dict[Platform, LockedPlatform]


def lock_path(recipes: Recipes, toolchain: str) -> Path:
    """Where a toolchain's lock lies, whether it exists or not."""
    return recipes.root / "toolchains" / "locks" / f"{toolchain}.toml"


def read_locks(recipes: Recipes) -> dict[str, Lock]:
    """Every lock of the recipes by toolchain. Raises ManifestError."""
    names = sorted(file.stem for file in recipes.root.glob("toolchains/locks/*.toml"))
    return {name: load(lock_path(recipes, name), Lock) for name in names}
