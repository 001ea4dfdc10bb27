"""What every kind of origin gives, and how one that cannot answer says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sparkbuild.manifest import GitOrigin, Origin, SdistOrigin
from sparkbuild.net.address import shown
from sparkbuild.source.entries import Entry

_SCP_LIKE: Final = re.compile(r"^[A-Za-z0-9_.@-]+:(?!//)")


class Watcher(Protocol):
    """Whoever watches a fetch."""

    def progress(self, done: int, total: int, text: str) -> None:
        """``done`` of ``total`` bytes are here; ``text`` is what goes on now."""

    def note(self, text: str) -> None:
        """Something that must be seen even when all is well."""


class Places(Protocol):
    """Where sources are kept."""

    @property
    def store(self) -> Path:
        """The bare git repository of pinned sources."""

    @property
    def downloads(self) -> Path:
        """Archives by digest."""

    @property
    def sources(self) -> Path:
        """Materialised trees by commit."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What an origin is asked for: the declared files, with ``scratch`` as its place to work."""

    manifest: Path
    wants: Callable[[str], bool]
    scratch: Path
    downloads: Path
    watcher: Watcher


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What an origin gives: the declared files, and the full commit they come from, if any."""

    entries: Generator[Entry, None, None]
    upstream: str | None = None


def describe(origin: Origin) -> str:
    """An origin in words, without any password its address holds."""
    if isinstance(origin, SdistOrigin):
        return f"source archive {origin.file}"
    if isinstance(origin, GitOrigin):
        if origin.commit is None:
            return f"git {shown(origin.url)} tag {origin.tag}"
        return f"git {shown(origin.url)} commit {origin.commit[:12]}"
    return f"path {origin.path}"


def resolved(url: str, manifest: Path) -> str:
    """A git address as git must be given it: a local path counts from the manifest's folder."""
    if "://" in url or _SCP_LIKE.match(url):
        return url
    return str(manifest.absolute().parent / url)
