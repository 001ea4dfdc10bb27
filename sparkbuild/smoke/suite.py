"""Smoke suites: what a server must say, as data beside this module; thresholds carry reasons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.errors import ManifestError
from sparkbuild.manifest import Name, Sha256, Table, load, unknown_name

FOLDER: Final = Path(__file__).parent / "suites"

Tokens = Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(min_length=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class GeneratedModel(Table, frozen=True, tag_field="kind", tag="generated"):
    """A model that sparkbuild's own code makes, byte for byte."""

    generator: Literal["tiny"]
    sha256: Sha256


class Threshold(Table, frozen=True):
    """A limit and why it is neither tighter nor wider."""

    limit: Positive
    reason: Text


class ServerSection(Table, frozen=True):
    """How llama-server is started, and the patience with it, in seconds."""

    flags: tuple[str, ...]
    start: Threshold
    """From the start to a healthy answer."""
    request: Threshold
    """For any one answer."""
    stop: Threshold
    """From TERM to KILL."""


class MemorySection(Table, frozen=True):
    """MiB that may be missing after the server is gone, and the seconds granted to come back."""

    missing: Threshold
    wait: Threshold


class OffersSection(Table, frozen=True):
    """What ``/v1/models`` must say of the model."""

    capabilities: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class TokenizerCase(Table, frozen=True):
    """A text and its token ids, both ways."""

    text: Text
    tokens: Tokens


class GreedyCase(Table, frozen=True):
    """A prompt, its greedy continuation, how that ends; the least lead of a best logit in it."""

    name: Name
    prompt: Tokens
    tokens: Tokens
    text: Text
    stop: Literal["limit", "eos"]
    margin: Positive

    @property
    def count(self) -> int:
        """Tokens to ask for: one more than are recorded where the end token has to come."""
        return len(self.tokens) + (self.stop == "eos")


class ChatCase(Table, frozen=True):
    """A user's message and the answer through the model's chat template."""

    name: Name
    user: Text
    prompt: Tokens
    """The tokens that the template must lead to."""
    tokens: Tokens
    text: Text
    finish: Literal["length", "stop"]
    margin: Positive


class LogprobsSection(Table, frozen=True):
    """The file beside the suite with the first token's log-probabilities, over the vocabulary."""

    file: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9.-]*\.json$")]
    nmse: Threshold


class LogPattern(Table, frozen=True):
    """A regular expression for a line that this suite's server does not write.

    It is one more entry for the table beside ``sparkbuild.llama.log``, which says how it is read.
    """

    pattern: Text
    reason: Text


class Suite(Table, frozen=True):
    """``suites/<name>.toml``."""

    schema: Literal[1]
    name: Name
    summary: str
    model: GeneratedModel
    server: ServerSection
    memory: MemorySection
    offers: OffersSection
    logprobs: LogprobsSection
    tokenizer: tuple[TokenizerCase, ...]
    greedy: tuple[GreedyCase, ...]
    chat: tuple[ChatCase, ...]
    log: tuple[LogPattern, ...]


class Logprobs(Table, frozen=True):
    """``suites/<name>.logprobs.json``: natural logarithms by greedy case, index is token id."""

    schema: Literal[1]
    model_sha256: Sha256
    first_token: dict[str, tuple[float, ...]]


def names(folder: Path = FOLDER) -> list[str]:
    """The suites that exist."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def load_suite(name: str, *, folder: Path = FOLDER) -> tuple[Suite, Logprobs]:
    """A suite and its recorded log-probabilities.

    Raises UnknownNameError, or ManifestError naming the file and the key.
    """
    if name not in names(folder):
        raise unknown_name("smoke suite", name, names(folder), folder)
    path = folder / f"{name}.toml"
    suite = load(path, Suite)
    for problem in _problems(suite, name):
        raise _refused(path, problem)
    file = folder / suite.logprobs.file
    try:
        logprobs = msgspec.json.decode(file.read_bytes(), type=Logprobs)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refused(file, str(error)) from error
    if logprobs.model_sha256 != suite.model.sha256:
        raise _refused(file, f"is of model {logprobs.model_sha256}, not {suite.model.sha256}")
    unknown = set(logprobs.first_token) - {case.name for case in suite.greedy}
    if unknown:
        raise _refused(file, f"names prompts that {path.name} lacks: {', '.join(sorted(unknown))}")
    return suite, logprobs


def _problems(suite: Suite, name: str) -> list[str]:
    problems = []
    if suite.name != name:
        problems.append(f"`name` is {suite.name!r}, its place says {name!r}")
    cases = [case.name for case in suite.greedy] + [case.name for case in suite.chat]
    problems += [f"two cases are named {case!r}" for case in set(cases) if cases.count(case) > 1]
    for index, entry in enumerate(suite.log):
        try:
            re.compile(entry.pattern)
        except re.error as error:
            problems.append(f"`log[{index}].pattern` is no regular expression: {error}")
    return problems


def _refused(path: Path, text: str) -> ManifestError:
    return ManifestError(f"{path}: {text}", evidence=[path], next_step=f"correct {path}")


def encode_logprobs(logprobs: Logprobs) -> str:
    """The file's text, one prompt a line."""
    rows = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(values)}"
        for name, values in logprobs.first_token.items()
    )
    return (
        f'{{"schema": {logprobs.schema}, "model_sha256": "{logprobs.model_sha256}",\n'
        f' "first_token": {{\n{rows}\n }}}}\n'
    )
