"""Whether places on the network answer: a short question to each, all at once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx

from sparkbuild.doctor.captured import Reach

_SECONDS: Final = 6.0
"""For each step: to connect, and between two bytes of the heading."""
_AT_ONCE: Final = 8
_GIT: Final = "/info/refs?service=git-upload-pack"
"""What git asks a repository first."""


def read_network(places: Mapping[str, str]) -> tuple[Reach, ...]:
    """``places``: what to call each, and its address; ``git+`` before it for a repository.

    A folder is looked for instead. Bodies are not fetched.
    """
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return tuple(pool.map(lambda item: _reached(*item), places.items()))


def _reached(place: str, address: str) -> Reach:
    started = time.monotonic()
    try:
        problem = _problem(address)
    except httpx.TimeoutException:
        problem = f"no answer within {_SECONDS:g} s"
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        problem = str(error) or type(error).__name__
    taken = round(time.monotonic() - started, 2)
    return Reach(place=place, reached=not problem, seconds=taken, problem=problem)


def _problem(address: str) -> str:
    url = address.removeprefix("git+")
    if "://" not in url:
        return "" if Path(url).exists() else "no such folder"
    if not url.startswith(("http://", "https://")):
        return "not tried: no HTTP address"
    if address != url:
        url = url.rstrip("/") + _GIT
    with (
        httpx.Client(timeout=_SECONDS, follow_redirects=True) as client,
        client.stream("GET", url) as answer,
    ):
        return "" if answer.is_success else f"HTTP {answer.status_code}"
