"""Known-bad toolkits as data: ``toolchains/known-bad.toml``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from sparkbuild.manifest import Recipes, Table, load

AdvisoryId = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9.-]*$")]


class Advisory(Table, frozen=True):
    """One defect: the part and versions that have it, the targets it strikes, and the proof.

    ``versions`` are exact part versions. ``architectures`` are names such as ``121a``; empty
    means every target. ``action``: ``refuse`` what was proved; ``warn`` of what the maker
    states; ``note`` (shown by ``toolkit show`` only) what was reported and not met in llama.cpp.
    """

    id: AdvisoryId
    part: str
    versions: tuple[str, ...]
    effect: str
    evidence: tuple[str, ...]
    source: tuple[str, ...]
    action: Literal["refuse", "warn", "note"]
    architectures: tuple[str, ...] = ()
    tensor_types: tuple[str, ...] = ()


class KnownBad(Table, frozen=True):
    """The whole list."""

    schema: Literal[1]
    advisory: tuple[Advisory, ...] = ()


def read_known_bad(recipes: Recipes) -> KnownBad:
    """The recipes' list, an empty one where they have none. Raises ManifestError."""
    path = recipes.root / "toolchains" / "known-bad.toml"
    return load(path, KnownBad) if path.is_file() else KnownBad(schema=1)
