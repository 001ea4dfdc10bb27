"""Source locations: ``.file``, ``.loc`` and the function names in ``.debug_str``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparkbuild.qualify.fault import PtxError
from sparkbuild.qualify.ptx.model import Location

_FILE: Final = re.compile(r'^[ \t]*\.file\s+(\d+)\s+"((?:[^"\\\n]|\\.)*)"', re.MULTILINE)
_SECTION: Final = re.compile(r"^[ \t]*\.section\s+\.debug_str\s*\{([^}]*)\}", re.MULTILINE)
_LABEL: Final = re.compile(r"^([\w$]+):", re.MULTILINE)
_BYTES: Final = re.compile(r"^[ \t]*\.b8[ \t]+([^\n]*)", re.MULTILINE)
_LOC: Final = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+([\w$]+)(?:\s*\+\s*(\d+))?"
    r"\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?\s*$"
)


class DebugInfo:
    """Files and function names of a module, read when the first location is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._files: dict[str, str] | None = None
        self._names: dict[str, bytes] | None = None

    def file(self, number: str) -> str:
        """The path that ``.file`` gives the number."""
        if self._files is None:
            start = self._text.find(".file")
            found = _FILE.finditer(self._text, max(0, self._text.rfind("\n", 0, start) + 1))
            self._files = {match[1]: match[2] for match in found} if start >= 0 else {}
        return self._files.get(number, f"file {number}")

    def name(self, label: str, offset: int = 0) -> str:
        """The string at a label of ``.debug_str``, the label itself where it is not there."""
        if self._names is None:
            self._names = _strings(self._text)
        raw = self._names.get(label)
        return label if raw is None else raw[offset:].split(b"\0")[0].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class _Loc:
    place: tuple[str, str, str]
    function: str
    call: tuple[str, str, str] | None
    made: dict[int, Location]
    """By the identity of the location it was inlined into."""


class Locations:
    """The ``.loc`` directives of one function, in their order.

    A call that was inlined has its own ``.loc`` before those of what it calls, so the place that
    ``inlined_at`` names is the latest one seen with that file, line and column.
    """

    def __init__(self, function: str, debug: DebugInfo) -> None:
        self._function = function
        self._debug = debug
        self._at: dict[tuple[str, str, str], Location] = {}
        self._parsed: dict[str, _Loc] = {}

    def read(self, text: str, line: Callable[[], int]) -> Location:
        """The location of one directive; ``line`` tells where it stands, for an error."""
        loc = self._parsed.get(text)
        if loc is None:
            match = _LOC.match(text)
            if match is None:
                raise PtxError(f"not a location: {text!r}", line())
            file, number, column, label, offset, *call = match.groups()
            function = self._debug.name(label, int(offset or 0)) if label else self._function
            at = (call[0], call[1], call[2]) if label else None
            loc = _Loc((file, number, column), function, at, {})
            self._parsed[text] = loc
        caller = None
        if loc.call is not None:
            caller = self._at.get(loc.call) or self._caller(loc.call)
        location = loc.made.get(id(caller))
        if location is None:
            file, number, _ = loc.place
            location = Location(self._debug.file(file), int(number), loc.function, caller)
            loc.made[id(caller)] = location
        self._at[loc.place] = location
        return location

    def _caller(self, at: tuple[str, str, str]) -> Location:
        """A call that has no directive of its own: it is known from here on."""
        location = self._at[at] = Location(self._debug.file(at[0]), int(at[1]))
        return location


def _strings(text: str) -> dict[str, bytes]:
    start = text.find(".debug_str")
    section = _SECTION.search(text, text.rfind("\n", 0, start) + 1) if start >= 0 else None
    if section is None:
        return {}
    labels = list(_LABEL.finditer(section[1]))
    ends = [*(label.start() for label in labels[1:]), len(section[1])]
    return {
        label[1]: bytes(
            int(number, 0) & 0xFF
            for values in _BYTES.findall(section[1], label.end(), end)
            for number in values.split(",")
        )
        for label, end in zip(labels, ends, strict=True)
    }
