"""What a llama-server's log tells: faults, warnings and notes by kind, from a table as data."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal, get_args

import msgspec

from sparkbuild.errors import ManifestError
from sparkbuild.manifest import Table, load

TABLE: Final = Path(__file__).with_name("log.toml")

Severity = Literal["fault", "warning", "note"]
Context = Literal["cuda", "drafts", "pictures"]
"""What a server was started with, where that decides what a line means."""
Text = Annotated[str, msgspec.Meta(min_length=1)]

_PIECE: Final = 16384
"""Bytes of a line that are looked at together; a longer line is cut into such pieces."""
_PIECES: Final = 4
"""Of one line that are looked at: that takes a microsecond for each character."""
_LONGEST: Final = 320
"""Characters of a line that are kept: a message about positions needs 270."""
_KEPT: Final = 3
"""Lines of each kind that are kept; the count of all is told."""
_PREFIX: Final = re.compile(r"(?:[\d.]+ )?([DIWE]) ")
"""llama-server's time (minutes, seconds, milliseconds, microseconds; may be off) and level."""
_BARE: Final = re.compile(r"(?i)\s*(?:(warn(?:ing)?)|(?:fatal )?error) ?:")
"""How lines begin that were written before the levels are set up, or by libraries."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NUMBER: Final = re.compile(r"\d+")
_SHAPES: Final = 4096
"""Lines without their numbers that are remembered with what they mean: thousands are alike."""
_SHAPE: Final = 512
"""Characters of the longest line that is remembered."""


class Entry(Table, frozen=True):
    """Lines of one kind: a regular expression, how bad they are, and why.

    The expression meets ``0`` where the line has a number, whichever it is. With ``when`` the entry
    is only for a server that was started with that.
    """

    kind: Text
    severity: Severity
    pattern: Text
    reason: Text
    when: Context | None = None


class Entries(Table, frozen=True):
    """``log.toml``: the first entry that fits a line decides."""

    schema: Literal[1]
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(min_length=1)]


OTHER_ERROR: Final = Entry(
    kind="other error",
    severity="fault",
    pattern=".",
    reason="at llama.cpp's own level of errors; the table does not know it",
)
OTHER_WARNING: Final = Entry(
    kind="other warning",
    severity="note",
    pattern=".",
    reason="at llama.cpp's own level of warnings; the table does not know it",
)
TOO_LONG: Final = Entry(
    kind="long line",
    severity="warning",
    pattern=".",
    reason="the rest of the line was not looked at",
)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a log: its number from 1, its text without the time, why it counts."""

    number: int
    text: str
    reason: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of one kind and severity: how many, and the first few of them."""

    kind: str
    severity: Severity
    count: int
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        first = self.lines[0]
        times = "" if self.count == 1 else f"{self.count} times, the first time in "
        return f"{self.kind}: {times}line {first.number}: {first.text} ({first.reason})"


class LogReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole log tells: faults first, then warnings, then notes."""

    lines: int
    """That the program wrote; the line with its command is not one of them."""
    seen: tuple[Seen, ...] = ()

    @property
    def passed(self) -> bool:
        """True where something was written, and no fault."""
        return self.lines > 0 and not self.of("fault")

    def of(self, severity: Severity) -> tuple[Seen, ...]:
        """What was seen of one severity."""
        return tuple(one for one in self.seen if one.severity == severity)

    def count(self, severity: Severity) -> int:
        """How many lines are of that severity."""
        return sum(one.count for one in self.of(severity))

    def __str__(self) -> str:
        told = []
        for severity in get_args(Severity):
            kinds = ", ".join(f"{one.kind} {one.count}" for one in self.of(severity))
            number = self.count(severity)
            told.append(f"{number} {severity}{'' if number == 1 else 's'}")
            told[-1] += f" ({kinds})" if kinds else ""
        return f"{self.lines} lines: {', '.join(told)}"


@functools.cache
def load_entries(path: Path = TABLE) -> tuple[Entry, ...]:
    """The table's entries, in order. Raises ManifestError naming the file and the entry."""
    entries = load(path, Entries).entries
    for index, entry in enumerate(entries):
        try:
            re.compile(entry.pattern)
        except re.error as error:
            raise ManifestError(
                f"{path}: `entries[{index}].pattern` is no regular expression: {error}",
                evidence=[path],
                next_step=f"correct {path}",
            ) from error
    return entries


def scan(log: Path, *, context: Collection[Context] = (), extra: Sequence[Entry] = ()) -> LogReport:
    """Read a log and sort its lines by the entries of ``extra``, then by the table.

    A log that cannot be read has no lines, which is not well. It may be of any size and hold any
    bytes. Of a line the first 64 KiB are looked at, in pieces; that there is more is told.
    """
    entries = (*extra, *load_entries())
    book = _Book([entry for entry in entries if entry.when is None or entry.when in context])
    try:
        with log.open("rb") as file:
            for number, text in _messages(file):
                book.take(number, text)
    except OSError:
        pass
    return book.report()


def _messages(file: BinaryIO) -> Iterator[tuple[int, str | None]]:
    """A line's number and its text, without colours; progress bars and long lines in pieces.

    None stands for the rest of a line that is far too long.
    """
    number, pieces, command = 1, 0, False
    while piece := file.readline(_PIECE):
        command = number == 1 and (command or piece.startswith(b"$ "))
        if pieces == _PIECES:
            yield number, None
        elif pieces < _PIECES and not command:
            whole = _COLOURS.sub("", piece.decode("utf-8", errors="replace"))
            yield from ((number, part) for part in whole.rstrip("\n").split("\r") if part)
        ended = piece.endswith(b"\n")
        number, pieces = number + ended, 0 if ended else pieces + 1


class _Kind:
    """Counts the lines of one kind and keeps the first."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.count = 0
        self.lines: list[Line] = []


class _Book:
    """Sorts lines; remembers no more than the first few of each kind."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = [(re.compile(entry.pattern).search, entry) for entry in entries]
        self._faults = [pair for pair in self._entries if pair[1].severity == "fault"]
        self._kinds: dict[tuple[str, Severity], _Kind] = {}
        self._known: dict[tuple[str, str], Entry | None] = {}
        self._open: _Kind | None = None
        """Whose last kept line may be continued by the next one."""
        self._number = 0
        self._lines = 0

    def take(self, number: int, text: str | None) -> None:
        """Sort one line, or a piece of it."""
        self._lines += number > self._number
        self._number = number
        if text is None:
            self._keep(TOO_LONG, number, "...")
            return
        prefix = _PREFIX.match(text)
        level = prefix[1] if prefix else _bare_level(text)
        body = text[prefix.end() :] if prefix else text
        entry = None if level in {"D", "I"} else self._entry(level, body)
        if entry:
            self._keep(entry, number, f"{prefix[1]} {body}" if prefix else body)
        elif self._open and not level and text[0] in " \t":
            self._continue(text)
        else:
            self._open = None

    def report(self) -> LogReport:
        """Everything that was seen."""
        order = get_args(Severity)
        kinds = sorted(self._kinds.values(), key=lambda kind: order.index(kind.entry.severity))
        return LogReport(
            lines=self._lines,
            seen=tuple(
                Seen(
                    kind=kind.entry.kind,
                    severity=kind.entry.severity,
                    count=kind.count,
                    lines=tuple(kind.lines),
                )
                for kind in kinds
            ),
        )

    def _entry(self, level: str, body: str) -> Entry | None:
        """The entry that a line belongs to; None for one of which nothing is known."""
        shape = level, _NUMBER.sub("0", body)
        if shape in self._known:
            return self._known[shape]
        pairs = self._faults if level == "E" else self._entries
        other = {"E": OTHER_ERROR, "W": OTHER_WARNING}.get(level)
        found = next((entry for search, entry in pairs if search(shape[1])), other)
        if len(self._known) < _SHAPES and len(body) <= _SHAPE:
            self._known[shape] = found
        return found

    def _keep(self, entry: Entry, number: int, text: str) -> None:
        kind = self._kinds.setdefault((entry.kind, entry.severity), _Kind(entry))
        kind.count += 1
        self._open = None
        if len(kind.lines) < _KEPT:
            kind.lines.append(
                Line(number=number, text=text.strip()[:_LONGEST], reason=entry.reason)
            )
            self._open = kind

    def _continue(self, text: str) -> None:
        """A message of several lines: what follows its first one stands further in."""
        if self._open:
            last = self._open.lines[-1]
            longer = f"{last.text} {text.strip()}".strip()[:_LONGEST]
            self._open.lines[-1] = msgspec.structs.replace(last, text=longer)


def _bare_level(text: str) -> str:
    """``E`` or ``W`` where a line without a level says so itself, else nothing."""
    found = _BARE.match(text)
    return "" if not found else "W" if found[1] else "E"
