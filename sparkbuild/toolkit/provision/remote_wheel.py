"""A file behind HTTP that can be read in places: enough for a wheel's directory and RECORD."""

from __future__ import annotations

import io
import re
import time
from typing import TYPE_CHECKING, Final

import httpx

from sparkbuild.net.address import OriginUnavailableError, shown

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)
_TAIL: Final = 1 << 16
"""Bytes asked for first: a wheel's directory and RECORD lie at its end, and mostly fit."""

_BLOCK: Final = 1 << 16
"""The least that is asked for at a time: zipfile reads a few bytes here and there."""

_TRIES: Final = 3
_PARTIAL: Final = 206
_TOO_MANY: Final = 429
_RANGE: Final = re.compile(r"bytes (?P<start>\d+)-(?P<end>\d+)/(?P<size>\d+)")


class RangesIgnoredError(Exception):
    """The server sends whole files only; ``size`` is this one's, where it says so."""

    def __init__(self, size: int | None) -> None:
        super().__init__("the server knows no ranges")
        self.size = size


def new_client() -> httpx.Client:
    """A client for many files: to make one costs more than to read a wheel's end."""
    return httpx.Client(timeout=_TIMEOUT, follow_redirects=True)


class RemoteFile(io.RawIOBase):
    """A seekable, read-only file over HTTP range requests.

    ``size`` is the whole file's, as the server says; ``fetched`` the bytes asked for so far.
    Raises RangesIgnoredError from the start, OriginUnavailableError from the start or any read.
    """

    def __init__(self, url: str, client: httpx.Client) -> None:
        super().__init__()
        self._url = url
        self._client = client
        self._at = 0
        self.fetched = 0
        self._etag = ""
        self._blocks: dict[int, bytes] = {}
        start, tail, self.size = self._ask(f"bytes=-{_TAIL}")
        self._blocks[start] = tail

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The place of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the place of the next read. Raises ValueError before the beginning."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"a place before the beginning: {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read as ``io.RawIOBase`` has it; may give less than was asked for."""
        view = memoryview(buffer).cast("B")
        data = self._here(min(len(view), self.size - self._at)) if self._at < self.size else b""
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _here(self, wanted: int) -> bytes:
        for start, block in self._blocks.items():
            if start <= self._at < start + len(block):
                return block[self._at - start :][:wanted]
        last = min(self._at + max(wanted, _BLOCK), self.size) - 1
        start, block, size = self._ask(f"bytes={self._at}-{last}")
        if start != self._at or size != self.size or not block:
            reason = f"{shown(self._url)}: it sent another range than was asked for"
            raise OriginUnavailableError(reason)
        self._blocks[start] = block
        return block[:wanted]

    def _ask(self, wanted: str) -> tuple[int, bytes, int]:
        """Where the range begins, its bytes, and the size of the whole file."""
        headers = {"Accept-Encoding": "identity", "Range": wanted}
        reason = ""
        for attempt in range(_TRIES):
            time.sleep(0.5 * attempt)
            try:
                with self._client.stream("GET", self._url, headers=headers) as response:
                    if response.is_server_error or response.status_code == _TOO_MANY:
                        reason = f"HTTP status {response.status_code}"
                        continue
                    self._check(response)
                    place = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
                    data = b"".join(response.iter_raw()) if place else b""
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
                continue
            except (httpx.InvalidURL, httpx.TooManyRedirects, ImportError) as error:
                # ImportError: httpx, told to use a SOCKS proxy, lacks the package for it.
                raise OriginUnavailableError(f"{shown(self._url)}: {error}") from error
            self.fetched += len(data)
            if place and len(data) == int(place["end"]) - int(place["start"]) + 1:
                return int(place["start"]), data, int(place["size"])
            reason = "it sent another range than it said"
        raise OriginUnavailableError(f"{shown(self._url)}: {reason}")

    def _check(self, response: httpx.Response) -> None:
        if response.status_code == httpx.codes.OK:
            length = response.headers.get("Content-Length", "")
            raise RangesIgnoredError(int(length) if length.isdecimal() else None)
        if response.status_code != _PARTIAL:
            text = f"{shown(self._url)}: HTTP status {response.status_code}"
            raise OriginUnavailableError(text)
        etag = response.headers.get("ETag", "")
        if self._etag not in {"", etag}:
            raise OriginUnavailableError(f"{shown(self._url)}: the file changed meanwhile")
        self._etag = etag
