"""The row of points between a good and a bad base: releases of the table, or commits of git."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.errors import SourceUnavailableError, UsageError
from sparkbuild.manifest import unknown_name
from sparkbuild.net.address import shown
from sparkbuild.source.git_origin import Remote
from sparkbuild.source.gitdoor import GitFailedError
from sparkbuild.source.patching.bases import BASES, BaseTable

_SECONDS: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """One base: ``name`` for people, ``ref`` for ``patch check --base``, ``title`` of a commit."""

    name: str
    ref: str
    title: str = ""


def releases(table: BaseTable, good: str, bad: str, recipes: Path) -> tuple[Point, ...]:
    """The table's bases from ``good`` to ``bad``, by build. Raises UnknownNameError, UsageError."""
    ordered = sorted(table.bases, key=lambda one: one.build)
    names = [one.name for one in ordered]
    for name in (good, bad):
        if name not in names:
            raise unknown_name("base", name, names, recipes / "patchsets" / BASES)
    first, last = names.index(good), names.index(bad)
    if first >= last:
        raise _backwards(good, bad)
    return tuple(Point(name=one.name, ref=one.name) for one in ordered[first : last + 1])


def commits(repository: str, good: str, bad: str, folder: Path) -> tuple[Point, ...]:
    """Commits from ``good`` to ``bad`` along first parents, so that a merge is one point.

    Raises SourceUnavailableError where the repository does not answer or lacks one of the two,
    UsageError where ``good`` is not before ``bad``.
    """
    local = "://" not in repository
    url = str(Path(repository).absolute()) if local else repository
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".row-") as scratch:
            remote = Remote(url, Path(scratch))
            rows = _rows(remote, url, good, bad, sparing=not local)
    except GitFailedError as error:
        raise SourceUnavailableError(
            f"the repository {shown(url)} cannot be asked for {good} and {bad}",
            problems=[str(error).replace(url, shown(url))],
            next_step="name a git repository that has both: --repo URL|FOLDER",
        ) from error
    if not rows:
        raise _backwards(good, bad)
    return tuple(
        Point(name=commit[:12], ref=f"{url}#{commit}", title=title) for commit, title in rows
    )


def _rows(remote: Remote, url: str, good: str, bad: str, *, sparing: bool) -> list[tuple[str, str]]:
    """(commit, subject), the good end first; none where ``good`` is not on ``bad``'s line."""
    ends: list[str] = []
    for name in (good, bad):
        options = ["--filter=tree:0"] if sparing else []
        remote.repository.must(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *options, "--", url,
            f"+{name}:refs/ends/{len(ends)}", seconds=_SECONDS, network=True,
        )  # fmt: skip
        ends.append(remote.repository.must("rev-parse", f"refs/ends/{len(ends)}^{{commit}}").text)
    first, last = ends
    text = remote.repository.must(
        "log", "--first-parent", "--reverse", "--format=%H%x00%s", last
    ).text
    rows = [(commit, title) for commit, _, title in (x.partition("\0") for x in text.splitlines())]
    names = [commit for commit, _ in rows]
    if first not in names or first == last:
        return []
    return rows[names.index(first) :]


def _backwards(good: str, bad: str) -> UsageError:
    return UsageError(
        f"{good} does not come before {bad}",
        problems=["expected the good end first, and the bad one later on the same line"],
        next_step=f"to find what cured something, ask the other way round with a check that "
        f"is turned over: --good {good} is the end where the check passes",
    )


def names_of(points: Sequence[Point]) -> list[str]:
    """For messages and records."""
    return [f"{one.name} {one.title}".strip() for one in points]
