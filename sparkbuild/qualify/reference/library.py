"""The CPU side of the pinned source as a shared library: its quantisers, read-backs, dot products.

Only the portable C code is built (``GGML_CPU_GENERIC``): what the vector units of this machine
would compute in another order is not wanted in a reference.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparkbuild.errors import HostError
from sparkbuild.files import (
    digest_of,
    exclusive,
    fsync_directory,
    sha256_bytes,
    sha256_file,
    write_atomic,
)
from sparkbuild.process import capture
from sparkbuild.toolkit.model import HostCompiler

_C_SOURCES: Final = ("ggml.c", "ggml-quants.c", "ggml-cpu/quants.c", "ggml-cpu/ggml-cpu.c")
_CXX_SOURCES: Final = ("ggml-cpu/vec.cpp", "ggml-threading.cpp")
"""Below ``ggml/src``: the tables of types, the quantisers, the dot products, and what they call."""

_FLAGS: Final = (
    "-O1", "-w", "-fPIC", "-D_GNU_SOURCE", "-DGGML_CPU_GENERIC", "-ffp-contract=off",
    '-DGGML_VERSION=""', '-DGGML_COMMIT=""',
    "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections",
)  # fmt: skip
"""No contraction: the reference rounds where the source says so. Sections, so that the linker can
drop the rest of the CPU backend, which these files name and nothing here calls. The version is
what CMake would have given, by a macro or a header; it is only printed."""

_LONGEST_BUILD: Final = 300.0
"""Seconds that another process may take for the same library; five on two idle cores."""


@dataclass(frozen=True, slots=True)
class CpuType:
    """A tensor type as the library tells it: elements and bytes of a block."""

    name: str
    number: int
    elements: int
    size: int
    partner: int
    """Number of the type that a dot product quantises the other side to; -1 where it has none."""


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """The built reference. All rows are C-contiguous; quantised ones are uint8."""

    path: Path
    types: Mapping[str, CpuType]
    """Quantised types by name, in the order of their numbers."""
    _calls: ctypes.CDLL

    def dequantize(self, name: str, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """``to_float`` of blocks, shape (n, block bytes), as float32 of shape (n, elements).

        Raises HostError for a type that the source only writes.
        """
        kind = self.types[name]
        source = np.ascontiguousarray(blocks, np.uint8)
        out = np.empty((source.size // kind.size, kind.elements), np.float32)
        if not self._calls.reference_dequantize(kind.number, _at(source), _at(out), out.size):
            raise HostError(f"the source cannot read back {name}")
        return out

    def quantize(self, name: str, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """``ggml_quantize_chunk`` of float32 rows (rows, columns), all columns of equal weight."""
        kind = self.types[name]
        rows = np.ascontiguousarray(values, np.float32)
        weights = np.ones(rows.shape[1], np.float32)
        out = np.zeros((rows.shape[0], rows.shape[1] // kind.elements * kind.size), np.uint8)
        self._calls.reference_quantize(
            kind.number, _at(rows), _at(out), rows.shape[0], rows.shape[1],
            _at(weights) if self._calls.reference_wants_weights(kind.number) else None,
        )  # fmt: skip
        return out

    def quantize_partner(self, name: str, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """One row as the type wants its partner in a dot product."""
        partner = self._numbered(self.types[name].partner)
        row = np.ascontiguousarray(values, np.float32)
        out = np.zeros(row.size // partner.elements * partner.size, np.uint8)
        self._calls.reference_quantize_row(partner.number, _at(row), _at(out), row.size)
        return out

    def vec_dot(self, name: str, x: NDArray[np.uint8], y: NDArray[np.uint8]) -> float:
        """The CPU's dot product of a row of ``name`` with one of its partner's type."""
        kind = self.types[name]
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        count = x.size // kind.size * kind.elements
        return float(self._calls.reference_vec_dot(kind.number, _at(x), _at(y), count))

    def _numbered(self, number: int) -> CpuType:
        return next(kind for kind in self.types.values() if kind.number == number)


def build_library(source: Path, folder: Path, compiler: HostCompiler) -> Library:
    """Build the reference of a source tree, or take what an earlier call built in ``folder``.

    The file is named by the digest of every file that a compiler could have read, the compiler and
    the flags. Raises HostError with the compiler's words where it does not build or load.
    """
    src = source / "ggml" / "src"
    shim = resources.files("sparkbuild.qualify.reference").joinpath("reference.c").read_bytes()
    key = digest_of({
        "sources": {str(path.relative_to(source)): sha256_file(path) for path in inputs_of(source)},
        "shim": sha256_bytes(shim), "flags": _FLAGS, "compiler": compiler.sha256,
    })  # fmt: skip
    path = folder / f"reference-{key[:32]}.so"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder / "reference.lock"
        with exclusive(lock, what="the reference library", wait=_LONGEST_BUILD):
            if not path.is_file():  # nobody else made it in the meantime
                work = folder / f"reference-{key[:32]}"
                work.mkdir(exist_ok=True)
                write_atomic(work / "reference.c", shim)
                write_atomic(work / "ggml-version.h", "#pragma once\n")
                _compile(src, work, compiler, path)
                shutil.rmtree(work)
    return load_library(path)


def load_library(path: Path) -> Library:
    """Open a built reference. Raises HostError where it is not one."""
    try:
        calls = ctypes.CDLL(str(path))
        for name, result in (
            ("reference_name", ctypes.c_char_p), ("reference_elements", ctypes.c_longlong),
            ("reference_size", ctypes.c_longlong), ("reference_vec_dot", ctypes.c_float),
            ("reference_quantize", None), ("reference_quantize_row", None),
            ("reference_start", None),
        ):  # fmt: skip
            getattr(calls, name).restype = result
    except (OSError, AttributeError) as error:
        raise HostError(
            "the reference library does not load",
            problems=[str(error)],
            evidence=[path],
            next_step=f"rm {path}, and try again",
        ) from error
    pointer, number, count = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
    calls.reference_dequantize.argtypes = [number, pointer, pointer, count]
    calls.reference_quantize.argtypes = [number, pointer, pointer, count, count, pointer]
    calls.reference_quantize_row.argtypes = [number, pointer, pointer, count]
    calls.reference_vec_dot.argtypes = [number, pointer, pointer, count]
    calls.reference_start()
    types = {}
    for index in range(calls.reference_count()):
        if calls.reference_quantized(index):
            name = (calls.reference_name(index) or b"").decode()
            types[name] = CpuType(
                name, index, calls.reference_elements(index), calls.reference_size(index),
                calls.reference_partner(index),
            )  # fmt: skip
    return Library(path, MappingProxyType(types), calls)


def inputs_of(source: Path) -> list[Path]:
    """What a compiler may read: the sources and every header of ggml's CPU side."""
    src = source / "ggml" / "src"
    named = [src / name for name in (*_C_SOURCES, *_CXX_SOURCES)]
    headers = [
        *sorted(src.glob("*.h")),
        *sorted((src / "ggml-cpu").rglob("*.h")),
        *sorted((source / "ggml" / "include").glob("*.h")),
    ]
    return [*named, *headers]


def _compile(src: Path, work: Path, compiler: HostCompiler, path: Path) -> None:
    includes = [f"-I{work}", f"-I{src}", f"-I{src / 'ggml-cpu'}", f"-I{src.parent / 'include'}"]
    c_files = [str(src / name) for name in _C_SOURCES] + [str(work / "reference.c")]
    objects: list[str] = []
    for driver, standard, files in (
        (compiler.c, "-std=gnu11", c_files),
        (compiler.cxx, "-std=gnu++17", [str(src / name) for name in _CXX_SOURCES]),
    ):
        for file in files:
            target = work / f"{len(objects)}.o"
            _run([driver, standard, *_FLAGS, *includes, "-c", file, "-o", str(target)])
            objects.append(str(target))
    made = work / "reference.so"
    _run([
        compiler.cxx, "-shared", "-Wl,--gc-sections", "-Wl,--no-undefined", "-o", str(made),
        *objects, "-lpthread", "-lm",
    ])  # fmt: skip
    made.rename(path)
    fsync_directory(path.parent)


def _run(argv: list[str]) -> None:
    done = capture(argv, timeout=300.0)
    if done.returncode != 0:
        raise HostError(
            "the CPU side of the source does not build with this machine's compiler",
            problems=[f"{argv[0]} ended with status {done.returncode}"],
            detail=done.stderr[-4000:],
            next_step="build llama.cpp for the CPU alone to see whether the compiler can",
        )


def _at(array: NDArray[Any]) -> int:
    return array.ctypes.data
