"""Files of the system as they are read: from a root that a test may set, with reasons kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_KIB: Final = 1024
_MEMINFO: Final = re.compile(r"(?m)^(?P<name>[\w()]+):\s+(?P<value>\d+)(?P<unit> kB)?$")


@dataclass(frozen=True)
class Reader:
    """Reads below ``root``; what cannot be read is None, and ``unread`` says why."""

    root: Path = Path("/")
    unread: dict[str, str] = field(default_factory=dict)

    def lack(self, name: str, reason: object) -> None:
        """Keep the reason why a field has no value, the first one alone."""
        self.unread.setdefault(name, " ".join(str(reason).split()) or "no reason given")

    def text(self, path: str, name: str | None = None) -> str | None:
        """A file's text; ``name`` is the field that lacks it, where it lacks it."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            if name is not None:
                self.lack(name, f"/{path}: {error.strerror}")
            return None

    def number(self, path: str, name: str | None = None) -> int | None:
        """A file that holds one whole number."""
        text = self.text(path, name)
        if text is None:
            return None
        if not re.fullmatch(r"-?\d+", text.strip()):
            if name is not None:
                self.lack(name, f"/{path} holds no number")
            return None
        return int(text)


def variable(text: str | None, name: str) -> str | None:
    """A variable of a file such as /etc/os-release, without its quotes."""
    found = re.search(rf'(?m)^{re.escape(name)}="?(?P<value>[^"\n]*)"?$', text or "")
    return found["value"] if found and found["value"] else None


def meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo: bytes, or a count for the lines without a unit."""
    return {
        line["name"]: int(line["value"]) * (_KIB if line["unit"] else 1)
        for line in _MEMINFO.finditer(text)
    }
