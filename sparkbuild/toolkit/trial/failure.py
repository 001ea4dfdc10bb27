"""Whose fault a failed trial compile is: the toolkit's own, or this machine's."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

_ERROR: Final = re.compile(
    r"\b(?:fatal )?error\b\s*(?::|-|\d)|^nvcc (?:fatal|error)\s*:|undefined reference"
    r"|cannot find -l|not found \(required by",
    re.IGNORECASE,
)
_PLACES: Final = re.compile(
    r"^(?P<here>/[^():\"]+)(?=\(\d+\)|:\d+)|declared at line \d+ of \"?(?P<there>/[^()\"]+)"
)
_HOST: Final = re.compile(
    r"unsupported \w+ version"
    r"|exception specif\w+"
    r"|host compiler"
    r"|Cannot find compiler"
    r"|cannot execute .*(?:cc1plus|as|collect2)"
    r"|GLIBC(?:XX)?_[\d.]+' not found",
    re.IGNORECASE,
)
"""Words of nvcc, its headers (``unsupported GNU version!``), EDG (``exception specification is
incompatible with that of previous function "cospi"``), GCC (``different exception specifier``)
and the loader, all about what the toolkit does not bring."""


def first_error(lines: Sequence[str]) -> str:
    """The first line that is an error; the last line at all where none says so."""
    errors = [line.strip() for line in lines if _ERROR.search(line)]
    rest = [line.strip() for line in lines if line.strip()]
    return errors[0] if errors else rest[-1] if rest else "no output"


def is_hosts(lines: Sequence[str], root: str) -> bool:
    """Whether the first error is about this machine: by its words, or by a system header.

    ``allowing all exceptions is incompatible with previous function "rsqrt" (declared at line 79
    of "/usr/include/bits/mathcalls.h")`` stands in a header of the toolkit and names the other.
    """
    error = first_error(lines)
    places = [match["here"] or match["there"] for match in _PLACES.finditer(error)]
    outside = any(not _below(place, root) for place in places)
    return outside or _HOST.search(error) is not None


def _below(path: str, root: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(root).rstrip("/") + "/")
