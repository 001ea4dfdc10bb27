"""Blocks of quantised values: bytes that reach every table entry, sign and scale, and their parts.

All bytes of a block are random; then its scales are set, so that every value is a number. Half of
the blocks have powers of two for scales: with small whole numbers on the other side every step of a
dot product is exact, and no other result than the very one is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import TensorType

Bytes = NDArray[np.uint8]
Reals = NDArray[np.float64]

HALF_ONE: Final = 0x3C00
"""1.0 in f16."""
_E8M0_ONE: Final = 128
"""The MXFP4 scale of 1.0: 2**(128 - 127), halved, as ggml keeps twice the values in its table."""
_UE4M3_ONE: Final = 0x40
"""The NVFP4 scale of 1.0: 2.0, halved for the same reason."""
_UE4M3_LAST: Final = 0x7E
"""The largest NVFP4 scale that is a number."""

_SCALES: Final = ("d", "m", "dmin")
"""Names that ggml gives to the f16 members that quants are multiplied with or that are added."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Blocks of one type, uint8 of shape (n, bytes)."""

    kind: TensorType
    data: Bytes

    def field(self, name: str) -> Bytes:
        """A view of a member's bytes, (n, its size). Raises KeyError where there is none."""
        found = self.kind.field(name)
        if found is None:
            raise KeyError(f"{self.kind.name} has no {name}")
        return self.data[:, found.offset : found.offset + found.size]

    def half(self, name: str) -> Reals:
        """An f16 member's values, (n,); zeros where there is no such member."""
        if self.kind.field(name) is None:
            return np.zeros(len(self.data))
        bits = np.ascontiguousarray(self.field(name)).view(np.float16)
        return bits[:, 0].astype(np.float64)

    def words(self, name: str) -> NDArray[np.int64]:
        """A member as little-endian 16-bit words, (n, size / 2)."""
        return np.ascontiguousarray(self.field(name)).view("<u2").astype(np.int64)

    def scales(self) -> Reals:
        """The scale of each block, (n,); of NVFP4 there are four, (n, 4)."""
        match self.kind.name:
            case "mxfp4":
                return np.ldexp(0.5, self.field("e")[:, 0].astype(np.int64) - 127)
            case "nvfp4":
                code = self.field("d").astype(np.int64)
                power, low = code >> 3 & 15, code & 7
                return np.where(power > 0, np.ldexp(1 + low / 8, power - 8), np.ldexp(low / 8, -7))
            case "iq1_m":
                return _spread_half(self.words("scales"))
            case _:
                return self.half("d")

    def unit(self) -> Blocks:
        """The same quants with a scale of one and nothing added."""
        data = self.data.copy()
        blocks = Blocks(self.kind, data)
        match self.kind.name:
            case "mxfp4":
                blocks.field("e")[:] = _E8M0_ONE
            case "nvfp4":
                blocks.field("d")[:] = _UE4M3_ONE
            case "iq1_m":
                _spread(blocks, np.full(len(data), HALF_ONE, np.uint16))
            case _:
                _set_half(blocks, "d", np.full(len(data), 1.0))
        for name in ("m", "dmin"):
            if self.kind.field(name) is not None:
                blocks.field(name)[:] = 0
        return blocks

    def offset(self) -> Blocks | None:
        """The same blocks with a scale of zero: what is added alone, at a scale of one."""
        name = next((name for name in ("m", "dmin") if self.kind.field(name) is not None), None)
        if name is None:
            return None
        blocks = Blocks(self.kind, self.data.copy())
        blocks.field("d")[:] = 0
        _set_half(blocks, name, np.full(len(self.data), 1.0))
        return blocks


@dataclass(frozen=True, slots=True, eq=False)
class Partner:
    """Blocks of q8_1 against blocks of x: ``d`` and ``s`` (n, chunks), ``q`` (n, elements)."""

    d: Reals
    s: Reals
    q: Reals

    def data(self) -> NDArray[np.uint8]:
        """As ``block_q8_1`` lies in memory: d and s in f16, then 32 signed bytes."""
        count, chunks = self.d.shape
        out = np.empty((count, chunks, 36), np.uint8)
        for at, values in ((0, self.d), (2, self.s)):
            halves = values.astype("<f2").reshape(count, chunks, 1)
            out[:, :, at : at + 2] = halves.view(np.uint8)
        out[:, :, 4:] = self.q.astype(np.int8).view(np.uint8).reshape(count, chunks, 32)
        return out.reshape(count, -1)


def random_blocks(
    kind: TensorType, count: int, rng: np.random.Generator, *, mantissa: int = 10, wild: bool = True
) -> Blocks:
    """Blocks whose bytes are random; the first half have powers of two for scales.

    ``mantissa`` is how many bits of the other half's scales may be set below the first. ``wild``
    puts zero and the ends of f16 among the scales.
    """
    data = rng.integers(0, 256, (count, kind.size), np.uint8)
    blocks = Blocks(kind, data)
    _every_index(blocks, rng)
    plain = count // 2
    if kind.name == "mxfp4":
        blocks.field("e")[:] = rng.integers(112, 140, (count, 1), np.uint8)
        blocks.field("e")[:plain] = rng.integers(127, 130, (plain, 1), np.uint8)
    elif kind.name == "nvfp4":
        scales = blocks.field("d")
        scales[:] = rng.integers(1, _UE4M3_LAST + 1, scales.shape, np.uint8)
        scales[:plain] = rng.integers(6, 9, scales[:plain].shape, np.uint8) << 3
    elif kind.name == "iq1_m":
        _spread(blocks, _halves(count, plain, rng, mantissa, wild=wild).view(np.uint16))
    else:
        for name in _SCALES:
            member = kind.field(name)
            if member is not None and member.type == "ggml_half":
                _set_half(blocks, name, _halves(count, plain, rng, mantissa, wild=wild))
    return blocks


def bounded_blocks(
    kind: TensorType, count: int, rng: np.random.Generator, references: References
) -> Blocks:
    """Blocks of a type that nobody described here: random, less those that hold no numbers."""
    kept: list[Bytes] = []
    found = 0
    while found < count:
        data = random_blocks(kind, 4 * count, rng).data
        with np.errstate(all="ignore"):
            size = np.abs(references.values(kind.name, data)).max(1)
        good = data[np.isfinite(size) & (size < 2.0**40) & (size > 2.0**-40)]
        if not len(good):
            raise KeyError(f"random bytes of {kind.name} never stand for numbers")
        kept.append(good)
        found += len(good)
    return Blocks(kind, np.concatenate(kept)[:count])


def random_partner(kind: TensorType, count: int, rng: np.random.Generator) -> Partner:
    """q8_1 against ``count`` blocks; for the first half, powers of two and small numbers.

    The sum that a block carries has nothing to do with its quants: a kernel that uses the wrong one
    is seen.
    """
    plain = count // 2
    q = rng.integers(-128, 128, (count, kind.elements))
    q[:plain] = rng.integers(-7, 8, q[:plain].shape)
    d, s = (
        np.stack([random_halves(count, rng) for _ in range(kind.elements // 32)], 1) for _ in "ds"
    )
    return Partner(d.astype(np.float64), s.astype(np.float64), q.astype(np.float64))


def random_halves(
    count: int, rng: np.random.Generator, *, mantissa: int = 10, wild: bool = False
) -> NDArray[np.float16]:
    """f16 of either sign between 2**-8 and 2**3; the first half are powers of two."""
    return _halves(count, count // 2, rng, mantissa, wild=wild)


def _halves(
    count: int, plain: int, rng: np.random.Generator, mantissa: int, *, wild: bool
) -> NDArray[np.float16]:
    low = rng.integers(0, 1 << mantissa, count) / (1 << mantissa)
    low[:plain] = 0
    values = np.ldexp(1 + low, rng.integers(-8, 3, count)) * rng.choice([-1.0, 1.0], count)
    if wild:
        ends = [0.0, 65504.0, -65504.0, 2.0**-24, -(2.0**-14), 2.0**-15 - 2.0**-24]
        at = rng.choice(np.arange(plain, count), min(len(ends), count - plain), replace=False)
        values[at] = ends[: len(at)]
    return np.asarray(values, np.float16)


def _set_half(blocks: Blocks, name: str, values: NDArray[np.floating]) -> None:
    blocks.field(name)[:] = values.astype("<f2").view(np.uint8).reshape(len(values), 2)


def _spread(blocks: Blocks, bits: NDArray[np.uint16]) -> None:
    """Put an f16 where IQ1_M keeps it: four bits at the top of each word of the scales."""
    view = blocks.field("scales")
    for word in range(4):
        part = (bits >> np.uint16(4 * word) & np.uint16(15)).astype(np.uint8) << 4
        view[:, 2 * word + 1] = view[:, 2 * word + 1] & 15 | part


def _spread_half(words: NDArray[np.int64]) -> Reals:
    bits = sum((words[:, word] >> 12 & 15) << (4 * word) for word in range(4))
    return np.asarray(bits).astype("<u2").view(np.float16).astype(np.float64)


def _every_index(blocks: Blocks, rng: np.random.Generator) -> None:
    """Where a table's index is put together from two members, go through all of it.

    Random bytes leave out some of a table of 2,048 entries; a wrong high bit shows only there.
    """
    count = len(blocks.data)

    def indices(lookups: int, table: int) -> NDArray[np.int64]:
        repeated = np.arange(count * lookups) % table
        return rng.permutation(repeated).reshape(count, lookups)

    match blocks.kind.name:
        case "iq1_s":
            index = indices(32, 2048)
            blocks.field("qs")[:] = index & 255
            high = (index >> 8).reshape(count, 8, 4) << np.arange(0, 12, 3)
            words = high.sum(2) | blocks.words("qh") & 0xF000
            blocks.field("qh")[:] = words.astype("<u2").view(np.uint8).reshape(count, 16)
        case "iq1_m":
            index = indices(32, 2048)
            blocks.field("qs")[:] = index & 255
            high = ((index >> 8).reshape(count, 16, 2) << np.array([0, 4])).sum(2)
            blocks.field("qh")[:] = high | blocks.field("qh") & 0x88
        case "iq2_xs":
            words = blocks.words("qs") & 0xFE00 | indices(32, 512)
            blocks.field("qs")[:] = words.astype("<u2").view(np.uint8).reshape(count, 64)
        case "iq2_s":
            index = indices(32, 1024)
            blocks.field("qs")[:, :32] = index & 255
            blocks.field("qh")[:] = ((index >> 8).reshape(count, 8, 4) << np.arange(0, 8, 2)).sum(2)
        case "iq3_s":
            index = indices(64, 512)
            blocks.field("qs")[:] = index & 255
            blocks.field("qh")[:] = ((index >> 8).reshape(count, 8, 8) << np.arange(8)).sum(2)
        case _:
            return
