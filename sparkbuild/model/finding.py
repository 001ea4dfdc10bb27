"""What a look at a model says: one finding a check."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec
import msgspec.structs

State = Literal["ok", "note", "warning", "fault"]
"""``note``: nothing is wrong, or it was not tried. ``warning``: it starts and may serve badly.
``fault``: it does not start, does not answer, or answers wrongly."""

NOT_ASKED: Final = "none asked"
"""What a check expects that looks at something which nobody asked for."""
_LONGEST: Final = 80
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.+-]{1,80}")
_LISTED: Final = 6


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One check: what it expects, what it found, why that matters, what to do now."""

    name: str
    state: State
    expected: str
    found: str
    reason: str = ""
    next_step: str = ""

    def __post_init__(self) -> None:
        """A file's own words may be in any of them: what does not print is spelled out."""
        for field in self.__struct_fields__:
            text = getattr(self, field)
            if not text.isprintable():
                plain = text.encode("unicode_escape").decode("ascii")
                msgspec.structs.force_setattr(self, field, plain)


def not_asked(name: str) -> Finding:
    """The finding of a check that looks at something which nobody asked for."""
    return Finding(name=name, state="ok", expected=NOT_ASKED, found="none")


def not_tried(name: str, expected: str, found: str) -> Finding:
    """The finding of a check that needs a build, where none was named."""
    reason = "not tried: no --build"
    return Finding(name=name, state="note", expected=expected, found=found, reason=reason)


def shown(value: object) -> str:
    """A file's own text as it may stand on a terminal: quoted, no control characters, cut."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def named(name: str) -> str:
    """A name out of a file: as it is where it is a plain one, otherwise as ``shown`` has it."""
    return name if _PLAIN.fullmatch(name) else shown(name)


def listed(items: list[str], *, most: int = _LISTED) -> str:
    """The first few of many, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
