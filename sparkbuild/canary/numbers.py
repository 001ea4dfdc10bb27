"""Reference log-probabilities: kept in a file, asked of a server, compared."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from sparkbuild.canary.suite import PICTURE, Prompt, Suite
from sparkbuild.errors import CanaryError
from sparkbuild.files import sha256_bytes
from sparkbuild.llama.answers import Completion
from sparkbuild.llama.client import Api

Array = NDArray[np.float32]
SLOT: Final = 0
"""References are asked one at a time, in this slot: nothing then depends on company."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far an answer's numbers are from a reference's.

    ``nmse`` is over ``positions``: those before the first token that is another than recorded,
    and that one, for which the server still saw the recorded text.
    """

    nmse: float
    positions: int
    of: int


def load_numbers(folder: Path, suite: Suite) -> dict[str, Array]:
    """Log-probabilities by reference, [positions, vocabulary].

    Raises CanaryError where the file is not as recorded, or does not fit the suite.
    """
    path = folder / suite.numbers.file
    try:
        data = path.read_bytes()
        found = sha256_bytes(data)
        problems = [] if found == suite.numbers.sha256 else [f"sha256 is {found}"]
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            numbers = {name: np.asarray(file[name], np.float32) for name in file.files}
    except (OSError, ValueError, BadZipFile) as error:
        numbers, problems = {}, [str(error)]
    for reference in suite.references:
        wanted = (len(reference.tokens), suite.vocabulary)
        shape = numbers[reference.name].shape if reference.name in numbers else None
        if shape != wanted:
            problems.append(f"{reference.name}: expected {wanted} numbers, found {shape}")
    if problems:
        raise CanaryError(
            f"the reference numbers of the suite {suite.canary} are not as recorded",
            problems=problems,
            evidence=[path],
            next_step="install sparkbuild again",
        )
    return numbers


def encode_numbers(numbers: Mapping[str, Array]) -> bytes:
    """The file's bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, allow_pickle=False, **{name: numbers[name] for name in sorted(numbers)}
    )
    return buffer.getvalue()


def continued(
    api: Api,
    prompt: Prompt,
    pictures: Mapping[str, bytes],
    *,
    count: int,
    vocabulary: int,
    slot: int = SLOT,
    cached: bool = False,
) -> Completion:
    """The greedy continuation of a reference's prompt, with all log-probabilities, past any end."""
    tokens = [part for part in prompt if isinstance(part, int)]
    if tokens:
        return api.complete(
            tokens, count=count, slot=slot, probabilities=vocabulary, past_end=True, cached=cached
        )
    parts = [
        pictures[part.removeprefix(PICTURE)] if part.startswith(PICTURE) else part
        for part in prompt
        if isinstance(part, str)
    ]
    return api.complete_mixed(
        parts, count=count, slot=slot, probabilities=vocabulary, past_end=True, cached=cached
    )


def log_probabilities(answer: Completion, vocabulary: int) -> Array:
    """What a server gave before each of the answer's tokens, [positions, vocabulary].

    NaN where it gave nothing.
    """
    values = np.full((len(answer.tokens), vocabulary), np.nan, np.float32)
    given = iter(answer.completion_probabilities)
    entry = next(given, None)
    for row, token in zip(values, answer.tokens, strict=True):
        if entry is None or entry.id != token:
            continue
        for top in entry.top_logprobs:
            if top.logprob is not None and 0 <= top.id < vocabulary:
                row[top.id] = top.logprob
        entry = next(given, None)
    return values


def compare(answer: Completion, tokens: tuple[int, ...], recorded: Array) -> Difference:
    """An answer against a reference; NMSE is NaN where numbers are missing.

    The error is normalised by the recorded numbers' squared deviation from their position's mean.
    """
    pairs = zip(answer.tokens, tokens, strict=False)
    same = next((at for at, (a, b) in enumerate(pairs) if a != b), len(tokens) - 1)
    wanted = min(same + 1, len(tokens))
    found = log_probabilities(answer, recorded.shape[1])[:wanted].astype(np.float64)
    expected = recorded[: len(found)].astype(np.float64)
    error = np.square(found - expected).sum()
    spread = np.square(expected - expected.mean(axis=1, keepdims=True)).sum()
    value = float(error / spread) if len(found) == wanted and spread > 0 else float("nan")
    return Difference(nmse=value, positions=wanted, of=len(tokens))
