"""Which tensor gets which type: maps beside this module, and what llama-quantize knows at all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.canary.gguf.layout import TYPES, Layout
from sparkbuild.errors import ManifestError
from sparkbuild.files import sha256_file
from sparkbuild.manifest import Name, Table, load

MIX: Final = Path(__file__).with_name("mix.toml")
PLAIN: Final = frozenset({"f32", "f16", "bf16"})
_NOT_FOR_FILES: Final = frozenset({"q8_1", "q8_k", "f64", "i8", "i16", "i32", "i64", "count"})
"""ggml's types for activations, numbers that are no weights, and the count of all."""
NEEDS_IMATRIX: Final = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs"})
"""What llama-quantize refuses to make without importance (llama-quant.cpp,
``tensor_requires_imatrix``)."""
_ENUM: Final = re.compile(r"^\s*GGML_TYPE_(?P<name>\w+)\s*=\s*\d+\s*,", re.MULTILINE)


class TypeMap(Table, frozen=True):
    """``mix.toml``: types by tensor name; whatever is not named and can change gets ``default``."""

    schema: Literal[1]
    architecture: Name
    default: str
    tensors: Annotated[dict[str, str], msgspec.Meta(min_length=1)]

    def of(self, name: str) -> str:
        """The type of a tensor that can be quantised."""
        return self.tensors.get(name, self.default)


def load_map(path: Path = MIX) -> TypeMap:
    """A map of types. Raises ManifestError, also for types that are not known here."""
    found = load(path, TypeMap)
    for name, kind in [("default", found.default), *found.tensors.items()]:
        if kind not in TYPES:
            raise ManifestError(
                f"{path}: `{name}` has the unknown type {kind!r}",
                evidence=[path],
                next_step=f"known are {', '.join(TYPES)}",
            )
    return found


def map_digest(path: Path = MIX) -> str:
    """SHA-256 of a map's file."""
    return sha256_file(path)


def quantised_types(header: Path) -> frozenset[str]:
    """The quantised types of a llama.cpp tree, from its ``ggml/include/ggml.h``."""
    names = {match["name"].lower() for match in _ENUM.finditer(header.read_text("utf-8"))}
    return frozenset(names - PLAIN - _NOT_FOR_FILES)


def is_expert(name: str) -> bool:
    """Whether a matrix is one of many of which each token takes a few (MUL_MAT_ID)."""
    return name.endswith("_exps.weight")


def missing_types(found: Layout, wanted: frozenset[str]) -> list[str]:
    """What a file's matrices lack of ``wanted``, dense ones and experts each for themselves."""
    problems = []
    for kind, expert in (("dense matrix", False), ("expert matrix", True)):
        # The embedding is looked up, not multiplied.
        here = {
            tensor.type
            for tensor in found.tensors.values()
            if is_expert(tensor.name) == expert and tensor.name != "token_embd.weight"
        }
        problems += [f"no {kind} is {name}" for name in sorted(wanted - here)]
    return problems
