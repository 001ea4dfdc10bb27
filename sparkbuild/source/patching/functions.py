"""Which function encloses a line: git's own answer for the language, and the braces around it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from sparkbuild.source.gitdoor import Repository
from sparkbuild.source.patching.scopes import Chain, chains, one_line

_CPP: Final = {
    ".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inc", ".inl", ".m", ".mm",
}  # fmt: skip
_DRIVERS: Final = {**dict.fromkeys(_CPP, "cpp"), ".py": "python", ".rs": "rust", ".sh": "bash"}
"""Git's own names for languages whose functions it finds (gitattributes, "diff")."""

_HEADING: Final = re.compile(rb"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)$", re.MULTILINE)
_NAME: Final = re.compile(r"((?:operator\s*\S+|[~A-Za-z_][\w~]*(?:::[~A-Za-z_]\w*)*))\s*$")


@dataclass(frozen=True)
class Place:
    """Where a line stands: git's function heading for its language, and what encloses it."""

    heading: str
    chain: Chain

    def __str__(self) -> str:
        """What a person is told."""
        return self.chain[-1] if self.chain else "no function"

    def same(self, other: Place, plain: str) -> bool:
        """Whether ``other``, of a source that is ``plain`` in one line, is the same place.

        Git's heading counts inside functions only: elsewhere it is that of the function before.
        """
        if len(self.chain) != len(other.chain):
            return False
        pairs = list(zip(self.chain, other.chain, strict=True))
        if any("(" in head for head in self.chain):
            pairs.append((self.heading, other.heading))
        return all(
            same_function(was, now, still_there=bool(was) and one_line(was) in plain)
            for was, now in pairs
        )


def driver_of(path: str) -> str | None:
    """Git's name for the language of a file, or None where git knows none."""
    return _DRIVERS.get(PurePosixPath(path).suffix)


def places(
    repository: Repository, data: bytes, lines: Sequence[int], driver: str | None
) -> list[Place]:
    """What encloses each of ``lines`` (0-based: the line before which one would be inserted).

    Git is asked by putting a marked line there and comparing. Raises GitFailedError.
    """
    content = data.splitlines(keepends=True)
    headings = _headings(repository, content, sorted(set(lines)), driver)
    scopes = chains(content, lines, driver)
    return [Place(heading=headings[line], chain=scopes[line]) for line in lines]


def headings(
    repository: Repository, data: bytes, lines: Sequence[int], driver: str | None
) -> list[str]:
    """Git's heading for each line, as it stands behind the ``@@`` of a hunk that begins there."""
    found = _headings(repository, data.splitlines(keepends=True), sorted(set(lines)), driver)
    return [found[line] for line in lines]


def _headings(
    repository: Repository, content: Sequence[bytes], lines: Sequence[int], driver: str | None
) -> dict[int, str]:
    if not lines:
        return {}
    content = [line if line.endswith(b"\n") else line + b"\n" for line in content]
    marked = list(_marked(content, lines))
    with tempfile.TemporaryDirectory(prefix="sparkbuild-") as name:
        attributes = Path(name) / "attributes"
        attributes.write_text(f"* diff={driver}\n" if driver else "* diff\n", encoding="utf-8")
        pair = []
        for text in (b"".join(content), b"".join(marked)):
            file = Path(name) / "blob"
            file.write_bytes(text)
            with file.open("rb") as stream:
                pair.append(repository.must("hash-object", "-w", "--stdin", stdin=stream).text)
        answer = repository.must(
            "-c", f"core.attributesFile={attributes}", "diff", "--no-color", "--no-ext-diff",
            "--no-textconv", "--text", "--unified=0", "--inter-hunk-context=0",
            "--diff-algorithm=myers", *pair,
        )  # fmt: skip
    found = {int(one[1]): one[2].decode(errors="replace") for one in _HEADING.finditer(answer.out)}
    return {line: found.get(line, "") for line in lines}


def _marked(content: Sequence[bytes], lines: Sequence[int]) -> Iterator[bytes]:
    """The content with a line that is nowhere else before each of ``lines``."""
    wanted = set(lines)
    for number in range(len(content) + 1):
        if number in wanted:
            yield b"\x01 mark %d\n" % number
        if number < len(content):
            yield content[number]


def same_function(was: str, now: str, *, still_there: bool) -> bool:
    """Whether two headings or signatures are of one function, whose parameters may have changed.

    ``still_there`` says that ``was`` stands in the new source word for word: then only that one
    is meant, not another of the same name.
    """
    if one_line(was) == one_line(now):
        return True
    name = _name(was)
    return bool(name) and name == _name(now) and not still_there


def _name(text: str) -> str:
    """The name before the parameter list; empty where there is none."""
    match = _NAME.search(text.partition("(")[0]) if "(" in text else None
    return match[1] if match else ""


def attributes() -> str:
    """Git attributes by which it finds the functions of each language it knows."""
    return "".join(f"*{suffix} diff={name}\n" for suffix, name in sorted(_DRIVERS.items()))
