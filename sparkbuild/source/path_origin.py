"""Sources from a folder on this machine: a plain tree, or a bare git repository."""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from sparkbuild.manifest import GitOrigin, PathOrigin, SourcePin
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.source.entries import Entry
from sparkbuild.source.folder import read_folder
from sparkbuild.source.git_origin import from_git
from sparkbuild.source.origins import Delivery, Request


def from_path(origin: PathOrigin, pin: SourcePin, request: Request) -> Delivery:
    """Deliver the declared files of a folder, or of a commit of a bare repository.

    Raises OriginUnavailableError where there is no such folder, SourceMismatchError where it
    holds what is neither file, folder nor link.
    """
    place = request.manifest.absolute().parent / origin.path
    if not place.is_dir():
        raise OriginUnavailableError(f"{place} is not a folder")
    if (place / "HEAD").is_file() and (place / "objects").is_dir():
        named = (one for one in pin.origins if isinstance(one, GitOrigin))
        wanted = next(named, GitOrigin(url=""))
        return from_git(msgspec.structs.replace(wanted, url=str(place)), request)
    return Delivery(entries=_readable(read_folder(place, pin.paths, request.wants)))


def _readable(entries: Generator[Entry, None, None]) -> Generator[Entry, None, None]:
    try:
        yield from entries
    except OSError as error:
        raise OriginUnavailableError(f"{error.filename}: {error.strerror}") from error
