"""The fixed questions: what every canary has to know by heart."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from sparkbuild.canary.tasks.sample import Sample, Split, Turn
from sparkbuild.manifest import Name, Table, load

_FILE: Final = Path(__file__).with_name("answers.toml")
_Kind = Literal["string", "integer"]


class Tool(Table, frozen=True):
    """A tool that a question may offer: what it does, and its arguments' types, in order."""

    about: str
    arguments: dict[str, _Kind]


class Message(Table, frozen=True):
    """One turn of a conversation; an assistant's text is raw, with its marks."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str


class Answer(Table, frozen=True):
    """A question, alone as ``ask`` or at the end of ``turns``, and what has to come back.

    ``answer`` is raw: after the thought's end mark, with tool calls in their marks.
    """

    name: Name
    kind: Annotated[str, msgspec.Meta(min_length=1)]
    answer: Annotated[str, msgspec.Meta(min_length=1)]
    ask: str = ""
    turns: tuple[Message, ...] = ()
    tools: tuple[str, ...] = ()
    thinking: bool = False
    end: Literal["<|user|>", "<|observation|>", "<|endoftext|>"] = "<|user|>"


class _Answers(Table, frozen=True):
    tools: dict[str, Tool]
    answers: tuple[Answer, ...]


class FixedAnswers:
    """One of the fixed questions at random; nothing of them is held out."""

    name = "fixed"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:  # noqa: ARG002
        """A fixed question; neither ``split`` nor ``length`` changes anything."""
        return rng.choice(fixed())


@functools.cache
def fixed() -> tuple[Sample, ...]:
    """Every fixed question, in the file's order; raises ManifestError where the file is wrong.

    ``check`` of each holds its ``name`` and ``kind``.
    """
    known = load(_FILE, _Answers)
    return tuple(_sample(entry, known.tools) for entry in known.answers)


def texts() -> list[str]:
    """Every text that the fixed questions and answers are made of, for the vocabulary."""
    result = []
    for sample in fixed():
        result += [*(turn.text for turn in sample.turns), sample.answer]
    known = load(_FILE, _Answers)
    for name, tool in known.tools.items():
        result += [name, tool.about, *tool.arguments]
    return result


def declared(name: str, about: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """A tool in the form of OpenAI's interface; every argument is required."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in arguments.items()},
                "required": list(arguments),
            },
        },
    }


def _sample(entry: Answer, tools: dict[str, Tool]) -> Sample:
    turns = [Turn(role=turn.role, text=turn.text) for turn in entry.turns]
    if entry.ask:
        turns.append(Turn(role="user", text=entry.ask))
    return Sample(
        task=FixedAnswers.name,
        turns=tuple(turns),
        answer=entry.answer,
        thinking=entry.thinking,
        tools=tuple(
            declared(name, tools[name].about, tools[name].arguments) for name in entry.tools
        ),
        end=entry.end,
        check=(("name", entry.name), ("kind", entry.kind)),
    )
