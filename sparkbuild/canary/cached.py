"""What a slot holds of an earlier prompt: a later answer from it is that of the whole prompt.

Requests of every other check forbid to use it. Answers are compared with those of the same server
without it, and what the server says that it used with what two prompts share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import msgspec

from sparkbuild.canary import choice
from sparkbuild.canary.numbers import SLOT
from sparkbuild.canary.same import holes, nmse, tokens_parted
from sparkbuild.canary.session import Check, Finding, Session
from sparkbuild.canary.suite import Reference, Suite
from sparkbuild.llama.answers import Completion

Use = Literal["may", "must"]
"""Whether the server has to use what it holds. Attention can go back to any token; a recurrent
state only to where a copy was kept, which b11434 does some tokens before a prompt's end: a prompt
that ends earlier or parts before that place is then computed anew, and rightly so."""
_EXPECTED: Final = "the tokens of the whole prompt, log-probabilities within the bound, and "


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One request that may use what its slot holds."""

    reference: Reference
    slot: int = SLOT
    use: Use = "may"


@dataclass(kw_only=True)
class _Held:
    """What is known of the slots, and whether this server can go back to any token."""

    tokens: dict[int, tuple[int, ...]] = field(default_factory=dict)
    anywhere: bool = False
    used: int = 0

    def keep(self, slot: int, reference: Reference, answer: Completion) -> None:
        """The last token of an answer was chosen, and never computed."""
        self.tokens[slot] = (*_numbers(reference), *answer.tokens[:-1])

    def shared(self, turn: Turn) -> int:
        """Tokens of a prompt that need not be computed. One has to be: numbers come from it."""
        prompt, held = _numbers(turn.reference), self.tokens.get(turn.slot, ())
        pairs = enumerate(zip(prompt, held, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(prompt), len(held)))
        return min(same, len(prompt) - 1)


def checks(suite: Suite, slots: int) -> list[Check]:
    """What is asked with what slots hold, in order."""
    found, pair = [], choice.shared(suite)
    if pair:
        found.append(
            Check(
                name="prompts one after another, from the cache",
                expected=f"{_EXPECTED}what two prompts share used, and no token more",
                ask=partial(_one_slot, *pair),
            )
        )
    if pair and slots > 1:
        found.append(
            Check(
                name=f"prompts in slots {SLOT} and {slots - 1} in turn, from the cache",
                expected=f"{_EXPECTED}no token of another slot used",
                ask=partial(_two_slots, *pair, slots - 1),
            )
        )
    seen = choice.pictured(suite)
    if seen:
        found.append(
            Check(
                name="pictures one after another, from the cache",
                expected=f"{_EXPECTED}what was seen before used where it is the same again",
                ask=partial(_pictures, seen),
            )
        )
    return found


def _one_slot(short: Reference, long: Reference, session: Session) -> Finding:
    """The same again, one that ends earlier, the whole again, and one that parts midway."""
    made = next(filter(None, (_parting(short, long, cut, session) for cut in _cuts(long))), None)
    if made is None:
        return Finding(wrong=f"no beginning of {long.name} has numbers for its next token")
    begun, other = made
    turns = [
        Turn(reference=long),
        Turn(reference=long, use="must"),
        Turn(reference=begun),
        Turn(reference=long, use="must"),
        Turn(reference=other),
    ]
    return _asked(session, turns)


def _cuts(long: Reference) -> range:
    """Where a prompt may be cut: midway, or earlier."""
    return range(len(long.prompt) // 2, 1, -1)


def _parting(
    short: Reference, long: Reference, cut: int, session: Session
) -> tuple[Reference, Reference] | None:
    """A beginning, and that with another prompt behind it; None where a next token has no numbers.

    llama-server has none for a token that is a part of a character.
    """
    begun = _made(long, f"its first {cut} tokens", long.prompt[:cut])
    other = _made(long, f"its first {cut} tokens and {short.name}", (*begun.prompt, *short.prompt))
    return None if any(holes(session.first(one)) for one in (begun, other)) else (begun, other)


def _two_slots(short: Reference, long: Reference, last: int, session: Session) -> Finding:
    """Whichever slot's tokens are looked up by mistake, it holds what the other is asked."""
    turns = [
        Turn(reference=short, slot=last),
        Turn(reference=long),
        Turn(reference=long, slot=last),
        Turn(reference=short),
        Turn(reference=long, slot=last, use="must"),
    ]
    return _asked(session, turns)


def _pictures(pair: Sequence[Reference], session: Session) -> Finding:
    """How many tokens a picture has is the server's business: it is told of the same alone."""
    first, second = pair
    turns = [
        Turn(reference=second),
        Turn(reference=second, use="must"),
        Turn(reference=first),
        Turn(reference=first, use="must"),
    ]
    return _asked(session, turns)


def _made(long: Reference, what: str, prompt: tuple[int | str, ...]) -> Reference:
    """What comes after it is not known: one token is enough."""
    first = long.tokens[:1]
    return msgspec.structs.replace(long, name=f"{long.name}, {what}", prompt=prompt, tokens=first)


def _numbers(reference: Reference) -> tuple[int, ...]:
    return tuple(part for part in reference.prompt if isinstance(part, int))


def _asked(session: Session, turns: Sequence[Turn]) -> Finding:
    """Every turn's answer against that to the whole prompt, up to the first that is wrong."""
    for turn in turns:
        session.first(turn.reference)
    held, worst = _Held(), 0.0
    for number, turn in enumerate(turns, start=1):
        before, bound = session.first(turn.reference), session.bound.of(turn.reference)
        now = session.ask(turn.reference, turn.slot, cached=True)
        value = nmse(before, now, session.suite.vocabulary)
        wrong = [_miscounted(turn, held, now), tokens_parted(before, now)]
        if not value <= bound:  # a NaN compares as False
            wrong.append(f"NMSE {value:.3g}, expected at most {bound:g}")
        told = "; ".join(filter(None, wrong))
        if told:
            where = f"turn {number}, {turn.reference.name} in slot {turn.slot}"
            value_or_none = None if math.isnan(value) else value
            return Finding(wrong=f"{where}: {told}", nmse=value_or_none, bound=bound)
        worst = max(worst, value)
        held.keep(turn.slot, turn.reference, now)
    well = f"{held.used} tokens from the cache, NMSE {worst:.3g} at most"
    return Finding(well=well, nmse=worst)


def _miscounted(turn: Turn, held: _Held, answer: Completion) -> str:
    """What is wrong with how many tokens were used; empty where it is as it has to be."""
    if answer.timings is None:
        return "the answer does not say how many tokens are from the cache"
    used, computed = answer.timings.cache_n, answer.timings.prompt_n
    held.used += used
    prompt = len(_numbers(turn.reference))
    if prompt and used + computed != prompt:
        return f"{used} tokens from the cache and {computed} computed are not the prompt's {prompt}"
    if turn.use == "must" and not used:
        return "no token is from the cache"
    if not prompt or turn.slot not in held.tokens:
        return ""
    shared = held.shared(turn)
    held.anywhere = held.anywhere or (turn.use == "must" and used == shared)
    if used > shared or (held.anywhere and used != shared):
        return f"{used} tokens of {prompt} are from the cache, {shared} are the same"
    return ""
