"""What ninja says: status lines, and the first failure with its command and its error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

STATUS_FORMAT: Final = "[%f/%t] "
"""For ``NINJA_STATUS``: finished and total edges."""

ERROR_LINES: Final = 6
"""Lines of a compiler's output that a refusal shows: the first error, and what explains it."""

_STATUS: Final = re.compile(r"\[(?P<finished>\d+)/(?P<total>\d+)\] (?P<description>.*)")
_FAILED: Final = re.compile(r"FAILED: (?:\[code=(?P<code>\d+)\] )?(?P<outputs>.*?)\s*")
_OWN_ERROR: Final = re.compile(r"ninja: (?:error|fatal): (?P<text>.*)")
_ERROR: Final = re.compile(
    r"^[^\s:]+:\d+(?::\d+)?: (?:fatal )?error:"  # GCC, Clang
    r"|^\S+\(\d+\): (?:catastrophic )?error\b"  # nvcc's front end
    r"|^ptxas .*; error\b|^(?:ptxas|nvlink|nvcc) (?:fatal|error)"
    r"|: undefined reference to |: multiple definition of |: cannot find |: undefined symbol"
    r"|^CMake Error|^make.*: \*\*\*|^\S+: (?:fatal )?error: "
)
_LINKER_CONTEXT: Final = re.compile(r": in function `|: warning: ")
_KILLED: Final = re.compile(
    r"Killed signal terminated program|died due to signal 9|\bKilled$|"
    r"out of memory|virtual memory exhausted|Cannot allocate memory|std::bad_alloc"
)
_DISK_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")


@dataclass(frozen=True, kw_only=True)
class Status:
    """One status line: edges finished, edges in all, what has just ended."""

    finished: int
    total: int
    description: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The first edge that failed: its command, the first error, the output around that."""

    outputs: str
    code: int | None
    command: str
    headline: str
    excerpt: str
    out_of_memory: bool


def parse_status(line: str) -> Status | None:
    """Read a line that ``STATUS_FORMAT`` made, or None for any other."""
    match = _STATUS.fullmatch(line)
    if match is None or len(match["finished"]) > 9 or len(match["total"]) > 9:
        return None
    return Status(
        finished=int(match["finished"]),
        total=int(match["total"]),
        description=match["description"],
    )


def subject(description: str) -> str:
    """What a person wants to read of a description: the file, without CMake's own folders."""
    last = description.split()[-1:]
    if not last or not ("/" in last[0] or "." in last[0]):
        return description
    return re.sub(r"CMakeFiles/[^/]+\.dir/", "", last[0]).removesuffix(".o")


def parse_failure(lines: Sequence[str]) -> Failure | None:
    """The first failure in ninja's output; later ones are edges that were still running."""
    for position, line in enumerate(lines):
        failed = _FAILED.fullmatch(line)
        if failed is not None:
            return _failure(failed, list(_block(lines[position + 1 :])))
        own = _OWN_ERROR.match(line)
        if own is not None:
            return Failure(
                outputs="", code=None, command="", headline=own["text"], excerpt="",
                out_of_memory=False,
            )  # fmt: skip
    return None


def disk_is_full(lines: Sequence[str]) -> bool:
    """True where any tool said that it could not write for want of room."""
    return any(_DISK_FULL.search(line) for line in lines)


def _block(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if _STATUS.fullmatch(line) or _FAILED.fullmatch(line) or line.startswith("ninja: "):
            return
        yield line


def _failure(failed: re.Match[str], block: Sequence[str]) -> Failure:
    command, output = "".join(block[:1]), block[1:]
    first = next((n for n, line in enumerate(output) if _ERROR.search(line)), 0)
    context = 1 if first and _LINKER_CONTEXT.search(output[first - 1]) else 0
    excerpt = output[first - context : first + ERROR_LINES]
    return Failure(
        outputs=failed["outputs"],
        code=int(failed["code"][:9]) if failed["code"] else None,
        command=command,
        headline=output[first] if output else "",
        excerpt="\n".join(excerpt),
        out_of_memory=any(_KILLED.search(line) for line in output),
    )
