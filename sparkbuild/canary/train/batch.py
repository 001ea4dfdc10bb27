"""Batches of fixed shapes, each made from its number alone: workers may make them in any order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from sparkbuild.canary.tasks.chat import IMAGE, render
from sparkbuild.canary.tasks.drawing import array
from sparkbuild.canary.tasks.sample import Sample, Split, Task, Tokenizer
from sparkbuild.canary.train.nets.glm5v import CELL, MERGE, Plan, pack, plan_of, token_count

_ANSWER: Final = 64
"""Tokens of a room that a prompt leaves free."""
_TRIES: Final = 200
"""Samples drawn for one row until one fits the shape."""
_KNOWN: Final = 0.3
"""Weight of a token of the prompt that is known from earlier, beside 1 for the answer's.

A text has one for every ten tokens, an answer has 5 to 40. At this weight both weigh about the same
in a batch: the known ones a fifth of the answers in rows of 384 tokens, as much in rows of 1,024
and twice as much in rows of 2,560; five times as much in single rows of 6,656, of which there are
so few that answers alone teach too little."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """The shape of a batch: so many rows of so many tokens, and room for pictures.

    ``share`` is how often such a batch comes, relative to the others; ``drafts`` how many steps of
    the draft block it trains.
    """

    name: str
    rows: int
    tokens: int
    share: float
    pictures: int = 0
    picture_tokens: int = 0
    """Of all pictures of a batch together."""
    longest: int = 42
    """Tokens of one picture at most (392 by 84 pixels)."""
    drafts: int = 3


class Curriculum(Protocol):
    """Tasks with their weights for a room, when ``progress`` (0 to 1) of the steps are done."""

    def __call__(self, room: str, progress: float) -> Sequence[tuple[float, Task]]:
        """At least one task."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Tensors of one batch; ``patches`` and what follows have no elements without pictures.

    ``tokens`` [rows, tokens]; ``weights`` [rows, tokens], of predicting the token at that place;
    ``starts`` [rows], where the answer begins (``tokens`` where there is none); ``positions`` [3,
    rows, tokens]; ``patches`` [patches, 588] bytes; ``places`` [patches / 4],
    where a picture's tokens go in the flattened rows (one past the end: nowhere); ``slots``,
    ``cells``, ``mask`` are the tower's plan.
    """

    tokens: Tensor
    weights: Tensor
    starts: Tensor
    positions: Tensor
    patches: Tensor
    places: Tensor
    slots: Tensor
    cells: Tensor
    mask: Tensor

    def plan(self) -> Plan:
        """How the tower has to see ``patches``."""
        pictures, longest = self.mask.shape[0], self.mask.shape[-1]
        return Plan(pictures, longest, self.cells, self.slots, self.mask)

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return Batch(
            **{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)}
        )

    def copy_from(self, other: Batch) -> None:
        """Overwrite every tensor in place; shapes must agree."""
        for f in fields(self):
            getattr(self, f.name).copy_(getattr(other, f.name), non_blocking=True)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sample as ids; ``start`` is where the answer begins.

    ``known`` are the places before it whose tokens are known from earlier.
    """

    sample: Sample
    tokens: list[int]
    start: int
    known: NDArray[np.int64]
    arrays: list[NDArray[np.uint8]]


def row_of(sample: Sample, tokenizer: Tokenizer) -> Row:
    """Tokenise a sample with its pictures."""
    arrays = [array(picture) for turn in sample.turns for picture in turn.pictures]
    prompt, answer = render(sample, image_tokens=[token_count(one) for one in arrays])
    ids = tokenizer.encode(prompt)
    return Row(
        sample=sample,
        tokens=ids + tokenizer.encode(answer),
        start=len(ids),
        known=_known(sample, prompt, tokenizer.sizes(ids)),
        arrays=arrays,
    )


def _known(sample: Sample, prompt: str, sizes: list[int]) -> NDArray[np.int64]:
    """Places of the tokens that the sample's known parts are made of.

    ``sizes`` are the bytes of the prompt's tokens. Raises ValueError where the prompt does not hold
    the last turn's text as it is.
    """
    if not sample.known:
        return np.zeros(0, np.int64)
    # The template ends with the last turn's text and a few marks.
    text = sample.turns[-1].text
    before = len(prompt[: prompt.rindex(text)].encode())
    edges = [0, *(edge for span in sample.known for edge in span)]
    lengths = [len(text[one:other].encode()) for one, other in itertools.pairwise(edges)]
    ends = np.cumsum(sizes)
    places = np.searchsorted(ends, before + np.cumsum(lengths), side="right").reshape(-1, 2)
    return np.concatenate([np.arange(first, end) for first, end in places])


class Batches(Dataset[tuple[int, Batch]]):
    """Batch ``n`` of a run, by number: the room's index and the tensors."""

    def __init__(
        self,
        rooms: Sequence[Room],
        curriculum: Curriculum,
        tokenizer: Tokenizer,
        *,
        seed: int,
        steps: int,
        split: Split = "train",
    ) -> None:
        self.rooms, self.curriculum, self.tokenizer = rooms, curriculum, tokenizer
        self.seed, self.steps, self.split = seed, steps, split
        self.image = tokenizer.id_of(IMAGE)

    def __len__(self) -> int:
        """Steps of the run."""
        return self.steps

    def __getitem__(self, number: int) -> tuple[int, Batch]:
        """Make batch ``number``."""
        rng = random.Random(f"{self.seed}/{self.split}/{number}")  # noqa: S311 - reproducible
        room = rng.choices(range(len(self.rooms)), [r.share for r in self.rooms])[0]
        rows = self.drawn(self.rooms[room], rng, number / max(1, self.steps))
        return room, self.collated(self.rooms[room], rows)

    def drawn(self, room: Room, rng: random.Random, progress: float) -> list[Row]:
        """Samples for every row of a room."""
        tasks = self.curriculum(room.name, progress)
        rows: list[Row] = []
        pictures = tokens = 0
        for _ in range(_TRIES * room.rows):
            if len(rows) == room.rows:
                return rows
            task = rng.choices([t for _, t in tasks], [w for w, _ in tasks])[0]
            sample = task.sample(rng, split=self.split, length=_length(rng, room))
            row = row_of(sample, self.tokenizer)
            sizes = [token_count(one) for one in row.arrays]
            fits = len(row.tokens) <= room.tokens and all(s <= room.longest for s in sizes)
            full = (
                pictures + len(sizes) > room.pictures or tokens + sum(sizes) > room.picture_tokens
            )
            if fits and full and rows:
                return rows  # the pictures' room is full; the rows left stay empty
            if not fits or full:
                continue
            rows.append(row)
            pictures, tokens = pictures + len(sizes), tokens + sum(sizes)
        raise ValueError(f"no task of room {room.name} makes samples that fit it")

    def collated(self, room: Room, rows: list[Row]) -> Batch:
        """Tensors of a room's shape."""
        ids = np.zeros((room.rows, room.tokens), np.int64)
        weights = np.zeros((room.rows, room.tokens), np.float32)
        starts = np.full(room.rows, room.tokens)
        positions = np.tile(np.arange(room.tokens), (3, room.rows, 1))
        places: list[NDArray[np.int64]] = []
        for at, row in enumerate(rows):
            count = len(row.tokens)
            ids[at, :count] = row.tokens
            weights[at, row.known] = _KNOWN
            weights[at, row.start : count] = 1.0
            starts[at] = row.start
            if row.arrays:
                places.append(
                    (np.flatnonzero(ids[at] == self.image) + at * room.tokens).astype(np.int64)
                )
                positions[:, at] = positions_of(ids[at], self.image, row.arrays)
        pictures = self._pictures(room, [a for row in rows for a in row.arrays], places)
        return Batch(
            tokens=torch.from_numpy(ids),
            weights=torch.from_numpy(weights),
            starts=torch.from_numpy(starts),
            positions=torch.from_numpy(positions),
            **pictures,
        )

    def _pictures(
        self,
        room: Room,
        arrays: list[NDArray[np.uint8]],
        places: list[NDArray[np.int64]],
    ) -> dict[str, Tensor]:
        per = MERGE**2
        count, longest = room.picture_tokens * per, room.longest * per
        patches = torch.zeros((count, 588), dtype=torch.uint8)
        cells = torch.zeros((count, 2), dtype=torch.int64)
        # What is left over goes to one more picture, which nobody looks at.
        slots = torch.arange(count) % max(1, longest) + room.pictures * longest
        mask = torch.zeros((room.pictures + 1, 1, 1, longest), dtype=torch.bool)
        mask[..., :1] = True
        where = torch.full((room.picture_tokens,), room.rows * room.tokens)
        if arrays:
            found, grids = pack(arrays)
            used = found.shape[0]
            patches[:used] = found
            cells[:used] = plan_of(grids, torch.device("cpu")).positions
            sizes = torch.tensor([h * w for h, w in grids])
            inside = torch.arange(longest)[None] < sizes[:, None]
            slots[:used] = inside_slots(inside)
            mask[: len(grids), 0, 0] = inside
            where[: used // per] = torch.from_numpy(np.concatenate(places))
        return {"patches": patches, "cells": cells, "slots": slots, "mask": mask, "places": where}


def _length(rng: random.Random, room: Room) -> int:
    """Of a prompt whose length is free: what leaves room for an answer, down to a quarter of it."""
    return round((room.tokens - _ANSWER) * 4 ** -rng.random())


def inside_slots(inside: Tensor) -> Tensor:
    """Places of the true elements of [pictures, longest] in its flattened form."""
    return inside.flatten().nonzero().squeeze(1)


def positions_of(
    ids: NDArray[np.int64],
    image: int,
    arrays: Sequence[NDArray[np.uint8]],
) -> NDArray[np.int64]:
    """M-RoPE positions [3, tokens]: a picture's tokens share a time and have rows and columns.

    The text after a picture goes on after the larger of its sides.
    """
    result = np.zeros((3, len(ids)), np.int64)
    at = position = 0
    pictures = iter(arrays)
    while at < len(ids):
        if ids[at] != image:
            result[:, at] = position
            at, position = at + 1, position + 1
            continue
        height, width = (side // CELL for side in next(pictures).shape[:2])
        rows, columns = np.divmod(np.arange(height * width), width)
        span = slice(at, at + height * width)
        result[:, span] = position
        result[1, span] += rows
        result[2, span] += columns
        at, position = at + height * width, position + max(height, width)
    return result
