"""What the qualify stage gives."""

from __future__ import annotations

from typing import Literal

import msgspec


class Qualification(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the compiler was tried on these sources, and how far."""

    verdict: Literal["not applicable", "not tried"]
    reason: str
