"""llama-server's HTTP interface, as far as checks use it: typed answers, no guessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import httpx
import msgspec

_SHOWN: Final = 300
"""Characters of an unexpected answer that a finding quotes."""


class UnexpectedAnswerError(Exception):
    """The server answered, and not what the interface promises."""


class TopLogprob(msgspec.Struct, frozen=True):
    """A token and its log-probability; a NaN arrives as null."""

    id: int
    logprob: float | None


class TokenProbabilities(msgspec.Struct, frozen=True):
    """The most likely tokens at one position, most likely first."""

    top_logprobs: tuple[TopLogprob, ...]


class Completion(msgspec.Struct, frozen=True):
    """``POST /completion``."""

    content: str
    tokens: tuple[int, ...]
    stop_type: str
    tokens_evaluated: int
    tokens_predicted: int
    truncated: bool
    completion_probabilities: tuple[TokenProbabilities, ...] = ()


class Message(msgspec.Struct, frozen=True):
    """A chat message."""

    content: str | None


class Choice(msgspec.Struct, frozen=True):
    """One answer of a chat."""

    message: Message
    finish_reason: str | None


class Usage(msgspec.Struct, frozen=True):
    """The server's own token counts."""

    prompt_tokens: int
    completion_tokens: int


class Chat(msgspec.Struct, frozen=True):
    """``POST /v1/chat/completions``."""

    choices: tuple[Choice, ...]
    usage: Usage


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


class _Tokens(msgspec.Struct, frozen=True):
    tokens: tuple[int, ...]


class _Content(msgspec.Struct, frozen=True):
    content: str


class _Prompt(msgspec.Struct, frozen=True):
    prompt: str


_T = TypeVar("_T", bound=msgspec.Struct)


class Api:
    """Questions to one server.

    Every method raises httpx.HTTPError where no answer comes, UnexpectedAnswerError where it is
    not one that llama-server gives.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def complete(
        self, prompt: Sequence[int], *, count: int, slot: int = -1, probabilities: int = 0
    ) -> Completion:
        """Greedy continuation by at most ``count`` tokens, the cache of earlier prompts unused."""
        body = {
            "prompt": list(prompt),
            "n_predict": count,
            "temperature": 0,
            "cache_prompt": False,
            "return_tokens": True,
            "n_probs": probabilities,
            "id_slot": slot,
        }
        return self._post("/completion", body, Completion)

    def chat(self, user: str, *, count: int) -> Chat:
        """Greedy answer to one user message."""
        body = {
            "messages": [{"role": "user", "content": user}],
            "max_tokens": count,
            "temperature": 0,
            "cache_prompt": False,
        }
        return self._post("/v1/chat/completions", body, Chat)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Token ids of a text; special tokens' names in it are ordinary text."""
        return self._tokens(text, special=False)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of token ids."""
        return self._post("/detokenize", {"tokens": list(tokens)}, _Content).content

    def templated(self, user: str) -> tuple[int, ...]:
        """Token ids that the model's chat template makes of one user message."""
        body = {"messages": [{"role": "user", "content": user}]}
        prompt = self._post("/apply-template", body, _Prompt).prompt
        return self._tokens(prompt, special=True)

    def models(self) -> Models:
        """What the server says it serves."""
        return self._decoded("/v1/models", self._client.get("/v1/models"), Models)

    def props(self) -> Props:
        """What the server says of itself."""
        return self._decoded("/props", self._client.get("/props"), Props)

    def _tokens(self, text: str, *, special: bool) -> tuple[int, ...]:
        body = {"content": text, "parse_special": special}
        return self._post("/tokenize", body, _Tokens).tokens

    def _post(self, path: str, body: Mapping[str, Any], kind: type[_T]) -> _T:
        return self._decoded(path, self._client.post(path, json=dict(body)), kind)

    def _decoded(self, path: str, answer: httpx.Response, kind: type[_T]) -> _T:
        shown = answer.text[:_SHOWN]
        if answer.status_code != httpx.codes.OK:
            raise UnexpectedAnswerError(f"{path} answered {answer.status_code}: {shown}")
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnexpectedAnswerError(f"{path}: {error}, in {shown}") from error
