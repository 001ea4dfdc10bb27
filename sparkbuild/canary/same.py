"""Two answers to the same request: where they part, in words; and how clear an answer was."""

from __future__ import annotations

import math

from sparkbuild.canary.numbers import compare, log_probabilities
from sparkbuild.llama.answers import Chat, Completion, TokenProbabilities, hole


def parted(before: Completion, now: Completion, *, vocabulary: int = 0) -> str:
    """Where an answer is not bit for bit an earlier one; empty where it is.

    With ``vocabulary`` both carry numbers for all of it, and their NMSE is told.
    """
    if before == now:
        return ""
    words = tokens_parted(before, now) or _numbers_parted(before, now)
    if not words:
        names = (name for name in now.__struct_fields__)
        name = next(name for name in names if getattr(before, name) != getattr(now, name))
        words = f"{name} is {getattr(now, name)!r:.200}, was {getattr(before, name)!r:.200}"
    return f"{words}; NMSE {nmse(before, now, vocabulary):.3g}" if vocabulary else words


def tokens_parted(before: Completion, now: Completion) -> str:
    """The first token that is another one; empty where all are the same."""
    pairs = zip(before.tokens, now.tokens, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), -1)
    if at >= 0:
        return f"token {at} of {len(before.tokens)} is {now.tokens[at]}, was {before.tokens[at]}"
    if len(before.tokens) != len(now.tokens):
        return f"{len(now.tokens)} tokens, were {len(before.tokens)}"
    return ""


def nmse(before: Completion, now: Completion, vocabulary: int) -> float:
    """NMSE up to the first token that is another one; NaN where numbers are missing."""
    return compare(now, before.tokens, log_probabilities(before, vocabulary)).nmse


def holes(answer: Completion) -> str:
    """The first place without a finite log-probability; empty where there is none."""
    return hole(answer.completion_probabilities)


def lead(answer: Completion | Chat) -> float:
    """How far the next token was behind at the closest decision, in nats.

    Minus infinity where a token was taken that was not among the most likely (a grammar may do
    that), and where nothing is known.
    """
    if isinstance(answer, Completion):
        entries = answer.completion_probabilities
    else:
        found = [choice.logprobs.content for choice in answer.choices if choice.logprobs]
        entries = found[0] if found else ()
    return min(map(_lead, entries), default=-math.inf)


def _lead(entry: TokenProbabilities) -> float:
    values = {top.id: top.logprob for top in entry.top_logprobs if top.logprob is not None}
    own = values.pop(entry.id, None) if entry.id is not None else None
    return -math.inf if own is None or not values else own - max(values.values())


def _numbers_parted(before: Completion, now: Completion) -> str:
    old, new = before.completion_probabilities, now.completion_probabilities
    if len(old) != len(new):
        return f"{len(new)} positions have log-probabilities, {len(old)} had"
    for at, (a, b) in enumerate(zip(old, new, strict=True)):
        values = {top.id: top.logprob for top in b.top_logprobs}
        for top in a.top_logprobs:
            if values.get(top.id) != top.logprob:
                return (
                    f"the log-probability of token {top.id} at position {at} is "
                    f"{values.get(top.id)}, was {top.logprob}"
                )
    return ""
