"""Tokens: does a turn end where it should, and can a chat be written down."""

from __future__ import annotations

from typing import Final

from sparkbuild.model import template
from sparkbuild.model.book import Ending, book
from sparkbuild.model.checks.subject import Subject
from sparkbuild.model.finding import Finding, listed, shown
from sparkbuild.model.read import Model

ENDS: Final = ("eos", "eot", "eom")
GPT2_EOS: Final = 11
"""What a vocabulary of GPT-2's kind has for eos where the file names none (src/llama-vocab.cpp)."""
_TEMPLATE: Final = "tokenizer.chat_template"
BY_TEXT: Final = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~[",
})  # fmt: skip
"""Tokens that end generation by their text alone (src/llama-vocab.cpp of b11434)."""


def end_tokens(subject: Subject) -> Finding:
    """End tokens are in the vocabulary, and none is missing that the model's family ends with."""
    model = subject.model
    tokens = model.texts("tokenizer.ggml.tokens") or ()
    found = {name: model.number(f"tokenizer.ggml.{name}_token_id") for name in ENDS}
    stated = {name: number for name, number in found.items() if number is not None}
    told = [f"{name} {number} {_text(tokens, number)}" for name, number in stated.items()]
    outside = [name for name, number in stated.items() if not 0 <= number < len(tokens)]
    if outside and tokens:
        return Finding(
            name="end tokens",
            state="fault",
            expected=f"numbers below {len(tokens)}",
            found=listed(told),
            reason="llama.cpp takes a default in its place, and answers may never end",
            next_step=_override(outside[0], "ID"),
        )
    ends = set(stated.values())
    for ending in book().ending:
        lost = lost_ends(tokens, ending, ends)
        if lost:
            return _incomplete(ending, lost, told, list(found.keys() - stated.keys()))
    taken = model.text("tokenizer.ggml.model") == "gpt2" and found["eos"] is None
    if taken and len(tokens) > GPT2_EOS:
        return _defaulted(tokens, told)
    return _ends(tokens, told, ends)


def chat_template(subject: Subject) -> Finding:
    """There is a chat template, and it parses."""
    model = subject.model
    main = model.text(_TEMPLATE)
    if main is None:
        return Finding(
            name="chat template",
            state="warning",
            expected=_TEMPLATE,
            found="none",
            reason="llama-server takes ChatML without a word, and the model may answer nonsense",
            next_step="--chat-template-file FILE, from the model's own repository",
        )
    why = template.fault(main)
    if why:
        return Finding(
            name="chat template",
            state="fault",
            expected="a template that parses",
            found=shown(why),
            reason="llama-server ends with `chat template parsing error` after it loaded the model",
            next_step="--chat-template-file FILE, with the template corrected",
        )
    return _further(model, main)


def _further(model: Model, main: str) -> Finding:
    others = {
        key.removeprefix(f"{_TEMPLATE}."): value
        for key, value in model.values.items()
        if key.startswith(f"{_TEMPLATE}.") and isinstance(value, str)
    }
    broken = [f"{name}: {why}" for name, text in others.items() if (why := template.fault(text))]
    return Finding(
        name="chat template",
        state="warning" if broken else "ok",
        expected="a template that parses",
        found=shown(listed(broken)) if broken else f"{len(main):,} characters",
        reason="llama-server drops a further template that does not parse and goes on without it"
        if broken
        else "",
        next_step="--chat-template-file FILE, with the template corrected" if broken else "",
    )


def lost_ends(tokens: tuple[str, ...], ending: Ending, ends: set[int]) -> dict[str, int]:
    """Of a family's end tokens those that nothing names; none where the family is another."""
    numbers = {text: tokens.index(text) for text in ending.tokens if text in tokens}
    if len(numbers) < len(ending.tokens):
        return {}
    return {text: number for text, number in numbers.items() if number not in ends}


def _incomplete(ending: Ending, lost: dict[str, int], told: list[str], free: list[str]) -> Finding:
    numbers = list(lost.values())
    keys = [name for name in ("eot", "eom") if name in free] or ["eot", "eom"]
    steps = [_override(key, str(number)) for key, number in zip(keys, numbers, strict=False)]
    return Finding(
        name="end tokens",
        state="warning",
        expected=f"{' and '.join(ending.tokens)} among eos, eot and eom ({ending.family})",
        found=listed(told) or "none",
        reason=ending.reason,
        next_step=" ".join(steps),
    )


def _defaulted(tokens: tuple[str, ...], told: list[str]) -> Finding:
    return Finding(
        name="end tokens",
        state="warning",
        expected="eos among them",
        found=listed(told) or "none",
        reason=f"llama.cpp takes token {GPT2_EOS}, {_text(tokens, GPT2_EOS)}, for the end of a "
        "text, so that answers stop in the middle",
        next_step=_override("eos", "ID"),
    )


def _ends(tokens: tuple[str, ...], told: list[str], ends: set[int]) -> Finding:
    by_text = [text for text in BY_TEXT & set(tokens) if tokens.index(text) not in ends]
    known = bool(told or by_text)
    return Finding(
        name="end tokens",
        state="ok" if known else "warning",
        expected="a token that ends an answer",
        found=listed([*told, *(shown(text) for text in sorted(by_text))]) or "none",
        reason="" if known else "answers end only where the limit of tokens is reached",
        next_step="" if known else _override("eos", "ID"),
    )


def _text(tokens: tuple[str, ...], number: int) -> str:
    return shown(tokens[number]) if 0 <= number < len(tokens) else "(no token)"


def _override(name: str, number: str) -> str:
    return f"--override-kv tokenizer.ggml.{name}_token_id=int:{number}"
