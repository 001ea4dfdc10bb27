"""What a derived file holds against its master: types, metadata, and the error of each type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.canary.gguf.layout import Layout, layout
from sparkbuild.canary.gguf.typemap import PLAIN, TypeMap
from sparkbuild.canary.gguf.weights import nmse, weights
from sparkbuild.errors import CanaryError

MARGIN: Final = 1.05
"""Times the recorded error of a type. Compilers contract and order sums differently, which moves
the choice between two nearly equal scales of a block: below a per mille of a tensor's error. A
wrong block is wrong by its own size, hundreds of times its quantisation error."""
_MAY_CHANGE: Final = ("general.file_type", "general.quantization_version", "quantize.imatrix.")
"""Metadata that llama-quantize writes itself."""


class Content(msgspec.Struct, frozen=True):
    """Tensors by type, and the greatest NMSE of one of them against the master, by type.

    Tensors that are the master's own bytes are in neither.
    """

    types: dict[str, int]
    errors: dict[str, float]


def measure(master: Path, derived: Path, *, form: str, wanted: TypeMap | None) -> Content:
    """Compare a derived file with its master, tensor by tensor, with numpy.

    ``wanted`` names the types of the form ``mix``; any other form turns whatever the quantiser
    turns into its own type. Raises CanaryError where a type, a shape or metadata differ from that.
    """
    old, new = layout(master), layout(derived)
    problems = _metadata(old, new)
    types: dict[str, int] = {}
    errors: dict[str, float] = {}
    problems += [f"{name}: missing" for name in sorted(old.tensors.keys() - new.tensors.keys())]
    problems += [f"{name}: unknown" for name in sorted(new.tensors.keys() - old.tensors.keys())]
    for name in sorted(old.tensors.keys() & new.tensors.keys()):
        before, after = old.tensors[name], new.tensors[name]
        expected = _expected(name, before.type, form, wanted)
        if (after.shape, after.type) != (before.shape, expected):
            problems.append(
                f"{name}: expected {expected} {before.shape}, found {after.type} {after.shape}"
            )
            continue
        values, reference = weights(new, after), weights(old, before)
        if after.type == before.type:
            if values.tobytes() != reference.tobytes():
                problems.append(f"{name}: differs from the master, whose type it has")
            continue
        types[after.type] = types.get(after.type, 0) + 1
        errors[after.type] = max(errors.get(after.type, 0.0), nmse(values, reference))
    if problems:
        raise CanaryError(
            f"{derived.name} is not the form {form} of {master.name}",
            problems=problems,
            evidence=[derived],
            next_step="do not use this build's llama-quantize",
        )
    return Content(types=types, errors=errors)


def check(content: Content, recorded: Mapping[str, float]) -> list[str]:
    """Where errors exceed the recorded ones by more than the margin; NaN does too."""
    problems = []
    for kind, error in content.errors.items():
        if kind not in recorded:
            problems.append(f"{kind}: NMSE {error:.3g}, nothing is recorded for the type")
        elif not error <= recorded[kind] * MARGIN:
            problems.append(
                f"{kind}: NMSE {error:.6g} against the master, expected at most {MARGIN} times "
                f"{recorded[kind]:.6g}"
            )
    return problems


def _expected(name: str, before: str, form: str, wanted: TypeMap | None) -> str:
    if form == "f32":
        return "f32"
    # What the master holds as it is, llama-quantize did not quantise, and never does.
    if before in PLAIN:
        return before
    return wanted.of(name) if wanted else form


def _metadata(old: Layout, new: Layout) -> list[str]:
    problems = []
    for key in sorted(old.fields.keys() | new.fields.keys()):
        if key.startswith(_MAY_CHANGE):
            continue
        before = old.fields[key].value if key in old.fields else "nothing"
        after = new.fields[key].value if key in new.fields else "nothing"
        if before != after:
            problems.append(f"{key}: expected {before!r:.80}, found {after!r:.80}")
    return problems
