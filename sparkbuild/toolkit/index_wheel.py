"""Wheels of the package index, read without fetching them whole."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import pypi_simple
from packaging.metadata import Metadata
from packaging.utils import canonicalize_name
from packaging.version import Version

from sparkbuild.errors import ToolkitMismatchError
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.net.download import Download
from sparkbuild.toolkit.lock import LockedWheel
from sparkbuild.toolkit.remote_wheel import RangesIgnoredError, RemoteFile
from sparkbuild.toolkit.wheel import Wheel, read_wheel

IndexFile = pypi_simple.DistributionPackage


def read_metadata(file: IndexFile) -> Metadata:
    """METADATA of a small wheel, which is fetched and verified as a whole.

    Raises OriginUnavailableError, SourceMismatchError, ArchiveError.
    """
    with tempfile.TemporaryDirectory(prefix="sparkbuild-lock-") as folder:
        path = _downloaded(file, Path(folder), _size(file))
        with path.open("rb") as data:
            wheel, archive = read_wheel(data, file.filename)
            text = archive.read(f"{wheel.dist_info}/METADATA")
    return Metadata.from_email(text, validate=False)


def read_index_wheel(file: IndexFile) -> tuple[LockedWheel, Wheel]:
    """A wheel's lock entry and what it says of itself.

    Of a large wheel some hundred KB are fetched, so that its bytes are not verified here; a server
    without range requests is asked for all of it. Raises OriginUnavailableError, ArchiveError, and
    ToolkitMismatchError where the wheel is not the one that the index names.
    """
    try:
        with RemoteFile(file.url) as remote:
            size = remote.size
            wheel, _ = read_wheel(io.BufferedReader(remote), file.filename)
    except RangesIgnoredError:
        size = _size(file)
        with (
            tempfile.TemporaryDirectory(prefix="sparkbuild-lock-") as folder,
            _downloaded(file, Path(folder), size).open("rb") as data,
        ):
            wheel, _ = read_wheel(data, file.filename)
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


def _downloaded(file: IndexFile, folder: Path, size: int) -> Path:
    download = Download(folder, file.filename, sha256=sha256_of(file), size=size)
    return download.fetch(file.url, lambda _done, _total: None)


def _size(file: IndexFile) -> int:
    """The size that the index or the server states."""
    if file.size is not None:
        return file.size
    try:
        with RemoteFile(file.url) as remote:
            return remote.size
    except RangesIgnoredError as error:
        raise OriginUnavailableError(f"nobody states the size of {file.filename}") from error
