"""Metadata: does the file hold what llama.cpp asks for, as long as it asks."""

from __future__ import annotations

from collections.abc import Iterator

from sparkbuild.model.book import book
from sparkbuild.model.checks.subject import Subject
from sparkbuild.model.finding import Finding, State, listed, named, shown
from sparkbuild.model.read import Model

MOST_BLOCKS = 512
"""LLAMA_MAX_LAYERS."""
_AGAIN = "take a file made with a converter of this build's age, or make it again"
_NO_TOKENS = ("none", "no_vocab")
"""Of ``tokenizer.ggml.model``: the model takes numbers, not text."""


def required_keys(subject: Subject) -> Finding:
    """Every key without which llama.cpp refuses the architecture is there, and is a number."""
    model, known = subject.model, subject.known
    names = (*book().required, *known.required)
    wrong = list(_lacking(model, [model.key(name) for name in names]))
    wrong += [
        f"{name}: expected {value}, found {shown(model.values.get(model.key(name)))}"
        for name, value in known.exactly.items()
        if model.number(model.key(name)) != value
    ]
    if not 0 < subject.blocks <= MOST_BLOCKS:
        wrong.append(f"block_count: expected 1 to {MOST_BLOCKS}, found {subject.blocks}")
    elif subject.nextn > subject.blocks:
        wrong.append(f"nextn_predict_layers: expected at most block_count, found {subject.nextn}")
    return keys_finding("required keys", len(names), wrong)


def array_lengths(subject: Subject) -> Finding:
    """Arrays with an entry for every block have that many, NextN blocks counted."""
    known = subject.known
    lengths = dict.fromkeys((*book().blocks, *known.blocks), subject.blocks)
    lengths |= dict.fromkeys(known.trunk, subject.blocks - subject.nextn)
    wrong, right = [], 0
    for name, length in lengths.items():
        value = subject.model.values.get(subject.model.key(name))
        if not isinstance(value, tuple):
            continue
        if len(value) == length:
            right += 1
        else:
            wrong.append(f"{name}: expected {length} entries, found {len(value)}")
    return Finding(
        name="array lengths",
        state="fault" if wrong else "ok",
        expected=f"an entry for each of {subject.blocks} blocks",
        found=listed(wrong) if wrong else f"{right} arrays",
        reason="llama.cpp refuses it as `wrong array length`; files differ in whether the NextN "
        "block counts"
        if wrong
        else "",
        next_step=_AGAIN if wrong else "",
    )


def vocabulary(subject: Subject) -> Finding:
    """There is a vocabulary, and the embedding has a row for each of its tokens."""
    model = subject.model
    kind = model.text("tokenizer.ggml.model")
    tokens = model.texts("tokenizer.ggml.tokens")
    width = model.number(model.key("embedding_length"))
    embedding = model.tensors.get("token_embd.weight")
    wrong = []
    if kind is None:
        wrong.append("tokenizer.ggml.model is missing")
    elif kind not in _NO_TOKENS and not tokens:
        wrong.append("tokenizer.ggml.tokens is missing")
    if embedding is None and not model.missing:
        wrong.append("token_embd.weight is missing")
    elif embedding is not None and tokens and embedding.shape[:2] != (width, len(tokens)):
        wrong.append(
            f"token_embd.weight: expected {width} x {len(tokens)}, "
            f"found {' x '.join(map(str, embedding.shape))}"
        )
    # Architectures that the book does not know may have embeddings of another make.
    state: State = "fault" if book().known(model.architecture) else "warning"
    return Finding(
        name="vocabulary",
        state=state if wrong else "ok",
        expected="a vocabulary, and an embedding of its size",
        found=listed(wrong) if wrong else f"{len(tokens or ()):,} tokens",
        next_step=_AGAIN if wrong else "",
    )


def keys_finding(name: str, count: int, wrong: list[str]) -> Finding:
    """The finding for a list of keys, those that are wrong named."""
    return Finding(
        name=name,
        state="fault" if wrong else "ok",
        expected=f"{count} keys that llama.cpp demands",
        found=listed(wrong) if wrong else "all of them",
        reason="llama.cpp refuses the file at load" if wrong else "",
        next_step=_AGAIN if wrong else "",
    )


def lacking(model: Model, keys: list[str]) -> list[str]:
    """Those keys that are missing, or hold a text where a number belongs."""
    return list(_lacking(model, keys))


def _lacking(model: Model, keys: list[str]) -> Iterator[str]:
    for key in keys:
        value = model.values.get(key)
        if value is None:
            yield f"{named(key)} is missing"
        elif isinstance(value, str | bool):
            yield f"{named(key)}: expected a number, found {shown(value)}"
