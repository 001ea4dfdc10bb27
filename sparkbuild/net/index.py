"""Find files in the Python package index that this machine is set up for."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

import pypi_simple
import requests

from sparkbuild.errors import SourceMismatchError
from sparkbuild.net.address import OriginUnavailableError, shown

_VARIABLES: Final = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
"""Where pip and uv are told of another index, pip's first."""

_TIMEOUT: Final = (10.0, 30.0)
"""Seconds granted to connect, and between two reads."""

_TRIES: Final = 3


def endpoint() -> str:
    """The index's address: the user's for pip or uv, or pypi_simple's own default."""
    for name in _VARIABLES:
        if os.environ.get(name, "").strip():
            return os.environ[name].strip()
    return str(pypi_simple.PYPI_SIMPLE_ENDPOINT)


def find_file(project: str, file: str, *, sha256: str) -> str:
    """The address of ``file``, whose digest the index does not contradict.

    Raises OriginUnavailableError where the index does not answer or does not offer the file,
    SourceMismatchError where it offers another file under that name.
    """
    place = endpoint()
    for package in _page(place, project).packages:
        if package.filename != file:
            continue
        found = package.digests.get("sha256", sha256)
        if found != sha256:
            raise SourceMismatchError(
                f"{file}: the index {shown(place)} offers another file of that name",
                problems=[f"expected sha256 {sha256}", f"found sha256 {found}"],
                next_step="ask why the file changed; do not build it",
            )
        return with_password(package.url, place)
    raise OriginUnavailableError(f"the index {shown(place)} does not offer {file}")


def files_of(project: str) -> tuple[pypi_simple.DistributionPackage, ...]:
    """Every file that the index offers of a project, with its address ready to be fetched.

    Raises OriginUnavailableError where the index does not answer or does not know the project.
    """
    place = endpoint()
    packages = _page(place, project).packages
    for package in packages:
        package.url = with_password(package.url, place)
    return tuple(packages)


def _page(place: str, project: str) -> pypi_simple.ProjectPage:
    reason = ""
    for _ in range(_TRIES):
        try:
            with pypi_simple.PyPISimple(place) as client:
                return client.get_project_page(project, timeout=_TIMEOUT)
        except pypi_simple.NoSuchProjectError as error:
            reason = f"the index {shown(place)} has no project {project}"
            raise OriginUnavailableError(reason) from error
        except (
            requests.RequestException,
            pypi_simple.UnsupportedContentTypeError,
            pypi_simple.UnsupportedRepoVersionError,
            ValueError,  # a page that is not what its type says
        ) as error:
            reason = f"the index {shown(place)} does not answer: {_plain(error, place)}"
    raise OriginUnavailableError(reason)


def _plain(error: Exception, place: str) -> str:
    inner = error.args[0] if error.args else error
    text = str(getattr(inner, "reason", inner)).replace(place, shown(place))
    return text.rpartition(": ")[2] if ">: " in text else text


def with_password(url: str, place: str) -> str:
    """A file's address, with the index's own user and password where both are on one host."""
    index, file = urlsplit(place), urlsplit(url)
    if index.username and file.hostname == index.hostname and not file.username:
        user = index.netloc.rpartition("@")[0]
        return file._replace(netloc=f"{user}@{file.netloc}").geturl()
    return url
