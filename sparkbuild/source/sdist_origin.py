"""Sources from a source archive of the Python package index."""

from __future__ import annotations

from sparkbuild.manifest import SdistOrigin
from sparkbuild.net.download import Download
from sparkbuild.net.index import find_file
from sparkbuild.source.archive import read_archive
from sparkbuild.source.origins import Delivery, Request


def from_sdist(origin: SdistOrigin, request: Request) -> Delivery:
    """Download the archive unless it is here, and deliver the declared files of its sub-folder.

    Raises OriginUnavailableError, SourceMismatchError for other bytes than the manifest pins,
    DiskFullError; and ArchiveError while the files are read.
    """
    download = Download(request.downloads, origin.file, sha256=origin.sha256, size=origin.size)
    if not download.finished():
        text = f"downloading {origin.file}"
        download.fetch(
            find_file(origin.project, origin.file, sha256=origin.sha256),
            lambda done, total: request.watcher.progress(done, total, text),
        )
    root = f"{origin.file.removesuffix('.tar.gz')}/{origin.subdirectory}"
    return Delivery(entries=read_archive(download.file, root, request.wants))
