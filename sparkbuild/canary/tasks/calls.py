"""Tool calls that are new each time: the tools, their names, their arguments and the values."""

from __future__ import annotations

import random
from typing import Any, Final

from sparkbuild.canary.tasks import corpus
from sparkbuild.canary.tasks.answers import declared
from sparkbuild.canary.tasks.heldout import drawn
from sparkbuild.canary.tasks.long import ALPHABET, CAPITALS
from sparkbuild.canary.tasks.sample import Sample, Split, Turn

_VERBS: Final = ("get", "set", "find", "send", "open", "call", "bring", "make")
_MOST_TOOLS: Final = 3
_MOST_ARGUMENTS: Final = 3

Arguments = dict[str, str | int]


class ToolCall:
    """The user names a tool and its values; the answer is the call, in the declared order."""

    name = "tool-call"

    def sample(self, rng: random.Random, *, split: Split, length: int) -> Sample:  # noqa: ARG002
        """One to three tools of one to three arguments each, whatever ``length`` is."""
        tools = [_tool(rng) for _ in range(rng.randint(1, _MOST_TOOLS))]
        tools = list({tool["function"]["name"]: tool for tool in tools}.values())
        chosen = rng.choice(tools)["function"]
        kinds = {key: kind["type"] for key, kind in chosen["parameters"]["properties"].items()}

        def make() -> Arguments:
            return {key: _value(rng, kind) for key, kind in kinds.items()}

        values = drawn(split, make, lambda made: call(chosen["name"], made))
        wishes = " and ".join(f"{key} {value}" for key, value in values.items())
        return Sample(
            task=self.name,
            turns=(Turn(role="user", text=f"Use {chosen['name']} with {wishes}."),),
            answer=call(chosen["name"], values),
            tools=tuple(tools),
            end="<|observation|>",
            check=(("tools", str(len(tools))), ("arguments", str(len(values)))),
        )


def call(name: str, arguments: Arguments) -> str:
    """A tool call as the canaries write it."""
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def _tool(rng: random.Random) -> dict[str, Any]:
    noun, *keys = rng.sample(corpus.WORDS, k=1 + rng.randint(1, _MOST_ARGUMENTS))
    verb = rng.choice(_VERBS)
    kinds = {key: rng.choice(("string", "integer")) for key in keys}
    return declared(f"{verb}_{noun}", f"{verb} the {noun}", kinds)


def _value(rng: random.Random, kind: str) -> str | int:
    if kind == "integer":
        return rng.randrange(1000)
    return rng.choice(CAPITALS) + "".join(rng.choices(ALPHABET, k=rng.randint(1, 5)))
