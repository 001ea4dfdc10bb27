"""A launch on a GPU as the executor has it: the same buffers in, the same buffers out.

Each buffer is an allocation of its own between two guard zones, whose pattern is NaN in every
floating-point type: what is read there shows in a result, what is written there is found after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.qualify.fault import DeviceFault, UnsupportedError
from sparkbuild.qualify.gpu.driver import FAULTS, Driver, DriverError
from sparkbuild.qualify.ptx.model import Function, Module, Variable
from sparkbuild.qualify.simt.contract import Buffer, Launch, Result
from sparkbuild.qualify.simt.memory import POISON

GUARD: Final = 64 << 10
"""Bytes on either side of a buffer: a multiple of the alignment that cudaMalloc gives."""
REFUSED: Final = "the driver refuses it"
"""Begins the reason of what could not be loaded."""
_PATTERN: Final = np.full(GUARD // 2, POISON, "<u2").view(np.uint8)


class Gpu:
    """Launches kernels of loaded modules."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._loaded: tuple[bytes, int] | None = None
        self.spent = False
        """Whether a kernel left this process unable to do more on the device."""

    def run(
        self,
        module: Module,
        image: bytes,
        launch: Launch,
        begun: Callable[[bool], None] = lambda _: None,
    ) -> Result:
        """Launch a kernel of ``image``, the cubin made of ``module``, and wait for its end.

        ``begun`` is told True just before the launch and False after it. Raises DeviceFault where
        the kernel did what no right one does, UnsupportedError where the driver refuses the cubin
        or the launch, DriverError for anything else, ValueError where the launch does not fit the
        kernel.
        """
        kernel = module.functions[launch.entry]
        try:
            handle = self._module(image)
            function = self._driver.function(handle, launch.entry, launch.shared)
        except DriverError as error:
            raise UnsupportedError(f"{REFUSED}: {error}") from error
        with ExitStack() as stack:
            held = _Held(self._driver)
            stack.callback(held.free)
            arguments = _arguments(kernel, launch, held)
            for name, content in launch.constants.items():
                self._set(handle, module.variables[name], content)
                stack.callback(self._set, handle, module.variables[name], b"")
            begun(True)
            try:
                self._driver.launch(function, launch.grid, launch.block, launch.shared, arguments)
                found = held.found()
            except DriverError as error:
                self.spent = error.call != "cuLaunchKernel" or error.code in FAULTS
                if self.spent:
                    stack.pop_all()  # nothing can be given back or put back any more
                raise _ended(error) from error
            finally:
                begun(False)
        return Result(
            buffers=found, steps=0, lane_steps=0, executed=frozenset(), locations=frozenset()
        )

    def _module(self, image: bytes) -> int:
        """The module of this image; the one before it is given back."""
        if self._loaded and self._loaded[0] is image:
            return self._loaded[1]
        if self._loaded:
            self._driver.unload(self._loaded[1])
            self._loaded = None
        self._loaded = (image, self._driver.load(image))
        return self._loaded[1]

    def _set(self, module: int, declared: Variable, content: bytes) -> None:
        """Fill a variable with ``content``, or with what it began with where that is empty."""
        address, size = self._driver.variable(module, declared.name)
        raw = np.zeros(size, np.uint8)
        data = content or declared.data
        raw[: len(data)] = np.frombuffer(data, np.uint8)
        self._driver.write(address, raw)


class _Held:
    """The buffers of one launch on the device."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._buffers: dict[int, tuple[Buffer, int, NDArray[Any]]] = {}

    def pointer(self, buffer: Buffer) -> bytes:
        """The address that a kernel gets, the buffer put on the device first if it is not there."""
        known = self._buffers.get(id(buffer))
        if known is None:
            data = np.ascontiguousarray(buffer.data).reshape(-1).view(np.uint8)
            address = self._driver.allocate(2 * GUARD + data.nbytes)
            self._driver.write(address, np.concatenate([_PATTERN, data, _PATTERN]))
            known = self._buffers[id(buffer)] = (buffer, address, data)
        return (known[1] + GUARD + buffer.offset).to_bytes(8, "little")

    def found(self) -> Mapping[str, NDArray[Any]]:
        """What the writable ones hold. Raises DeviceFault where anything else was written."""
        results = {}
        for buffer, address, data in self._buffers.values():
            whole = self._driver.read(address, 2 * GUARD + data.nbytes)
            inside = whole[GUARD : GUARD + data.nbytes]
            _refuse_outside(buffer, whole[:GUARD], whole[GUARD + data.nbytes :])
            if buffer.writable:
                results[buffer.name] = inside.view(buffer.data.dtype).reshape(buffer.data.shape)
            elif not np.array_equal(inside, data):
                at = int(np.argmax(inside != data))
                raise DeviceFault(
                    "read-only", f"{buffer.name} is only to be read, and byte {at} was written"
                )
        return results

    def free(self) -> None:
        """Give all of them back."""
        for _, address, _ in self._buffers.values():
            self._driver.free(address)


def _refuse_outside(buffer: Buffer, before: NDArray[Any], after: NDArray[Any]) -> None:
    for zone, where in ((before, "before"), (after, "after")):
        changed = np.flatnonzero(zone != _PATTERN)
        if changed.size:
            near = GUARD - int(changed[-1]) if where == "before" else int(changed[0])
            raise DeviceFault(
                "out of bounds",
                f"{changed.size} bytes written {where} {buffer.name}, the nearest {near} bytes "
                f"{where} its {'first' if where == 'before' else 'last'} one",
            )


def _arguments(kernel: Function, launch: Launch, held: _Held) -> Sequence[bytes]:
    """Each parameter's bytes. Raises ValueError where they do not fit the kernel."""
    if len(kernel.parameters) != len(launch.arguments):
        raise ValueError(
            f"{kernel.name} takes {len(kernel.parameters)} arguments, not {len(launch.arguments)}"
        )
    made = []
    for number, (parameter, argument) in enumerate(
        zip(kernel.parameters, launch.arguments, strict=True)
    ):
        if isinstance(argument, Buffer):
            raw = bytearray(held.pointer(argument))
        else:
            raw = bytearray(argument if isinstance(argument, bytes) else argument.tobytes())
        for (which, offset), buffer in launch.pointers.items():
            if which == number:
                raw[offset : offset + 8] = held.pointer(buffer)
        if len(raw) != parameter.size:
            raise ValueError(
                f"argument {number} of {kernel.name} has {len(raw)} bytes, "
                f"its parameter {parameter.size}"
            )
        made.append(bytes(raw))
    return made


def _ended(error: DriverError) -> Exception:
    """What a failed launch means: the kernel's own doing, or that nobody knows."""
    kind = FAULTS.get(error.code)
    if kind:
        return DeviceFault(kind, f"the driver ended it: {error}")
    what = "does not launch it" if error.call == "cuLaunchKernel" else "gave it up"
    return UnsupportedError(f"the driver {what}: {error}")
