"""A patch that is a commit of a git repository: fetched by its full id, mirrored, digest pinned."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.errors import SourceMismatchError, SourceUnavailableError
from sparkbuild.files import sha256_bytes, write_atomic
from sparkbuild.manifest import PatchEntry, RemotePatch
from sparkbuild.net.address import OriginUnavailableError, shown
from sparkbuild.source.git_origin import Remote
from sparkbuild.source.gitdoor import GitFailedError, Repository
from sparkbuild.source.objects import open_store
from sparkbuild.source.origins import resolved
from sparkbuild.source.patching.export import DIFF
from sparkbuild.source.store import Store


def mirror_ref(commit: str) -> str:
    """The ref that keeps a remote patch, whatever is force-pushed where it came from."""
    return f"refs/pins/patch-{commit}"


def remote_file(store: Store, entry: PatchEntry, manifest: Path) -> Path:
    """The patch as a file in the store, with the bytes that the manifest pins.

    It is made from the mirror where the store has the commit, else from the repository. Raises
    SourceUnavailableError where that does not deliver, SourceMismatchError where the commit is not
    in the named ref, or its diff is not the pinned one; BusyError.
    """
    assert entry.remote is not None  # noqa: S101 - the caller asked
    file = store.root / "sparkbuild" / "patches" / f"{entry.sha256}.patch"
    if file.is_file() and sha256_bytes(file.read_bytes()) == entry.sha256:
        return file
    diff = diff_of(store, entry.remote, manifest)
    found = sha256_bytes(diff)
    if found != entry.sha256:
        raise SourceMismatchError(
            f"patch {entry.file}: commit {entry.remote.commit[:12]} is not the diff that "
            f"{manifest} pins",
            problems=[f"expected sha256 {entry.sha256}", f"found sha256 {found}"],
            evidence=[manifest],
            next_step="read that commit again; where it is right, set the patch's `sha256` to the "
            "one found",
        )
    write_atomic(file, diff)
    return file


def diff_of(store: Store, remote: RemotePatch, manifest: Path) -> bytes:
    """The text of a remote patch; its commit is in the store afterwards. Raises as above."""
    if store.ref(mirror_ref(remote.commit)) != remote.commit:
        with store.writing("the source store"), store.scratch() as scratch:
            open_store(store)
            _fetch(store, remote, manifest, scratch)
    repository = Repository(store.root)
    base = remote.base or f"{remote.commit}^1"
    try:
        return repository.must(*DIFF, "--unified=3", base, remote.commit, "--").out
    except GitFailedError as error:
        raise _unavailable(remote, str(error), manifest) from error


def _fetch(store: Store, remote: RemotePatch, manifest: Path, scratch: Path) -> None:
    url = resolved(remote.url, manifest)
    other = Remote(url, scratch)
    try:
        other.answer()
        known = other.history(remote.ref)
        if remote.commit not in known:
            raise _foreign(remote, known, manifest)
        other.take(remote.commit, "--depth=2")
        if remote.base:
            other.take(remote.base, "--depth=1")
    except (GitFailedError, OriginUnavailableError) as error:
        raise _unavailable(remote, str(error).replace(url, shown(url)), manifest) from error
    repository = Repository(store.root)
    names = [remote.commit, *([remote.base] if remote.base else [])]
    try:
        for name in names:
            repository.must(
                "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow",
                "--depth=2", "--", str(other.repository.directory), f"+{name}:{mirror_ref(name)}",
            )  # fmt: skip
    except GitFailedError as error:
        raise _unavailable(remote, str(error), manifest) from error


def _foreign(remote: RemotePatch, known: list[str], manifest: Path) -> SourceMismatchError:
    head = known[0] if known else "nothing"
    return SourceMismatchError(
        f"commit {remote.commit} is not in {remote.ref} of {shown(remote.url)}",
        problems=[
            f"expected it among the {len(known)} commits of {remote.ref}",
            f"found there, as the newest: {head}",
        ],
        evidence=[manifest],
        next_step="ask who wrote that commit: any fork's commits can be fetched by id. Where the "
        "branch was pushed anew, review the new commits and pin one of them",
    )


def _unavailable(remote: RemotePatch, reason: str, manifest: Path) -> SourceUnavailableError:
    return SourceUnavailableError(
        f"cannot get commit {remote.commit[:12]} from {shown(remote.url)}",
        problems=[reason],
        evidence=[manifest],
        next_step="connect this machine to the network and run the same command again",
    )
