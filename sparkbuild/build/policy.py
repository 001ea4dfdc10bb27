"""Libraries that a binary may need from outside its install tree, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from sparkbuild.toolkit.model import Toolkit

Provider = Literal["system", "toolkit", "driver"]


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """A library name (a full-match pattern), who brings it, and why that is sound."""

    pattern: str
    provider: Provider
    reason: str


ALLOWED: Final = (
    Allowed(
        pattern=r"lib(c|m|dl|rt|pthread)\.so\.[0-9]+",
        provider="system",
        reason="the C library, which every glibc system has",
    ),
    Allowed(
        pattern=r"ld-linux[a-z0-9_-]*\.so\.[0-9]+",
        provider="system",
        reason="the loader, part of the C library",
    ),
    Allowed(
        pattern=r"lib(stdc\+\+|gcc_s)\.so\.[0-9]+",
        provider="system",
        reason="the C++ run time, ABI-stable and installed with every desktop and server system",
    ),
    Allowed(
        pattern=r"libcuda\.so\.1",
        provider="driver",
        reason="comes with the GPU's driver and must match it, so nothing else may bring it",
    ),
    Allowed(
        pattern=r"lib(cudart|cublas|cublasLt)\.so\.[0-9]+",
        provider="toolkit",
        reason="the CUDA run time of the toolkit that the build was made with",
    ),
)

HINTS: Final = {
    r"libgomp\.so.*": "OpenMP's run time comes with compilers only: set GGML_OPENMP = OFF",
    r"lib(ssl|crypto)\.so.*": "OpenSSL's version differs between systems: set LLAMA_OPENSSL = OFF",
    r"libcurl.*": "set LLAMA_CURL = OFF",
    r"libnccl\.so.*": "NCCL was found by chance: set GGML_CUDA_NCCL = OFF",
    r"lib(openblas|blas|mkl).*": "set GGML_BLAS = OFF",
    r"libcufft.*|libcusparse.*|libcusolver.*": "no part of llama.cpp needs it: see what links it",
}


_UNIFIED: Final = 13
"""From this CUDA release on NVIDIA's wheels share one folder, ``nvidia/cu13``; those of 12 have
one each."""


def runpath(toolkit: Toolkit) -> tuple[str, ...]:
    """Where built files look for libraries: beside themselves, then in NVIDIA's wheels.

    Installed, they lie in ``sparkbuild_llama_cpp/bin``, and NVIDIA's libraries in ``nvidia`` beside
    that package. Relative to the files, so that an environment may lie anywhere.
    """
    if toolkit.kind != "cuda":
        return ("$ORIGIN",)
    major = int(toolkit.part("nvcc").version.partition(".")[0])
    shared = (f"cu{major}",)
    folders = shared if major >= _UNIFIED else ("cuda_runtime", "cublas")
    return ("$ORIGIN", *(f"$ORIGIN/../../nvidia/{folder}/lib" for folder in folders))


def provider(name: str, *, cuda: bool) -> Provider | None:
    """Who may bring the library ``name``; None where nobody may. CUDA's only for CUDA builds."""
    for allowed in ALLOWED:
        if re.fullmatch(allowed.pattern, name) and (cuda or allowed.provider == "system"):
            return allowed.provider
    return None


def hint(name: str) -> str:
    """What usually brings a library that is not allowed, or an empty text."""
    return next((text for pattern, text in HINTS.items() if re.fullmatch(pattern, name)), "")
