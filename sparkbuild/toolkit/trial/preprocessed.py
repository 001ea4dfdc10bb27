"""What the preprocessor saw in a compile: the headers that it read, and the versions in them."""

from __future__ import annotations

import re
from typing import Final

_LINE_MARKER: Final = re.compile(rb'^# \d+ "((?:[^"\\]|\\.)*)"', re.MULTILINE)

TABLE: Final = "sparkbuild_trial"
FIELDS: Final = (
    "CUDART_VERSION", "CUDA_VERSION",
    "__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__", "__CUDACC_VER_BUILD__",
    "__CUDA_API_VER_MAJOR__", "__CUDA_API_VER_MINOR__",
    "CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH", "CUBLAS_VER_BUILD",
    "__GLIBC__", "__GLIBC_MINOR__",
    "TRIAL_CLANG", "TRIAL_MAJOR", "TRIAL_MINOR", "TRIAL_PATCH",
)  # fmt: skip
"""Macros in the order in which the trial's source puts them into its table."""

_TABLE: Final = re.compile(rf"\b{TABLE}\[\]\s*=\s*\{{(?P<values>[^}}]*)\}}")


def headers(text: bytes) -> tuple[str, ...]:
    """Every file that preprocessed text came from, in the order of first use."""
    names = [name.decode(errors="surrogateescape") for name in _LINE_MARKER.findall(text)]
    plain = dict.fromkeys(re.sub(r"\\(.)", r"\1", name) for name in names)
    return tuple(name for name in plain if name and not name.startswith("<"))


def seen(text: str) -> dict[str, int] | None:
    """The table's macros as the preprocessor put them; None where the table is not whole."""
    match = _TABLE.search(text)
    if match is None:
        return None
    lines = [line for line in match["values"].splitlines() if not line.startswith("#")]
    words = [word.strip() for word in " ".join(lines).split(",")]
    if len(words) != len(FIELDS) or not all(re.fullmatch(r"[0-9]{1,9}", word) for word in words):
        return None
    return dict(zip(FIELDS, map(int, words), strict=True))
