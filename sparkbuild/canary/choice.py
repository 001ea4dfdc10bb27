"""Which references and answers of a suite are asked again in other circumstances."""

from __future__ import annotations

from typing import Final

from sparkbuild.canary.suite import PICTURE, Answer, Reference, Suite

AT_ONCE: Final = 4
"""Answers that are asked at the same time."""
_CANDIDATES: Final = 6
"""Answers for each place in a company, of which the first that is clear is taken. Batches of other
sizes are computed by other kernels, whose roundings turn near ties on healthy builds: b11434 gives
one answer of glm5-next a token less when it is alone (Q8_0 on a CPU, a call that the grammar
forces), and ends another elsewhere (the mix on a CPU)."""
CLEAR: Final = 0.5
"""Nats between the token taken and the next at the closest decision: far from a tie."""
_LONGEST: Final = 300
"""Tokens of the longest prompt whose numbers are asked again; a longer one takes too long."""
_SHARED: Final = 64
"""Tokens of the longest prompt whose beginning is asked again: every turn computes some of it."""
_LONG: Final = 1000
"""Characters of the longest conversation beside short ones."""


def references(suite: Suite) -> list[Reference]:
    """The shortest of text, the longest that is not too long, the first with a picture."""
    texts = sorted(filter(is_text, suite.references), key=lambda one: len(one.prompt))
    long = [one for one in texts[1:] if len(one.prompt) <= _LONGEST]
    pictured = [one for one in suite.references if not is_text(one)]
    return [*texts[:1], *long[-1:], *pictured[:1]]


def shared(suite: Suite) -> tuple[Reference, Reference] | None:
    """The shortest text, and the longest whose beginning is asked again; None without two."""
    texts = sorted(filter(is_text, suite.references), key=lambda one: len(one.prompt))
    fitting = [one for one in texts[1:] if 4 <= len(one.prompt) <= _SHARED]
    return (texts[0], fitting[-1]) if fitting else None


def pictured(suite: Suite) -> tuple[Reference, Reference] | None:
    """The first two that have the same text before another picture; None where no two do."""
    seen: dict[str, Reference] = {}
    for one in suite.references:
        if not is_text(one) and len(one.prompt) > 1:
            other = seen.setdefault(str(one.prompt[0]), one)
            if other.prompt[1] != one.prompt[1]:
                return other, one
    return None


def is_text(reference: Reference) -> bool:
    """True where the prompt is token ids."""
    return all(isinstance(part, int) for part in reference.prompt)


def families(suite: Suite) -> list[list[Answer]]:
    """A few candidates each: that call tools, look, think, and of other groups of the suite."""
    found: dict[str, list[Answer]] = {"calls": [], "pictures": [], "reasoning": []}
    for entry in suite.answers:
        if entry.calls:
            family = "calls"
        elif PICTURE in str(entry.messages):
            family = "pictures"
        else:
            family = "reasoning" if entry.reasoning else f"group {entry.group}"
        found.setdefault(family, []).append(entry)
    members = [entries for entries in found.values() if entries][:AT_ONCE]
    return [entries[:: -(-len(entries) // _CANDIDATES)] for entries in members]


def long_ones(suite: Suite) -> list[Answer]:
    """Candidates for the long one: the longest that are not too long."""
    fitting = [entry for entry in suite.answers if size(entry) <= _LONG]
    return sorted(fitting or suite.answers, key=size, reverse=True)[:_CANDIDATES]


def size(entry: Answer) -> int:
    """Characters of a conversation, nearly."""
    return len(f"{entry.raw}{entry.messages}{entry.tools}")
