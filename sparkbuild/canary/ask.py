"""The questions of a suite to one running server; every answer becomes an item."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx

from sparkbuild.canary.model import Item
from sparkbuild.canary.numbers import Array, Difference, compare, continued
from sparkbuild.canary.suite import PICTURE, REFERENCES, Answer, Bound, Reference, Suite
from sparkbuild.llama.answers import Chat, Completion
from sparkbuild.llama.client import Api, UnexpectedAnswerError, picture
from sparkbuild.llama.server import Server

_SHOWN: Final = 200
"""Characters of a text that an item quotes."""


class Asker:
    """Asks one server; what it can provoke becomes a finding, never an error."""

    def __init__(
        self,
        server: Server,
        suite: Suite,
        pictures: Mapping[str, bytes],
        numbers: Mapping[str, Array],
        bound: Bound,
        on_item: Callable[[Item], None],
    ) -> None:
        self._server = server
        self._api = Api(server.client)
        self._suite = suite
        self._pictures = pictures
        self._numbers = numbers
        self._bound = bound
        self._on_item = on_item

    def references(self, *, quick: bool = False) -> list[Item]:
        """Every reference's NMSE against the bound, and the median of all.

        ``quick`` ends with the first that fails.
        """
        items: list[Item] = []
        for entry in self._suite.references:
            items.append(self._told(self._reference(entry)))
            if quick and not items[-1].passed:
                return items
        values = [float("inf") if item.nmse is None else item.nmse for item in items]
        median = statistics.median(values) if values else float("inf")
        items.append(
            self._told(
                Item(
                    name="median of references",
                    group=REFERENCES,
                    passed=median <= self._bound.median,
                    expected=f"NMSE at most {self._bound.median:g}",
                    found=f"{median:.3g}",
                    seconds=0.0,
                    nmse=median,
                    bound=self._bound.median,
                )
            )
        )
        return items

    def answers(self, together: int) -> list[Item]:
        """Every answer, ``together`` of them at the same time, in the suite's order."""
        pool = ThreadPoolExecutor(max_workers=together)
        try:
            jobs = [pool.submit(self._answer, entry) for entry in self._suite.answers]
            return [self._told(job.result()) for job in jobs]
        finally:  # no waiting: after Ctrl-C the server is stopped, which ends the requests
            pool.shutdown(wait=False, cancel_futures=True)

    def _told(self, item: Item) -> Item:
        self._on_item(item)
        return item

    def _reference(self, entry: Reference) -> Item:
        started = time.monotonic()
        difference, trouble, bound = None, "", self._bound.of(entry)
        try:
            answer = continued(
                self._api,
                entry.prompt,
                self._pictures,
                count=len(entry.tokens),
                vocabulary=self._suite.vocabulary,
            )
            difference = compare(answer, entry.tokens, self._numbers[entry.name])
        except (httpx.HTTPError, UnexpectedAnswerError) as error:
            trouble = self._trouble(error)
        return Item(
            name=entry.name,
            group=REFERENCES,
            # A NaN compares as False, so that it fails here.
            passed=difference is not None and difference.nmse <= bound,
            expected=f"NMSE at most {bound:g} at {len(entry.tokens)} positions",
            found=trouble if difference is None else _difference(difference),
            seconds=round(time.monotonic() - started, 3),
            nmse=difference.nmse if difference and difference.nmse == difference.nmse else None,
            bound=bound,
        )

    def _answer(self, entry: Answer) -> Item:
        started = time.monotonic()
        expected = _wanted(entry)
        try:
            found = said(asked(self._api, entry, self._pictures))
        except (httpx.HTTPError, UnexpectedAnswerError) as error:
            found = {"trouble": self._trouble(error)}
        wrong = {key: found.get(key) for key in expected if found.get(key) != expected[key]}
        if "trouble" in found:
            wrong = found
        return Item(
            name=entry.name,
            group=entry.group,
            passed=not wrong,
            expected=_shown(expected if not wrong else {k: expected.get(k) for k in wrong}),
            found="as expected" if not wrong else _shown(wrong),
            seconds=round(time.monotonic() - started, 3),
        )

    def _trouble(self, error: Exception) -> str:
        return trouble(self._server, error)


def trouble(server: Server, error: Exception) -> str:
    """What kept an answer from coming, and how the server ended where it did."""
    how = server.died()
    return f"{type(error).__name__}: {error}" + (f"; the server has ended: {how}" if how else "")


def asked(
    api: Api, entry: Answer, pictures: Mapping[str, bytes], *, probabilities: int = 0
) -> Completion | Chat:
    """The server's answer to one question, with so many most likely tokens at every position."""
    if entry.raw:
        return api.complete_mixed([entry.raw], count=entry.count, probabilities=probabilities)
    return api.converse(
        list(with_pictures(entry.messages, pictures)),
        count=entry.count,
        tools=entry.tools,
        thinking=entry.thinking,
        probabilities=probabilities,
    )


def with_pictures(
    messages: Iterable[Mapping[str, Any]], pictures: Mapping[str, bytes]
) -> Iterator[dict[str, Any]]:
    """A suite's messages with the pictures in the places of their addresses."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            yield {**message, "content": [_part(part, pictures) for part in content]}
        else:
            yield dict(message)


def _part(part: Mapping[str, Any], pictures: Mapping[str, bytes]) -> dict[str, Any]:
    if part.get("type") != "image_url":
        return dict(part)
    return picture(pictures[str(part["image_url"]["url"]).removeprefix(PICTURE)])


def _wanted(entry: Answer) -> dict[str, Any]:
    calls = [{"name": call.name, "arguments": call.arguments} for call in entry.calls]
    return {
        "text": entry.text,
        "reasoning": entry.reasoning,
        "calls": calls,
        "finish": entry.finish,
    }


def said(answer: Completion | Chat) -> dict[str, Any]:
    """What the server made of an answer, in the form of ``_wanted``; ``trouble`` of a wrong one."""
    if isinstance(answer, Completion):
        finish = "length" if answer.stop_type == "limit" else "stop"
        return {"text": answer.content, "finish": finish, "reasoning": "", "calls": []}
    if len(answer.choices) != 1:
        return {"trouble": f"{len(answer.choices)} choices, expected 1"}
    choice = answer.choices[0]
    return {
        "text": choice.message.content or "",
        "reasoning": choice.message.reasoning_content or "",
        "calls": [
            {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
            for call in choice.message.tool_calls
        ],
        "finish": choice.finish_reason,
    }


def _arguments(text: str) -> object:
    """A call's arguments; the text itself where it is no JSON."""
    try:
        found: object = json.loads(text)
    except ValueError:
        return text
    return found


def _difference(difference: Difference) -> str:
    parted = "" if difference.positions == difference.of else f" of {difference.of}"
    return f"NMSE {difference.nmse:.3g} at {difference.positions}{parted} positions"


def _shown(values: Mapping[str, Any]) -> str:
    return "; ".join(f"{key} {value!r:.{_SHOWN}}" for key, value in values.items() if value)
