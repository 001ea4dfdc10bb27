"""What a comparison of two wheels gives: differences, each with the place that it is in."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["archive", "member", "section", "symbol", "kernel"]

GpuCode = Literal["none", "same bytes", "same code", "differs", "unread"]
"""Of all GPU code together. ``same code``: every kernel's machine code and constants are the same
bytes, and names that bear a checksum of a path, or what lies around the code, differ."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference: in which member, in what of it, and what it is."""

    member: str
    """Path inside the wheel, or inside the folder; empty where it is the archive's own."""
    kind: Kind
    place: str = ""
    """Name of the section, symbol or kernel; a kernel's with its target, ``sm_121a: name``."""
    what: str


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two wheels."""

    path: str
    sha256: str
    size: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two wheels, compared."""

    first: Side
    second: Side
    members: int
    """Members that both have."""
    equal: int
    """Of these, those with the same bytes."""
    differences: tuple[Difference, ...]
    gpu_code: GpuCode = "none"

    @property
    def identical(self) -> bool:
        """Whether the two files are the same bytes."""
        return self.first.sha256 == self.second.sha256
