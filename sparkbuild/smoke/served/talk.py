"""Requests to one server of a real model; answers with their times, and all of them kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import httpx
import msgspec

from sparkbuild.llama.answers import Choice, Models, TokenProbabilities, Usage
from sparkbuild.llama.client import UnexpectedAnswerError
from sparkbuild.llama.server import Server
from sparkbuild.smoke.served.book import Book

SLOT: Final = 0
"""Single requests go to the first slot, so that a repeated one repeats everything."""
_SHOWN: Final = 300
"""Characters of an unexpected answer that a finding quotes."""
_T = TypeVar("_T")


class Times(msgspec.Struct, frozen=True):
    """What the server counted: tokens, and milliseconds from the first to the last of them.

    The draft's counts are missing, not 0, where nothing was drafted.
    """

    predicted_n: int
    predicted_ms: float = 0.0
    draft_n: int | None = None
    draft_n_accepted: int | None = None

    @property
    def speed(self) -> float:
        """Tokens a second behind the first one, which the prompt's computation gives."""
        return (self.predicted_n - 1) / self.predicted_ms * 1e3 if self.predicted_ms > 0 else 0.0

    @property
    def passes(self) -> int:
        """Times that the model was computed for these tokens: an accepted draft saves one."""
        return max(1, self.predicted_n - (self.draft_n_accepted or 0))


class _Chat(msgspec.Struct, frozen=True):
    choices: tuple[Choice, ...]
    usage: Usage
    timings: Times | None = None


class _Completion(msgspec.Struct, frozen=True):
    content: str
    tokens: tuple[int, ...]
    stop_type: str
    tokens_evaluated: int
    completion_probabilities: tuple[TokenProbabilities, ...] = ()
    timings: Times | None = None


class _Tokens(msgspec.Struct, frozen=True):
    tokens: tuple[int, ...]


class _Prompt(msgspec.Struct, frozen=True):
    prompt: str


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer: what of it has to be the same when it is asked for again."""

    content: str
    reasoning: str
    finish: str
    prompt_tokens: int
    tokens: int
    ids: tuple[int, ...] = ()
    """Of a completion."""
    positions: tuple[TokenProbabilities, ...] = ()
    times: Times | None = field(default=None, compare=False)

    @property
    def counts(self) -> tuple[int, int]:
        """Tokens drafted, and of these accepted."""
        times = self.times
        return (times.draft_n or 0, times.draft_n_accepted or 0) if times else (0, 0)


class Talk:
    """Asks one server. ``extra`` goes into every chat request.

    Every method raises httpx.HTTPError where no answer comes, UnexpectedAnswerError where it is
    not one that llama-server gives.
    """

    def __init__(self, server: Server, way: str, extra: Mapping[str, Any], book: Book) -> None:
        self._client = server.client
        self._way = way
        self._extra = dict(extra)
        self._book = book
        self.spoken: list[Times] = []
        """Times of every answer so far."""

    def chat(
        self,
        name: str,
        content: str | Sequence[Mapping[str, Any]],
        *,
        count: int,
        system: str = "",
        top: int = 0,
        slot: int = SLOT,
    ) -> Reply:
        """The greedy answer to one user message, nothing of earlier requests used."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": content})  # type: ignore[dict-item]
        body = self._body(messages, max_tokens=count, id_slot=slot)
        if top:
            body |= {"logprobs": True, "top_logprobs": top}
        found = self._post("/v1/chat/completions", name, body, _Chat)
        if len(found.choices) != 1:
            raise UnexpectedAnswerError(f"{len(found.choices)} choices, expected 1")
        choice = found.choices[0]
        self._heard(found.timings)
        return Reply(
            content=choice.message.content or "",
            reasoning=choice.message.reasoning_content or "",
            finish=choice.finish_reason or "",
            prompt_tokens=found.usage.prompt_tokens,
            tokens=found.usage.completion_tokens,
            positions=choice.logprobs.content if choice.logprobs else (),
            times=found.timings,
        )

    def continued(self, name: str, prompt: Sequence[int], *, count: int, top: int) -> Reply:
        """The greedy continuation of token ids past any end, with the most likely tokens."""
        body = {
            "prompt": list(prompt),
            "n_predict": count,
            "temperature": 0,
            "cache_prompt": False,
            "return_tokens": True,
            "ignore_eos": True,
            "n_probs": top,
            "id_slot": SLOT,
        }
        found = self._post("/completion", name, body, _Completion)
        self._heard(found.timings)
        return Reply(
            content=found.content,
            reasoning="",
            finish="length" if found.stop_type == "limit" else "stop",
            prompt_tokens=found.tokens_evaluated,
            tokens=len(found.tokens),
            ids=found.tokens,
            positions=found.completion_probabilities,
            times=found.timings,
        )

    def break_off(self, user: str, *, count: int) -> None:
        """Ask, and hang up after the first piece of the answer."""
        messages = [{"role": "user", "content": user}]
        body = self._body(messages, max_tokens=count, stream=True, ignore_eos=True)
        with self._client.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                self._decoded("/v1/chat/completions", answer, _Chat)
            next((line for line in answer.iter_lines() if line.startswith("data:")), "")

    def templated(self, user: str) -> tuple[int, ...]:
        """Token ids that the model's chat template makes of one user message."""
        body = self._body([{"role": "user", "content": user}])
        prompt = self._posted("/apply-template", body, _Prompt).prompt
        asked = {"content": prompt, "parse_special": True}
        return self._posted("/tokenize", asked, _Tokens).tokens

    def models(self) -> Models:
        """What the server says it serves."""
        return self._decoded("/v1/models", self._client.get("/v1/models"), Models)

    def _body(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        fixed = {"messages": list(messages), "temperature": 0, "cache_prompt": False}
        return {**self._extra, **fixed, **more}

    def _post(self, path: str, name: str, body: Mapping[str, Any], kind: type[_T]) -> _T:
        answer = self._client.post(path, json=dict(body))
        try:
            told: object = json.loads(answer.content)
        except ValueError:
            told = answer.text[:_SHOWN]
        self._book.answer(self._way, name, body, told)
        return self._decoded(path, answer, kind)

    def _posted(self, path: str, body: Mapping[str, Any], kind: type[_T]) -> _T:
        return self._decoded(path, self._client.post(path, json=dict(body)), kind)

    def _decoded(self, path: str, answer: httpx.Response, kind: type[_T]) -> _T:
        shown = answer.text[:_SHOWN]
        if answer.status_code != httpx.codes.OK:
            raise UnexpectedAnswerError(f"{path} answered {answer.status_code}: {shown}")
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnexpectedAnswerError(f"{path}: {error}, in {shown}") from error

    def _heard(self, times: Times | None) -> None:
        if times is not None:
            self.spoken.append(times)
