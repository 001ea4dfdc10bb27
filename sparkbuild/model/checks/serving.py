"""Serving: do the flags suit the model, and is there the memory."""

from __future__ import annotations

from typing import Final

from sparkbuild.model.checks.subject import Subject
from sparkbuild.model.finding import Finding, State, listed
from sparkbuild.model.memory import Budget, budget, largest_context
from sparkbuild.model.types import BY_NAME, CACHE_TYPES

MEMORY: Final = "memory"
"""The name of the check on memory, whose finding lists every part of the sum."""
_MMAP: Final = ("mmap", "mmap+mlock")


def context(subject: Subject) -> Finding:
    """A slot's context is not longer than what the model was trained for."""
    trained = subject.model.number(subject.model.key("context_length")) or 0
    slots = 1 if subject.asked.unified_cache else max(1, subject.asked.slots)
    asked = (subject.asked.context or trained) // slots
    longer = asked > trained
    return Finding(
        name="context",
        state="warning" if longer else "ok",
        expected=f"at most {trained:,} tokens a slot (context_length)",
        found=f"{asked:,}",
        reason="the model never saw positions beyond: answers to long prompts lose their sense"
        if longer
        else "",
        next_step=f"--ctx-size {trained * slots}" if longer else "",
    )


def cache_types(subject: Subject) -> Finding:
    """The cache's types are ones that llama.cpp takes for this model."""
    asked, model = subject.asked, subject.model
    kinds = (asked.cache_k, asked.cache_v)
    wrong = [kind for kind in kinds if kind not in CACHE_TYPES]
    problems = [f"{kind}: expected one of {', '.join(CACHE_TYPES)}" for kind in wrong]
    if not wrong:
        quantised = [BY_NAME[kind].block > 1 for kind in kinds]
        if quantised[1] and not asked.flash_attention:
            problems.append(f"values in {asked.cache_v} need flash attention")
        if model.number(model.key("attention.key_length_mla")) and kinds[0] != kinds[1]:
            problems.append(f"{' and '.join(kinds)} differ, latents (MLA) have one type")
        problems += [
            f"attention.{name} {length} is no multiple of {BY_NAME[kind].block} ({kind})"
            for kind, name in zip(kinds, ("key_length", "value_length"), strict=True)
            if (length := model.number(model.key(f"attention.{name}")) or 0) % BY_NAME[kind].block
        ]
    return Finding(
        name="cache types",
        state="fault" if problems else "ok",
        expected="types that this model's cache can have",
        found=listed(problems) if problems else " and ".join(kinds),
        reason="llama-server refuses the context after it loaded the model" if problems else "",
        next_step="--cache-type-k f16 --cache-type-v f16" if problems else "",
    )


def load_mode(subject: Subject) -> Finding:
    """Files are not mapped on a machine where that is slow."""
    asked = subject.asked
    unified = asked.machine is not None and asked.machine.unified
    slow = unified and asked.load_mode in _MMAP
    return Finding(
        name="load mode",
        state="warning" if slow else "ok",
        expected="not mmap where the GPU shares the memory",
        found=asked.load_mode,
        reason="page faults on GB10: 224 s instead of 22 s to load a model were measured"
        if slow
        else "",
        next_step="--load-mode dio" if slow else "",
    )


def memory(subject: Subject) -> Finding:
    """All that the server holds fits into MemAvailable, and what it may take on top too."""
    asked = subject.asked
    if any(kind not in BY_NAME for kind in _kinds(subject)):
        return Finding(
            name=MEMORY,
            state="note",
            expected="a sum",
            found="none",
            reason="not tried: a cache type is not known",
        )
    total = budget(subject.model, subject.vision, asked)
    told = "; ".join(f"{part.name} {part.bytes:,}" for part in total.parts if part.kind != "growth")
    found = f"{total.needed:,} bytes at {total.context:,} tokens: {told}"
    if asked.machine is None:
        return Finding(
            name=MEMORY,
            state="note",
            expected="a sum below MemAvailable",
            found=found,
            reason=_reasons(total, "not compared: nobody looked at the machine"),
        )
    available = asked.machine.available
    state, reason, step = _judged(subject, total, available)
    return Finding(
        name=MEMORY,
        state=state,
        expected=f"at most {available:,} bytes (MemAvailable)",
        found=found,
        reason=_reasons(total, reason),
        next_step=step,
    )


def _kinds(subject: Subject) -> tuple[str, ...]:
    asked = subject.asked
    return asked.cache_k, asked.cache_v, asked.draft_cache_k, asked.draft_cache_v


def _judged(subject: Subject, total: Budget, available: int) -> tuple[State, str, str]:
    asked = subject.asked
    if total.needed > available:
        fits = largest_context(subject.model, subject.vision, asked, available)
        reason = f"{total.needed - available:,} bytes lack; memory that runs out hangs a GB10"
        step = f"--ctx-size {fits}" if fits else "end other programs, or take smaller weights"
        return "fault", reason, step
    if asked.prompt_cache < 0 or total.needed + total.growth > available:
        grown = "; ".join(
            f"{part.name} {part.bytes:,} ({part.how})"
            for part in total.parts
            if part.kind == "growth"
        )
        reason = f"it starts, and while it serves it may take more than there is: {grown}"
        return "warning", reason, "--cache-ram 0 --ctx-checkpoints 4"
    return "ok", "", ""


def _reasons(total: Budget, reason: str) -> str:
    return "; ".join([*filter(None, [reason]), *total.doubts])
