"""The CUDA driver, which is the user's, through ctypes: no package is needed.

Signatures are those of cuda.h; ``_v2`` is what its macros make of the plain names.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.errors import GpuError
from sparkbuild.qualify.gpu.driver import Device, DriverError, Size

_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuModuleGetGlobal_v2": (POINTER(c_uint64), POINTER(c_size_t), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuLaunchKernel": (
        c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_void_p,
        POINTER(c_void_p), POINTER(c_void_p),
    ),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}  # fmt: skip

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""
_DYNAMIC_SHARED: Final = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_NAME_BYTES: Final = 256
_KERNEL_MODULE: Final = Path("/proc/driver/nvidia/version")
_RELEASE: Final = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)*)\b")


@dataclass(frozen=True)
class Cuda:
    """The first device that the driver shows (CUDA_VISIBLE_DEVICES chooses)."""

    library: str = "libcuda.so.1"

    def look(self) -> Device:
        """What the device is. Raises GpuError where there is no driver or no device."""
        calls = _Calls(self.library)
        name = ctypes.create_string_buffer(_NAME_BYTES)
        major, minor, version, device = c_int(), c_int(), c_int(), _first(calls)
        try:
            calls("cuDeviceGetName", name, _NAME_BYTES, device)
            calls("cuDeviceGetAttribute", byref(major), _MAJOR, device)
            calls("cuDeviceGetAttribute", byref(minor), _MINOR, device)
            calls("cuDriverGetVersion", byref(version))
        except DriverError as error:
            raise _unusable(error) from error
        return Device(
            name=name.value.decode(errors="replace"),
            capability=(major.value, minor.value),
            driver=_release() or f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}",
        )

    def open(self) -> CudaDriver:
        """The device's primary context, current in this thread. Raises GpuError."""
        calls = _Calls(self.library)
        device = _first(calls)
        context = c_void_p()
        try:
            calls("cuDevicePrimaryCtxRetain", byref(context), device)
            calls("cuCtxSetCurrent", context)
        except DriverError as error:
            raise _unusable(error) from error
        return CudaDriver(calls)


class CudaDriver:
    """See ``driver.Driver``."""

    def __init__(self, calls: _Calls) -> None:
        self._call = calls

    def load(self, image: bytes) -> int:
        """A module from a cubin."""
        module = c_void_p()
        self._call("cuModuleLoadData", byref(module), image)
        return module.value or 0

    def unload(self, module: int) -> None:
        """Give the module back."""
        self._call("cuModuleUnload", module)

    def function(self, module: int, name: str, shared: int) -> int:
        """A kernel; more dynamic shared memory than 48 KiB has to be asked for."""
        function = c_void_p()
        self._call("cuModuleGetFunction", byref(function), module, name.encode())
        self._call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
        return function.value or 0

    def variable(self, module: int, name: str) -> tuple[int, int]:
        """Address and bytes of a module's variable."""
        address, size = c_uint64(), c_size_t()
        self._call("cuModuleGetGlobal_v2", byref(address), byref(size), module, name.encode())
        return address.value, size.value

    def allocate(self, size: int) -> int:
        """Memory of the device."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), size)
        return address.value

    def free(self, address: int) -> None:
        """Give it back."""
        self._call("cuMemFree_v2", address)

    def write(self, address: int, data: NDArray[Any]) -> None:
        """Copy bytes to the device."""
        self._call("cuMemcpyHtoD_v2", address, data.ctypes.data, data.nbytes)

    def read(self, address: int, size: int) -> NDArray[Any]:
        """Copy bytes from the device."""
        data = np.empty(size, np.uint8)
        self._call("cuMemcpyDtoH_v2", data.ctypes.data, address, size)
        return data

    def launch(
        self, function: int, grid: Size, block: Size, shared: int, arguments: Sequence[bytes]
    ) -> None:
        """Run a kernel to its end; the driver knows each parameter's size and place."""
        kept = [ctypes.create_string_buffer(raw, len(raw)) for raw in arguments]
        pointers = (c_void_p * len(kept))(*(ctypes.addressof(each) for each in kept))
        self._call("cuLaunchKernel", function, *grid, *block, shared, None, pointers, None)
        self._call("cuCtxSynchronize")


class _Calls:
    """The library's functions, each failure an exception."""

    def __init__(self, library: str) -> None:
        try:
            loaded = ctypes.CDLL(library)
            for name, types in _SIGNATURES.items():
                function = getattr(loaded, name)
                function.argtypes, function.restype = types, c_int
        except (OSError, AttributeError) as error:
            raise GpuError(
                "no CUDA driver is on this machine",
                problems=[str(error)],
                next_step="install NVIDIA's driver, or leave out --on gpu: the executor needs none",
            ) from error
        self._library = loaded

    def __call__(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise DriverError(
                name, code, self._said("cuGetErrorName", code), self._said("cuGetErrorString", code)
            )

    def _said(self, name: str, code: int) -> str:
        text = c_char_p()
        getattr(self._library, name)(code, byref(text))
        return (text.value or b"unknown").decode(errors="replace")


def _first(calls: _Calls) -> c_int:
    """The first device. Raises GpuError where the driver has none."""
    count, device = c_int(), c_int()
    try:
        calls("cuInit", 0)
        calls("cuDeviceGetCount", byref(count))
        if count.value:
            calls("cuDeviceGet", byref(device), 0)
    except DriverError as error:
        raise _unusable(error) from error
    if not count.value:
        raise GpuError(
            "the CUDA driver shows no GPU",
            next_step="look at nvidia-smi and CUDA_VISIBLE_DEVICES, or leave out --on gpu",
        )
    return device


def _unusable(error: DriverError) -> GpuError:
    return GpuError(
        "the CUDA driver cannot be used",
        problems=[str(error)],
        next_step="look at nvidia-smi, or leave out --on gpu: the executor needs no GPU",
    )


def _release() -> str:
    """The driver's own release number (580.95.05): from the kernel's module, else from NVML."""
    try:
        found = _RELEASE.search(_KERNEL_MODULE.read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[1]
    except OSError:
        pass  # no such file where a container hides it
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(80)
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, c_uint(80)) == 0:
            return text.value.decode(errors="replace")
    except (OSError, AttributeError):
        pass
    return ""
