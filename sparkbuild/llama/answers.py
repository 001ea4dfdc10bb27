"""What llama-server's HTTP interface answers, as far as checks read it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec


class TopLogprob(msgspec.Struct, frozen=True):
    """A token and its log-probability; a NaN arrives as null."""

    id: int
    logprob: float | None


class TokenProbabilities(msgspec.Struct, frozen=True):
    """The most likely tokens at one position, most likely first.

    ``id`` is the token that was chosen there. Tokens that end in the middle of a character have
    no entry, so positions are found by it.
    """

    top_logprobs: tuple[TopLogprob, ...]
    id: int | None = None


class Timings(msgspec.Struct, frozen=True):
    """What the server counted for one answer: no times, so that two equal answers compare equal.

    The draft's counts are missing, not 0, where nothing was drafted.
    """

    prompt_n: int
    predicted_n: int
    cache_n: int = 0
    """Tokens of the prompt that were not computed, since the slot held them already."""
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class Completion(msgspec.Struct, frozen=True):
    """``POST /completion``."""

    content: str
    tokens: tuple[int, ...]
    stop_type: str
    tokens_evaluated: int
    tokens_predicted: int
    truncated: bool
    completion_probabilities: tuple[TokenProbabilities, ...] = ()
    timings: Timings | None = None


class Function(msgspec.Struct, frozen=True):
    """The function that a model wants called; ``arguments`` is the text of a JSON object."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool."""

    function: Function


class Message(msgspec.Struct, frozen=True):
    """A chat message."""

    content: str | None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class Logprobs(msgspec.Struct, frozen=True):
    """The most likely tokens at every position of a chat's answer."""

    content: tuple[TokenProbabilities, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """One answer of a chat; ``logprobs`` where they were asked for."""

    message: Message
    finish_reason: str | None
    logprobs: Logprobs | None = None


class Usage(msgspec.Struct, frozen=True):
    """The server's own token counts."""

    prompt_tokens: int
    completion_tokens: int


class Chat(msgspec.Struct, frozen=True):
    """``POST /v1/chat/completions``."""

    choices: tuple[Choice, ...]
    usage: Usage
    timings: Timings | None = None


class ModelMeta(msgspec.Struct, frozen=True):
    """What the server read from the model file."""

    n_vocab: int
    n_params: int


class ModelData(msgspec.Struct, frozen=True):
    """One model in the form of OpenAI's interface."""

    id: str
    meta: ModelMeta


class ModelEntry(msgspec.Struct, frozen=True):
    """One model in llama-server's own form."""

    capabilities: tuple[str, ...]


class Models(msgspec.Struct, frozen=True):
    """``GET /v1/models``."""

    data: tuple[ModelData, ...]
    models: tuple[ModelEntry, ...]


class Props(msgspec.Struct, frozen=True):
    """``GET /props``."""

    build_info: str
    model_path: str
    media_marker: str = ""
    """Stands for a picture in a prompt's text; a new one at every start of the server."""


class Slot(msgspec.Struct, frozen=True):
    """One of ``GET /slots``."""

    id: int
    is_processing: bool


def hole(positions: Sequence[TokenProbabilities]) -> str:
    """The first place without a finite log-probability; empty where there is none."""
    if not positions:
        return "no log-probabilities"
    for at, entry in enumerate(positions):
        if not entry.top_logprobs:
            return f"no log-probabilities at position {at}"
        for top in entry.top_logprobs:
            if top.logprob is None or not math.isfinite(top.logprob):
                return f"the log-probability of token {top.id} at position {at} is no number"
    return ""
