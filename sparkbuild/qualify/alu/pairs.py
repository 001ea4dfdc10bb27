"""Two floats of 32 bits in one register: add, sub, mul, fma of ``.f32x2`` (Blackwell)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.floats import ROUNDINGS, canonical, single
from sparkbuild.qualify.alu.form import Form
from sparkbuild.qualify.alu.types import F32, TYPES, U64, parts
from sparkbuild.qualify.ptx.model import Instruction


def arithmetic(instruction: Instruction) -> LaneOp:
    """``add``, ``sub``, ``mul``, ``fma`` of both halves at once."""
    form = Form(instruction)
    fused = instruction.opcode == "fma"
    mode: Any = form.pick(*ROUNDINGS, default="" if fused else "rn")
    if not mode:
        form.refuse("no rounding")
    flush = form.flag("ftz")
    form.type("f32x2")
    count = 3 if fused else 2
    form.finish(count)
    readers = [form.bits(index, TYPES["b64"]).reader for index in range(count)]
    function = single(instruction.opcode, mode, flush=flush)

    def run(*bits: Bits) -> tuple[Bits, ...]:
        words = [read(value) for read, value in zip(readers, bits, strict=True)]
        lanes = max(word.size for word in words)
        words = [word if word.size == lanes else np.repeat(word, lanes) for word in words]
        return (canonical(function(*[parts(word, F32) for word in words])).view(U64),)

    return LaneOp(run)
