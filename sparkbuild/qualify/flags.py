"""The flags that decide what device code nvcc emits: foretold from the recipes, held against CMake.

Qualification runs before CMake, so its flags are foretold; what CMake then settles on is compared
with them, and a difference is a refusal: code made with other flags was not judged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_RELEASE: Final = ("-O3", "-DNDEBUG", "-std=c++17")
"""CMake's Release flags for CUDA, and ggml's standard."""
_GGML: Final = ("-use_fast_math", "-extended-lambda")
"""ggml/src/ggml-cuda/CMakeLists.txt, whatever the options."""

_DEVICE_OPTIONS: Final = frozenset(
    {"GGML_CUDA_FORCE_MMQ", "GGML_CUDA_FORCE_CUBLAS", "GGML_CUDA_NO_FA", "GGML_CUDA_NO_PEER_COPY"}
)
"""CMake options that become a macro of the same name in CUDA sources."""
_HOST_DEFINES: Final = re.compile(
    r"-D(GGML_(BACKEND_\w+|SHARED|SCHED_MAX_COPIES|CUDA_USE_GRAPHS|CUDA_USE_NCCL|CUDA_USE_VMM"
    r"|CUDA_NO_VMM|CUDA_FA_\w+|CUDA_PEER_MAX_BATCH_SIZE)|_GNU_SOURCE|_XOPEN_SOURCE|ggml_cuda_EXPORTS"
    r"|NDEBUG)(=.*)?"
)
"""Macros that only host code reads: which kernels are instantiated and launched, not what is in
them; NDEBUG is in the flags."""
_HOST_FLAGS: Final = re.compile(
    r"-Xcompiler(=.*)?|-compress-mode=.*|--?generate-code=.*|-gencode.*|-lineinfo|-O3|-fPIC"
)
"""Flags of the host compiler, of the fatbin, and the target itself."""


def foretold(options: Mapping[str, str]) -> tuple[str, ...]:
    """The flags for CMake options as recipes give them, the target and folders left out."""
    defines = [
        f"-D{name}"
        for name in sorted(_DEVICE_OPTIONS & options.keys())
        if options[name].upper() in {"ON", "1", "TRUE", "YES"}
    ]
    extra = shlex.split(options.get("CMAKE_CUDA_FLAGS", ""))
    return (*extra, *_RELEASE, *_GGML, *defines)


def differences(flags: Iterable[str], fragments: Iterable[str]) -> tuple[str, ...]:
    """What a build's compile command has and ``flags`` have not, or the other way round.

    ``fragments`` are the command's pieces in order, as CMake's file API has them, defines with
    their ``-D``.
    """
    built = {word for word in _words(fragments) if _decides(word)}
    judged = {word for word in flags if _decides(word)}
    return (
        *(f"the build has {word}, qualification had not" for word in sorted(built - judged)),
        *(f"qualification had {word}, the build has not" for word in sorted(judged - built)),
    )


def _words(pieces: Iterable[str]) -> Iterator[str]:
    """Every word; what ``-Xcompiler`` takes, in the next piece perhaps, belongs to it."""
    skip = False
    for word in (word for piece in pieces for word in _split(piece)):
        if skip:
            skip = False
        elif word == "-Xcompiler":
            skip = True
        else:
            yield word


def _split(piece: str) -> list[str]:
    return [piece] if piece.startswith("-D") else shlex.split(piece)


def _decides(word: str) -> bool:
    return not (_HOST_FLAGS.fullmatch(word) or _HOST_DEFINES.fullmatch(word))
