"""llama.cpp binaries, packed from the very files that were tested after the build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["UnknownBinaryError", "build_info", "path_of"]

_HERE = Path(__file__).resolve().parent


class UnknownBinaryError(KeyError):
    """No binary of that name is in this package."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(name)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return f"no binary {self.name!r} in sparkbuild-llama-cpp; known: {', '.join(self.known)}"


def build_info() -> dict[str, Any]:
    """What this package holds and was made of: source, patches, toolchain, digests."""
    info: dict[str, Any] = json.loads((_HERE / "build-info.json").read_text(encoding="utf-8"))
    return info


def path_of(name: str) -> Path:
    """The absolute path of a binary or library, ``llama-server`` for instance.

    Raises UnknownBinaryError, a KeyError that names those there are.
    """
    known = sorted(build_info()["binaries"])
    if name not in known:
        raise UnknownBinaryError(name, known)
    return _HERE / "bin" / name
