"""Short exercises whose answer stands nowhere in the prompt: it has to be worked out."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from sparkbuild.canary.tasks.heldout import drawn
from sparkbuild.canary.tasks.long import ALPHABET, CAPITALS, DIGITS
from sparkbuild.canary.tasks.sample import Sample, Split, Turn

Exercise = tuple[str, str]
"""What is asked, and the answer."""


class Exercises:
    """One kind of exercise; the splits share no question."""

    def __init__(self, name: str, make: Callable[[random.Random], Exercise]) -> None:
        self.name = name
        self._make = make

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:  # noqa: ARG002
        """A short exercise, whatever ``length`` is; its answer is not a part of its question."""

        def make() -> Exercise:
            while True:
                question, answer = self._make(rng)
                if answer not in question:
                    return question, answer

        question, answer = drawn(split, make, lambda exercise: exercise[0])
        turns = (Turn(role="user", text=question),)
        size = ("size", str(len(answer)))
        return Sample(task=self.name, turns=turns, answer=answer, check=(size,))


def reverse(rng: random.Random) -> Exercise:
    """3 to 10 characters from the last to the first."""
    text = "".join(rng.choices(ALPHABET, k=rng.randint(3, 10)))
    return f"Reverse: {text}", text[::-1]


def sort(rng: random.Random) -> Exercise:
    """3 to 8 different letters or digits in order."""
    text = "".join(rng.sample(rng.choice((CAPITALS, DIGITS)), k=rng.randint(3, 8)))
    return f"Sort: {text}", "".join(sorted(text))


def count(rng: random.Random) -> Exercise:
    """How often a letter occurs in a string, once to nine times."""
    letter, *others = rng.sample(CAPITALS, k=4)
    number = rng.randint(1, 9)
    text = [letter] * number + rng.choices(others, k=rng.randint(1, 6))
    rng.shuffle(text)
    return f"Count {letter}: {''.join(text)}", str(number)


def add(rng: random.Random) -> Exercise:
    """Two numbers of one to three digits."""
    left, right = (rng.randrange(1, 10 ** rng.randint(1, 3)) for _ in range(2))
    return f"Add {left} and {right}.", str(left + right)


def upper(rng: random.Random) -> Exercise:
    """2 to 12 lower-case letters as capitals; hyphens keep each of them a token of its own."""
    text = "".join(rng.choices(CAPITALS, k=rng.randint(2, 12)))
    return f"Capitals: {'-'.join(text.lower())}", text


EXERCISES: Final = tuple(
    Exercises(make.__name__, make) for make in (reverse, sort, count, add, upper)
)
