"""What the toolkit stage gives."""

from __future__ import annotations

from typing import Literal

import msgspec

from sparkbuild.files import digest_of


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a toolkit: its version, where that was read, and the digest of its file."""

    name: str
    version: str
    read_from: str
    path: str
    sha256: str


class HostCompiler(msgspec.Struct, frozen=True, kw_only=True):
    """The C and C++ compilers: absolute paths, CMake's identification, target triple."""

    c: str
    cxx: str
    identification: str
    """As CMake prints it: ``GNU 12.2.0``."""
    target: str
    sha256: str
    """Digest over both drivers' files."""


class Toolkit(msgspec.Struct, frozen=True, kw_only=True):
    """A whole toolkit: host compiler and, for CUDA, every part under one root."""

    toolchain: str
    label: str
    kind: Literal["cpu", "cuda"]
    host: HostCompiler
    root: str | None = None
    parts: tuple[Part, ...] = ()
    architectures: tuple[str, ...] = ()
    """Such as ``121a``, in the order asked for; empty for a CPU build."""
    options: dict[str, str] = {}
    """CMake options of the toolchain on this platform."""

    @property
    def identity(self) -> str:
        """Digest of every part and of the host compiler, places left out."""
        return digest_of(
            {
                "host": [self.host.identification, self.host.target, self.host.sha256],
                "parts": {part.name: [part.version, part.sha256] for part in self.parts},
            }
        )

    def part(self, name: str) -> Part:
        """The part of that name. Raises KeyError where there is none."""
        return next(part for part in self.parts if part.name == name)
