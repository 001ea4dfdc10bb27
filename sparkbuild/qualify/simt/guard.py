"""Instructions under a predicate that only some lanes execute."""

from __future__ import annotations

import numpy as np

from sparkbuild.qualify.ptx.model import Guard
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.op import Op


def guarded(machine: Machine, op: Op, slot: int, guard: Guard) -> Op:
    """The operation for the lanes whose predicate lets them."""
    registers, negated = machine.registers, guard.negated
    hits: list[bool] = []

    def run() -> None:
        truth = registers[slot]
        if truth.size == 1:
            if bool(truth[0]) is negated:
                return
            hits[:] = (True,)
            (op.masked if machine.keep else op.full)()
            return
        mask = ~truth if negated else truth
        if machine.mask is not None:
            mask = mask & machine.mask
        count = int(np.count_nonzero(mask))
        if not count:
            return
        hits[:] = (True,)
        if count == machine.active:
            (op.masked if machine.keep else op.full)()
            return
        before = machine.mask, machine.here, machine.keep, machine.ids, machine.active
        machine.choose(mask, keep=True)
        op.masked()
        machine.mask, machine.here, machine.keep, machine.ids, machine.active = before

    return Op(op.pc, op.instruction, run, None, op.gate, hits=hits)
