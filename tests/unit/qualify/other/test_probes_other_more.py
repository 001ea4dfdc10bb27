"""Rules that are no single operation of ggml, against the plain definition."""

import math

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

from sparkbuild.qualify.probes import activations, attention, attention_mma, hyper, kv, matvec, moe
from sparkbuild.qualify.probes.attention_parts import combined
from sparkbuild.qualify.probes.bounded import Bounded, exactly
from sparkbuild.qualify.probes.launching import generator, rough

SEED = 3


def attended(q: NDArray[np.float64], k: NDArray[np.float64], v: NDArray[np.float64],
             bias: NDArray[np.float64], sink: float | None) -> NDArray[np.float64]:  # fmt: skip
    """One query, (size), over keys, (keys, size)."""
    logits = k @ q + bias
    top = max(logits.max(), -math.inf if sink is None else sink)
    weights = np.exp(logits - top)
    total = weights.sum() + (0.0 if sink is None else math.exp(sink - top))
    return np.asarray(weights @ v / total)


def near(found: Bounded, right: NDArray[np.float64], apart: float = 1e-6) -> None:
    off = np.abs(found.value - right)
    assert (off <= found.error + apart * np.abs(right).max()).all(), off.max()


@pytest.mark.parametrize("kernel", attention.KERNELS, ids=lambda kernel: kernel.name)
def test_attention_is_the_soft_maxs_average(kernel: attention.Kernel) -> None:
    given = attention.inputs(generator(SEED, kernel.name), kernel)
    values, total, _ = attention.attended(given, slice(0, kernel.limit), sinks=True)
    found = values / total.spread()
    q = whole = given.q.astype(np.float64) * 0.125
    if kernel.type != "f16":  # what the kernel makes of it
        q = np.asarray(given.quants * np.repeat(given.scales, 32, axis=-1).astype(np.float64))
        assert np.abs(q - whole).max() <= 0.5 * given.scales.max()
    right = np.zeros(found.value.shape)
    keys, shared = slice(0, kernel.limit), attention.HEADS // attention.SHARED
    for sequence, query, head in np.ndindex(*right.shape[:3]):
        slope = 2.0 ** (-given.max_bias / attention.HEADS * (head + 1)) if given.max_bias else 1.0
        bias = slope * given.mask[query, keys].astype(np.float64)
        if kernel.type == "q4_0":  # the eight that each quant of a key has too much is taken off
            off = (q - whole)[sequence, query, head].reshape(-1, 32).sum(-1)  # of q as it was
            bias += 8 * given.k.scales[sequence, head // shared, keys] @ off
        right[sequence, query, head] = attended(
            q[sequence, query, head],
            given.k.values[sequence, head // shared, keys].astype(np.float64),
            given.v.values[sequence, head // shared, keys].astype(np.float64),
            bias,
            None if given.sinks is None else float(given.sinks[head]),
        )
    near(found, right)


@pytest.mark.parametrize("kernel", attention_mma.KERNELS, ids=lambda kernel: kernel.name)
def test_attention_of_tensor_cores_is_the_soft_maxs_average(kernel: attention_mma.Kernel) -> None:
    given = attention_mma.inputs(generator(SEED, kernel.name), kernel)
    steps = -(-(kernel.selected or kernel.keys) // kernel.step)
    values, total, _ = attention_mma.attended(kernel, given, 0, steps)
    found = values / total.spread()
    right = np.zeros(found.value.shape)
    for query, head in np.ndindex(*right.shape[:2]):
        chosen = given.lists[query][given.lists[query] >= 0]
        keys = chosen if kernel.selected else np.arange(kernel.keys)
        right[query, head] = attended(
            given.q[query, head].astype(np.float64) * 0.125,
            given.k[keys].astype(np.float64),
            given.v[keys].astype(np.float64),
            given.mask[query, keys].astype(np.float64),
            None,
        )
    near(found, right, apart=2.0**-12)  # weights are f16, their sum is not


def test_parts_of_attention_put_together_are_the_whole() -> None:
    rng = generator(SEED, "parts")
    logits, v = rough(rng, 60, scale=3.0), rough(rng, 60, 8)
    parts, tops, sums = [], [], []
    for keys in (slice(0, 13), slice(13, 40), slice(40, 60)):
        top = logits[keys].max()
        weights = np.exp(logits[keys] - top)
        parts.append(weights @ v[keys])
        tops.append(top)
        sums.append(weights.sum())
    found = combined(*(exactly(np.array(x)) for x in (parts, tops, sums)))
    weights = np.exp(logits - logits.max())
    near(found, weights @ v / weights.sum())


@pytest.mark.parametrize("name", kv.QUANTS)
def test_values_of_the_cache_become_the_blocks_that_gguf_makes(name: str) -> None:
    values, blocks = kv.QUANTS[name](generator(SEED, name), 500)
    right = quants.quantize(values, GGMLQuantizationType[name.upper()])
    np.testing.assert_array_equal(blocks, right.reshape(blocks.shape))


def scores(gate: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
    match gate:
        case "sigmoid":
            return np.asarray(1 / (1 + np.exp(-x)))
        case "softplus":
            return np.asarray(np.sqrt(np.log1p(np.exp(x))))
        case "softmax":
            return np.asarray(np.exp(x - x.max()) / np.exp(x - x.max()).sum())
    return x


@pytest.mark.parametrize(
    "how",
    [
        moe.Routing("sigmoid", 8, biased=True, normed=True, scale=2.5, clamp=6.1e-5),
        moe.Routing("sigmoid", 3, normed=True, clamp=9.0),
        moe.Routing("softmax", 4, normed=True),
        moe.Routing("softplus", 3, biased=True, scale=1.5),
        moe.Routing("delayed", 6, scale=0.5, spread=400.0),
    ],
    ids=str,
)
def test_routing_chooses_the_best_and_weighs_them(how: moe.Routing) -> None:
    rng = generator(SEED, "routing")
    logits = rng.permuted(np.linspace(-how.spread, how.spread, 64)).astype(np.float32)[None]
    bias = rng.permuted(np.linspace(-0.3, 0.3, 64)).astype(np.float32) if how.biased else None
    weights, chosen = moe.routed(logits, bias, how)
    gates = scores(how.gate, logits[0].astype(np.float64))
    ranked = gates + (0 if bias is None else bias)
    best = sorted(range(64), key=lambda expert: -ranked[expert])[: how.used]
    assert chosen[0].tolist() == best
    right = gates[best]
    if how.gate == "delayed":
        right = scores("softmax", right)
    if how.normed:
        right = right / max(right.sum(), how.clamp)
    near(weights, right[None] * how.scale)


def test_routing_refuses_experts_that_roundings_could_exchange() -> None:
    logits = np.array([[1.0, 1.0 + 1e-7, 0.0]], np.float32)
    with pytest.raises(ValueError, match="near"):
        moe.routed(logits, None, moe.Routing("sigmoid", 1))


def test_a_product_with_a_vector_is_that() -> None:
    rng = generator(SEED, "product")
    x, y = rough(rng, 5, 300), rough(rng, 300)
    near(matvec.product(exactly(x), exactly(y), 64), x.astype(np.float64) @ y.astype(np.float64))


def test_gelu_is_its_approximation_by_tanh() -> None:
    x = np.linspace(-4, 4, 200).astype(np.float32)
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    found = activations.gelu(exactly(x))
    assert np.abs(found.value - 0.5 * wide * (1 + np.tanh(inner))).max() < 1e-6


@pytest.mark.parametrize("axis", [1, 2])
def test_relative_errors_go_through_a_normalisation_by_its_derivative(axis: int) -> None:
    rng = generator(SEED, "normalised")
    matrix = rng.uniform(0.1, 1, (3, 4, 4))
    apart = rng.uniform(-1, 1, matrix.shape) * 1e-6
    found, step = hyper.normalised(matrix, axis)
    moved = hyper.normalised(matrix * (1 + apart), axis)[0] / found - 1
    foretold = (step @ apart.reshape(3, 16, 1)).reshape(moved.shape)
    assert np.abs(moved - foretold).max() < 1e-11
    np.testing.assert_allclose(found.sum(axis), 1, rtol=1e-5)
