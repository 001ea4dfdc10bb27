"""One story: what each witness of a compile says of the toolkit, against its identity."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sparkbuild.toolkit.identity.versions import agree, thousands
from sparkbuild.toolkit.model import UNSTATED, Toolkit, TrialCode
from sparkbuild.toolkit.trial.cubin import CubinNote
from sparkbuild.toolkit.trial.ptx import PtxHeader

_SAID: Final = re.compile(r"release \S+, V(?P<version>\d+\.\d+\.\d+)")
_BUILT: Final = re.compile(r"^Build \S+?/compiler\.(?P<build>\d+)", re.MULTILINE)
_STATED: Final = re.compile(r"\d+(\.\d+)*")

ANSWERING: Final = ("cudafe++", "ptxas", "fatbinary", "nvlink")
"""Programs that answer to ``--version``; cicc does not, its PTX tells."""

_OF_NVCCS_RELEASE: Final = frozenset({"cicc", *ANSWERING})
"""Parts that must have nvcc's version where the identity states none."""


@dataclass(frozen=True, kw_only=True)
class Witnesses:
    """Everything that a compile left to be asked. A name is the file's, in the trial's folder."""

    ptx: Mapping[str, PtxHeader]
    cubins: Mapping[str, CubinNote]
    tables: Mapping[str, Mapping[str, int]]
    """``preprocessed.FIELDS`` of each preprocessor run."""
    object_targets: tuple[str, ...]
    damaged: tuple[str, ...] = ()
    """What could not be read, told."""

    @property
    def table(self) -> Mapping[str, int]:
        """Of the host's pass; empty where the compile did not get so far."""
        return next(iter(self.tables.values()), {})


@dataclass(frozen=True, kw_only=True)
class Told:
    """``nvcc --version``: its version and its changelist number, None where it says none."""

    version: str | None
    build: str | None


def read_version(text: str) -> Told:
    """What ``nvcc --version`` printed."""
    said, built = _SAID.search(text), _BUILT.search(text)
    return Told(version=said["version"] if said else None, build=built["build"] if built else None)


def joined(table: Mapping[str, int], *names: str) -> str:
    """Macros as one version: ``13.0.88``."""
    return ".".join(str(table[name]) for name in names)


def cudacc(table: Mapping[str, int]) -> str:
    """``__CUDACC_VER_*``."""
    parts = ("__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__", "__CUDACC_VER_BUILD__")
    return joined(table, *parts)


def cublas(table: Mapping[str, int]) -> str:
    """``CUBLAS_VER_*``."""
    return joined(table, *(f"CUBLAS_VER_{part}" for part in ("MAJOR", "MINOR", "PATCH", "BUILD")))


def host_compiler(table: Mapping[str, int]) -> str:
    """The host compiler in CMake's words."""
    name = "Clang" if table["TRIAL_CLANG"] else "GNU"
    return f"{name} {joined(table, 'TRIAL_MAJOR', 'TRIAL_MINOR', 'TRIAL_PATCH')}"


def told_problems(toolkit: Toolkit, name: str, told: Told) -> Iterator[str]:
    """Where a program's answer to ``--version`` contradicts the identity."""
    yield from _against_part(toolkit, name, told.version, f"`{name} --version`")


def differences(toolkit: Toolkit, told: Told, witnesses: Witnesses) -> Iterator[str]:
    """Every contradiction, with both versions and where each was read."""
    yield from witnesses.damaged
    for name, ptx in witnesses.ptx.items():
        yield from _against_part(toolkit, "cicc", ptx.version, f"the heading of {name}")
        yield from _builds(told, "cicc", ptx.build, name)
    for name, note in witnesses.cubins.items():
        yield from _against_part(toolkit, "ptxas", note.version, f"the note of {name}")
        yield from _builds(told, "ptxas", note.build, name)
    # Every pass normally sees the same: it is told once.
    passes = {tuple(table.values()): name for name, table in [*witnesses.tables.items()][::-1]}
    for name in sorted(passes.values()):
        yield from _headers(toolkit, name, witnesses.tables[name])


def unfinished(toolkit: Toolkit, witnesses: Witnesses) -> Iterator[str]:
    """What a compile that ended well should have left, and did not."""
    asked = tuple(sorted(f"sm_{name}" for name in toolkit.architectures))
    made = {
        "PTX": sorted(ptx.target or "no target" for ptx in witnesses.ptx.values()),
        "cubins": sorted(note.target or "no target" for note in witnesses.cubins.values()),
        "the object": sorted(witnesses.object_targets),
    }
    for what, targets in made.items():
        if tuple(targets) != asked:
            found = " ".join(targets) or "none"
            yield f"GPU code in {what}: expected {' '.join(asked)}, found {found}"
    if len(witnesses.tables) != 1 + len(asked):
        expected = f"one for the host and {len(asked)} for the GPU"
        yield f"preprocessor runs: expected {expected}, found {len(witnesses.tables)}"


def codes(witnesses: Witnesses) -> tuple[TrialCode, ...]:
    """PTX and cubin of each architecture, of witnesses without a difference."""
    notes = {note.target: note for note in witnesses.cubins.values()}
    return tuple(
        TrialCode(
            architecture=(ptx.target or "").removeprefix("sm_"),
            cicc=ptx.version or UNSTATED,
            cicc_build=ptx.build,
            isa=ptx.isa or UNSTATED,
            ptxas=notes[ptx.target].version or UNSTATED,
            ptxas_build=notes[ptx.target].build,
        )
        for ptx in witnesses.ptx.values()
    )


def _headers(toolkit: Toolkit, name: str, table: Mapping[str, int]) -> Iterator[str]:
    runtime, driver = thousands(table["CUDART_VERSION"]), thousands(table["CUDA_VERSION"])
    api = joined(table, "__CUDA_API_VER_MAJOR__", "__CUDA_API_VER_MINOR__")
    yield from _against_part(toolkit, "nvcc", cudacc(table), f"__CUDACC_VER_* in {name}")
    yield from _against_part(toolkit, "nvcc", api, f"__CUDA_API_VER_* in {name}")
    yield from _against_part(toolkit, "nvcc", runtime, f"CUDART_VERSION in {name}")
    yield from _against_part(toolkit, "cudart headers", runtime, f"CUDART_VERSION in {name}")
    yield from _against_part(toolkit, "nvcc", driver, f"CUDA_VERSION in {name}")
    yield from _against_part(toolkit, "cublas headers", cublas(table), f"CUBLAS_VER_* in {name}")
    host = host_compiler(table)
    if host != toolkit.host.identification:
        expected = f"{toolkit.host.identification} ({toolkit.host.cxx})"
        yield f"host compiler: expected {expected}, nvcc used {host} ({name})"


def _against_part(toolkit: Toolkit, part: str, found: str | None, where: str) -> Iterator[str]:
    known = {entry.name: entry for entry in toolkit.parts}
    entry = known.get(part)
    stated = entry is not None and _STATED.fullmatch(entry.version) is not None
    if not stated and part in _OF_NVCCS_RELEASE:
        entry = known.get("nvcc")
        stated = entry is not None
    if entry is None or not stated:
        return
    if found is None or not agree(found, entry.version):
        expected = f"{entry.version} ({entry.name}, {entry.read_from or os.fspath(entry.path)})"
        yield f"{part}: expected {expected}, found {found or 'no version'} ({where})"


def _builds(told: Told, part: str, build: str | None, name: str) -> Iterator[str]:
    if told.build is not None and build is not None and build != told.build:
        yield f"{part}: expected build {told.build} as nvcc's, found build {build} ({name})"
