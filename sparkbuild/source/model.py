"""What the source and patch stages give."""

from __future__ import annotations

import msgspec


class SourceTree(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned source in the store: its content digest, and the git ids made from it."""

    digest: str
    """SHA-256 over (path, mode, bytes) of the declared paths."""
    commit: str
    """Deterministic commit in the store (fixed author and date), 40 hex digits."""
    tree: str
    build: int | None
    """The number that ``llama-server --version`` must print, where the manifest knows it."""
    origin: str
    """The place that answered, or ``store`` where nothing had to be fetched."""
    warnings: tuple[str, ...] = ()
    """One line for each origin that could not be reached."""


class AppliedPatch(msgspec.Struct, frozen=True, kw_only=True):
    """A patch that applied exactly where it was made for."""

    file: str
    sha256: str
    reason: str
    touched: tuple[str, ...]


class PatchedTree(msgspec.Struct, frozen=True, kw_only=True):
    """The tree that is built: its git ids and the directory that holds it."""

    source_digest: str
    commit: str
    tree: str
    build: int | None
    patches: tuple[AppliedPatch, ...]
    directory: str

    @property
    def identity(self) -> str:
        """What the binaries print as their commit: the first 12 digits of ``commit``."""
        return self.commit[:12]
