"""Activations and gates, with clamps hit and not hit: unary.cu, softcap.cu."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.probes import bounded
from sparkbuild.qualify.probes.bounded import Bounded, exactly, expected
from sparkbuild.qualify.probes.entries import (
    BFLOAT16,
    FLOAT,
    HALF,
    Type,
    template_entry,
)
from sparkbuild.qualify.probes.launching import (
    bfloat16,
    floats,
    generator,
    ints,
    longs,
    output,
    read,
    rough,
)
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.simt.contract import Launch

UNIT = "activations"
_BLOCK = 256
_WHY = (
    "ex2.approx 2 ulp of a rounded exponent, lg2.approx 2^-22, div.approx 2 ulp, tanh.approx "
    "2^-11, one rounding for each sum and product, one to the type that is stored"
)
_LIBRARY = 2.0**-22
"""erff and expm1f, which no flag approximates: 2 ulp (CUDA's own table of maximum errors)."""
_SPECIAL: Final = (0.0, 1.0, -1.0, 2.5, -2.5, 0.5, -0.5, 19.75, 20.25, 40.0, -40.0, -100.0)
"""Ties of rounding, either side of softplus's 20, and where exponentials end."""


def sigmoid(x: Bounded) -> Bounded:
    """1 / (1 + exp(-x))."""
    return bounded.reciprocal(bounded.exp(-x) + 1.0)


def silu(x: Bounded) -> Bounded:
    """X times its sigmoid."""
    return x / (bounded.exp(-x) + 1.0)


def gelu(x: Bounded) -> Bounded:
    """The approximation by tanh, ``GELU_COEF_A`` 0.044715."""
    inner = x * np.float32(0.79788456) * (x * np.float32(0.044715) * x + 1.0)
    return x * 0.5 * (bounded.tanh(inner) + 1.0)


def _gelu_erf(x: Bounded) -> Bounded:
    inner = x * np.float32(math.sqrt(0.5))
    value = np.vectorize(math.erf)(inner.value)
    erf = Bounded(value, inner.error * 2 / math.sqrt(math.pi) + np.abs(value) * _LIBRARY)
    return x * 0.5 * (erf + 1.0)


def _expm1(x: Bounded) -> Bounded:
    value = np.expm1(x.value)
    return Bounded(value, np.abs(value) * _LIBRARY)


def softplus(x: Bounded) -> Bounded:
    """log(1 + exp(x)), and x itself beyond 20."""
    safe = bounded.where(x.value > 20, exactly(np.zeros_like(x.value)), x)
    return bounded.where(x.value > 20, x, bounded.log(bounded.exp(safe) + 1.0))


def _round(x: Bounded) -> Bounded:
    return exactly(np.copysign(np.floor(np.abs(x.value) + 0.5), x.value))


def _hardswish(x: Bounded) -> Bounded:
    return x * bounded.least(1.0, bounded.largest(0.0, (x + 3.0) / 6.0))


def _relu(x: Bounded) -> Bounded:
    return bounded.largest(x, 0.0)


UNARY: Final[dict[str, Callable[[Bounded], Bounded]]] = {
    "sigmoid": sigmoid,
    "softplus": softplus,
    "exp": bounded.exp,
    "gelu": gelu,
    "gelu_erf": _gelu_erf,
    "tanh": bounded.tanh,
    "expm1": _expm1,
    "round": _round,
    "sgn": lambda x: exactly(np.sign(x.value)),
    "hardswish": _hardswish,
}
_DTYPES: Final[dict[str, type[Any]]] = {"f": np.float32, "6__half": np.float16}


def stored(values: NDArray[np.float32], kind: Type) -> NDArray[Any]:
    """Values as an array of a kernel's type, bf16 as its bits."""
    return bfloat16(values) if kind == BFLOAT16 else values.astype(_DTYPES[kind.mangled])


def loaded(values: NDArray[Any], kind: Type) -> Bounded:
    """What the kernel has in f32 of them."""
    if kind == BFLOAT16:
        return exactly((values.astype(np.uint32) << 16).view(np.float32))
    return exactly(values)


def right(found: Bounded, kind: Type, why: str = _WHY) -> Expected:
    """What an output of that type must hold."""
    return (
        bounded.expected_bfloat16(found, why)
        if kind == BFLOAT16
        else expected(found, why, _DTYPES[kind.mangled])
    )


def _values(seed: int, name: str, *shape: int) -> NDArray[np.float32]:
    """Random values of which the first are special ones."""
    values = rough(generator(seed, name), *shape, scale=3.0)
    values.flat[: len(_SPECIAL)] = _SPECIAL
    return values


def _unary(
    seed: int, *, name: str, entry: str, kind: Type, rule: Callable[[Bounded], Bounded]
) -> tuple[Case, ...]:
    x = stored(_values(seed, name, 300), kind)
    if name == "exp":
        x = np.minimum(x, 80)
    launch = Launch(
        entry=entry,
        grid=(2, 1, 1),
        block=(_BLOCK, 1, 1),
        arguments=(read("x", x), output("dst", 300, dtype=x.dtype), *ints(300)),
    )
    found = {"dst": right(rule(loaded(x, kind)), kind)}
    return (Case(label="300 values", launch=launch, expected=found),)


def _gated(
    seed: int,
    *,
    name: str,
    entry: str,
    kind: Type,
    rule: Callable[..., Bounded],
    more: tuple[float, ...],
) -> tuple[Case, ...]:
    """Gates apart from values in rows of another length, and both in one row."""
    rows, columns = 4, 75
    x = stored(_values(seed, f"{name} x", rows, columns + 5), kind)
    g = stored(_values(seed, f"{name} g", rows, columns + 2), kind)
    both = stored(_values(seed, f"{name} both", rows, 2 * columns), kind)
    given = {
        "in rows of their own": (
            (read("x", x), read("g", g), columns + 5, columns + 2),
            (x[:, :columns], g[:, :columns]),
        ),
        "in one row": (
            (
                read("x", both, columns * both.itemsize),
                read("g", both),
                2 * columns,
                2 * columns,
            ),
            (both[:, columns:], both[:, :columns]),
        ),
    }
    cases = []
    for label, ((one, two, first, second), (values, gates)) in given.items():
        launch = Launch(
            entry=entry,
            grid=(2, 1, 1),
            block=(_BLOCK, 1, 1),
            arguments=(
                one,
                two,
                output("dst", rows, columns, dtype=x.dtype),
                *longs(rows * columns, columns, first, second),
                *floats(*more),
            ),
        )
        found = right(rule(loaded(values, kind), loaded(gates, kind)), kind)
        cases.append(Case(label=label, launch=launch, expected={"dst": found}))
    return tuple(cases)


def _times(rule: Callable[[Bounded], Bounded]) -> Callable[[Bounded, Bounded], Bounded]:
    return lambda x, g: rule(x) * g


_ALPHA, _LIMIT = 1.702, 2.75


def clamped(gate: Bounded, up: Bounded, limit: float = _LIMIT) -> Bounded:
    """SwiGLU whose gate is limited from above and whose other factor from both sides."""
    return silu(bounded.least(gate, limit)) * bounded.largest(bounded.least(up, limit), -limit)


def oai(x: Bounded, g: Bounded, limit: float = _LIMIT) -> Bounded:
    """SwiGLU of gpt-oss: both limited, the gate's slope 1.702, one added to the other factor."""
    x, g = bounded.least(x, limit), bounded.largest(bounded.least(g, limit), -limit)
    return x / (bounded.exp(-x * np.float32(_ALPHA)) + 1.0) * (g + 1.0)


def _softcap(seed: int) -> tuple[Case, ...]:
    x, scale, cap = _values(seed, "softcap", 300), 0.3, 30.0
    launch = Launch(
        entry=template_entry("softcap_f32"),
        grid=(2, 1, 1),
        block=(_BLOCK, 1, 1),
        arguments=(read("x", x), output("dst", 300), *floats(scale, cap), *ints(300)),
    )
    found = expected(bounded.tanh(exactly(x) * np.float32(scale)) * np.float32(cap), _WHY)
    return (Case(label="300 values", launch=launch, expected={"dst": found}),)


def _of_float(name: str) -> Type:
    """A function of one float as a template argument."""
    return Type(f"XadL*{len(name)}{name}*fEE")


def _probe(name: str, function: str, entry: str, cases: Callable[[int], tuple[Case, ...]]) -> Probe:
    return Probe(
        name=name,
        unit=UNIT,
        entry=entry,
        kind="activation",
        functions=(function, name.split(maxsplit=1)[0]),
        cases=cases,
    )


_GATED: Final = (
    ("op_silu", FLOAT, silu),
    ("op_silu", HALF, silu),
    ("op_gelu", FLOAT, gelu),
    ("op_sigmoid", FLOAT, sigmoid),
    ("op_relu", BFLOAT16, _relu),
)


def probes() -> tuple[Probe, ...]:
    """Of single and gated activations in f32, and some in f16 and bf16."""
    made = []
    unary = [(f"op_{name}", FLOAT, rule) for name, rule in UNARY.items()]
    for op, kind, rule in (*unary, ("op_silu", HALF, silu), ("op_silu", BFLOAT16, silu)):
        entry = template_entry("unary_op_kernel", _of_float(op), kind)
        name = f"{op} {kind.mangled.lstrip('0123456789_')}"
        cases = partial(_unary, name=op[3:], entry=entry, kind=kind, rule=rule)
        made.append(_probe(name, "unary_op_kernel", entry, cases))
    for op, kind, rule in _GATED:
        entry = template_entry("unary_gated_op_kernel", _of_float(op), kind)
        name = f"{op} gated {kind.mangled.lstrip('0123456789_')}"
        gate = partial(_gated, name=op[3:], entry=entry, kind=kind, rule=_times(rule), more=())
        made.append(_probe(name, "unary_gated_op_kernel", entry, gate))
    for name, kind, pair, more in (
        ("swiglu_oai", FLOAT, oai, (_ALPHA, _LIMIT)),
        ("swiglu_clamp", FLOAT, clamped, (_LIMIT,)),
        ("swiglu_clamp", HALF, clamped, (_LIMIT,)),
    ):
        entry = template_entry(f"{name}_kernel", kind)
        gate = partial(_gated, name=name, entry=entry, kind=kind, rule=pair, more=more)
        full = f"{name} {kind.mangled.lstrip('0123456789_')}"
        made.append(_probe(full, f"ggml_cuda_op_{name}_single", entry, gate))
    softcap = template_entry("softcap_f32")
    return (*made, _probe("softcap_f32", "softcap_f32", softcap, _softcap))
