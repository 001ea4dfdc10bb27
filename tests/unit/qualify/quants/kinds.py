"""The tensor types that gguf knows, as the source reader gives them, and a source without text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparkbuild.qualify.probes.vec_dot_sums import HEADER
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import HEADERS, Field, SourceFacts, TensorType

_HALF, _BYTE, _WORD = ("ggml_half", 2), ("uint8_t", 1), ("uint16_t", 2)


def _kind(
    name: str, number: int, elements: int, ints: int, members: Sequence[tuple[str, int, int]]
) -> TensorType:
    fields, offset = [], 0
    for member, width, count in members:
        size = width * count
        scale = member in {"d", "m", "dmin"} and width == 2
        kind = _HALF[0] if scale else (_WORD[0] if width == 2 else _BYTE[0])
        fields.append(Field(member, kind, offset, size))
        offset += size
    enumerator = f"GGML_TYPE_{name.upper()}"
    return TensorType(name, enumerator, number, tuple(fields), offset, elements, ints)


_HALVES = [("d", 2, 1), ("dmin", 2, 1)]
KINDS = {
    kind.name: kind
    for kind in (
        _kind("q4_0", 2, 32, 4, [("d", 2, 1), ("qs", 1, 16)]),
        _kind("q4_1", 3, 32, 4, [("d", 2, 1), ("m", 2, 1), ("qs", 1, 16)]),
        _kind("q5_0", 6, 32, 4, [("d", 2, 1), ("qh", 1, 4), ("qs", 1, 16)]),
        _kind("q5_1", 7, 32, 4, [("d", 2, 1), ("m", 2, 1), ("qh", 1, 4), ("qs", 1, 16)]),
        _kind("q8_0", 8, 32, 8, [("d", 2, 1), ("qs", 1, 32)]),
        _kind("q2_K", 10, 256, 16, [("scales", 1, 16), ("qs", 1, 64), *_HALVES]),
        _kind("q3_K", 11, 256, 16,
              [("hmask", 1, 32), ("qs", 1, 64), ("scales", 1, 12), ("d", 2, 1)]),
        _kind("q4_K", 12, 256, 32, [*_HALVES, ("scales", 1, 12), ("qs", 1, 128)]),
        _kind("q5_K", 13, 256, 32, [*_HALVES, ("scales", 1, 12), ("qh", 1, 32), ("qs", 1, 128)]),
        _kind("q6_K", 14, 256, 32,
              [("ql", 1, 128), ("qh", 1, 64), ("scales", 1, 16), ("d", 2, 1)]),
        _kind("iq2_xxs", 16, 256, 16, [("d", 2, 1), ("qs", 2, 32)]),
        _kind("iq2_xs", 17, 256, 16, [("d", 2, 1), ("qs", 2, 32), ("scales", 1, 8)]),
        _kind("iq3_xxs", 18, 256, 16, [("d", 2, 1), ("qs", 1, 96)]),
        _kind("iq1_s", 19, 256, 8, [("d", 2, 1), ("qs", 1, 32), ("qh", 2, 8)]),
        _kind("iq4_nl", 20, 32, 4, [("d", 2, 1), ("qs", 1, 16)]),
        _kind("iq3_s", 21, 256, 16,
              [("d", 2, 1), ("qs", 1, 64), ("qh", 1, 8), ("signs", 1, 32), ("scales", 1, 4)]),
        _kind("iq2_s", 22, 256, 16,
              [("d", 2, 1), ("qs", 1, 64), ("qh", 1, 8), ("scales", 1, 8)]),
        _kind("iq4_xs", 23, 256, 32,
              [("d", 2, 1), ("scales_h", 2, 1), ("scales_l", 1, 4), ("qs", 1, 128)]),
        _kind("iq1_m", 29, 256, 8, [("qs", 1, 32), ("qh", 1, 16), ("scales", 1, 8)]),
        _kind("mxfp4", 39, 32, 4, [("e", 1, 1), ("qs", 1, 16)]),
        _kind("nvfp4", 40, 64, 8, [("d", 1, 4), ("qs", 1, 32)]),
    )
}  # fmt: skip
"""Sizes and members are the format's own; gguf's dequantisers read them."""

NUMPY = References()
"""gguf alone."""


def facts(**text: str) -> SourceFacts:
    """A source with these types; ``text`` by header, vecdotq.cuh's as ``vec_dot``."""
    headers = dict.fromkeys(HEADERS, "")
    headers[HEADER] = text.get("vec_dot", "")
    return SourceFacts(Path("nowhere"), headers, {}, KINDS)
