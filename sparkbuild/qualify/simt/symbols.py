"""What the names in a kernel stand for: parameters, variables of the module, local memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparkbuild.qualify.fault import UnsupportedError
from sparkbuild.qualify.ptx.model import Module, Variable
from sparkbuild.qualify.simt.contract import Argument, Buffer, Launch
from sparkbuild.qualify.simt.machine import Machine
from sparkbuild.qualify.simt.memory import WINDOWS, Memory, Region
from sparkbuild.qualify.simt.program import Frame, variable

DYNAMIC = "dynamic shared memory"
"""The one region behind every ``extern .shared`` array."""


class Symbols:
    """Regions by name, made when the name is first met."""

    def __init__(self, module: Module, launch: Launch, memory: Memory) -> None:
        self._module = module
        self._launch = launch
        self._memory = memory
        self._buffers: dict[int, tuple[Buffer, Region]] = {}
        self._regions: dict[tuple[int, str], Region] = {}
        self.machine: Machine | None = None

    def bind(self, kernel: Frame) -> None:
        """Make the kernel's parameters from the launch's arguments."""
        parameters = kernel.function.parameters
        arguments = self._launch.arguments
        if len(parameters) != len(arguments):
            raise ValueError(
                f"{kernel.function.name} takes {len(parameters)} arguments, not {len(arguments)}"
            )
        for number, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
            raw = bytearray(self._argument(argument))
            for (which, offset), buffer in self._launch.pointers.items():
                if which == number:
                    raw[offset : offset + 8] = self._pointer(buffer)
            if len(raw) != parameter.size:
                raise ValueError(
                    f"argument {number} of {kernel.function.name} has {len(raw)} bytes, "
                    f"its parameter {parameter.size}"
                )
            region = self._memory.add(parameter.name, "param", parameter.size, writable=False)
            region.fill(bytes(raw))
            self._regions[id(kernel), parameter.name] = region

    def results(self) -> Mapping[str, np.ndarray]:
        """What the writable buffers hold now."""
        return {
            buffer.name: region.raw[: region.size]
            .copy()
            .view(buffer.data.dtype)
            .reshape(buffer.data.shape)
            for buffer, region in self._buffers.values()
            if buffer.writable
        }

    def region(self, frame: Frame, name: str) -> Region:
        """What the name stands for in that copy of a function."""
        frame, name = frame.symbols.get(name, (frame, name))
        inside = self._regions.get((id(frame), name))
        if inside is not None:
            return inside
        own = variable(frame, name)
        if own is not None:
            region = self._per_instance(own)
            self._regions[id(frame), name] = region
            return region
        return self._of_module(name)

    def address(self, frame: Frame, name: str) -> int:
        """The address that ``mov`` gives: of the variable's own space."""
        return self.region(frame, name).base

    def _argument(self, argument: Argument) -> bytes:
        if isinstance(argument, Buffer):
            return self._pointer(argument)
        return argument if isinstance(argument, bytes) else argument.tobytes()

    def _pointer(self, buffer: Buffer) -> bytes:
        known = self._buffers.get(id(buffer))
        if known is None:
            data = np.ascontiguousarray(buffer.data)
            region = self._memory.add(buffer.name, "global", data.nbytes, writable=buffer.writable)
            region.fill(data.reshape(-1).view(np.uint8))
            known = self._buffers[id(buffer)] = (buffer, region)
        return (known[1].base + buffer.offset).to_bytes(8, "little")

    def _of_module(self, name: str) -> Region:
        known = self._regions.get((0, name))
        if known is not None:
            return known
        declared = self._module.variables.get(name)
        if declared is None:
            raise UnsupportedError(f"the name {name}, which the module does not declare")
        region = (
            self._per_instance(declared)
            if declared.space in WINDOWS
            else self._with_content(declared)
        )
        self._regions[0, name] = region
        return region

    def _with_content(self, declared: Variable) -> Region:
        region = self._memory.add(
            declared.name, declared.space, declared.size, writable=declared.space == "global"
        )
        self._regions[0, declared.name] = region
        raw = bytearray(self._launch.constants.get(declared.name, declared.data))
        if len(raw) > declared.size:
            raise ValueError(f"{declared.name} has {declared.size} bytes, not {len(raw)}")
        for offset, symbol, plus in declared.references:
            target = self._of_module(symbol)
            address = target.base + plus
            raw[offset : offset + 8] = address.to_bytes(8, "little")
        region.fill(bytes(raw))
        return region

    def _per_instance(self, declared: Variable) -> Region:
        """Shared memory, which a block has, or local memory and parameters of calls."""
        if declared.space == "shared" and declared.size == 0:
            region = self._regions.get((0, DYNAMIC))
            if region is not None:
                return region
            region = self._memory.add(DYNAMIC, "shared", self._launch.shared)
            self._regions[0, DYNAMIC] = region
        else:
            region = self._memory.add(declared.name, declared.space, declared.size)
        region.per = "block" if declared.space == "shared" else "lane"
        if self.machine is not None:
            self.machine.renew(region)
        return region
