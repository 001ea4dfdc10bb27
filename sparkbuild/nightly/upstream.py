"""Which release of upstream is tried: the newest that has been out long enough and stayed put."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkbuild.nightly.model import Release


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The release to try, or None with the reason; and what was refused on the way to it."""

    release: Release | None
    reason: str
    moved: tuple[str, ...] = ()
    """Tags whose commit is another than the one that was seen before."""
    future: tuple[str, ...] = ()
    """Tags whose time is to come: upstream's clock or this machine's is wrong."""


def numbered(tags: Mapping[str, str], pattern: str) -> list[tuple[int, str, str]]:
    """(build, tag, commit) of the tags that are releases, the newest build first."""
    form = re.compile(pattern)
    found = [
        (int(match[1]), tag, commit)
        for tag, commit in tags.items()
        if (match := form.fullmatch(tag)) and match[1].isdecimal()
    ]
    return sorted(found, reverse=True)


def moved(tags: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Tags with the commit that was seen first and the one that they name now, where they differ.

    Upstream's tags are made once; one that moves was made by mistake, or by somebody else.
    """
    return {
        tag: (seen[tag], commit)
        for tag, commit in tags.items()
        if tag in seen and seen[tag] != commit
    }


def choose(
    releases: Iterable[Release],
    *,
    pinned: int | None,
    now: float,
    minimum_age_hours: float,
    moved_tags: Sequence[str] = (),
) -> Chosen:
    """The newest release above ``pinned`` that is old enough and whose tag did not move.

    ``now`` and the releases' times are seconds since 1970. A release from the future is never old
    enough.
    """
    newer = [one for one in releases if pinned is None or one.build > pinned]
    future = tuple(one.tag for one in newer if one.time > now)
    ready = [
        one
        for one in newer
        if one.tag not in moved_tags and now - one.time >= minimum_age_hours * 3600
    ]
    best = max(ready, key=lambda one: one.build, default=None)
    if best is not None:
        hours = (now - best.time) / 3600
        reason = f"{best.tag} has been out for {hours:.1f} hours"
    elif newer:
        reason = f"none of {len(newer)} newer releases is {minimum_age_hours:g} hours old yet"
    else:
        reason = "upstream has no release newer than the pin"
    return Chosen(release=best, reason=reason, moved=tuple(moved_tags), future=future)
