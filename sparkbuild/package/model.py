"""What the package stage gives."""

from __future__ import annotations

import msgspec


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel: its file, digest, version with local label, tag, and the scripts it installs."""

    path: str
    sha256: str
    size: int
    version: str
    tag: str
    scripts: tuple[str, ...]
