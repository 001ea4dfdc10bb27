"""What ``sparkbuild inspect`` says of one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One file that was looked at: for JSON, for a screen, and how the command ends."""

    document: dict[str, Any]
    view: RenderableType
    exit_code: int
    files: tuple[str, ...]
    """All that belong to it, for their digests."""
