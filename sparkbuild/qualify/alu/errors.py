"""How far a GPU's approximations may be from the exact value, as the PTX manual states it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Error:
    """A stated maximal error; where several figures are given, the largest of them applies.

    ``ulp`` counts units in the last place of the rounded result, ``relative`` is a share of the
    exact value, ``absolute`` stands as it is. ``where`` says for which inputs; ``section`` is the
    PTX manual's instruction.
    """

    section: str
    ulp: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0
    where: str = "all inputs"


# By opcode, modifier and type, ``.ftz`` left out: it changes the results, not the error.
APPROXIMATE: dict[str, Error] = {
    "rcp.approx.f32": Error("rcp", ulp=1),
    "div.approx.f32": Error("div", ulp=2, where="2^-126 <= |b| <= 2^126"),
    "div.full.f32": Error("div", ulp=2),
    "sqrt.approx.f32": Error("sqrt", relative=2.0**-23, where="positive finite inputs"),
    "rsqrt.approx.f32": Error("rsqrt", relative=2.0**-22.9, where="positive finite inputs"),
    "ex2.approx.f32": Error("ex2", ulp=2),
    "ex2.approx.f16": Error("ex2", relative=2.0**-9.9),
    "ex2.approx.f16x2": Error("ex2", relative=2.0**-9.9),
    "ex2.approx.bf16": Error("ex2", relative=2.0**-7),
    "ex2.approx.bf16x2": Error("ex2", relative=2.0**-7),
    "lg2.approx.f32": Error(
        "lg2",
        absolute=2.0**-22,
        relative=2.0**-22,
        where="absolute for inputs in (0.5, 2), relative for other positive finite inputs",
    ),
    "sin.approx.f32": Error("sin", absolute=2.0**-20.5, where="inputs in [-2 pi, 2 pi]"),
    "cos.approx.f32": Error("cos", absolute=2.0**-20.5, where="inputs in [-2 pi, 2 pi]"),
    "tanh.approx.f32": Error("tanh", relative=2.0**-11),
    "tanh.approx.f16": Error("tanh", absolute=2.0**-10.987),
    "tanh.approx.f16x2": Error("tanh", absolute=2.0**-10.987),
    "tanh.approx.bf16": Error("tanh", relative=2.0**-8),
    "tanh.approx.bf16x2": Error("tanh", relative=2.0**-8),
}
