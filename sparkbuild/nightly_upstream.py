"""Ask upstream for its releases, choose one, and make recipes that know it as a base."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import tomlkit
from tomlkit.items import Table

from sparkbuild.errors import SourceUnavailableError
from sparkbuild.files import write_atomic
from sparkbuild.net.address import shown
from sparkbuild.nightly.model import Release
from sparkbuild.nightly.plan import Upstream
from sparkbuild.nightly.upstream import Chosen, choose, moved, numbered
from sparkbuild.source.git_origin import Remote
from sparkbuild.source.gitdoor import GitFailedError
from sparkbuild.source.patching.bases import BASES

SEEN: Final = "upstream.json"
"""In the folder of nights: the commit that each tag had when it was first seen."""

_SECONDS: Final = 120.0
"""Granted for the list of tags: some 12,000 lines."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What upstream answered: the choice, and every tag that moved, as a line for a person."""

    chosen: Chosen
    moved: tuple[str, ...]


def ask(upstream: Upstream, folder: Path, *, pinned: int | None, now: float | None = None) -> Asked:
    """Read upstream's tags and choose a release above ``pinned``.

    The commits of tags are kept in ``folder``; a tag that names another commit than before is never
    chosen. ``now`` is in seconds since 1970. Raises SourceUnavailableError where upstream does not
    answer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    seen, moment = _seen(folder / SEEN), time.time() if now is None else now
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".upstream-") as scratch:
            remote = Remote(upstream.url, Path(scratch))
            tags = _tags(remote, upstream.url)
            newer = [
                one for one in numbered(tags, upstream.tags) if pinned is None or one[0] > pinned
            ][: upstream.look_back]
            other = moved(tags, seen)
            releases = list(_dated(remote, upstream, newer, other, moment))
    except GitFailedError as error:
        raise SourceUnavailableError(
            f"upstream does not answer: {shown(upstream.url)}",
            problems=[str(error).replace(upstream.url, shown(upstream.url))],
            next_step="connect this machine to the network and run the same command again",
        ) from error
    chosen = choose(
        releases,
        pinned=pinned,
        now=moment,
        minimum_age_hours=upstream.minimum_age_hours,
        moved_tags=tuple(other),
    )
    write_atomic(folder / SEEN, json.dumps({**tags, **seen}, indent=0, sort_keys=True))
    lines = tuple(
        f"upstream moved its tag {tag}: it was {before}, now it is {after}; it is not taken"
        for tag, (before, after) in sorted(other.items())
    )
    return Asked(chosen=chosen, moved=lines)


def _tags(remote: Remote, url: str) -> dict[str, str]:
    """Commit by tag; an annotated tag stands for the commit that it names."""
    answer = remote.repository.must(
        "ls-remote", "--quiet", "--tags", "--", url, seconds=_SECONDS, network=True
    )
    found: dict[str, str] = {}
    for line in answer.text.splitlines():
        commit, _, name = line.partition("\t")
        plain = name.removeprefix("refs/tags/")
        if plain.endswith("^{}"):
            found[plain.removesuffix("^{}")] = commit
        else:
            found.setdefault(plain, commit)
    return found


def _dated(
    remote: Remote,
    upstream: Upstream,
    newer: Sequence[tuple[int, str, str]],
    other: Container[str],
    now: float,
) -> Iterator[Release]:
    """Releases with their commits' times, from the newest to the first that may be chosen.

    Each is fetched without its files where the server can do that, as a path cannot.
    """
    sparing = [] if upstream.url.startswith("/") else ["--filter=tree:0"]
    for build, tag, commit in newer:
        remote.take(commit, "--depth=1", *sparing)
        time_ = int(remote.repository.must("log", "-1", "--format=%ct", commit).text)
        yield Release(tag=tag, build=build, commit=commit, time=time_)
        if tag not in other and now - time_ >= upstream.minimum_age_hours * 3600:
            return


def _seen(file: Path) -> dict[str, str]:
    """Tags of earlier nights; where the file is damaged, they are learned anew."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    return {}


def renewed_recipes(recipes: Path, to: Path, release: Release, upstream: Upstream) -> None:
    """A copy of the recipes whose table of bases has the release, pinned by its commit."""
    shutil.rmtree(to, ignore_errors=True)
    for name in ("patchsets", "toolchains"):
        shutil.copytree(recipes / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    table = to / "patchsets" / BASES
    document = tomlkit.parse(table.read_text(encoding="utf-8")) if table.is_file() else None
    if document is None:
        document = tomlkit.document()
        document["schema"] = 1
        document["bases"] = tomlkit.aot()
    entries = document["bases"]
    kept = [one for one in entries if one["name"] != release.tag]
    while len(entries):
        del entries[0]
    for one in [*kept, _entry(release, upstream.url)]:
        entries.append(one)
    write_atomic(table, tomlkit.dumps(document))


def _entry(release: Release, url: str) -> Table:
    base = tomlkit.table()
    base["name"], base["build"] = release.tag, release.build
    origin = tomlkit.table()
    origin["kind"], origin["url"], origin["commit"] = "git", url, release.commit
    origins = tomlkit.aot()
    origins.append(origin)
    base["origins"] = origins
    return base
