"""What a fault is, how it is planted, and what the product made of it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Kind = Literal["toolkit", "source", "speculation", "vision", "file", "server", "pipeline"]
Reach = Literal[
    "everything", "one type", "beyond some tokens", "second request", "drafts", "pictures",
    "concurrency",
]  # fmt: skip
"""Where a fault shows: everywhere, or only under that circumstance."""
Stage = Literal[
    "toolkit", "source", "patches", "qualify", "configure", "build", "inspect", "model", "smoke",
    "package", "verify",
]  # fmt: skip
STAGES: Final[tuple[Stage, ...]] = Stage.__args__  # type: ignore[attr-defined]
"""In the order in which the product comes to them; ``model`` is ``sparkbuild inspect MODEL`` and
what smoke looks at before a start, ``verify`` is ``wheel verify``."""


class Seed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="how"):
    """How a fault is planted; each way is a class of its own."""


class SourceSeed(Seed, frozen=True, kw_only=True, tag="source"):
    """A patch of ours to the pinned source: what it changes is built again, and asked.

    ``patch`` is a file in ``patches``. ``variant`` is what is built.
    """

    patch: str
    variant: str = "vision"


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A seeded fault, and what is expected of the product.

    ``latest`` is the stage that must have refused it, and ``says`` are words that the refusal has
    to hold, in any case of letters. ``imitates`` tells what happened to whom; ``report`` is where
    that is written, empty where no public report is known. ``fast`` ones are run in every CI.
    """

    id: str
    kind: Kind
    summary: str
    imitates: str
    report: str = ""
    reach: Reach
    subtle: bool
    latest: Stage
    says: tuple[str, ...]
    fast: bool = False
    needs: tuple[str, ...] = ()
    """What the machine must have, ``gpu`` or ``cuda-13.2.0``: without it the fault is not run, and
    that is counted."""
    seed: SourceSeed


Verdict = Literal["caught", "late", "other words", "missed", "not run"]
"""``late``: a later stage refused it. ``other words``: refused, and the message does not say what
it must. ``not run``: it could not be planted, or this machine lacks what it needs."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one fault."""

    id: str
    kind: Kind
    verdict: Verdict
    stage: Stage | None
    """The stage that refused it."""
    check: str
    """Which check of that stage."""
    message: str
    """What the refusal said."""
    exit_code: int | None
    command: tuple[str, ...]
    """sparkbuild's arguments, folders of the run shortened to their names."""
    planted_seconds: float
    """To plant it, with what had to be built again."""
    seconds: float
    """Of the product's command, from its start to its end."""
    log: str
    """Everything that the command printed."""
    reason: str = ""
    """Why it was not run."""


class Clean(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the product with nothing planted; any refusal is a false alarm."""

    command: tuple[str, ...]
    exit_code: int
    seconds: float
    message: str
    log: str


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """Every fault with what became of it, and the clean runs beside them."""

    sparkbuild: str
    source: str
    """Digest of the pinned source."""
    machine: dict[str, str]
    catalogue: str
    """Digest of the faults' data."""
    started: str
    seconds: float
    found: tuple[Found, ...]
    clean: tuple[Clean, ...]

    @property
    def ok(self) -> bool:
        """Every fault that was run is caught in time with its words, and nothing clean refused."""
        return all(one.verdict in {"caught", "not run"} for one in self.found) and not any(
            one.exit_code for one in self.clean
        )
