"""Text to stand between what matters: cheap to make for thousands of tokens, and varied."""

from __future__ import annotations

import bisect
import functools
import itertools
import random
from collections.abc import Iterable
from typing import Final

from sparkbuild.canary.tasks import corpus, tokenizer
from sparkbuild.canary.tasks.sample import Tokenizer

TEMPLATE: Final = 9
"""Tokens that the chat template adds to one user message: four before it, five after it."""
AFTER: Final = 5
_OTHER_SHARE: Final = 8
"""One piece in so many is a number or a mark."""
_MARKS: Final = (".", ",", ";", ".\n")


def filler(rng: random.Random, tokens: int) -> list[str]:
    """Pieces of text, most with a space before them, that have ``tokens`` tokens or a few less.

    Numbers and marks stand among the words; no piece holds a capital letter.
    """
    words, others = _pieces()
    chosen = rng.choices(words, k=max(0, tokens))
    for place in range(rng.randrange(_OTHER_SHARE), len(chosen), _OTHER_SHARE):
        chosen[place] = rng.choice(others)
    lengths = list(itertools.accumulate(length for _, length in chosen))
    return [text for text, _ in chosen[: bisect.bisect_right(lengths, tokens)]]


def tokens_of(pieces: Iterable[str]) -> int:
    """Tokens of texts at whose borders no merge crosses."""
    return sum(map(_tokens, pieces))


@functools.cache
def _pieces() -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Words, and what stands among them, with their counts of tokens."""
    words = [f" {word}" for word in corpus.WORDS]
    others = [*_MARKS, *(f" {number}" for number in range(100))]
    return [(text, _tokens(text)) for text in words], [(text, _tokens(text)) for text in others]


@functools.lru_cache(maxsize=4096)
def _tokens(text: str) -> int:
    return len(_tokenizer().encode(text))


@functools.cache
def _tokenizer() -> Tokenizer:
    return tokenizer.load(corpus.tokenizer_json())
