"""What kind of file it is, by its first bytes: a name may say anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from sparkbuild.model.opening import opened

Kind = Literal["gguf", "elf", "zip", "other"]

_HEADS: Final[dict[bytes, Kind]] = {
    b"GGUF": "gguf",
    b"\x7fELF": "elf",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
}
"""The last one is an archive without members."""


def kind_of(path: Path) -> Kind:
    """The kind; ``other`` also where there is no file, or none that can be read."""
    try:
        with opened(path) as (handle, _):
            return _HEADS.get(os.pread(handle, 4, 0), "other")
    except (OSError, ValueError):  # IrregularError is one, and what a name with a NUL raises
        return "other"
