"""Make a suite: samples become questions, a reference run becomes numbers, all of it files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from sparkbuild.canary.numbers import Array, continued, encode_numbers, log_probabilities
from sparkbuild.canary.suite import (
    PICTURE,
    SUITE,
    Answer,
    Call,
    Drafted,
    Numbers,
    Picture,
    Prompt,
    Reference,
    Suite,
    encode_suite,
)
from sparkbuild.canary.tasks.chat import expected, messages
from sparkbuild.canary.tasks.sample import Sample
from sparkbuild.errors import CanaryError
from sparkbuild.files import sha256_bytes, write_atomic
from sparkbuild.llama.client import Api

if TYPE_CHECKING:
    from PIL.Image import Image

_NUMBERS = "references.npz"
_PICTURES = "pictures"


class Book:
    """A suite in the making: questions, prompts, pictures (each once), numbers."""

    def __init__(self, canary: str, *, vocabulary: int, context: int) -> None:
        self.canary = canary
        self.vocabulary = vocabulary
        self.context = context
        self.answers: list[Answer] = []
        self.references: list[Reference] = []
        self.numbers: dict[str, Array] = {}
        self.pictures: dict[str, bytes] = {}
        self.drafted: Drafted | None = None

    def picture(self, image: Image) -> str:
        """Keep a picture as PNG; its address in the suite."""
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "PNG", optimize=True)
        data = buffer.getvalue()
        name = sha256_bytes(data)[:12]
        self.pictures[name] = data
        return f"{PICTURE}{name}"

    def ask(
        self, name: str, group: str, sample: Sample, *, count: int, forms: tuple[str, ...] = ()
    ) -> None:
        """Add a sample as a question that may take ``count`` tokens to answer, in some forms."""
        images = [self.picture(image) for turn in sample.turns for image in turn.pictures]
        text, thought, calls = expected(sample)
        self.answers.append(
            Answer(
                name=name,
                group=group,
                messages=() if sample.raw else tuple(messages(sample, images=images)),
                raw=sample.raw,
                tools=tuple(dict(tool) for tool in sample.tools),
                thinking=sample.thinking,
                text=text,
                reasoning=thought,
                calls=tuple(Call(name=call, arguments=given) for call, given in calls),
                finish="tool_calls" if calls else "stop",
                count=count,
                forms=forms,
            )
        )

    def refer(
        self, api: Api, name: str, prompt: Prompt, *, positions: int, forms: tuple[str, ...] = ()
    ) -> Array:
        """Add a prompt with the numbers that a server gives now, at so many positions.

        It will be asked in ``forms`` alone, where there are any. Returns the numbers, [positions,
        vocabulary]. Raises CanaryError where some are missing.
        """
        answer = continued(api, prompt, self.pictures, count=positions, vocabulary=self.vocabulary)
        values = log_probabilities(answer, self.vocabulary)
        # Of a token that ends in the middle of a character llama-server tells no probabilities.
        if values.shape != (positions, self.vocabulary) or not np.isfinite(values).all():
            raise CanaryError(
                f"the reference run gave no whole numbers for {name}",
                problems=[
                    f"expected {positions} positions, found {np.isfinite(values).all(1).sum()}"
                ],
                next_step="take another prompt: what follows this one is no whole text",
            )
        self.references.append(
            Reference(name=name, prompt=prompt, tokens=answer.tokens, forms=forms)
        )
        self.numbers[name] = values
        return values

    def keep(self, answers: set[str], references: set[str]) -> None:
        """Forget every question and reference that is not named, and pictures of those alone."""
        self.answers = [entry for entry in self.answers if entry.name in answers]
        self.references = [entry for entry in self.references if entry.name in references]
        self.numbers = {name: self.numbers[name] for name in references}
        shown = msgspec.json.encode([self.answers, self.references]).decode()
        self.pictures = {n: data for n, data in self.pictures.items() if f"{PICTURE}{n}" in shown}

    def write(self, folder: Path) -> Suite:
        """Write the suite, its numbers and its pictures; the limits are written by hand.

        Pictures of an earlier recording go.
        """
        data = encode_numbers(self.numbers)
        pictures = {}
        for old in (folder / _PICTURES).glob("*.png"):
            if old.stem not in self.pictures:
                old.unlink()
        for name, png in self.pictures.items():
            file = f"{_PICTURES}/{name}.png"
            write_atomic(folder / file, png)
            pictures[name] = Picture(file=file, sha256=sha256_bytes(png))
        suite = Suite(
            schema=1,
            canary=self.canary,
            vocabulary=self.vocabulary,
            context=self.context,
            pictures=pictures,
            answers=tuple(self.answers),
            # Short ones first: an audit stops at the first that fails.
            references=tuple(sorted(self.references, key=lambda entry: len(entry.prompt))),
            numbers=Numbers(file=_NUMBERS, sha256=sha256_bytes(data)),
            drafted=self.drafted,
        )
        write_atomic(folder / _NUMBERS, data)
        write_atomic(folder / SUITE, encode_suite(suite))
        return suite
