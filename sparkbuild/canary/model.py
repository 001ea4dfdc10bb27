"""What a canary's run gives, and what ships; nothing heavy is imported for it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from sparkbuild.llama.log import LogReport

LOG: Final = "log"
"""The group of all lines of the server's log."""
BEHAVIOUR: Final = "behaviour"
"""The group of requests that are repeated in other circumstances."""

Backend = Literal["cpu", "cuda"]
"""Where the layers are computed; bounds of healthy noise differ."""
CacheType = Literal["f32", "f16", "q8_0"]
"""llama-server's ``--cache-type-k`` and ``--cache-type-v``. ``f32`` goes with flash attention off:
that multiplies in float16, whatever the cache's type is."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One question: what was expected and what came; ``nmse`` where numbers were compared."""

    name: str
    group: str
    passed: bool
    expected: str
    found: str
    seconds: float
    nmse: float | None = None
    bound: float | None = None
    """What ``nmse`` may be at most."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """All items of one kind: how many have to be right, and are."""

    name: str
    right: int
    of: int
    minimum: float
    """The share that has to be right; 1 is all of them."""
    reason: str
    """Why it is not another share."""

    @property
    def passed(self) -> bool:
        """True where items were asked and enough were right."""
        return self.of > 0 and self.right >= self.minimum * self.of


class CanaryReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pass over one form of one canary."""

    canary: str
    form: str
    backend: Backend
    cache: CacheType
    load_seconds: float
    """From the start of the server to its health."""
    seconds: float
    """Of the questions."""
    items: tuple[Item, ...]
    groups: tuple[Group, ...]
    log: LogReport

    @property
    def passed(self) -> bool:
        """True where every group is well; an item may miss where its group's rate allows it."""
        return bool(self.groups) and all(group.passed for group in self.groups)


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the tokens that the draft block proposed, up to ``depth`` at a time.

    ``unsupported`` says why this llama.cpp cannot draft with the model; nothing else is then
    known. ``wrong`` counts answers that drafting changed, which it must never do. ``log`` is of
    the server that drafted, None where none did.
    """

    depth: int
    drafted: int = 0
    accepted: int = 0
    wrong: int = 0
    unsupported: str = ""
    log: LogReport | None = None
    counts: dict[str, tuple[int, int]] = {}
    """Drafted and accepted by answer."""

    @property
    def share(self) -> float:
        """Accepted of drafted; 0 where nothing was drafted, which is a failure too."""
        return self.accepted / self.drafted if self.drafted else 0.0


Head = Literal["healthy", "damaged"]


class DraftCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a draft block's acceptance at one depth has to be, and is."""

    depth: int
    head: Head
    state: Literal["passed", "failed", "unsupported"]
    drafted: int
    accepted: int
    wrong: int
    """Answers that drafting changed."""
    share: float
    bound: float
    """Of accepted to drafted tokens: at least with a healthy head, at most with a damaged one."""
    reason: str
    """Why the bound is not another one; of what is unsupported, why it is."""
    log: LogReport | None = None
    """A fault in it fails the check, whatever was accepted."""
    exact: bool = False
    """Whether the counts of every answer had to be those recorded."""
    others: tuple[str, ...] = ()
    """Answers whose counts are not; one of them fails the check."""
    pictures: bool = False
    """Whether texts and pictures were asked in turn, and what is counted came after pictures."""

    @property
    def how(self) -> str:
        """The head, and what is special about the check."""
        more = (("exact", self.exact), ("after pictures", self.pictures))
        return ", ".join([self.head, *(what for what, so in more if so)])

    @property
    def passed(self) -> bool:
        """True for what is unsupported too: nothing is known to be wrong then."""
        return self.state != "failed"
