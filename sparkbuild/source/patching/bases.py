"""Bases that patches are tried on: the table beside the variants, or any place the user names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.errors import SourceUnavailableError, UnknownNameError
from sparkbuild.files import digest_of, write_atomic
from sparkbuild.manifest import (
    GitOrigin,
    Origin,
    Patchset,
    PathOrigin,
    SdistOrigin,
    SourcePin,
    Table,
    load,
    unknown_name,
)
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.source.digest import Inventory
from sparkbuild.source.entries import Entry
from sparkbuild.source.model import SourceTree
from sparkbuild.source.obtain import obtain, require_git
from sparkbuild.source.origins import Places, Request, Watcher, describe
from sparkbuild.source.store import Store

BASES: Final = "bases.toml"
PIN: Final = "pin"
"""The name of a variant's own base."""

_FULL: Final = re.compile(r"[0-9a-f]{40}")


class Base(Table, frozen=True):
    """An upstream build: its name (``b11401``), its number, the archives or commits that hold it.

    Each origin must pin its bytes by itself: an archive by digest, a commit by all its digits.
    """

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    build: int
    origins: tuple[SdistOrigin | GitOrigin, ...]


class BaseTable(Table, frozen=True):
    """``patchsets/bases.toml``."""

    schema: Literal[1]
    bases: tuple[Base, ...] = ()


class _Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What an origin's declared paths hold, measured once."""

    digest: str
    absent: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A base in the store: its source, its pin, and which declared paths it does not have."""

    name: str
    pin: SourcePin
    source: SourceTree
    absent: tuple[str, ...] = ()


def base_table(recipes: Path) -> BaseTable:
    """The table of the recipes; an empty one where there is none. Raises ManifestError."""
    file = recipes / "patchsets" / BASES
    return load(file, BaseTable) if file.is_file() else BaseTable(schema=1)


def ground(
    ref: str,
    patchset: Patchset,
    manifest: Path,
    places: Places,
    watcher: Watcher,
) -> Ground:
    """The base that ``ref`` names, over the paths that the variant declares and the base has.

    ``ref`` is ``pin``, a name of the base table, a folder (a tree, or a git repository whose
    ``HEAD`` is meant), or ``PLACE#COMMIT`` or ``PLACE#TAG`` of a git repository. A declared path
    that the base does not have is left out, and named. Raises UnknownNameError, and all that
    ``obtain`` raises.
    """
    if ref == PIN:
        source = obtain(patchset.source, manifest, places, watcher)
        return Ground(name=PIN, pin=patchset.source, source=source)
    origins, build = _origins(ref, patchset, manifest)
    measured = _measured(origins, patchset, manifest, places, watcher)
    pin = SourcePin(
        paths=tuple(path for path in patchset.source.paths if path not in measured.absent),
        origins=origins,
        build=build,
        digest=measured.digest,
    )
    source = obtain(pin, manifest, places, watcher)
    return Ground(name=ref, pin=pin, source=source, absent=measured.absent)


def _origins(ref: str, patchset: Patchset, manifest: Path) -> tuple[tuple[Origin, ...], int | None]:
    table = base_table(manifest.absolute().parent.parent.parent)
    for base in table.bases:
        if base.name == ref:
            return base.origins, base.build
    place, hash_sign, name = ref.partition("#")
    if hash_sign:
        url = place if "://" in place else str(Path(place).absolute())
        commit = {"commit": name} if _FULL.fullmatch(name) else {"tag": name}
        return (GitOrigin(url=url, **commit),), None
    if Path(ref).is_dir():
        folder = Path(ref).absolute()
        if (folder / ".git").is_dir() and not (folder / "CMakeLists.txt").exists():
            folder = folder / ".git"
        return (PathOrigin(path=str(folder)),), None
    known = [PIN, *(base.name for base in table.bases)]
    if "/" in ref:
        raise UnknownNameError(
            f"there is no folder {ref}",
            problems=[f"known bases: {', '.join(known)}"],
            next_step="name a base, a folder with a source tree, or REPOSITORY#COMMIT",
        )
    del patchset
    raise unknown_name("base", ref, known, manifest.parent.parent / BASES)


def _measured(
    origins: tuple[Origin, ...],
    patchset: Patchset,
    manifest: Path,
    places: Places,
    watcher: Watcher,
) -> _Measured:
    """Digest the declared paths of the first origin that answers; remembered where it is pinned."""
    paths = patchset.source.paths
    reasons = []
    for origin in origins:
        record = _record(origin, paths, places)
        if record is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                return msgspec.json.decode(record.read_bytes(), type=_Measured)
        try:
            found = _measure(origin, paths, manifest, places, watcher)
        except OriginUnavailableError as error:
            reasons.append(f"{describe(origin)}: {error}")
            continue
        if record is not None:
            write_atomic(record, msgspec.json.encode(found))
        return found
    raise SourceUnavailableError(
        "no origin of the base can be reached",
        problems=reasons,
        evidence=[manifest.absolute().parent.parent / BASES],
        next_step="connect this machine to the network and run the same command again, or name a "
        "folder with the source: --base DIR",
    )


def _record(origin: Origin, paths: tuple[str, ...], places: Places) -> Path | None:
    """Where a measure of bytes that cannot change is kept."""
    if isinstance(origin, SdistOrigin):
        name = f"{origin.sha256}:{origin.subdirectory}"
    elif isinstance(origin, GitOrigin) and origin.commit and len(origin.commit) == 40:
        name = origin.commit
    else:
        return None
    key = digest_of({"origin": name, "paths": list(paths)})
    return places.store.parent / "bases" / f"{key[:32]}.json"


def _measure(
    origin: Origin, paths: tuple[str, ...], manifest: Path, places: Places, watcher: Watcher
) -> _Measured:
    require_git()
    from sparkbuild.source.fetch import deliver  # noqa: PLC0415 - needs git
    from sparkbuild.source.objects import open_store  # noqa: PLC0415 - the same

    inventory = Inventory(paths)
    store = Store(places.store)
    with contextlib.ExitStack() as stack:
        stack.enter_context(store.writing("the source store"))
        open_store(store)
        scratch = stack.enter_context(store.scratch())
        request = Request(
            manifest=manifest,
            wants=inventory.wants,
            scratch=scratch,
            downloads=places.downloads,
            watcher=watcher,
        )
        watcher.progress(0, 0, describe(origin))
        pin = SourcePin(paths=paths, origins=(origin,))
        with contextlib.closing(deliver(origin, pin, request).entries) as entries:
            _read(entries, inventory)
    if not inventory.files:
        raise OriginUnavailableError("it has none of the declared paths")
    return _Measured(digest=inventory.digest, absent=tuple(inventory.missing))


def _read(entries: Generator[Entry, None, None], inventory: Inventory) -> None:
    for entry in entries:
        for _ in inventory.through(entry):
            pass
