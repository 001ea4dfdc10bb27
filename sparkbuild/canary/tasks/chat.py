"""The chat template, and samples in the forms that it and OpenAI's interface take.

The template is the one that goes into the canaries' GGUF: what llama-server makes of a conversation
is what the canary was trained on.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkbuild.canary.tasks.sample import Sample, Turn

if TYPE_CHECKING:
    import jinja2

_FILE: Final = Path(__file__).with_name("chat_template.jinja")
IMAGE: Final = "<|image|>"
_THOUGHT_END: Final = "</think>\n"
_CALL: Final = re.compile(
    r"\n?<tool_call>(?P<name>[^\n]+)\n(?P<arguments>.*?)</tool_call>", re.DOTALL
)
_ARGUMENT: Final = re.compile(
    r"<arg_key>(?P<key>[^<]*)</arg_key>\n<arg_value>(?P<value>.*?)</arg_value>\n", re.DOTALL
)


def template() -> str:
    """The chat template's source, Jinja as transformers and llama.cpp have it."""
    return _FILE.read_text(encoding="utf-8").removesuffix("\n")


def render(sample: Sample, *, image_tokens: Sequence[int] = ()) -> tuple[str, str]:
    """Prompt and answer as text with the names of special tokens; the answer has its end token.

    ``image_tokens`` are the counts of tokens of the sample's pictures, in order. Raises ValueError
    where there are more or fewer counts than pictures.
    """
    counts = iter(image_tokens)
    wanted = sum(len(turn.pictures) for turn in sample.turns)
    if wanted != len(image_tokens):
        raise ValueError(f"{wanted} pictures, {len(image_tokens)} counts of image tokens")
    answer = sample.answer + sample.end
    if sample.raw:
        return sample.raw, answer
    prompt = _compiled().render(
        messages=[_message(turn, _spelled(turn, counts), sample) for turn in sample.turns],
        tools=list(sample.tools),
        add_generation_prompt=True,
        enable_thinking=sample.thinking,
    )
    return prompt, answer


def messages(sample: Sample, *, images: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The conversation in the form of OpenAI's chat interface.

    ``images`` are the pictures' URLs (``data:image/png;base64,…``), in order. Arguments of earlier
    tool calls are JSON in a string, as that interface has it. Raises ValueError where there are
    more or fewer URLs than pictures.
    """
    wanted = sum(len(turn.pictures) for turn in sample.turns)
    if wanted != len(images):
        raise ValueError(f"{wanted} pictures, {len(images)} URLs")
    urls = iter(images)
    result = []
    for turn in sample.turns:
        content: str | list[dict[str, Any]] = turn.text
        if turn.pictures:
            shown = itertools.islice(urls, len(turn.pictures))
            content = [{"type": "image_url", "image_url": {"url": url}} for url in shown]
            content.append({"type": "text", "text": turn.text})
        message = _message(turn, content, sample)
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        result.append(message)
    return result


def expected(sample: Sample) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    """What a chat server has to make of the answer: content, thought, calls with arguments."""
    thought, content, calls = _parted(sample.answer, sample, thinking=sample.thinking)
    return content, thought, calls


def _spelled(turn: Turn, counts: Iterator[int]) -> str:
    pictures = (f"<|begin_of_image|>{IMAGE * next(counts)}<|end_of_image|>" for _ in turn.pictures)
    return "".join(pictures) + turn.text


def _message(turn: Turn, content: str | list[dict[str, Any]], sample: Sample) -> dict[str, Any]:
    """One turn as a message; an assistant's raw text is taken apart."""
    if turn.role != "assistant":
        return {"role": turn.role, "content": content}
    thought, text, calls = _parted(turn.text, sample, thinking=_THOUGHT_END in turn.text)
    message: dict[str, Any] = {"role": turn.role, "content": text}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call{index}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (name, arguments) in enumerate(calls)
        ]
    return message


def _parted(
    raw: str, sample: Sample, *, thinking: bool
) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    """Thought, content and calls of an assistant's raw text."""
    thought, text = raw.split(_THOUGHT_END, 1) if thinking else ("", raw)
    calls = [
        (
            match["name"],
            {
                pair["key"]: _value(pair["value"], _kind(sample.tools, match["name"], pair["key"]))
                for pair in _ARGUMENT.finditer(match["arguments"])
            },
        )
        for match in _CALL.finditer(text)
    ]
    return thought, _CALL.sub("", text), calls


def _kind(tools: Sequence[Mapping[str, Any]], name: str, key: str) -> str:
    """The declared type of a tool's argument; raises KeyError for a tool that is not declared."""
    known = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    kind: str = known[name]["properties"][key]["type"]
    return kind


def _value(text: str, kind: str) -> Any:
    return text if kind == "string" else json.loads(text)


@functools.cache
def _compiled() -> jinja2.Template:
    import jinja2  # noqa: PLC0415 - only the trainer has it

    # No HTML is made here: the text has to stay as it is.
    environment = jinja2.Environment(autoescape=False, trim_blocks=True, lstrip_blocks=True)  # noqa: S701
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(template())
