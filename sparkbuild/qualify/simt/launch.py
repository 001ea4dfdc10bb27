"""Running a kernel on the CPU: arguments in, blocks in turn, buffers and coverage out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from sparkbuild.qualify.ptx.model import Module
from sparkbuild.qualify.simt.barriers import Barriers
from sparkbuild.qualify.simt.build import Builder
from sparkbuild.qualify.simt.contract import Launch, Result
from sparkbuild.qualify.simt.loads import smallest_access
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.memory import Memory
from sparkbuild.qualify.simt.program import flatten
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.special import Shape
from sparkbuild.qualify.simt.symbols import Symbols

LIMIT_STEPS: Final = 4_000_000
"""Instructions, each for all lanes at once, after which a program counts as endless."""

LANES: Final = 8192
"""Lanes that run together: enough that numpy's cost a call is small, few enough for the caches."""


def execute(module: Module, launch: Launch, *, limit_steps: int = LIMIT_STEPS) -> Result:
    """Run the launch to its end.

    Blocks run some at a time, in the order of their numbers. Raises DeviceFault where the program
    is wrong, UnsupportedError where the executor lacks something, ValueError where the launch does
    not fit the kernel.
    """
    program = flatten(module, launch.entry)
    memory = Memory()
    symbols = Symbols(module, launch, memory)
    symbols.bind(program.frames[0])
    machine = Machine(program, memory, limit_steps)
    machine.barriers = barriers = Barriers(machine)
    machine.order = races = Races(machine, smallest_access(program))
    symbols.machine = machine
    builder = Builder(machine, symbols, barriers, races)
    machine.build = builder.block
    with np.errstate(all="ignore"):
        for shape in _shapes(launch):
            machine.start(shape)
            machine.run()
    executed = builder.executed()
    steps = [program.code[place] for place in executed]
    return Result(
        buffers=symbols.results(),
        steps=machine.steps,
        lane_steps=machine.lane_steps,
        executed=frozenset(
            step.index for step in steps if step.frame is program.frames[0] and not step.skip
        ),
        locations=frozenset(
            step.instruction.location for step in steps if step.instruction.location is not None
        ),
    )


def _shapes(launch: Launch) -> Iterator[Shape]:
    whole = Shape(launch.grid, launch.block, 0, 1, launch.shared)
    if whole.threads < 1 or whole.threads > 1024:
        raise ValueError(f"a block of {whole.threads} threads")
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    together = max(1, LANES // whole.width)
    for first in range(0, blocks, together):
        yield Shape(launch.grid, launch.block, first, min(together, blocks - first), launch.shared)
