"""The line that serves a model on this machine with a build, and why each flag of it is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

import msgspec

from sparkbuild.model.asked import Asked
from sparkbuild.model.build import SERVER, Build
from sparkbuild.model.checks import drafts, serving, tokens
from sparkbuild.model.checks.subject import Subject
from sparkbuild.model.memory import PAD, budget, largest_context
from sparkbuild.model.read import Model

START: Final = 32_768
"""Tokens of a slot to begin with: GLM-5.3-Flash loads as fast with any context, and what a context
takes is gone for good; a million of them was what hung Sparks (field reports)."""
DEPTH: Final = 2
"""Tokens of a draft: of GLM-5.3-Flash's the second one pays, the third costs more than it brings
(field report, one Spark)."""
_SMALLER: Final = "q8_0"
_MIB: Final = 1 << 20


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """Words of the command line, and why they are there."""

    words: tuple[str, ...]
    reason: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A command line."""

    program: str
    flags: tuple[Flag, ...]
    left_out: tuple[str, ...]
    """What one may look for and not find, each with the reason."""

    @property
    def argv(self) -> tuple[str, ...]:
        """All words."""
        return (self.program, *(word for flag in self.flags for word in flag.words))


def choose(
    model: Model, vision: Model | None, build: Build | None, asked: Asked, given: frozenset[str]
) -> tuple[Asked, tuple[str, ...]]:
    """The flags to serve with, and the reasons for what is left out.

    ``given`` are the fields of ``asked`` that a person chose: these stay as they are.
    """
    left_out: tuple[str, ...] = ()
    if "draft_depth" not in given:
        asked = dataclasses.replace(asked, draft_depth=DEPTH)
    if "speculation" not in given and model.number(model.key("nextn_predict_layers")):
        drafting = dataclasses.replace(asked, speculation=(drafts.MTP,))
        why = _why_not(Subject(model=model, vision=vision, build=build, asked=drafting))
        asked, left_out = (asked, (f"drafts: {why}",)) if why else (drafting, ())
    if "context" not in given:
        asked = _sized(model, vision, asked, fixed="cache_k" in given)
    if asked.machine is not None and asked.machine.unified and "load_mode" not in given:
        asked = dataclasses.replace(asked, load_mode="dio")
    return _growing(model, vision, asked), left_out


def _why_not(subject: Subject) -> str:
    """Why the model's NextN block is not to draft; empty where it may."""
    if subject.build is None:
        return "whether a build has the graph for them, only --build DIR tells"
    for check in (drafts.nextn_blocks, drafts.graph, drafts.nextn_precision):
        found = check(subject)
        if found.state != "ok":
            return found.reason or found.found
    together = drafts.drafts_and_pictures(subject)
    return "" if together.state == "ok" else f"with pictures, {together.reason}"


def _sized(model: Model, vision: Model | None, asked: Asked, *, fixed: bool) -> Asked:
    """The context to begin with, in f16; with a smaller cache where only that holds it."""
    trained = max(PAD, model.number(model.key("context_length")) or START)
    wanted = min(START, trained) * max(1, asked.slots)
    if asked.machine is None:
        return dataclasses.replace(asked, context=wanted)
    available = asked.machine.available
    fits = min(wanted, largest_context(model, vision, asked, available))
    small = dataclasses.replace(asked, cache_k=_SMALLER, cache_v=_SMALLER)
    subject = Subject(model=model, vision=vision, build=None, asked=small)
    if fits < wanted and not fixed and serving.cache_types(subject).state == "ok":
        more = min(wanted, largest_context(model, vision, small, available))
        if more > fits:
            return dataclasses.replace(small, context=more)
    return dataclasses.replace(asked, context=fits or PAD)


def _growing(model: Model, vision: Model | None, asked: Asked) -> Asked:
    """What the server keeps of past requests, as far as there is room for it."""
    if asked.machine is None:
        return asked
    room = asked.machine.available - budget(model, vision, asked).needed
    bare = dataclasses.replace(asked, prompt_cache=0)
    each = budget(model, vision, bare).growth // max(1, asked.checkpoints)
    checkpoints = asked.checkpoints if not each else min(asked.checkpoints, max(0, room // each))
    room -= checkpoints * each
    cached = max(0, min(asked.prompt_cache, room)) // _MIB * _MIB
    if asked.prompt_cache < 0:
        cached = max(0, room) // _MIB * _MIB
    return dataclasses.replace(asked, checkpoints=checkpoints, prompt_cache=cached)


def line(
    model: Model,
    vision: Model | None,
    build: Build | None,
    asked: Asked,
    left_out: tuple[str, ...] = (),
) -> Line:
    """The command line for flags that ``choose`` settled."""
    subject = Subject(model=model, vision=vision, build=build, asked=asked)
    server = build.server if build else None
    return Line(
        program=SERVER if server is None else str(server),
        flags=(*_files(model, vision), *_memory(model, asked), *_machine(asked), *_rest(subject)),
        left_out=left_out,
    )


def _files(model: Model, vision: Model | None) -> Iterator[Flag]:
    more = len(model.shards) > 1
    reason = f"the first of {len(model.shards)} shards" if more else "the model"
    yield Flag(words=("--model", str(model.path)), reason=reason)
    if vision is not None:
        yield Flag(words=("--mmproj", str(vision.path)), reason="its vision tower")


def _memory(model: Model, asked: Asked) -> Iterator[Flag]:
    defaults = Asked()
    trained = model.number(model.key("context_length")) or 0
    yield Flag(
        words=("--ctx-size", str(asked.context)),
        reason=f"tokens of all slots together; the model was trained for {trained:,} a slot, and "
        "every one that is asked for is paid for at the start",
    )
    yield Flag(
        words=("--parallel", str(asked.slots)),
        reason="slots, which divide the context among them; the server's own default is several",
    )
    yield Flag(
        words=("--cache-type-k", asked.cache_k, "--cache-type-v", asked.cache_v),
        reason="nothing of the cache is rounded further"
        if (asked.cache_k, asked.cache_v) == ("f16", "f16")
        else "a smaller cache: in f16 less context fits",
    )
    flash = "on" if asked.flash_attention else "off"
    reason = "less memory, and a quantised cache needs it" if flash == "on" else "as asked"
    yield Flag(words=("--flash-attn", flash), reason=reason)
    if asked.micro_batch != defaults.micro_batch:
        yield Flag(words=("--ubatch-size", str(asked.micro_batch)), reason="as asked")
    if asked.prompt_cache != defaults.prompt_cache:
        yield Flag(
            words=("--cache-ram", str(asked.prompt_cache // _MIB)),
            reason="MiB for prompts of the past: all that is left beside the rest",
        )
    if asked.checkpoints != defaults.checkpoints:
        yield Flag(
            words=("--ctx-checkpoints", str(asked.checkpoints)),
            reason="copies of the recurrent state: as many as there is room for",
        )


def _machine(asked: Asked) -> Iterator[Flag]:
    if asked.load_mode != "auto":
        yield Flag(
            words=("--load-mode", asked.load_mode),
            reason="files are not mapped: on GB10 page faults made 22 s of loading 224 s",
        )
    if asked.machine is not None and asked.machine.unified:
        yield Flag(
            words=("--n-gpu-layers", "all", "--fit", "off"),
            reason="the GPU shares this memory: CUDA, which llama.cpp would ask, counts the page "
            "cache as taken; the sum was made from MemAvailable",
        )


def _rest(subject: Subject) -> Iterator[Flag]:
    asked = subject.asked
    if asked.speculation:
        own = drafts.MTP in asked.speculation
        reason = "the model's own NextN block drafts" if own else "as asked"
        if asked.draft_depth == DEPTH:
            reason += "; the second token of a draft pays, a third costs more than it brings"
        depth = ("--spec-draft-n-max", str(asked.draft_depth))
        yield Flag(words=("--spec-type", ",".join(asked.speculation), *depth), reason=reason)
    ends = tokens.end_tokens(subject)
    words = tuple(ends.next_step.split())
    if ends.state == "warning" and "ID" not in ends.next_step and words[:1] == ("--override-kv",):
        yield Flag(words=words, reason=ends.reason)
