"""Small kernels written by hand, and a way to run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkbuild.qualify.fault import DeviceFault
from sparkbuild.qualify.ptx.model import Module
from sparkbuild.qualify.ptx.read import read_module
from sparkbuild.qualify.simt.contract import Argument, Buffer, Launch, Result
from sparkbuild.qualify.simt.launch import execute

HEAD = ".version 9.0\n.target sm_121a\n.address_size 64\n"
REGISTERS = """
    .reg .pred %p<16>;
    .reg .b16 %rs<32>;
    .reg .b32 %r<64>;
    .reg .b32 %f<64>;
    .reg .b64 %rd<64>;
"""
THREAD = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mad.lo.s32 %r3, %r1, %r2, %r0;
    ld.param.u64 %rd0, [out];
    mul.wide.s32 %rd1, %r3, 4;
    add.s64 %rd1, %rd0, %rd1;
"""
"""Thread, block, their size, the number in the grid, ``out`` and the address of its element."""

Made = Callable[..., Module]


def text_of(body: str, parameters: Sequence[str] = ("u64 out",), before: str = "") -> str:
    """A module with one kernel ``k``; parameters as ``u64 out``."""
    declared = ",\n".join(f"    .param .{each}" for each in parameters)
    return f"{HEAD}{before}\n.visible .entry k(\n{declared}\n)\n{{{REGISTERS}{body}\n    ret;\n}}\n"


class Kit:
    """Runs kernels."""

    thread = THREAD

    def module(
        self, body: str, parameters: Sequence[str] = ("u64 out",), before: str = ""
    ) -> Module:
        return read_module(text_of(body, parameters, before))

    def run(
        self,
        body: str,
        *arguments: Argument,
        grid: int | tuple[int, int, int] = 1,
        block: int | tuple[int, int, int] = 32,
        parameters: Sequence[str] = ("u64 out",),
        before: str = "",
        shared: int = 0,
        limit: int = 100_000,
        constants: Mapping[str, bytes] | None = None,
    ) -> Result:
        launch = Launch(
            "k",
            (grid, 1, 1) if isinstance(grid, int) else grid,
            (block, 1, 1) if isinstance(block, int) else block,
            arguments,
            shared=shared,
            constants=constants or {},
        )
        return execute(self.module(body, parameters, before), launch, limit_steps=limit)

    def words(self, body: str, count: int, *more: Argument, **options: Any) -> NDArray[np.int32]:
        """What the kernel leaves in ``count`` words of ``out``, which begin as -1."""
        out = Buffer("out", np.full(count, -1, dtype=np.int32), writable=True)
        found: NDArray[np.int32] = self.run(body, out, *more, **options).buffers["out"]
        return found

    def fault(self, body: str, *arguments: Argument, **options: Any) -> DeviceFault:
        """The fault that the kernel must end with."""
        if not arguments:
            arguments = (Buffer("out", np.zeros(1024, dtype=np.int32), writable=True),)
        with pytest.raises(DeviceFault) as caught:
            self.run(body, *arguments, **options)
        return caught.value


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit()
