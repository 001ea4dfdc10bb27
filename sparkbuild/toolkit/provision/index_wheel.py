"""Wheels of the package index, read without fetching them whole."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pypi_simple
from packaging.metadata import Metadata
from packaging.utils import canonicalize_name
from packaging.version import Version

from sparkbuild.errors import SourceMismatchError, ToolkitMismatchError
from sparkbuild.files import sha256_bytes
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.net.download import Download
from sparkbuild.toolkit.lock import LockedWheel
from sparkbuild.toolkit.provision.remote_wheel import RangesIgnoredError, RemoteFile
from sparkbuild.toolkit.provision.wheel import Wheel, damage_refused, read_wheel

IndexFile = pypi_simple.DistributionPackage


def read_metadata(file: IndexFile, client: httpx.Client) -> Metadata:
    """METADATA of a small wheel, which is fetched and verified as a whole.

    Raises OriginUnavailableError, SourceMismatchError, ArchiveError.
    """
    with _opened(file, client) as (source, _):
        data = source.read()
    if (found := sha256_bytes(data)) != sha256_of(file):
        raise SourceMismatchError(
            f"{file.filename} is not the file that the index names",
            problems=[f"expected sha256 {sha256_of(file)}", f"found sha256 {found}"],
            next_step="ask why the file changed; do not lock it",
        )
    wheel, archive = read_wheel(io.BytesIO(data), file.filename)
    with damage_refused(file.filename):
        text = archive.read(f"{wheel.dist_info}/METADATA")
    return Metadata.from_email(text, validate=False)


def read_index_wheel(file: IndexFile, client: httpx.Client) -> tuple[LockedWheel, Wheel]:
    """A wheel's lock entry and what it says of itself.

    Of a large wheel some hundred KB are fetched, so that its bytes are not verified here; a server
    without range requests is asked for all of it. Raises OriginUnavailableError, ArchiveError, and
    ToolkitMismatchError where the wheel is not the one that the index names.
    """
    with _opened(file, client) as (source, size):
        wheel, _ = read_wheel(source, file.filename)
    project, version = canonicalize_name(str(file.project)), str(Version(str(file.version)))
    problems = []
    if (wheel.project, wheel.version) != (project, version):
        problems.append(f"expected {project} {version}, found {wheel.project} {wheel.version}")
    if file.size not in {None, size}:
        problems.append(f"expected {file.size} bytes, found {size}")
    if problems:
        raise ToolkitMismatchError(
            f"{file.filename} is not what the index says",
            problems=problems,
            next_step="ask why the file changed; do not lock it",
        )
    locked = LockedWheel(
        project=project, version=version, file=file.filename, sha256=sha256_of(file), size=size
    )
    return locked, wheel


def sha256_of(file: IndexFile) -> str:
    """The digest that the index states. Raises OriginUnavailableError where it states none."""
    digest = file.digests.get("sha256", "")
    if not digest:
        raise OriginUnavailableError(f"the index states no SHA-256 of {file.filename}")
    return digest


@contextmanager
def _opened(file: IndexFile, client: httpx.Client) -> Iterator[tuple[IO[bytes], int]]:
    """A file to be read in places, and its size; downloaded where the server knows no ranges."""
    try:
        remote = RemoteFile(file.url, client)
    except RangesIgnoredError as error:
        size = error.size if file.size is None else file.size
    else:
        yield io.BufferedReader(remote), remote.size
        return
    if size is None:
        raise OriginUnavailableError(f"nobody states the size of {file.filename}")
    with tempfile.TemporaryDirectory(prefix="sparkbuild-lock-") as folder:
        download = Download(Path(folder), file.filename, sha256=sha256_of(file), size=size)
        with download.fetch(file.url, lambda _done, _total: None).open("rb") as source:
            yield source, size
