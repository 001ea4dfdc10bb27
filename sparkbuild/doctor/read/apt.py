"""Apt's sources that name NVIDIA: one line each, or stanzas in the newer format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sparkbuild.doctor.captured import AptSource
from sparkbuild.doctor.read.reader import Reader
from sparkbuild.net.address import shown

_LINE: Final = re.compile(r"^(?P<off>#\s*)?deb(-src)?\s+(\[[^\]]*\]\s+)?(?P<uri>\S+)\s+\S+")
_NVIDIA: Final = re.compile(r"nvidia|/compute/cuda/repos/|/jetson", re.IGNORECASE)
"""What an address of NVIDIA's, or of a mirror of theirs, holds."""


def read_apt(reader: Reader) -> tuple[AptSource, ...] | None:
    """All of them, those that are switched off too; None on a system without apt."""
    folder = reader.root / "etc/apt"
    if not folder.is_dir():
        reader.lack("apt", "there is no /etc/apt")
        return None
    lists = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.list"))]
    stanzas = sorted((folder / "sources.list.d").glob("*.sources"))
    found: list[AptSource] = []
    for path in (*lists, *stanzas):
        inside = str(path.relative_to(reader.root))
        text = reader.text(inside)
        if text is None:
            continue
        parse = deb822 if path.suffix == ".sources" else one_line
        found += [
            AptSource(file=f"/{inside}", uri=shown(uri), enabled=enabled)
            for uri, enabled in parse(text)
            if _NVIDIA.search(uri)
        ]
    return tuple(found)


def one_line(text: str) -> Iterator[tuple[str, bool]]:
    """Address and whether it is on, of each line of a ``.list``."""
    for line in text.splitlines():
        found = _LINE.match(line.strip())
        if found is not None:
            yield found["uri"], found["off"] is None


def deb822(text: str) -> Iterator[tuple[str, bool]]:
    """Address and whether it is on, of each stanza of a ``.sources``; further lines are indented.

    A ``#`` begins a comment at the start of a line only.
    """
    for stanza in re.split(r"\n[ \t]*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields: dict[str, str] = {}
        last = ""
        for line in lines:
            if line[:1] in {" ", "\t"} and last:
                fields[last] += f" {line.strip()}"
            elif ":" in line:
                name, _, value = line.partition(":")
                last = name.strip().lower()
                fields[last] = value.strip()
        enabled = fields.get("enabled", "yes").lower() not in {"no", "false", "off", "0", "without"}
        yield from ((uri, enabled) for uri in fields.get("uris", "").split())
