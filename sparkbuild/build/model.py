"""What the configure, build and inspect stages give."""

from __future__ import annotations

from typing import Literal

import msgspec

from sparkbuild.model.finding import Finding


class Compiler(msgspec.Struct, frozen=True, kw_only=True):
    """A compiler as CMake settled on it."""

    language: str
    path: str
    identification: str
    """``GNU 12.2.0``, ``NVIDIA 13.0.88``."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a target makes, relative to the binary directory."""

    target: str
    kind: str
    """CMake's own word: ``EXECUTABLE`` or ``SHARED_LIBRARY``."""
    path: str


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that CMake's prose and its file API agree on."""

    source_dir: str
    binary_dir: str
    arguments: tuple[str, ...]
    cmake_version: str
    compilers: tuple[Compiler, ...]
    cuda_toolkit_version: str | None
    """From ``Found CUDAToolkit``."""
    cuda_architectures: tuple[str, ...]
    """Effective ones (``121a``), from the compile fragments, never from the cache."""
    cuda_flags: tuple[str, ...] = ()
    """Every piece of the CUDA targets' compile commands, defines with their ``-D``."""
    openssl: str
    """``off``, or the version that CMake found."""
    artifacts: tuple[Artifact, ...]
    """The asked targets and every shared library below them, leaves last."""
    warnings: tuple[str, ...]
    """CMake warnings that are no reason to refuse, first line of each."""


class Binaries(msgspec.Struct, frozen=True, kw_only=True):
    """The install tree: one directory of real files, libraries named by their SONAME."""

    directory: str
    executables: tuple[str, ...]
    libraries: tuple[str, ...]
    edges: int
    """Build steps that ninja ran."""
    cache_hits: int = 0
    """Compile steps that the compile cache answered; nvcc counts by its own steps."""
    cache_misses: int = 0


class Binary(msgspec.Struct, frozen=True, kw_only=True):
    """One ELF file's facts."""

    name: str
    sha256: str
    size: int
    soname: str | None
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    build_id: str
    machine: str
    """``EM_X86_64``, ``EM_AARCH64``."""
    sm_targets: tuple[str, ...] = ()
    """GPU code inside: ``sm_121a`` for SASS, ``compute_121a`` for PTX."""


class BinaryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What inspection read from every file of the install tree, and from running one of them."""

    binaries: tuple[Binary, ...]
    system_libraries: tuple[str, ...]
    """NEEDED names that the system brings, all of them on the allowed list."""
    version_line: str
    """First line of ``llama-server --version``."""
    notes: tuple[str, ...] = ()
    """What is no reason to refuse and should be known: another libcudart on the system's path."""


class GpuTarget(msgspec.Struct, frozen=True, kw_only=True):
    """GPU code of one target in a file."""

    target: str
    """``sm_121a``, ``compute_120``."""
    kind: Literal["SASS", "PTX", "LTO"]
    fat_binaries: int
    """How many hold it: each is one source file's code."""
    gb10: Literal["made for it", "without FP4", "compiled at start", "no"]
    """How it runs on GB10."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """An ELF file from anywhere: what it is, and whether it can serve on GB10.

    Texts are the file's own, so they may hold anything.
    """

    path: str
    size: int
    machine: str
    """``EM_AARCH64``."""
    type: str
    """``program``, ``library``, ``object``, or ELF's own word."""
    soname: str | None
    interpreter: str | None
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    rpath: tuple[str, ...]
    build_id: str | None
    fat_binaries: int
    gpu: tuple[GpuTarget, ...]
    compilers: tuple[str, ...] = ()
    """Versions of the ptxas that made it, as pieces of its GPU code say."""
    build: int | None
    """llama.cpp's build number, where the file states it."""
    commit: str | None
    architectures: tuple[str, ...]
    """Models that it knows, of those that it was asked about; only libllama has any, and a program
    that it was linked into."""
    drafts: tuple[str, ...]
    """Those of which it has an MTP graph, in the plain form ``glm4moe``."""
    kv_pairs: tuple[str, ...]
    """Types of K and V that attention kernels were compiled for: ``q8_0-q8_0``."""
    findings: tuple[Finding, ...]
