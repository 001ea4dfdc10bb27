"""An importance matrix that holds every column equally important: the same bytes everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import gguf
import numpy as np

from sparkbuild.canary.gguf.layout import Tensor


def write_flat(path: Path, tensors: Iterable[Tensor]) -> None:
    """Write importance 1 for every column of ``tensors``, as llama-imatrix writes what it saw."""
    writer = gguf.GGUFWriter(path, "imatrix")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["flat"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 512)
    for tensor in tensors:
        experts = tensor.shape[0] if len(tensor.shape) > 2 else 1
        ones = np.ones((experts, tensor.shape[-1]), np.float32)
        writer.add_tensor(f"{tensor.name}.in_sum2", ones)
        writer.add_tensor(f"{tensor.name}.counts", ones[:, :1].copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
