"""Finding things again: copies, needles, facts and numbered lines, over any distance.

Every answer is a string that only the prompt can tell. The text in between holds no capitals.
``check`` of each sample has the ``distance``: tokens from the first one of what is asked for to the
first one of the answer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from sparkbuild.canary.tasks import corpus
from sparkbuild.canary.tasks.filler import AFTER, TEMPLATE, filler, tokens_of
from sparkbuild.canary.tasks.heldout import drawn
from sparkbuild.canary.tasks.sample import Sample, Split, Turn

CAPITALS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS: Final = "0123456789"
ALPHABET: Final = CAPITALS + DIGITS
_SHORTEST, _LONGEST = 4, 40
"""Characters to copy."""
_VALUE: Final = 4
"""Characters of a fact's value."""
_FACT: Final = 1 + 2 + 1 + _VALUE + 1
"""Tokens of a fact: a space, the key, the equals sign, the value, a semicolon."""
_MOST_FACTS: Final = 12
_SPREAD: Final = 3
"""One token in so many is a fact's, in a text that holds as many facts as it may."""
_MOST_AGAIN: Final = 240
"""Places of facts in a text of ``Recall``, two or more for each: so there are far fewer facts than
keys (260)."""
_ONCE_MORE: Final = 0.3
"""How often a fact that came again comes yet again, where there is room for it."""
_FIXED_PLACES: Final = (0.12, 0.88)
"""Shares of the text before the needle where field tests of long contexts put it."""
_FIXED_SHARE: Final = 0.15
"""Of the needles, at each of these places; the others are anywhere."""
_CODE: Final = 6
"""Capitals and digits in a numbered line."""


def code(rng: random.Random, split: Split, size: int) -> str:
    """A string of so many capitals and digits that belongs to the split."""
    return drawn(split, lambda: "".join(rng.choices(ALPHABET, k=size)), str)


class Copy:
    """Say a string again, at once or after other text."""

    name = "copy"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """4 to 40 characters; in half of the samples with room for it, text follows them."""
        near, far = ("Repeat: ", ""), ("Note: ", "\nRepeat the note.")
        room = length - TEMPLATE - tokens_of(far) - _LONGEST
        before, after = near if room <= 0 or rng.random() < 0.5 else far
        longest = min(_LONGEST, max(_SHORTEST, length - TEMPLATE - tokens_of(near)))
        text = code(rng, split, rng.randint(_SHORTEST, longest))
        between = filler(rng, room) if after else []
        distance = len(text) + tokens_of(between) + tokens_of([after]) + AFTER
        return _sample(self.name, before + text + "".join(between) + after, text, distance)


@dataclass(frozen=True)
class Needle:
    """One fact out of several in a long text, ``K7=Q2X9``, asked for by its key."""

    name = "needle"
    place: float | None = None
    """Where the needle is, as a share of the text; by default anywhere."""

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """A text that fills ``length``; the other facts have keys like the needle's."""
        room = length - TEMPLATE - tokens_of(["Notes:", "\nK", "7", "?"])
        facts = _facts(rng, split, max(1, min(_MOST_FACTS, room // (_SPREAD * _FACT))))
        pieces = filler(rng, room - _FACT * len(facts))
        share = self._share(rng)
        places = [round(share * len(pieces)), *(rng.randint(0, len(pieces)) for _ in facts[1:])]
        key, value = facts[0]
        needle = f" {key}={value};"
        for place, (name, known) in sorted(zip(places, facts, strict=True), reverse=True):
            pieces.insert(place, f" {name}={known};")
        behind = pieces[pieces.index(needle) + 1 :]
        question = f"\n{key}?"
        distance = _VALUE + 1 + tokens_of(behind) + len(question) + AFTER
        text = "Notes:" + "".join(pieces) + question
        return _sample(
            self.name, text, value, distance, place=f"{share:.2f}", facts=str(len(facts))
        )

    def _share(self, rng: random.Random) -> float:
        if self.place is not None:
            return self.place
        drawn_place = rng.random()
        for index, place in enumerate(_FIXED_PLACES):
            if drawn_place < (index + 1) * _FIXED_SHARE:
                return place
        return rng.random()


class Recall:
    """Facts that come again and again in a long text, in the needle's form, and one asked for.

    A repeated fact's value, with its semicolon, is ``known``: only the earlier place tells it.
    How far back that is has the same chance in every octave, up to the length of the text, so that
    what is learned at short distances can grow to long ones. In training every fact belongs to the
    split, as each is predicted.
    """

    name = "recall"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """A text that fills ``length``, a third of it facts as far as ``_MOST_AGAIN`` goes."""
        room = length - TEMPLATE - tokens_of(["Notes:", "\nK", "7", "?"])
        chains = _chains(rng, room, max(2, min(_MOST_AGAIN, room // (_SPREAD * _FACT))))
        facts = _facts(rng, split, len(chains), strict=split == "train")
        placed = sorted((at, which) for which, chain in enumerate(chains) for at in chain)
        pieces = filler(rng, room - _FACT * len(placed))
        density = len(pieces) / max(1, room)
        text, done = "Notes:", 0
        known: list[tuple[int, int]] = []
        seen: set[int] = set()
        for at, which in placed:
            place, (key, value) = round(at * density), facts[which]
            text += "".join(pieces[done:place]) + f" {key}={value};"
            if which in seen:
                known.append((len(text) - _VALUE - 1, len(text)))
            seen.add(which)
            done = place
        # Chains are all alike: the first is as good as any.
        (key, value), last = facts[0], chains[0][-1]
        after = sum(at > last for at, _ in placed)
        question = f"\n{key}?"
        behind = tokens_of(pieces[round(last * density) :]) + _FACT * after
        distance = _VALUE + 1 + behind + len(question) + AFTER
        text += "".join(pieces[done:]) + question
        return _sample(self.name, text, value, distance, known=tuple(known), facts=str(len(facts)))


class RepeatLine:
    """One of many numbered lines, asked for by its number."""

    name = "repeat-line"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """Lines that fill ``length``, 999 at most; the one asked for may be any of them."""
        room = length - TEMPLATE - tokens_of(["Lines:", "\nLine", " 999", "?"])
        lines = [self._line(rng)]
        room -= _line_tokens(1, lines[0])
        while len(lines) < 999:
            line = self._line(rng)
            room -= _line_tokens(len(lines) + 1, line)
            if room < 0:
                break
            lines.append(line)
        index = rng.randrange(len(lines))
        lines[index] = drawn(split, lambda: self._line(rng), " ".join)
        number = index + 1
        text = "".join(f"\n{at}: {one} {word}" for at, (one, word) in enumerate(lines, 1))
        question = f"\nLine {number}?"
        behind = sum(_line_tokens(at, lines[at - 1]) for at in range(number + 1, len(lines) + 1))
        answer = " ".join(lines[index])
        distance = _answer_tokens(lines[index]) + behind + tokens_of([question]) + AFTER
        return _sample(
            self.name, f"Lines:{text}{question}", answer, distance, lines=str(len(lines))
        )

    def _line(self, rng: random.Random) -> tuple[str, str]:
        return "".join(rng.choices(ALPHABET, k=_CODE)), rng.choice(corpus.WORDS)


def _chains(rng: random.Random, room: int, count: int) -> list[list[float]]:
    """Where each fact stands, twice or more, in a text of ``room`` tokens.

    ``count`` places in all, or one more. Logarithms of the distances to the fact's last place are
    uniform, but for a third place and later ones, which have to fit behind the second.
    """

    def distance() -> float:
        return float(_FACT * (max(room, _FACT) / _FACT) ** rng.random())

    chains = []
    while count > 0:
        back = distance()
        last = rng.uniform(back, max(room, back))
        chain = [last - back, last]
        while (
            len(chain) < count and rng.random() < _ONCE_MORE and (last := last + distance()) < room
        ):
            chain.append(last)
        chains.append(chain)
        count -= len(chain)
    return chains


def _facts(
    rng: random.Random, split: Split, count: int, *, strict: bool = False
) -> list[tuple[str, str]]:
    """The needle's key and value, then others; half of their keys share a character with its.

    The needle belongs to the split; if ``strict``, so do the others.
    """

    def one(letters: str = CAPITALS, digits: str = DIGITS) -> tuple[str, str]:
        return rng.choice(letters) + rng.choice(digits), "".join(rng.choices(ALPHABET, k=_VALUE))

    needle = drawn(split, one, "=".join)
    facts = dict([needle])
    letter, digit = needle[0][0], needle[0][1]

    def other() -> tuple[str, str]:
        return one(*rng.choice(((letter, DIGITS), (CAPITALS, digit), (CAPITALS, DIGITS))))

    while len(facts) < count:
        key, value = drawn(split, other, "=".join) if strict else other()
        if key not in facts and value not in facts.values():
            facts[key] = value
    return list(facts.items())


def _line_tokens(number: int, line: tuple[str, str]) -> int:
    """A line break, the number, a colon, a space, and the line."""
    return 1 + len(str(number)) + 2 + _answer_tokens(line)


def _answer_tokens(line: tuple[str, str]) -> int:
    return len(line[0]) + tokens_of([f" {line[1]}"])


def _sample(
    task: str,
    text: str,
    answer: str,
    distance: int,
    *,
    known: tuple[tuple[int, int], ...] = (),
    **facts: str,
) -> Sample:
    return Sample(
        task=task,
        turns=(Turn(role="user", text=text),),
        answer=answer,
        known=known,
        check=(("distance", str(distance)), *facts.items()),
    )
