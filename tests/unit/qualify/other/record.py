"""What ggml's CPU side gives for ``operations.py``: ``python -m ...record FOLDER OUTPUT``.

FOLDER holds libggml-base.so and libggml-cpu.so of the release that OUTPUT is named after.
"""

from __future__ import annotations

import ctypes
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .operations import OPERATIONS, Array, Tensor

_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.int32): 26}


class _Parameters(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class Cpu:
    """Its tensors, in one context."""

    def __init__(self, folder: Path) -> None:
        self.base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        self.cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"))
        self.cpu.ggml_cpu_init()
        start: Any = self.base.ggml_init
        start.restype, start.argtypes = ctypes.c_void_p, (_Parameters,)
        self.context = ctypes.c_void_p(start(_Parameters(1 << 26, None, False)))

    def tensor(self, array: Array) -> Tensor:
        sizes = [*reversed(array.shape), 1, 1, 1][:4]
        made = self._function("new_tensor_4d")(
            self.context, _TYPES[array.dtype], *(ctypes.c_int64(size) for size in sizes)
        )
        data = np.ascontiguousarray(array)
        ctypes.memmove(self._data(made), data.ctypes.data, data.nbytes)
        return int(made)

    def call(self, name: str, *arguments: Any) -> Tensor:
        return int(self._function(name)(self.context, *map(_argument, arguments)))

    def sinks(self, name: str, tensor: Tensor, sinks: Tensor) -> None:
        self._function(name)(ctypes.c_void_p(tensor), ctypes.c_void_p(sinks))

    def computed(self, tensor: Tensor) -> Array:
        """The elements of a tensor of f32, in a row."""
        graph = ctypes.c_void_p(self._function("new_graph")(self.context))
        self._function("build_forward_expand")(graph, ctypes.c_void_p(tensor))
        if self.cpu.ggml_graph_compute_with_ctx(self.context, graph, 1):
            raise RuntimeError("the CPU side failed")
        count = self._function("nelements", ctypes.c_int64)(ctypes.c_void_p(tensor))
        return np.frombuffer(ctypes.string_at(self._data(tensor), 4 * count), np.float32)

    def _data(self, tensor: Tensor) -> int:
        return int(self._function("get_data")(ctypes.c_void_p(tensor)))

    def _function(self, name: str, result: Any = ctypes.c_void_p) -> Any:
        function: Any = getattr(self.base, f"ggml_{name}")
        function.restype = result
        return function


def _argument(value: Any) -> Any:
    match value:
        case list():
            return (ctypes.c_int * len(value))(*value)
        case bool():
            return ctypes.c_bool(value)
        case float():
            return ctypes.c_float(value)
        case None:
            return ctypes.c_void_p(None)
    return ctypes.c_int64(value)  # an int as well: the callee looks at the register's lower half


def main(folder: str, output: str) -> None:
    side = Cpu(Path(folder))
    kept: dict[str, Array] = {}
    for name, operation in OPERATIONS.items():
        inputs = operation.make(np.random.default_rng(zlib.crc32(name.encode())))
        found = operation.ask(side, {part: side.tensor(array) for part, array in inputs.items()})
        kept |= {f"{name}|{part}": array for part, array in inputs.items()}
        kept[f"{name}|"] = side.computed(found)
    np.savez_compressed(output, allow_pickle=False, **kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
