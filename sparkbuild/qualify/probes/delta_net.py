"""The gated delta rule, with a gate for each head or for each key element: gated_delta_net.cu."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import template_entry
from sparkbuild.qualify.probes.launching import (
    fastdiv,
    floats,
    generator,
    ints,
    longs,
    output,
    powers,
    read,
    rough,
    untouched,
)
from sparkbuild.qualify.probes.model import Case, Probe
from sparkbuild.qualify.simt.contract import Launch

UNIT = "delta_net"
_HEADS, _SEQUENCES = 2, 2
_INPUTS = ("q", "k", "v", "gate", "beta", "state")
_BLOCKS = 2
"""Of four columns each: the others are not launched, and must stay as they were."""
_WHY = (
    "without gates, and where what is multiplied are powers of two, only sums and the last product "
    "are rounded, in a lane's order and then a warp's: one f32 for certain; else gates are "
    "ex2.approx (2 ulp) of a rounded exponent and each product and sum has its rounding"
)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """q, k: (sequences or 1, tokens, heads or fewer, size); v: the same with all heads.

    gate: (sequences, tokens, heads, size or 1); beta: without its last axis; state: (sequences,
    heads, column, row), both of ``size``.
    """

    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]
    gate: NDArray[Any]
    beta: NDArray[Any]
    state: NDArray[Any]

    @property
    def size(self) -> int:
        """Of a head."""
        return int(self.v.shape[-1])

    @property
    def tokens(self) -> int:
        """How many steps are made."""
        return int(self.v.shape[1])


def step(given: Inputs, state: Bounded, token: int, columns: int) -> tuple[Bounded, Bounded]:
    """One token: the state decays, learns what it predicted wrongly, and is read.

    Gives the attention, shape (sequences, heads, columns), and the new state's columns.
    """
    lanes = min(given.size, 32)
    repeat = (_SEQUENCES // given.q.shape[0], _HEADS // given.q.shape[2], 1)
    q, k = (exactly(np.tile(x[:, token], repeat)[:, :, None]) for x in (given.q, given.k))
    v, beta = given.v[:, token, :, :columns], exactly(given.beta[:, token]).spread()
    gate = bounded.exp(exactly(given.gate[:, token])).map(lambda a: a[:, :, None])

    def along(x: Bounded) -> Bounded:
        """The sum over rows: each lane's of every 32nd row, then the warp's."""
        shape = (*x.value.shape[:-1], given.size // lanes, lanes)
        return x.map(lambda a: np.moveaxis(a.reshape(shape), -2, -1)).summed().warp_sum(lanes)

    if given.gate.shape[-1] == 1:
        predicted = along(state * k) * gate[..., 0]
    else:
        predicted = along(gate * state * k)
    delta = (exactly(v) - predicted) * beta
    state = gate * state + k * delta.spread()
    scale = np.float32(1 / np.sqrt(np.float32(given.size)))
    return along(state * q).once(scale), state


def _launch(entry: str, given: Inputs, slots: int) -> Launch:
    size, tokens = given.size, given.tokens
    heads, sequences = given.q.shape[2], given.q.shape[0]
    attention = (_SEQUENCES, tokens, _HEADS, size)
    return Launch(
        entry=entry,
        grid=(_HEADS, _SEQUENCES, _BLOCKS),
        block=(min(size, 32), 4, 1),
        arguments=(
            *(
                read(name, getattr(given, name))
                for name in ("q", "k", "v", "gate", "beta", "state")
            ),
            output("attention", *attention),
            output("states", slots, _SEQUENCES, _HEADS, size, size),
            *longs(_HEADS, tokens, _SEQUENCES),
            *longs(size, size * heads, size * heads * tokens),
            *longs(size, size * _HEADS, size * _HEADS * tokens),
            *longs(1, _HEADS, _HEADS * tokens),
            fastdiv(heads),
            fastdiv(_SEQUENCES // sequences),
            *floats(1 / np.sqrt(np.float32(size))),
            *longs(size * size * _HEADS * _SEQUENCES),
            *ints(slots),
        ),
    )


def _case(label: str, entry: str, given: Inputs, slots: int) -> Case:
    size, columns = given.size, min(4 * _BLOCKS, given.size)
    nothing = float(untouched(np.float32))
    read_value = np.full((_SEQUENCES, given.tokens, _HEADS, size), nothing)
    kept_value = np.full((slots, _SEQUENCES, _HEADS, size, size), nothing)
    read_error, kept_error = np.zeros_like(read_value), np.zeros_like(kept_value)
    state = exactly(given.state[:, :, :columns])
    for token in range(given.tokens):
        seen, state = step(given, state, token, columns)
        read_value[:, token, :, :columns], read_error[:, token, :, :columns] = (
            seen.value,
            seen.error,
        )
        slot = given.tokens - 1 - token
        if slot < slots:
            kept_value[slot, :, :, :columns] = state.value
            kept_error[slot, :, :, :columns] = state.error
    right = {
        "attention": expected(Bounded(read_value, read_error), _WHY),
        "states": expected(Bounded(kept_value, kept_error), _WHY),
    }
    return Case(label=label, launch=_launch(entry, given, slots), expected=right)


def _inputs(rng: np.random.Generator, size: int, *, each: bool, exact: bool) -> Inputs:
    """Random ones, or powers of two without gates, for which no product is rounded."""
    tokens, gates = 3, size if each else 1
    shared, every = (1, tokens, 1, size), (_SEQUENCES, tokens, _HEADS)
    length = np.float32(1 / np.sqrt(size))
    return Inputs(
        q=powers(rng, *shared) if exact else rough(rng, *shared) * length,
        k=powers(rng, *shared) / np.float32(8) if exact else rough(rng, *shared) * length,
        v=rough(rng, *every, size),
        gate=np.zeros((*every, gates), np.float32) if exact else -np.abs(rough(rng, *every, gates)),
        beta=np.full(every, 0.25, np.float32) if exact else rng.random(every).astype(np.float32),
        state=rough(rng, _SEQUENCES, _HEADS, size, size),
    )


def _cases(seed: int, *, entry: str, size: int, each: bool, keep: bool) -> tuple[Case, ...]:
    slots, rng = 2 if keep else 1, generator(seed, entry)
    gates = "a gate for each element" if each else "a gate for each head"
    return tuple(
        _case(f"{gates}, {kind}", entry, _inputs(rng, size, each=each, exact=exact), slots)
        for kind, exact in (("powers of two", True), ("decaying", False))
    )


def probes() -> tuple[Probe, ...]:
    """Of heads of 128, as GLM-5.3-Flash has them, with and without snapshots, and of 16."""
    made = []
    for name, size, each, keep in (
        ("KDA 128", 128, True, False),
        ("KDA 128, snapshots", 128, True, True),
        ("GDN 128", 128, False, False),
        ("KDA 16", 16, True, False),
    ):
        entry = template_entry("gated_delta_net_cuda", size, each, keep)
        made.append(
            Probe(
                name=f"gated_delta_net {name}",
                unit=UNIT,
                entry=entry,
                kind="delta_net",
                functions=("gated_delta_net_cuda", "warp_reduce_sum", "fastmodulo", "fastdiv"),
                cases=partial(_cases, entry=entry, size=size, each=each, keep=keep),
            )
        )
    return tuple(made)
