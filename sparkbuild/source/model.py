"""What the source and patch stages give."""

from __future__ import annotations

from typing import Literal

import msgspec


class SourceTree(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned source in the store: its content digest, and the git ids made from it."""

    digest: str
    """SHA-256 over (path, mode, bytes) of the declared paths."""
    commit: str
    """Deterministic commit in the store (fixed author and date), 40 hex digits."""
    tree: str
    build: int | None
    """The number that ``llama-server --version`` must print, where the manifest knows it."""
    origin: str
    """The place that answered, or ``store`` where nothing had to be fetched."""
    warnings: tuple[str, ...] = ()
    """One line for each origin that could not be reached."""


class AppliedPatch(msgspec.Struct, frozen=True, kw_only=True):
    """A patch that applied exactly where it was made for."""

    file: str
    sha256: str
    reason: str
    touched: tuple[str, ...]


class PatchedTree(msgspec.Struct, frozen=True, kw_only=True):
    """The tree that is built: its git ids and the directory that holds it."""

    source_digest: str
    commit: str
    tree: str
    build: int | None
    patches: tuple[AppliedPatch, ...]
    directory: str
    notes: tuple[str, ...] = ()
    """New values that model files may hold."""

    @property
    def identity(self) -> str:
        """What the binaries print as their commit: the first 12 digits of ``commit``."""
        return self.commit[:12]


PatchState = Literal[
    "applies", "applies with offset", "already upstream", "conflicts", "misplaced", "refused",
    "held up",
]  # fmt: skip
"""What became of a patch on a base: ``held up`` where one that it needs is not there, ``refused``
where the file itself is not what a patch may be."""

HunkState = Literal["exact", "offset", "already there", "conflict", "misplaced"]


class HunkFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One hunk on a base; lines count from 1."""

    file: str
    number: int
    state: HunkState
    made_for: int
    """The line that it was made for."""
    line: int | None = None
    """The line that git would put it at."""
    offset: int = 0
    fits: int = 0
    """Places of the file that hold the lines it expects, to the byte."""
    function: str = ""
    """What encloses its first change here."""
    expected_function: str = ""
    """What enclosed it in the source that it was made for."""
    reason: str = ""
    expected: tuple[str, ...] = ()
    """For a conflict: the lines that it expects ..."""
    found: tuple[str, ...] = ()
    """... and the nearest ones that the source has, from ``found_at``."""
    found_at: int | None = None


class PatchFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One patch on a base."""

    file: str
    reason: str
    state: PatchState
    applied: bool = False
    """Whether the tree holds it now: patches behind it are judged on that tree."""
    hunks: tuple[HunkFinding, ...] = ()
    problems: tuple[str, ...] = ()
    held_up_by: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A value that files hold, before and after the patches: an enumerator, or a name's string."""

    name: str
    file: str
    before: str | None
    after: str | None
    refused: str = ""
    """Why it may not be; empty where it may."""


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """What compiling the patched tree gave."""

    passed: bool
    summary: str
    directory: str = ""
    """Of the programs."""
    source: str = ""
    """The folder with the tree."""
    log: str = ""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Every patch of a variant on one base."""

    variant: str
    base: str
    base_commit: str
    absent: tuple[str, ...]
    """Declared paths that this base does not have."""
    patches: tuple[PatchFinding, ...]
    tree: str
    """The tree with all that applied."""
    expected_tree: str | None = None
    """The tree that the manifest pins; only where the base is the manifest's own."""
    values: tuple[ValueChange, ...] = ()
    compiled: Compiled | None = None

    @property
    def passed(self) -> bool:
        """Whether every patch applies exactly, to the pinned tree, and moves no value."""
        return (
            all(patch.state == "applies" for patch in self.patches)
            and not any(value.refused for value in self.values)
            and self.expected_tree in {None, self.tree}
            and (self.compiled is None or self.compiled.passed)
        )
