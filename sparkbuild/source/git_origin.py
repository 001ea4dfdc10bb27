"""Sources from a git repository, near or far: by full commit, by tag, by commit and branch."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sparkbuild.errors import SourceMismatchError
from sparkbuild.manifest import GitOrigin
from sparkbuild.net.address import OriginUnavailableError, shown
from sparkbuild.source.entries import Entry
from sparkbuild.source.gitdoor import GitFailedError, Repository, said
from sparkbuild.source.objects import Listed, commit_of, create_repository, listing, read_entries
from sparkbuild.source.origins import (
    Delivery,
    Request,
    describe,
    resolved,
)

_ANSWER_SECONDS: Final = 40.0
"""Granted for the first answer. curl alone would wait 300 s for a host that swallows packets."""

_FETCH_SECONDS: Final = 3600.0
"""Granted for a whole fetch; one that stalls is ended after 30 s by ``http.lowSpeedTime``."""

_HERE: Final = "refs/fetched/pin"
_GITLINK: Final = "160000"


def from_git(origin: GitOrigin, request: Request) -> Delivery:
    """Fetch one commit and deliver the declared files of its tree.

    Raises OriginUnavailableError where the repository does not answer or does not hold the
    commit, SourceMismatchError where an abbreviated commit stands for none or several of its
    branch, or a declared path holds a submodule.
    """
    url = resolved(origin.url, request.manifest)
    remote = Remote(url, request.scratch)
    try:
        remote.answer()
        commit = _fetch(origin, remote)
        files = listing(remote.repository, commit)
    except GitFailedError as error:
        reason = str(error).replace(url, shown(url))
        raise OriginUnavailableError(reason) from error
    return Delivery(
        entries=_entries(remote.repository, files, request.wants, describe(origin)),
        upstream=commit,
    )


def _entries(
    repository: Repository, files: list[Listed], wants: Callable[[str], bool], origin: str
) -> Generator[Entry, None, None]:
    wanted = [file for file in files if wants(file.path)]
    modules = [file.path for file in wanted if file.mode == _GITLINK]
    if modules:
        raise SourceMismatchError(
            f"{origin} has submodules below the declared paths, which a source may not have",
            problems=[f"submodule: {path}" for path in modules],
            next_step="leave them out of `source.paths`",
        )
    try:
        yield from read_entries(repository, wanted)
    except GitFailedError as error:
        raise OriginUnavailableError(f"what it sent is not whole: {error}") from error


def _fetch(origin: GitOrigin, remote: Remote) -> str:
    """Fetch what the manifest names; the commit's full id."""
    if origin.commit is None:
        return remote.fetch(f"refs/tags/{origin.tag}" if origin.tag else "HEAD")
    commit = origin.commit
    if len(commit) < 40:
        commit = _complete(origin, remote)
    try:
        fetched = remote.fetch(commit)
    except GitFailedError as by_commit:
        # Some servers hand out only what a name points at.
        names = [f"refs/tags/{origin.tag}"] if origin.tag else []
        names += [f"refs/heads/{origin.branch}"] if origin.branch else []
        for name in names:
            if remote.holds(name, commit):
                return commit
        raise GitFailedError(f"commit {commit} is not to be had: {by_commit}") from by_commit
    if fetched != commit:
        raise GitFailedError(f"{commit} is a tag's id; its commit is {fetched}")
    return fetched


def _complete(origin: GitOrigin, remote: Remote) -> str:
    """The one commit of the branch that an abbreviated commit stands for."""
    prefix = origin.commit or ""
    known = [
        name for name in remote.history(f"refs/heads/{origin.branch}") if name.startswith(prefix)
    ]
    if len(known) == 1:
        return known[0]
    raise SourceMismatchError(
        f"{describe(origin)}: {len(known) or 'no'} commits of branch {origin.branch} begin "
        f"with {prefix}",
        problems=known or [f"expected one commit that begins with {prefix}, found none"],
        next_step="write the commit's 40 digits in the manifest; a full commit is fetched even "
        "where its branch has moved on",
    )


class Remote:
    """Another repository, and a bare one of ours that its objects go to."""

    def __init__(self, url: str, scratch: Path) -> None:
        self._url = url
        self._scratch = scratch
        # A mirror of another user's is read because the manifest names it; nothing in it is run.
        home = {"GIT_CONFIG_GLOBAL": str(scratch / "gitconfig")}
        local = _local_path(url)
        safe = f'[safe]\n\tdirectory = "{_quoted(local)}"\n' if local else ""
        (scratch / "gitconfig").write_text(safe, encoding="utf-8")
        create_repository(scratch / "pin.git")
        self.repository = Repository(scratch / "pin.git", home=home)
        self._home = home

    def answer(self) -> None:
        """Raise GitFailedError where nothing answers in time."""
        self.repository.must(
            "ls-remote", "--quiet", "--", self._url, "HEAD", seconds=_ANSWER_SECONDS, network=True
        )

    def fetch(self, what: str) -> str:
        """Fetch the newest state of a name, or one commit, without its history."""
        self._fetch(self.repository, what, "--depth=1")
        return commit_of(self.repository, _HERE)

    def take(self, commit: str, *options: str) -> None:
        """Fetch one commit under its own name. Raises GitFailedError."""
        self._fetch(self.repository, commit, *options, to=f"refs/fetched/{commit}")

    def holds(self, name: str, commit: str) -> bool:
        """True where ``commit`` is in the history of ``name``, which then is here."""
        try:
            self._fetch(self.repository, name)
        except GitFailedError:
            return False
        return commit in self.repository.must("rev-list", _HERE).text.split()

    def history(self, name: str) -> list[str]:
        """Every commit of a branch, fetched without files where the server can do that."""
        place = self._scratch / "history.git"
        create_repository(place)
        repository = Repository(place, home=self._home)
        # git remembers where to get the rest, under a name that may not begin with a slash.
        plain = self._url.startswith("/")
        self._fetch(repository, name, *([] if plain else ["--filter=tree:0"]))
        return repository.must("rev-list", _HERE).text.split()

    def _fetch(self, repository: Repository, what: str, *options: str, to: str = _HERE) -> None:
        arguments = _fetch_arguments(self._url, what, *options, to=to)
        answer = repository.run(*arguments, seconds=_FETCH_SECONDS, network=True)
        if answer.status != 0:
            raise GitFailedError(said(answer.err) or f"git fetch of {what} ended badly")


def _fetch_arguments(url: str, what: str, *options: str, to: str) -> list[str]:
    fixed = ["--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
    return ["fetch", *fixed, *options, "--", url, f"+{what}:{to}"]


def _local_path(url: str) -> str | None:
    if url.startswith("file://"):
        return unquote(urlsplit(url).path)
    return url if url.startswith("/") else None


def _quoted(path: str) -> str:
    return path.replace("\\", "\\\\").replace('"', '\\"')
