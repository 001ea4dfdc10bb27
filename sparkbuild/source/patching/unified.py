"""Read unified diffs, every byte: what git would skip in silence is refused here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

_HUNK: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(?: (.*))?\n?")
_NO_NEWLINE: Final = b"\\ No newline at end of file"
_ESCAPE: Final = re.compile(rb'\\([abtnvfr"\\]|[0-7]{3})')
_PLAIN: Final = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_SIGNATURE: Final = b"-- "
"""Begins the lines that git format-patch closes a mail with."""

_EXTENDED: Final = (
    b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode ", b"rename from ",
    b"rename to ", b"copy from ", b"copy to ", b"similarity index ", b"dissimilarity index ",
    b"index ",
)  # fmt: skip


class DiffError(ValueError):
    """A diff that says one thing and holds another; the text names the line."""


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """One hunk: line numbers as written (1-based), the function that its author's git named.

    ``old`` and ``new`` are whole lines with their line ends; the last line of a file may have none.
    """

    old_start: int
    new_start: int
    function: str
    lines: tuple[bytes, ...]
    """Each begins with a space, a minus or a plus."""

    @property
    def old(self) -> tuple[bytes, ...]:
        """The lines that the source must hold."""
        return tuple(line[1:] for line in self.lines if not line.startswith(b"+"))

    @property
    def new(self) -> tuple[bytes, ...]:
        """The lines that it then holds."""
        return tuple(line[1:] for line in self.lines if not line.startswith(b"-"))

    @property
    def leading(self) -> int:
        """Lines of context before the first change."""
        changed = (n for n, line in enumerate(self.lines) if not line.startswith(b" "))
        return next(changed, len(self.lines))

    @property
    def trailing(self) -> int:
        """Lines of context behind the last change."""
        backwards = enumerate(reversed(self.lines))
        return next((n for n, line in backwards if not line.startswith(b" ")), len(self.lines))


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a patch does to one file; ``old`` is None for a new one, ``new`` for a deleted one."""

    old: str | None = None
    new: str | None = None
    hunks: tuple[Hunk, ...] = ()
    modes: tuple[str, ...] = ()
    """Modes that the diff names, in the order in which they stand there."""
    copied: bool = False
    binary: bool = False

    @property
    def path(self) -> str:
        """The name after the change, or the last one that it had."""
        return self.new or self.old or ""


def parse(data: bytes) -> tuple[Change, ...]:
    """Every change of a patch file, in order.

    Raises DiffError for what is not UTF-8, has CRLF in its structure, or holds fewer or more lines
    than its hunks say.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DiffError(f"line {line}: not UTF-8 ({error.reason})") from error
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise DiffError(f"line {line}: a NUL byte")
    changes = tuple(_Reader(split(data)).changes())
    if not changes:
        raise DiffError("no change of any file in it")
    return changes


def split(data: bytes) -> list[bytes]:
    """Lines with their ends; nothing but a line feed ends one."""
    return [line for line in re.split(rb"(?<=\n)", data) if line]


def backwards(hunk: Hunk) -> Hunk:
    """The hunk that takes the change back."""
    signs = {b"+": b"-", b"-": b"+", b" ": b" "}
    return Hunk(
        old_start=hunk.new_start,
        new_start=hunk.old_start,
        function=hunk.function,
        lines=tuple(signs[line[:1]] + line[1:] for line in hunk.lines),
    )


@dataclass
class _Draft:
    """A change while its lines are read."""

    change: Change = field(default_factory=Change)
    header: tuple[str, str] | None = None
    named: bool = False
    created: bool = False
    deleted: bool = False


class _Reader:
    def __init__(self, lines: list[bytes]) -> None:
        self._all = lines
        self._at = 0
        self._hunk_end = -1
        """Where the last hunk was over: only there may a line be one too many."""

    def changes(self) -> Iterator[Change]:
        draft: _Draft | None = None
        while self._at < len(self._all):
            line = self._all[self._at]
            if line.startswith(b"diff --git "):
                yield from self._ended(draft)
                draft = _Draft(header=self._git_names(line))
                self._at += 1
            elif line.startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
                if draft is None or draft.named or draft.change.hunks:
                    yield from self._ended(draft)
                    draft = _Draft()
                self._file_names(draft)
            elif line.startswith(b"@@ ") and draft is not None and draft.named:
                self._hunk(draft)
            else:
                self._other(line, draft)
                self._at += 1
        yield from self._ended(draft)

    def _ended(self, draft: _Draft | None) -> Iterator[Change]:
        if draft is None:
            return
        change = draft.change
        if not draft.named and change.old is None and change.new is None:
            old, new = draft.header or ("", "")
            change = replace(
                change,
                old=None if draft.created else old,
                new=None if draft.deleted else new,
            )
        if draft.named and not change.hunks:
            raise self._wrong("the file's name is followed by no hunk")
        yield change

    def _other(self, line: bytes, draft: _Draft | None) -> None:
        """A line outside every hunk: an extended header, prose, or what must not be there."""
        if draft is None:
            return
        if line.endswith(b"\r\n") and line.startswith((b"diff ", b"index ", *_EXTENDED)):
            raise self._wrong("CRLF in the structure of the patch")
        if line.startswith((b"GIT binary patch", b"Binary files ")):
            draft.change = replace(draft.change, binary=True)
            return
        if line.startswith(_EXTENDED) and not draft.named:
            self._extended(line, draft)
            return
        if line.startswith(_SIGNATURE) and line.strip() == b"--":
            return
        if self._at == self._hunk_end and line[:1] in {b" ", b"+", b"-", b"\\"}:
            raise self._wrong("more lines than the hunk's heading says")

    def _extended(self, line: bytes, draft: _Draft) -> None:
        text = line.rstrip(b"\n")
        change = draft.change
        key, _, value = text.rpartition(b" ")
        if key.startswith(b"index "):
            draft.change = replace(change, modes=(*change.modes, value.decode()))
        if key in {b"old mode", b"new mode", b"new file mode", b"deleted file mode"}:
            draft.change = replace(change, modes=(*change.modes, value.decode()))
            draft.created |= key == b"new file mode"
            draft.deleted |= key == b"deleted file mode"
        for word in (b"rename", b"copy"):
            if text.startswith(word + b" from "):
                old = _unquoted(text.split(b" from ", 1)[1])
                draft.change = replace(draft.change, old=old, copied=word == b"copy")
            elif text.startswith(word + b" to "):
                draft.change = replace(draft.change, new=_unquoted(text.split(b" to ", 1)[1]))

    def _git_names(self, line: bytes) -> tuple[str, str]:
        if line.endswith(b"\r\n"):
            raise self._wrong("CRLF in the structure of the patch")
        rest = line.removeprefix(b"diff --git ").rstrip(b"\n")
        quoted = re.fullmatch(rb'("(?:[^"\\]|\\.)*"|\S+) ("(?:[^"\\]|\\.)*"|\S+)', rest)
        if quoted:
            first, second = quoted.groups()
        else:  # names with spaces: both halves are then the same name
            middle = len(rest) // 2
            first, second = rest[:middle], rest[middle + 1 :]
        return self._stripped(first), self._stripped(second)

    def _stripped(self, name: bytes) -> str:
        """A name without the ``a/`` or ``b/`` that git puts before it."""
        text = _unquoted(name)
        head, slash, rest = text.partition("/")
        if not slash or head in {"", ".", ".."}:
            raise self._wrong(f"{text!r}: expected a name that begins with a/ or b/")
        return rest

    def _file_names(self, draft: _Draft) -> None:
        names: list[str | None] = []
        for prefix in (b"--- ", b"+++ "):
            line = self._all[self._at]
            if line.endswith(b"\r\n"):
                raise self._wrong("CRLF in the structure of the patch")
            name = line.removeprefix(prefix).rstrip(b"\n").partition(b"\t")[0].rstrip(b" ")
            names.append(None if name == b"/dev/null" else self._stripped(name))
            self._at += 1
        old, new = names
        if old is None and new is None:
            raise self._wrong("a file that is neither before nor after")
        for was, now in ((draft.change.old, old), (draft.change.new, new)):
            if was is not None and was != now:
                raise self._wrong(f"{was} in the heading, {now} behind it")
        draft.named = True
        draft.change = replace(draft.change, old=old, new=new)

    def _hunk(self, draft: _Draft) -> None:
        line = self._all[self._at]
        match = _HUNK.fullmatch(line)
        if line.endswith(b"\r\n"):
            raise self._wrong("CRLF in the structure of the patch")
        if match is None:
            raise self._wrong("not the heading of a hunk")
        old_left, new_left = (int(match[n]) if match[n] else 1 for n in (2, 4))
        self._at += 1
        lines: list[bytes] = []
        while old_left or new_left:
            mark = self._peek(0)[:1]
            text = self._peek(0)
            if mark == b"\n":  # an empty line of context that lost its space on the way
                raise self._wrong("an empty line inside a hunk: trailing blanks were cut off")
            if mark not in {b" ", b"-", b"+"}:
                missing = f"{old_left} old and {new_left} new lines are missing"
                raise self._wrong(f"the hunk ends too early, {missing}")
            old_left -= mark != b"+"
            new_left -= mark != b"-"
            self._at += 1
            if self._peek(0).startswith(_NO_NEWLINE):
                text = text.removesuffix(b"\n")
                self._at += 1
            elif not text.endswith(b"\n"):
                raise self._wrong("the file is cut off inside a line")
            if old_left < 0 or new_left < 0:
                raise self._wrong("more lines than the hunk's heading says")
            lines.append(text)
        hunk = Hunk(
            old_start=int(match[1]),
            new_start=int(match[3]),
            function=(match[5] or b"").decode().strip(),
            lines=tuple(lines),
        )
        if hunk.leading == len(lines):
            raise self._wrong("a hunk that changes nothing")
        draft.change = replace(draft.change, hunks=(*draft.change.hunks, hunk))
        self._hunk_end = self._at

    def _peek(self, ahead: int) -> bytes:
        place = self._at + ahead
        return self._all[place] if place < len(self._all) else b""

    def _wrong(self, text: str) -> DiffError:
        return DiffError(f"line {min(self._at + 1, len(self._all))}: {text}")


def _unquoted(name: bytes) -> str:
    """A name as git writes it: in quotes, with escapes, where it holds unusual characters."""
    if len(name) >= 2 and name.startswith(b'"') and name.endswith(b'"'):
        name = _ESCAPE.sub(_unescaped, name[1:-1])
    return name.decode(errors="surrogateescape")


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else bytes([_PLAIN[code[0]]])
