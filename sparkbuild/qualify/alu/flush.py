"""Subnormal numbers: ``.ftz`` by numpy anywhere, or by the processor's own mode on x86-64.

``flush_mode`` sets the processor to flush subnormal operands and results of SSE arithmetic, which
is what ``.ftz`` asks for, for as long as a kernel runs on this thread. Instructions look at
``UNIT.flushing``: those with ``.ftz`` then skip their own flushing, those without leave the mode
while they compute. Without the mode everything is as right, and slower.

A result counts as subnormal when it is, rounded to 24 bits, below 2^-126 (x86 decides so, and the
manual does not say).
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparkbuild.qualify.alu.contract import Bits
from sparkbuild.qualify.alu.types import F32, F64

SMALLEST_NORMAL = np.asarray(2.0**-126, F32)
ROUNDS_TO_NORMAL = np.asarray(2.0**-126 - 2.0**-151, F64)
# Flush-to-zero (bit 15) and denormals-are-zero (bit 6) of MXCSR: Intel SDM volume 1, 10.2.3.
FLUSH_BITS = 0x8040
# glibc's fenv_t on x86-64: 28 bytes of x87 state, then MXCSR.
MXCSR_OFFSET, FENV_SIZE = 28, 32


class _Unit(threading.local):
    """What this thread's processor does with subnormal numbers now, and the two environments."""

    flushing = False
    plain: Any = None
    flush: Any = None


UNIT = _Unit()


class _Control:
    """Reads and sets the floating-point environment through the C library."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self.write, self._get = library.fesetenv, library.fegetenv

    def environments(self) -> tuple[Any, Any]:
        """The environment as it is, and the same with flushing."""
        plain, flush = (ctypes.create_string_buffer(FENV_SIZE) for _ in range(2))
        self._get(plain)
        self._get(flush)
        (control,) = struct.unpack_from("<I", flush, MXCSR_OFFSET)
        struct.pack_into("<I", flush, MXCSR_OFFSET, control | FLUSH_BITS)
        return plain, flush


def _control() -> _Control | None:
    """The control where it works as told: proved on numbers, not on the machine's name."""
    if not (sys.platform == "linux" and platform.machine() == "x86_64"):
        return None
    try:
        control = _Control()
        plain, flush = control.environments()
        tiny = np.array([2.0**-140, 2.0**-126], F32)
        control.write(flush)
        results, operands = tiny * np.float32(0.5), tiny + np.float32(0)
        control.write(plain)
        kept = tiny * np.float32(0.5)
    except (AttributeError, OSError, struct.error):
        return None
    works = not results.any() and operands[0] == 0 and operands[1] != 0 and kept.all()
    return control if works else None


CONTROL = _control()


@contextmanager
def flush_mode() -> Iterator[bool]:
    """Let the processor flush subnormal numbers inside; gives whether it does.

    Keep foreign arithmetic out: everything that this thread computes inside loses its subnormal
    numbers, except through the instructions of this room.
    """
    if CONTROL is None or UNIT.flushing:
        yield UNIT.flushing
        return
    UNIT.plain, UNIT.flush = CONTROL.environments()
    CONTROL.write(UNIT.flush)
    UNIT.flushing = True
    try:
        yield True
    finally:
        UNIT.flushing = False
        CONTROL.write(UNIT.plain)


def gradual(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with subnormal numbers as they are, whatever the mode."""

    def guarded(*values: Bits) -> Any:
        if not UNIT.flushing or CONTROL is None:
            return run(*values)
        CONTROL.write(UNIT.plain)
        UNIT.flushing = False
        try:
            return run(*values)
        finally:
            UNIT.flushing = True
            CONTROL.write(UNIT.flush)

    return guarded


def flushed(values: Bits) -> Any:
    """Floats of 32 bits, the subnormal ones replaced by a zero of their sign."""
    if UNIT.flushing:
        return values
    return np.multiply(values, np.greater_equal(np.abs(values), SMALLEST_NORMAL))


def narrowed(exact: Bits) -> Bits:
    """Doubles (exact, or rounded to odd) as floats of 32 bits, subnormal results flushed."""
    if not UNIT.flushing:
        exact = np.multiply(exact, np.greater_equal(np.abs(exact), ROUNDS_TO_NORMAL))
    return exact.astype(F32)
