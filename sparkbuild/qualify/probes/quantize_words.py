"""The words that the quantisers write: scales, sums and quants as blocks lie in memory."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes.inputs import Reals
from sparkbuild.qualify.probes.quantize_values import (
    NEAR,
    SUM_NEAR,
    Flags,
    Quants,
    Words,
    pack_bytes,
    pack_halves,
    to_half,
    to_int8,
)

_FLOAT_STEPS: Final = 1.0 + NEAR * 2**23
"""``NEAR`` in steps of f32."""

Packed = tuple[Words, Flags, NDArray[np.float64]]
"""Words of 32 bits, whether each is judged, and its bound."""


def q8_1_words(x: Reals) -> tuple[Words, Flags]:
    """``block_q8_1``: scale and sum in f16, 32 quants."""
    quants, scale = to_int8(x, 32)
    head, head_sure = pack_halves(to_half(scale, scale * NEAR), _sums(x, 32))
    body, body_sure = pack_bytes(quants.values, quants.sure)
    shape = (*head.shape, 8)
    return (
        np.concatenate([head[..., None], body.reshape(shape)], -1),
        np.concatenate([head_sure[..., None], body_sure.reshape(shape)], -1),
    )


def mmq_words(x: Reals, layout: str) -> Packed:
    """``block_q8_1_mmq``: 16 bytes of scales and sums, 128 quants; (layers, rows, blocks, 36)."""
    quants, scale = to_int8(x, 64 if layout == "D2S6" else 32)
    shape = (*x.shape[:-1], -1)
    if layout == "D4":
        head = scale.astype(np.float32).view(np.uint32).reshape(*shape, 4)
        sure, bound = np.ones_like(head, bool), np.where(head > 0, _FLOAT_STEPS, 0.0)
    else:
        d = to_half(scale, scale * NEAR)
        if layout == "DS4":
            low, high = d, _sums(x, 32)
        else:
            s = _sums(x, 16)
            parts = [
                np.concatenate([one.reshape(*shape, 2), two.reshape(*shape, 8)[..., :6]], -1)
                for one, two in ((d.values, s.values), (d.sure, s.sure))
            ]
            low, high = (Quants(parts[0][..., at::2], parts[1][..., at::2]) for at in (0, 1))
        packed, known = pack_halves(low, high)
        head, sure = packed.reshape(*shape, 4), known.reshape(*shape, 4)
        bound = np.zeros(head.shape)
    return with_quants(head, sure, bound, quants)


def with_quants(head: Words, sure: Flags, bound: NDArray[np.float64], quants: Quants) -> Packed:
    """Blocks of 36 words: four of scales, and the quants' bytes."""
    body, body_sure = pack_bytes(quants.values, quants.sure)
    shape = (*head.shape[:-1], 32)
    return (
        np.concatenate([head, body.reshape(shape)], -1),
        np.concatenate([sure, body_sure.reshape(shape)], -1),
        np.concatenate([bound, np.zeros(shape)], -1),
    )


def _sums(x: Reals, group: int) -> Quants:
    grouped = x.reshape(*x.shape[:-1], -1, group)
    return to_half(grouped.sum(-1), SUM_NEAR * np.abs(grouped).sum(-1))
