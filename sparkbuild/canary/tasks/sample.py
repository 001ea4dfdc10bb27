"""A sample: what a canary is shown and what it has to say."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from PIL.Image import Image

Split = Literal["train", "held-out"]
"""What is held out is never trained on: the two splits are disjoint by construction."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One message; ``pictures`` stand before the text, in order."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    pictures: tuple[Image, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A conversation and its answer.

    ``answer`` is the raw text that the model has to produce after the generation prompt, with
    thinking and tool-call marks, without the end token; ``end`` is the token that ends it.
    """

    task: str
    turns: tuple[Turn, ...]
    answer: str
    thinking: bool = False
    """The generation prompt leaves the thought open; otherwise it is closed and empty."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """In the form of OpenAI's interface."""
    end: Literal["<|user|>", "<|observation|>", "<|endoftext|>"] = "<|user|>"
    raw: str = ""
    """Where not empty: the whole prompt, no template is applied (plain continuation)."""
    known: tuple[tuple[int, int], ...] = ()
    """Parts of the last turn's text that what stands before them tells, in order: from the first
    character up to and without the second. In training they are predicted as the answer is."""
    check: tuple[tuple[str, str], ...] = field(default=())
    """Pairs of a fact's name and value that tell what the sample exercises (distance, size, …)."""


class Task(Protocol):
    """Makes samples of one kind, for ever."""

    name: str

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:
        """A sample whose prompt has about ``length`` tokens at most where its length is free."""


class Tokenizer(Protocol):
    """Text to token ids and back, special tokens by their names."""

    def encode(self, text: str) -> list[int]:
        """Ids; names of special tokens in ``text`` become those tokens."""

    def decode(self, ids: list[int]) -> str:
        """Text of ids, special tokens by name."""

    def sizes(self, ids: list[int]) -> list[int]:
        """Bytes of each token's text, of a special token those of its name."""

    def id_of(self, token: str) -> int:
        """The id of one special token; raises KeyError for any other text."""
