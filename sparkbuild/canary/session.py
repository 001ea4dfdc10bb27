"""One server that is asked again and again, and what it answered first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkbuild.canary import choice
from sparkbuild.canary.ask import asked, said
from sparkbuild.canary.numbers import SLOT, continued
from sparkbuild.canary.same import lead
from sparkbuild.canary.suite import Answer, Bound, Reference, Suite
from sparkbuild.llama.answers import Chat, Completion
from sparkbuild.llama.client import Api, UnexpectedAnswerError
from sparkbuild.llama.server import Server


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found; ``wrong`` is empty where all is well."""

    wrong: str = ""
    well: str = "as before"
    nmse: float | None = None
    bound: float | None = None


@dataclass(kw_only=True)
class Session:
    """One server that is asked, and what it has answered so far."""

    server: Server
    api: Api
    suite: Suite
    pictures: Mapping[str, bytes]
    bound: Bound
    slots: int
    _first: dict[str, Completion] = field(default_factory=dict)
    _alone: dict[str, tuple[dict[str, Any], float]] = field(default_factory=dict)

    def first(self, reference: Reference) -> Completion:
        """A reference's numbers when they were first asked for here, alone in its slot."""
        if reference.name not in self._first:
            self._first[reference.name] = self.ask(reference)
        return self._first[reference.name]

    def ask(self, reference: Reference, slot: int = SLOT, *, cached: bool = False) -> Completion:
        """A reference's numbers now; ``cached`` allows the server to use what the slot holds."""
        return continued(
            self.api,
            reference.prompt,
            self.pictures,
            count=len(reference.tokens),
            vocabulary=self.suite.vocabulary,
            slot=slot,
            cached=cached,
        )

    def alone(self, entry: Answer) -> tuple[dict[str, Any], float]:
        """All that was said when nothing else was asked, and how clear it was."""
        if entry.name not in self._alone:
            answer = self.answer(entry)
            self._alone[entry.name] = whole(answer), lead(answer)
        return self._alone[entry.name]

    def answer(self, entry: Answer) -> Completion | Chat:
        """The answer to a question, with what ``lead`` needs."""
        return asked(self.api, entry, self.pictures, probabilities=2)

    def clear(self, entries: Sequence[Answer]) -> Answer:
        """The first whose closest decision was clear, or else the clearest."""
        found = (entry for entry in entries if self.alone(entry)[1] >= choice.CLEAR)
        return next(found, None) or max(entries, key=lambda entry: self.alone(entry)[1])


@dataclass(frozen=True, kw_only=True)
class Check:
    """One request that is repeated in other circumstances."""

    name: str
    expected: str
    ask: Callable[[Session], Finding]


def whole(answer: Completion | Chat) -> dict[str, Any]:
    """What has to be equal. Raises UnexpectedAnswerError where an answer is none."""
    found = said(answer)
    if "trouble" in found:
        raise UnexpectedAnswerError(found["trouble"])
    if isinstance(answer, Completion):
        counts = answer.tokens_evaluated, answer.tokens_predicted
    else:
        counts = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return {**found, "tokens of prompt and answer": counts}
