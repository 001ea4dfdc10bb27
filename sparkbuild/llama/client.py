"""llama-server's HTTP interface, as far as checks use it: typed answers, no guessing."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import httpx
import msgspec

from sparkbuild.llama.answers import Chat, Completion, Models, Props, Slot

_SHOWN: Final = 300
"""Characters of an unexpected answer that a finding quotes."""
_COMPLETION: Final = "/completion"


class UnexpectedAnswerError(Exception):
    """The server answered, and not what the interface promises."""


class _Tokens(msgspec.Struct, frozen=True):
    tokens: tuple[int, ...]


class _Content(msgspec.Struct, frozen=True):
    content: str


class _Prompt(msgspec.Struct, frozen=True):
    prompt: str


_T = TypeVar("_T")


class Api:
    """Questions to one server.

    Every method raises httpx.HTTPError where no answer comes, UnexpectedAnswerError where it is
    not one that llama-server gives.
    """

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def complete(
        self,
        prompt: Sequence[int],
        *,
        count: int,
        slot: int = -1,
        probabilities: int = 0,
        past_end: bool = False,
        cached: bool = False,
    ) -> Completion:
        """Greedy continuation by at most ``count`` tokens.

        With ``probabilities`` every generated position carries so many most likely tokens; an end
        token ends that too, unless ``past_end`` forbids to choose one. What the slot holds of an
        earlier prompt is used only where ``cached`` is set.
        """
        body = _continuation(list(prompt), count, slot, probabilities, past_end=past_end)
        return self._post(_COMPLETION, body | {"cache_prompt": cached}, Completion)

    def complete_mixed(
        self,
        parts: Sequence[str | bytes],
        *,
        count: int,
        slot: int = -1,
        probabilities: int = 0,
        past_end: bool = False,
        cached: bool = False,
    ) -> Completion:
        """The same after a text with pictures (files' bytes), in the order in which they stand.

        Names of special tokens in the text are those tokens.
        """
        marker = self.props().media_marker if any(isinstance(p, bytes) for p in parts) else ""
        prompt: dict[str, object] = {
            "prompt_string": "".join(part if isinstance(part, str) else marker for part in parts),
            "multimodal_data": [_base64(part) for part in parts if isinstance(part, bytes)],
        }
        asked = prompt if marker else prompt["prompt_string"]
        body = _continuation(asked, count, slot, probabilities, past_end=past_end)
        return self._post(_COMPLETION, body | {"cache_prompt": cached}, Completion)

    def break_off(
        self, prompt: Sequence[int], *, count: int, slot: int = -1, after: int = 0
    ) -> None:
        """Ask for a continuation past any end, and hang up after so many pieces of the answer.

        Without any the prompt is hardly begun.
        """
        body = _continuation(list(prompt), count, slot, 0, past_end=True)
        with self._client.stream("POST", _COMPLETION, json={**body, "stream": True}) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                self._decoded(_COMPLETION, answer, Completion)
            pieces = (line for line in answer.iter_lines() if line.startswith("data:"))
            for _ in itertools.islice(pieces, after):
                pass

    def slots(self) -> tuple[Slot, ...]:
        """What the server's slots do."""
        return self._decoded("/slots", self._client.get("/slots"), tuple[Slot, ...])

    def chat(self, user: str, *, count: int) -> Chat:
        """Greedy answer to one user message."""
        return self.converse([{"role": "user", "content": user}], count=count)

    def converse(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        count: int,
        tools: Sequence[Mapping[str, Any]] = (),
        thinking: bool | None = None,
        probabilities: int = 0,
    ) -> Chat:
        """Greedy answer to a conversation in the form of OpenAI's interface (see ``picture``).

        ``thinking`` goes to the template as ``enable_thinking``; None leaves it to the template.
        With ``probabilities`` every position of the answer carries so many most likely tokens.
        """
        body: dict[str, Any] = {
            "messages": list(messages),
            "max_tokens": count,
            "temperature": 0,
            "cache_prompt": False,
        }
        if tools:
            body["tools"] = list(tools)
        if thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": thinking}
        if probabilities:
            body |= {"logprobs": True, "top_logprobs": probabilities}
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


def _continuation(
    prompt: object, count: int, slot: int, probabilities: int, *, past_end: bool
) -> dict[str, Any]:
    body = {
        "prompt": prompt,
        "n_predict": count,
        "temperature": 0,
        "cache_prompt": False,
        "return_tokens": True,
        "n_probs": probabilities,
        "id_slot": slot,
    }
    return body | {"ignore_eos": True} if past_end else body


def picture(data: bytes) -> dict[str, Any]:
    """A PNG file as one part of a chat message's content."""
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_base64(data)}"}}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
