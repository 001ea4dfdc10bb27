"""Download one file of known size and digest; what a cut line brought is kept and gone on from."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

import httpx
import msgspec

from sparkbuild.errors import SourceMismatchError
from sparkbuild.files import disk_full_refused, fsync_directory, sha256_file, write_atomic
from sparkbuild.net.address import OriginUnavailableError, shown

_TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)
_TRIES: Final = 4
"""Attempts that may end without a single new byte, 0.5, 1 and 2 seconds apart."""

_PASSING: Final = {408, 425, 429, 500, 502, 503, 504}
"""HTTP answers that a later attempt may not get."""

_PARTIAL: Final = 206
_RANGE_REFUSED: Final = 416


class _Transient(Exception):  # noqa: N818 - never seen outside this module
    """An attempt ended that the next may go on from."""


class _Validator(msgspec.Struct, frozen=True, kw_only=True):
    """What tells that a file at an address is still the same."""

    url: str
    etag: str


class Download:
    """One file on its way into ``folder``: ``<sha256>.part``, then ``<sha256>/<name>``."""

    def __init__(self, folder: Path, name: str, *, sha256: str, size: int) -> None:
        self._part = folder / f"{sha256}.part"
        self._note = folder / f"{sha256}.part.json"
        self._sha256 = sha256
        self._size = size
        self.file = folder / sha256 / name

    def finished(self) -> bool:
        """True where the file is here and whole; one that is not is deleted."""
        if not self.file.is_file():
            return False
        if self.file.stat().st_size == self._size and sha256_file(self.file) == self._sha256:
            return True
        self.file.unlink()
        return False

    def fetch(
        self,
        url: str,
        progress: Callable[[int, int], None],
        pause: Callable[[float], None] = time.sleep,
    ) -> Path:
        """Bring the file here, verified; ``progress`` gets bytes here and bytes in all.

        Raises OriginUnavailableError where the server does not deliver, SourceMismatchError where
        it twice delivers something else, DiskFullError.
        """
        found: list[str] = []
        for _ in range(2):
            with disk_full_refused(self._part):
                self._part.parent.mkdir(parents=True, exist_ok=True)
                self._complete(url, progress, pause)
            found.append(sha256_file(self._part))
            if found[-1] == self._sha256 and self._part.stat().st_size == self._size:
                return self._keep()
            self._forget()
        raise SourceMismatchError(
            f"{shown(url)} is not the file that the manifest pins",
            problems=[f"expected sha256 {self._sha256}, {self._size} bytes"]
            + [f"found sha256 {digest}" for digest in dict.fromkeys(found)],
            next_step="ask why the file changed; do not build it",
        )

    def _keep(self) -> Path:
        with disk_full_refused(self.file):
            self.file.parent.mkdir(exist_ok=True)
            with self._part.open("rb") as part:
                os.fsync(part.fileno())
            self._part.rename(self.file)
            fsync_directory(self.file.parent)
        self._note.unlink(missing_ok=True)
        return self.file

    def _forget(self) -> None:
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _complete(
        self, url: str, progress: Callable[[int, int], None], pause: Callable[[float], None]
    ) -> None:
        """Go on until the part is as long as the whole."""
        idle = 0
        while self._have() < self._size:
            before = self._have()
            try:
                self._attempt(url, progress)
            except (httpx.InvalidURL, httpx.TooManyRedirects, ImportError) as error:
                # ImportError: httpx, told to use a SOCKS proxy, lacks the package for it.
                raise OriginUnavailableError(_reason(error, url)) from error
            except (httpx.TransportError, _Transient) as error:
                idle = 0 if self._have() > before else idle + 1
                if idle >= _TRIES:
                    raise OriginUnavailableError(_reason(error, url)) from error
                pause(0.5 * 2 ** max(idle - 1, 0))
            else:
                return

    def _have(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _attempt(self, url: str, progress: Callable[[int, int], None]) -> None:
        headers = {"Accept-Encoding": "identity", **self._range(url)}
        with (
            httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            mode = self._mode(response, url)
            with self._part.open(mode) as out:
                self._remember(response, url)
                self._copy(response, out, progress)

    def _range(self, url: str) -> dict[str, str]:
        """Ask for the rest only, on condition that the file is still the one we have a part of."""
        have = self._have()
        if not have:
            return {}
        try:
            known = msgspec.json.decode(self._note.read_bytes(), type=_Validator)
        except (OSError, msgspec.DecodeError):
            known = _Validator(url="", etag="")
        same = {"If-Range": known.etag} if known.etag and known.url == shown(url) else {}
        return {"Range": f"bytes={have}-", **same}

    def _mode(self, response: httpx.Response, url: str) -> str:
        if response.status_code == _RANGE_REFUSED:
            self._forget()
            raise _Transient("it cannot go on from where the last attempt ended")
        if response.status_code in _PASSING:
            raise _Transient(f"HTTP status {response.status_code}")
        if not response.is_success:
            raise OriginUnavailableError(f"{shown(url)}: HTTP status {response.status_code}")
        if response.status_code != _PARTIAL:
            return "wb"
        if response.headers.get("Content-Range", "").startswith(f"bytes {self._have()}-"):
            return "ab"
        self._forget()
        raise _Transient("it sent another range than was asked for")

    def _remember(self, response: httpx.Response, url: str) -> None:
        etag = response.headers.get("ETag", "")
        strong = "" if etag.startswith("W/") else etag
        note = _Validator(url=shown(url), etag=strong)
        write_atomic(self._note, msgspec.json.encode(note))

    def _copy(
        self, response: httpx.Response, out: IO[bytes], progress: Callable[[int, int], None]
    ) -> None:
        done = out.tell()
        for chunk in response.iter_raw():  # of no fixed size: a cut would lose what fills it
            out.write(chunk)
            done += len(chunk)
            if done > self._size:
                return  # more than the whole: the digest will say so
            progress(done, self._size)
        if done < self._size:
            raise _Transient(f"the line was cut after {done} of {self._size} bytes")


def _reason(error: Exception, url: str) -> str:
    return f"{shown(url)}: {str(error) or type(error).__name__}"
