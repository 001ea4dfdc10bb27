"""Write what a refresh made into a manifest: digests, tree id, base; comments stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import tomlkit
from tomlkit.items import AoT, Array

from sparkbuild.manifest import GitOrigin, SourcePin


def renewed(
    text: str,
    *,
    digests: Mapping[str, str],
    local: AbstractSet[str],
    tree: str,
    pin: SourcePin,
    tag: str | None,
) -> str:
    """The manifest's text with new values; what did not change keeps its bytes.

    ``digests`` has every patch that stays, by file, ``local`` those that have a file. ``tag`` is
    upstream's name for the base, where it has one: a git origin with a tag then gets it.
    """
    document: Any = tomlkit.parse(text)
    _patches(document, digests, local)
    patched = document.get("patched")
    if digests and patched is None:
        document["patched"] = {"tree": tree}
    elif digests and patched["tree"] != tree:
        patched["tree"] = tree
    elif not digests and patched is not None:
        del document["patched"]
    if document["source"].get("digest") != pin.digest:
        _source(document["source"], pin, tag)
    return tomlkit.dumps(document)


def _patches(document: Any, digests: Mapping[str, str], local: AbstractSet[str]) -> None:
    entries = document.get("patches", [])
    gone = [index for index, entry in enumerate(entries) if entry["file"] not in digests]
    for index in reversed(gone):
        del entries[index]
    for entry in entries:
        if entry["sha256"] != digests[entry["file"]]:
            entry["sha256"] = digests[entry["file"]]
        if entry["file"] in local and "remote" in entry:
            del entry["remote"]
        needs = [name for name in entry.get("needs", []) if name in digests]
        if needs != list(entry.get("needs", [])):
            entry["needs"] = needs
    if not entries and "patches" in document:
        del document["patches"]


def _source(source: Any, pin: SourcePin, tag: str | None) -> None:
    source["digest"] = pin.digest
    if pin.build is not None:
        source["build"] = pin.build
    elif "build" in source:
        del source["build"]
    paths = source["paths"]
    if isinstance(paths, Array):
        for index in reversed(range(len(paths))):
            if paths[index] not in pin.paths:
                del paths[index]
    origins = tomlkit.aot()
    for old in source["origins"]:
        if tag is not None and old.get("kind") == "git" and "tag" in old:
            old["tag"] = tag
            origins.append(old)
    for origin in pin.origins:
        known = isinstance(origin, GitOrigin) and len(origins) > 0
        if not known:
            origins.append(_table(msgspec.to_builtins(origin)))
    _replace(source["origins"], origins)


def _replace(old: AoT, new: AoT) -> None:
    while len(old):
        del old[0]
    for table in new:
        old.append(table)


def _table(values: Mapping[str, Any]) -> Any:
    table = tomlkit.table()
    for key, value in values.items():
        if value is not None:
            table[key] = value
    table.add(tomlkit.nl())
    return table
