"""What a CUDA toolkit consists of: each part's files, and the group whose versions move together.

Paths are canonical: relative to the root, ``lib/`` for every library folder and CCCL's headers
straight below ``include/``, so that one table fits NVIDIA's packages, wheels and provisioned roots.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sparkbuild.files import digest_of

Kind = Literal["program", "headers", "library", "archive", "bitcode", "text"]
Group = Literal["compiler", "runtime", "cublas", "cccl"]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One part: ``files`` are canonical paths or patterns, ``project`` the wheel that brings it."""

    name: str
    kind: Kind
    group: Group
    project: str
    """Name of the wheel without ``nvidia-`` and ``-cu12``."""
    files: tuple[str, ...]


SPECS: Final = (
    Spec(name="nvcc", kind="program", group="compiler", project="cuda-nvcc", files=("bin/nvcc",)),
    Spec(name="nvcc.profile", kind="text", group="compiler", project="cuda-nvcc",
         files=("bin/nvcc.profile",)),
    Spec(name="cudafe++", kind="program", group="compiler", project="cuda-nvcc",
         files=("bin/cudafe++",)),
    Spec(name="cicc", kind="program", group="compiler", project="nvvm",
         files=("nvvm/bin/cicc",)),
    Spec(name="libdevice", kind="bitcode", group="compiler", project="nvvm",
         files=("nvvm/libdevice/libdevice.10.bc",)),
    Spec(name="ptxas", kind="program", group="compiler", project="cuda-nvcc",
         files=("bin/ptxas",)),
    Spec(name="fatbinary", kind="program", group="compiler", project="cuda-nvcc",
         files=("bin/fatbinary",)),
    Spec(name="nvlink", kind="program", group="compiler", project="cuda-nvcc",
         files=("bin/nvlink",)),
    Spec(name="crt headers", kind="headers", group="compiler", project="cuda-crt",
         files=("include/crt/*.h", "include/crt/*.hpp")),
    Spec(name="cudart headers", kind="headers", group="runtime", project="cuda-runtime",
         files=("include/cuda_runtime_api.h", "include/cuda_runtime.h", "include/cuda.h",
                "include/driver_types.h", "include/vector_types.h", "include/cuda_fp16.h",
                "include/cuda_fp16.hpp", "include/cuda_bf16.h", "include/cuda_bf16.hpp",
                "include/cuda_fp8.h", "include/cuda_fp8.hpp",
                "include/cuda_device_runtime_api.h")),
    Spec(name="libcudart", kind="library", group="runtime", project="cuda-runtime",
         files=("lib/libcudart.so.*",)),
    Spec(name="libcudart_static", kind="archive", group="runtime", project="cuda-runtime",
         files=("lib/libcudart_static.a",)),
    Spec(name="cublas headers", kind="headers", group="cublas", project="cublas",
         files=("include/cublas_api.h", "include/cublas_v2.h", "include/cublasLt.h")),
    Spec(name="libcublas", kind="library", group="cublas", project="cublas",
         files=("lib/libcublas.so.*",)),
    Spec(name="libcublasLt", kind="library", group="cublas", project="cublas",
         files=("lib/libcublasLt.so.*",)),
    Spec(name="CCCL", kind="headers", group="cccl", project="cuda-cccl",
         files=("include/cuda/std/__cccl/version.h", "include/cub/version.cuh",
                "include/thrust/version.h")),
)  # fmt: skip
"""Every part that a build of llama.cpp's CUDA back end goes through."""


def spec(name: str) -> Spec:
    """The part of that name. Raises KeyError where there is none."""
    for part in SPECS:
        if part.name == name:
            return part
    raise KeyError(name)


def canonical(path: str) -> str:
    """A path relative to a root in the table's terms (``lib64`` is ``lib``, CCCL is unnested)."""
    if path.startswith("lib64/"):
        path = "lib/" + path.removeprefix("lib64/")
    return path.replace("include/cccl/", "include/", 1)


def matching(part: Spec, paths: Iterable[str]) -> tuple[str, ...]:
    """Those of ``paths`` (canonical) that belong to the part, sorted."""
    found = {
        path
        for path in paths
        for pattern in part.files
        if path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)
    }
    return tuple(sorted(found))


def part_digest(files: Mapping[str, str]) -> str:
    """One digest for a part: its file's own where it is one, else over (path, digest) of all.

    ``files`` maps canonical paths to SHA-256. Raises ValueError where there is none.
    """
    if not files:
        raise ValueError("a part without files has no digest")
    if len(files) == 1:
        return next(iter(files.values()))
    return digest_of(dict(files))


def part_digests(files: Mapping[str, str]) -> dict[str, str]:
    """``part_digest`` of every part that ``files`` (canonical path to SHA-256) hold, by name."""
    found = {part.name: matching(part, files) for part in SPECS}
    return {
        name: part_digest({path: files[path] for path in paths})
        for name, paths in found.items()
        if paths
    }
