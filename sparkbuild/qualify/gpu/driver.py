"""What a launch needs of a GPU's driver, in few words; the CUDA driver is one that has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from numpy.typing import NDArray

Size: TypeAlias = tuple[int, int, int]

FAULTS: Final = {
    700: "out of bounds", 702: "endless", 710: "trap", 714: "out of bounds", 715: "trap",
    716: "misaligned", 717: "out of bounds", 718: "trap", 719: "trap",
}  # fmt: skip
"""Errors that a kernel's own doing raises, by CUresult of cuda.h, in the executor's words. After
one of them the process can do no more work on the device."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """A GPU: its name, compute capability as (major, minor), and the driver's release."""

    name: str
    capability: tuple[int, int]
    driver: str

    @property
    def target(self) -> str:
        """The architecture that has all of the device's instructions: ``90a``, ``86``."""
        major, minor = self.capability
        return f"{major}{minor}" + ("a" if major >= _OWN_TARGETS else "")

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.name} (sm_{major}{minor}), driver {self.driver}"


_OWN_TARGETS: Final = 9
"""From this compute capability on there are targets with an ``a``, by the PTX manual."""


class DriverError(Exception):
    """A call of the driver failed; ``code`` is its CUresult."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call}: {name} ({code}): {text}")
        self.call = call
        self.code = code
        self.name = name


class Driver(Protocol):
    """One device's memory and modules; addresses are the device's. All raise DriverError."""

    def load(self, image: bytes) -> int:
        """A module from a cubin."""

    def unload(self, module: int) -> None:
        """Give the module back."""

    def function(self, module: int, name: str, shared: int) -> int:
        """A kernel, allowed ``shared`` bytes of dynamic shared memory."""

    def variable(self, module: int, name: str) -> tuple[int, int]:
        """Address and bytes of a module's variable."""

    def allocate(self, size: int) -> int:
        """Memory of the device, aligned to 256 bytes at least."""

    def free(self, address: int) -> None:
        """Give it back."""

    def write(self, address: int, data: NDArray[Any]) -> None:
        """Copy bytes, a contiguous uint8 array, to the device."""

    def read(self, address: int, size: int) -> NDArray[Any]:
        """Copy bytes from the device, as uint8."""

    def launch(
        self, function: int, grid: Size, block: Size, shared: int, arguments: Sequence[bytes]
    ) -> None:
        """Run a kernel to its end."""


class Opener(Protocol):
    """A device that other processes can open too: it is pickled to them."""

    def look(self) -> Device:
        """What the device is; nothing is made on it. Raises GpuError where there is none."""

    def open(self) -> Driver:
        """A driver with a context of this process's own. Raises GpuError."""
