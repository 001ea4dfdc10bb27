"""Log-probabilities of one way to serve against those of another, over the same text.

Both see the same text at every position: where the most likely token is another one, the first
way's is put there and the second is asked to go on behind it. So the kernels for single tokens are
compared, and one near tie does not end the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sparkbuild.llama.answers import TokenProbabilities
from sparkbuild.smoke.served.talk import Reply, Talk

_FLOOR: Final = -60.0
"""Nats: float32 probabilities end at -103, and b11434 writes -3.4e38 for 0."""
_MORE: Final = 4
"""Partings beyond those allowed after which nothing more is asked."""
Row = dict[int, float]
"""Log-probability by token id."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A prompt and what a server made of it."""

    name: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    rows: tuple[Row | None, ...]
    """None for a token that ends in the middle of a character: llama-server tells nothing of it."""


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far numbers are apart: squared error and squared deviation, positions, partings."""

    error: float = 0.0
    spread: float = 0.0
    positions: int = 0
    partings: int = 0

    def __add__(self, other: Distance) -> Distance:
        return Distance(
            error=self.error + other.error,
            spread=self.spread + other.spread,
            positions=self.positions + other.positions,
            partings=self.partings + other.partings,
        )

    @property
    def nmse(self) -> float:
        """Over the tokens that both name; NaN where there are none."""
        return self.error / self.spread if self.spread > 0 else math.nan

    @property
    def agreement(self) -> float:
        """Share of positions with the same most likely token."""
        return 1 - self.partings / self.positions if self.positions else 0.0


def recorded(talk: Talk, name: str, prompt: tuple[int, ...], *, count: int, top: int) -> Run:
    """What a server makes of a prompt."""
    reply = talk.continued(name, prompt, count=count, top=top)
    return Run(name=name, prompt=prompt, tokens=reply.ids, rows=tuple(_rows(reply)))


def compared(talk: Talk, run: Run, *, top: int, allowed: float) -> Distance:
    """A server against an earlier run; ``allowed`` is the share of partings that is still well."""
    total, at = Distance(), 0
    most = allowed * len(run.tokens) + _MORE
    while at < len(run.tokens) and total.partings <= most:
        reply = talk.continued(
            run.name, (*run.prompt, *run.tokens[:at]), count=len(run.tokens) - at, top=top
        )
        if not reply.ids:
            break
        for token, row in zip(reply.ids, _rows(reply), strict=True):
            parted = token != run.tokens[at]
            total += _at(run.rows[at], row, parted=parted)
            at += 1
            if parted:
                break
    return total


def _at(before: Row | None, now: Row | None, *, parted: bool) -> Distance:
    both = [token for token in before or {} if token in (now or {})]
    if before is None or now is None or len(both) < 2:
        return Distance(positions=1, partings=int(parted))
    mean = sum(before[token] for token in both) / len(both)
    return Distance(
        error=sum((now[token] - before[token]) ** 2 for token in both),
        spread=sum((before[token] - mean) ** 2 for token in both),
        positions=1,
        partings=int(parted),
    )


def _rows(reply: Reply) -> Iterator[Row | None]:
    """One for each token, found by the token's id."""
    given = iter(reply.positions)
    entry = next(given, None)
    for token in reply.ids:
        if entry is None or entry.id != token:
            yield None
            continue
        yield _row(entry)
        entry = next(given, None)


def _row(entry: TokenProbabilities) -> Row:
    tops: Sequence[tuple[int, float | None]] = [(top.id, top.logprob) for top in entry.top_logprobs]
    return {token: math.nan if value is None else max(value, _FLOOR) for token, value in tops}
