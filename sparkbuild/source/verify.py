"""Read a pinned source back from the store, every byte, and compare it with its pin."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.errors import SourceUnavailableError
from sparkbuild.manifest import SourcePin
from sparkbuild.source.obtain import require_git
from sparkbuild.source.origins import Places
from sparkbuild.source.store import Store


def verify(pin: SourcePin, manifest: Path, places: Places) -> dict[str, str | int]:
    """Facts of a source whose every byte was read and digested now: digest, commit, files, bytes.

    Raises SourceUnavailableError where the store does not hold it, SourceMismatchError where
    what it holds is damaged, HostError (no git).
    """
    store = Store(places.store)
    record = store.find(pin)
    if record is None:
        raise SourceUnavailableError(
            f"the store at {store.root} does not hold the source that {manifest} pins",
            problems=[f"expected content digest {pin.digest}"] if pin.digest else [],
            evidence=[manifest],
            next_step=f"sparkbuild source fetch --variant {manifest.absolute().parent.name}",
        )
    require_git()
    from sparkbuild.source.gitdoor import Repository  # noqa: PLC0415 - cannot be loaded without git
    from sparkbuild.source.intake import read_back  # noqa: PLC0415 - the same

    inventory = read_back(store, Repository(store.root), record)
    return {
        "digest": inventory.digest,
        "commit": record.commit,
        "tree": record.tree,
        "files": len(inventory.files),
        "bytes": inventory.size,
        "origin": record.origin,
        "upstream": record.upstream or "unknown",
        "store": str(store.root),
    }
