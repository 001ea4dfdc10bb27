"""Requests of a proof to one llama-server: all that a client may do, answers as they come.

Nothing is raised for an answer that is an error: its status is what a proof looks at.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
import msgspec

from sparkbuild.canary.ask import with_pictures
from sparkbuild.llama.log import LogReport

_CHAT: Final = "/v1/chat/completions"
_SHOWN: Final = 200
"""Characters of an error that are kept."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """An answer: its status, 0 where none came; its texts; what became of drafts."""

    status: int
    texts: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    drafted: int = 0
    accepted: int = 0
    cached: int = 0
    """Tokens of the prompt that were not computed again."""
    error: str = ""

    @property
    def counts(self) -> tuple[int, int]:
        """Tokens drafted, and of these accepted."""
        return self.drafted, self.accepted


class _Timings(msgspec.Struct, frozen=True):
    cache_n: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Answer(msgspec.Struct, frozen=True):
    """Both kinds of answer, as far as a proof reads them."""

    choices: tuple[_Choice, ...] = ()
    content: str = ""
    tokens: tuple[int, ...] = ()
    timings: _Timings = _Timings()


class Talk:
    """A conversation with one server; ``log`` and ``died`` are known when it has ended."""

    def __init__(self, client: httpx.Client, pictures: Mapping[str, bytes]) -> None:
        self._client = client
        self._pictures = dict(pictures)
        self.log: LogReport | None = None
        self.died = ""

    def chat(
        self, messages: Sequence[Mapping[str, Any]], *, count: int = 60, **more: object
    ) -> Said:
        """The greedy answer to a conversation; ``more`` goes into the request."""
        return self._said(_CHAT, {**self._asked(messages, count), **more})

    def complete(self, prompt: Sequence[int], *, count: int, **more: object) -> Said:
        """The greedy continuation of tokens."""
        body = {"prompt": list(prompt), "n_predict": count, "temperature": 0, "return_tokens": True}
        return self._said("/completion", {**body, **more})

    def break_off(self, messages: Sequence[Mapping[str, Any]], *, after: int) -> None:
        """Ask for an answer past its end, and hang up after so many pieces of it.

        After none the request has hardly been read.
        """
        body = {**self._asked(messages, 200), "ignore_eos": True, "stream": True}
        try:
            with self._client.stream("POST", _CHAT, json=body) as answer:
                pieces = (line for line in answer.iter_lines() if line.startswith("data:"))
                for _ in itertools.islice(pieces, after):
                    pass
        except httpx.HTTPError:
            return  # a server that went away shows at its end, and at the next request

    def slot(self, number: int, action: str, file: str) -> int:
        """Save, restore or erase a slot; the answer's status."""
        try:
            where = f"/slots/{number}?action={action}"
            return self._client.post(where, json={"filename": file}).status_code
        except httpx.HTTPError:
            return 0

    def tokens(self, text: str) -> tuple[int, ...]:
        """Token ids of a text, in which names of special tokens are those tokens."""
        answer = self._client.post("/tokenize", json={"content": text, "parse_special": True})
        return tuple(answer.json()["tokens"])

    def prompt(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        """Token ids of a conversation, as the model's template has it."""
        body = {"messages": list(messages), "chat_template_kwargs": {"enable_thinking": False}}
        return self.tokens(self._client.post("/apply-template", json=body).json()["prompt"])

    def _asked(self, messages: Sequence[Mapping[str, Any]], count: int) -> dict[str, Any]:
        return {
            "messages": list(with_pictures(messages, self._pictures)),
            "max_tokens": count,
            "temperature": 0,
            "seed": 1,
            "cache_prompt": True,
            "chat_template_kwargs": {"enable_thinking": False},
        }

    def _said(self, path: str, body: Mapping[str, object]) -> Said:
        try:
            answer = self._client.post(path, json=dict(body))
        except httpx.HTTPError as error:
            return Said(status=0, error=f"{type(error).__name__}: {error}"[:_SHOWN])
        if answer.status_code != httpx.codes.OK:
            return Said(status=answer.status_code, error=answer.text[:_SHOWN])
        found = msgspec.json.decode(answer.content, type=_Answer)
        texts = tuple(_whole(choice.message) for choice in found.choices) or (found.content,)
        return Said(
            status=answer.status_code,
            texts=texts,
            tokens=found.tokens,
            drafted=found.timings.draft_n,
            accepted=found.timings.draft_n_accepted,
            cached=found.timings.cache_n,
        )


def _whole(message: _Message) -> str:
    """Thought and said, told apart by a bar."""
    return f"{message.reasoning_content or ''}|{message.content or ''}"
