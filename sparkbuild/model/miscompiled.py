"""Tensor types that a CUDA compiler is known to break, against those that a model holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from sparkbuild.model.finding import Finding, State, listed, not_asked
from sparkbuild.model.read import Model

NAME: Final = "GPU compiler"
_STATES: Final[dict[str, State]] = {"refuse": "fault", "warn": "warning", "note": "note"}
_WORST: Final[tuple[State, ...]] = ("fault", "warning", "note", "ok")


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """A known defect that strikes a toolkit for the asked architectures."""

    id: str
    part: str
    version: str
    action: Literal["refuse", "warn", "note"]
    effect: str
    tensor_types: tuple[str, ...] = ()
    """Of models; empty where any kernel may be struck."""
    lifted: str = ""
    """Why it does no harm: the patch that works around it; empty where none does."""


class Compiler(msgspec.Struct, frozen=True, kw_only=True):
    """What GPU code is compiled with, who says so, and what is known against it."""

    told_by: str
    """``--toolkit 13.2.0``, or the file that names its compiler."""
    version: str
    """``nvcc 13.2.51``; ``not known`` of a build that does not say."""
    defects: tuple[Defect, ...] = ()


def miscompiled(model: Model, vision: Model | None, compiler: Compiler | None) -> Finding:
    """Whether any tensor's type is one that the compiler breaks; nothing to say without one."""
    if compiler is None:
        return not_asked(NAME)
    counts = Counter(
        tensor.type
        for each in (model, vision)
        if each is not None
        for tensor in each.tensors.values()
    )
    expected = f"no type that {compiler.version} breaks ({compiler.told_by})"
    struck = [(one, held) for one in compiler.defects if (held := _held(one, counts))]
    if not struck:
        told = listed(sorted(counts), most=40) or "no tensors"
        return Finding(
            name=NAME, state="ok", expected=expected, found=told, reason=_general(compiler)
        )
    states: list[State] = ["ok" if one.lifted else _STATES[one.action] for one, _ in struck]
    worst = min(states, key=_WORST.index)
    return Finding(
        name=NAME,
        state=worst,
        expected=expected,
        found=listed([held for _, held in struck]),
        reason="; ".join(_why(one) for one, _ in struck),
        next_step=_STEP if worst == "fault" else "",
    )


_STEP: Final = (
    "take a build of another toolkit, or of a variant that works around it (sparkbuild list), or a "
    "file in other types"
)


def _held(defect: Defect, counts: Counter[str]) -> str:
    """``412 iq2_s tensors``; empty where the model holds nothing that the defect strikes."""
    held = [f"{counts[kind]} {kind}" for kind in defect.tensor_types if counts[kind]]
    return f"{' and '.join(held)} tensors" if held else ""


def _why(defect: Defect) -> str:
    told = f"{defect.id}: {defect.part} {defect.version} {defect.effect}"
    return f"{told}; worked around: {defect.lifted}" if defect.lifted else told


def _general(compiler: Compiler) -> str:
    """What is known of the compiler whatever the tensors are."""
    return "; ".join(_any(compiler))


def _any(compiler: Compiler) -> Iterator[str]:
    for one in compiler.defects:
        if not one.tensor_types:
            yield f"reported of any kernel, and not met in llama.cpp: {one.id}"
