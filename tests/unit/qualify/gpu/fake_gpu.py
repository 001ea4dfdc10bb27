"""A GPU that is none: the driver's few words, each launch run by the executor.

A module's image is its PTX. What a kernel may reach is what a GPU would let it: all memory that is
allocated, guard zones and read-only buffers included. Kernels by these names do what no executor
does: ``hangs``, ``dies``, ``refused``; what ends in ``_off`` has the first bit of its first
argument's buffer turned over afterwards.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparkbuild.errors import GpuError
from sparkbuild.qualify.bench import Order
from sparkbuild.qualify.catalogue import Catalogue
from sparkbuild.qualify.fault import DeviceFault
from sparkbuild.qualify.gpu.driver import Device, DriverError, Size
from sparkbuild.qualify.gpu.running import GUARD
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.ptx.model import Module
from sparkbuild.qualify.ptx.read import read_module
from sparkbuild.qualify.simt.contract import Argument, Buffer, Launch
from sparkbuild.qualify.simt.launch import execute

FIRST = 0x5500_0000_0000
STEP = 1 << 32
SHARED = 48 << 10
"""Bytes of dynamic shared memory that need no asking for."""
CODES = {"misaligned": 716, "trap": 719}
"""CUresult of what the executor calls so; 700 for everything else."""


@dataclass(frozen=True)
class FakeOpener:
    capability: tuple[int, int] = (12, 1)
    missing: bool = False
    driver: str = "1.2"

    def look(self) -> Device:
        if self.missing:
            raise GpuError("there is none")
        return Device(name="Fake", capability=self.capability, driver=self.driver)

    def open(self) -> FakeDriver:
        self.look()
        return FakeDriver()


class FakeDriver:
    def __init__(self) -> None:
        self.memory: dict[int, NDArray[np.uint8]] = {}
        self.modules: dict[int, Module] = {}
        self.constants: dict[str, tuple[int, int]] = {}
        self.functions: dict[int, tuple[int, str, int]] = {}
        self.given = 0
        self.sticky = 0

    def load(self, image: bytes) -> int:
        self._alive("cuModuleLoadData")
        if not image.startswith(b".version"):
            raise DriverError("cuModuleLoadData", 200, "CUDA_ERROR_INVALID_IMAGE", "no image")
        self.given += 1
        self.modules[self.given] = read_module(image.decode())
        return self.given

    def unload(self, module: int) -> None:
        del self.modules[module]
        self.constants.clear()

    def function(self, module: int, name: str, shared: int) -> int:
        if name not in self.modules[module].functions:
            raise DriverError("cuModuleGetFunction", 500, "CUDA_ERROR_NOT_FOUND", name)
        self.given += 1
        self.functions[self.given] = (module, name, shared)
        return self.given

    def variable(self, module: int, name: str) -> tuple[int, int]:
        declared = self.modules[module].variables[name]
        if name not in self.constants:
            address = self.allocate(declared.size)
            self.memory[address][: len(declared.data)] = np.frombuffer(declared.data, np.uint8)
            self.constants[name] = (address, declared.size)
        return self.constants[name]

    def allocate(self, size: int) -> int:
        self._alive("cuMemAlloc_v2")
        self.given += 1
        address = FIRST + self.given * STEP
        self.memory[address] = np.zeros(size, np.uint8)
        return address

    def free(self, address: int) -> None:
        self._alive("cuMemFree_v2")
        del self.memory[address]

    def write(self, address: int, data: NDArray[Any]) -> None:
        base = self._base(address)
        self.memory[base][address - base : address - base + data.nbytes] = data

    def read(self, address: int, size: int) -> NDArray[Any]:
        self._alive("cuMemcpyDtoH_v2")
        base = self._base(address)
        return self.memory[base][address - base : address - base + size].copy()

    def launch(
        self, function: int, grid: Size, block: Size, shared: int, arguments: Sequence[bytes]
    ) -> None:
        module, name, allowed = self.functions[function]
        if shared > max(allowed, SHARED):
            raise DriverError("cuLaunchKernel", 1, "CUDA_ERROR_INVALID_VALUE", "shared memory")
        if name == "hangs":
            time.sleep(600)
        if name == "dies":
            os._exit(9)
        if name == "refused":
            raise DriverError("cuLaunchKernel", 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "big")
        buffers: dict[int, Buffer] = {}
        made: list[Argument] = []
        pointers: dict[tuple[int, int], Buffer] = {}
        for number, raw in enumerate(arguments):
            there = {at: self._buffer(raw[at : at + 8], buffers) for at in range(0, len(raw), 8)}
            found = {at: buffer for at, buffer in there.items() if buffer}
            made.append(found[0] if len(raw) == 8 and found else raw)
            if len(raw) != 8:
                pointers |= {(number, at): buffer for at, buffer in found.items()}
        launch = Launch(
            name, grid, block, made, shared=shared, pointers=pointers,
            constants={n: self.memory[at].tobytes() for n, (at, _) in self.constants.items()},
        )  # fmt: skip
        try:
            result = execute(self.modules[module], launch)
        except DeviceFault as fault:
            self.sticky = CODES.get(fault.kind, 700)
            self._alive("cuCtxSynchronize")
        for base in buffers:
            self.memory[base] = result.buffers[f"{base:x}"]
        if name.endswith("_off"):
            first = self._base(int.from_bytes(arguments[0], "little"))
            self.memory[first][GUARD] ^= 1

    def _buffer(self, raw: bytes, known: dict[int, Buffer]) -> Buffer | None:
        address = int.from_bytes(raw, "little")
        base = self._base(address)
        if len(raw) != 8 or base not in self.memory or address - base >= self.memory[base].size:
            return None
        # One Buffer for each allocation and offset: the executor takes them by identity.
        if base not in known:
            known[base] = Buffer(f"{base:x}", self.memory[base], True, address - base)
        assert known[base].offset == address - base
        return known[base]

    def _base(self, address: int) -> int:
        return address // STEP * STEP

    def _alive(self, call: str) -> None:
        if self.sticky:
            raise DriverError(call, self.sticky, "CUDA_ERROR_STICKY", "the context is lost")


HEAD = ".version 9.0\n.target sm_121a\n.address_size 64\n"
PLAIN = """
.visible .entry {name}(.param .u64 out, .param .u64 in)
{{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd0, [out];
    ld.param.u64 %rd1, [in];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 4;
    add.s64 %rd3, %rd0, %rd2;
    add.s64 %rd4, %rd1, %rd2;
    ld.global.u32 %r1, [%rd4];
    add.u32 %r2, %r1, {plus};
    {what}
    ret;
}}
"""
STORE = "st.global.u32 [%rd3], %r2;"
KERNELS = {
    "right": ("1", STORE),
    "plus_two": ("2", STORE),
    "lies_off": ("1", STORE),
    "spills": ("1", f"{STORE} st.global.u32 [%rd3+4], %r2;"),
    "before": ("1", f"{STORE} st.global.u32 [%rd3+-8], %r2;"),
    "scribbles": ("1", f"{STORE} st.global.u32 [%rd4], %r2;"),
    "wild": ("1", "add.s64 %rd3, %rd3, 0x7000000000; st.global.u32 [%rd3], %r2;"),
    "reads_past": ("1", f"ld.global.u32 %r1, [%rd4+128]; add.u32 %r2, %r1, 1; {STORE}"),
    "hangs": ("1", STORE),
    "dies": ("1", STORE),
    "refused": ("1", STORE),
    "unknown": ("1", f"frobnicate.b32 %r2, %r1; {STORE}"),
}
TEXT = HEAD + "".join(
    PLAIN.format(name=name, plus=plus, what=what) for name, (plus, what) in KERNELS.items()
)
THREADS = 32


def cases(entry: str, seed: int) -> tuple[Case, ...]:
    data = np.random.default_rng(seed).integers(0, 1000, THREADS, dtype=np.int32)
    out = Buffer("out", np.zeros(THREADS, np.int32), writable=True)
    launch = Launch(entry, (1, 1, 1), (THREADS, 1, 1), (out, Buffer("in", data)))
    expected = Expected(data + np.int32(1), np.float64(0) * data, "exact")
    return (Case("only", launch, {"out": expected}),)


def probe(entry: str) -> Probe:
    return Probe(entry, "unit", entry, "kind", (), lambda seed: cases(entry, seed), ("q4_0",))


@dataclass(frozen=True, kw_only=True)
class FakeOrder(Order):
    """Its probes are those above; no source and no compiler is there."""

    def catalogue(self) -> Catalogue:
        return Catalogue(units={"unit": ""}, probes=tuple(probe(name) for name in KERNELS))
