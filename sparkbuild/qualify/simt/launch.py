"""Running a kernel on the CPU: arguments in, blocks in turn, buffers and coverage out."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

import numpy as np

from sparkbuild.qualify.ptx.calm import calm
from sparkbuild.qualify.ptx.model import Module
from sparkbuild.qualify.simt.barriers import Barriers
from sparkbuild.qualify.simt.build import Builder
from sparkbuild.qualify.simt.contract import Launch, Result
from sparkbuild.qualify.simt.loads import smallest_access
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.memory import Memory
from sparkbuild.qualify.simt.program import Program, flatten
from sparkbuild.qualify.simt.races import Races
from sparkbuild.qualify.simt.special import Shape
from sparkbuild.qualify.simt.symbols import Symbols
from sparkbuild.qualify.simt.watch import Watch

LIMIT_STEPS: Final = 1_000_000
"""Instructions, each for all lanes at once, after which a program counts as endless. The longest of
the probes takes 17,000; a million takes ten seconds."""

LANES: Final = 8192
"""Lanes that run together: enough that numpy's cost a call is small, few enough for the caches."""

OWN_BYTES: Final = 64 << 20
"""Shared and local memory of the blocks that run together."""


def execute(
    module: Module, launch: Launch, *, limit_steps: int = LIMIT_STEPS, watch: Watch | None = None
) -> Result:
    """Run the launch to its end; ``watch`` is told who wrote what it watches.

    Blocks run some at a time, in the order of their numbers. Raises DeviceFault where the program
    is wrong, UnsupportedError where the executor lacks something, ValueError where the launch does
    not fit the kernel.
    """
    with calm(), np.errstate(all="ignore"):
        return _execute(module, launch, limit_steps, watch)


def _execute(module: Module, launch: Launch, limit_steps: int, watch: Watch | None) -> Result:
    program = flatten(module, launch.entry)
    memory = Memory()
    symbols = Symbols(module, launch, memory)
    symbols.bind(program.frames[0])
    machine = Machine(program, memory, limit_steps)
    machine.watch = watch
    machine.barriers = barriers = Barriers(machine)
    machine.order = races = Races(machine, smallest_access(program))
    symbols.machine = machine
    builder = Builder(machine, symbols, barriers, races)
    machine.build = builder.block
    try:
        for shape in _shapes(launch, program):
            machine.start(shape)
            machine.run()
    finally:
        machine.close()
    steps = [program.code[place] for place in builder.executed()]
    kernel = program.frames[0]
    locations = {id(step.instruction.location): step.instruction.location for step in steps}
    return Result(
        buffers=symbols.results(),
        steps=machine.steps,
        lane_steps=machine.lane_steps,
        executed=frozenset(
            step.index
            for step in steps
            if step.frame is kernel and not step.skip and step.index >= 0
        ),
        locations=frozenset(each for each in locations.values() if each is not None),
    )


def _shapes(launch: Launch, program: Program) -> Iterator[Shape]:
    """The blocks of the grid, as many at a time as fit."""
    whole = Shape(launch.grid, launch.block, 0, 1, launch.shared)
    kernel = program.frames[0].function
    most = min(1024, prod(kernel.directives.get("maxntid", (1024,))))
    if not 1 <= whole.threads <= most:
        raise ValueError(f"{kernel.name} with {whole.threads} threads a block, of {most} at most")
    blocks = prod(launch.grid)
    own = launch.shared
    for frame in program.frames:
        for each in frame.function.variables:
            own += each.size * (1 if each.space == "shared" else whole.width)
    together = max(1, min(LANES // whole.width, OWN_BYTES // max(own, 1)))
    for first in range(0, blocks, together):
        count = min(together, blocks - first)
        yield Shape(launch.grid, launch.block, first, count, launch.shared)
