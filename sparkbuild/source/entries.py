"""What a source may hold: regular files, executables and links that stay inside the tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

REGULAR: Final = "100644"
EXECUTABLE: Final = "100755"
LINK: Final = "120000"

_PATH_BYTES: Final = 4095
_NAME_BYTES: Final = 255
"""PATH_MAX less its NUL, and NAME_MAX, from linux/limits.h."""


class UnsafeEntryError(ValueError):
    """An entry that no tree of ours may hold; the text names it and says why."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file of a source: ``/``-separated path, git mode, bytes in chunks (a link's target).

    ``chunks`` can be read once and holds ``size`` bytes in all.
    """

    path: str
    mode: str
    size: int
    chunks: Iterable[bytes]


def normal_mode(permissions: int) -> str:
    """Git's mode for a regular file: only the owner's execute bit counts."""
    return EXECUTABLE if permissions & 0o100 else REGULAR


def path_problem(path: str) -> str | None:
    """Why ``path`` may not be the name of an entry, or None.

    A good path is relative, plain (no empty, ``.`` or ``..`` component, no backslash, no control
    character), UTF-8, short enough for Linux, and never touches a ``.git``.
    """
    text = _text_problem(path)
    if text is not None:
        return text
    if path.startswith("/"):
        return "an absolute name"
    return next((problem for part in path.split("/") if (problem := _part_problem(part))), None)


def _part_problem(part: str) -> str | None:
    if part == "..":
        return "a name that climbs out"
    if part in {"", "."}:
        return "not a plain relative name"
    if part.lower() == ".git":
        return "a name inside .git"
    if len(part.encode()) > _NAME_BYTES:
        return f"a name with a part of more than {_NAME_BYTES} bytes"
    return None


def link_problem(path: str, target: str) -> str | None:
    """Why the link at ``path`` may not point at ``target``, or None.

    ``..`` may only lead, and not past the root. With no link among a path's own parents (which
    ``Inventory`` refuses) such a target cannot leave the tree, whatever links it passes through.
    """
    text = _text_problem(target)
    if text is not None:
        return f"a link to {target!r}: {text}"
    if target.startswith("/"):
        return f"a link to the absolute name {target}"
    parts = [part for part in target.split("/") if part not in {"", "."}]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    if climbs > path.count("/"):
        return f"a link out of the tree, to {target}"
    if ".." in parts[climbs:]:
        return f"a link that goes down and up again, to {target}"
    return None


def parents(path: str) -> Iterable[str]:
    """Every folder above ``path``, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _text_problem(text: str) -> str | None:
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return "a name that is not UTF-8"
    if not text:
        return "an empty name"
    if len(encoded) > _PATH_BYTES:
        return f"a name of more than {_PATH_BYTES} bytes"
    if "\\" in text:
        return "a name with a backslash"
    if any(character < " " or character == "\x7f" for character in text):
        return "a name with a control character"
    return None
