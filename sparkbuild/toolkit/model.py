"""What the toolkit stage gives."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from sparkbuild.files import digest_of

State = Literal["good", "known bad", "mixed", "incomplete", "unknown"]
"""Of a toolkit root: one release throughout; that, with a proven defect; parts of several; parts
or links missing; consistent, and of no release that the recipes know."""

UNSTATED: Final = "unstated"
"""Version of a part that states none and whose bytes no lock knows."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a toolkit: its version, where that was read, and the digest of its files.

    ``sha256`` is ``parts.part_digest``. ``known`` are the locked releases that hold these very
    bytes (``cuda-13.0``); empty where the bytes are in no lock.
    """

    name: str
    version: str
    read_from: str
    path: str
    sha256: str
    known: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a root is no whole toolkit, with both versions in the text where parts disagree."""

    kind: Literal["missing", "mixed", "damaged"]
    text: str


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A root read through: every part that is there, what is wrong, what should be known.

    ``toolchain`` is the one whose release this is (by nvcc), None where the recipes know none.
    ``advisories`` are the ids that match the default or the asked architectures.
    """

    root: str
    platform: str
    """``linux-x86_64`` or ``linux-aarch64``, read from the programs' ELF headers."""
    state: State
    toolchain: str | None
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    advisories: tuple[str, ...] = ()

    def part(self, name: str) -> Part | None:
        """The part of that name, None where it is not there."""
        return next((part for part in self.parts if part.name == name), None)


class TrialCode(msgspec.Struct, frozen=True, kw_only=True):
    """GPU code of a trial compile for one architecture, as its makers signed it."""

    architecture: str
    """``121a``."""
    cicc: str
    """Version in the PTX heading."""
    cicc_build: str | None
    """Changelist number there; CUDA 13.2's compiler does not tell it."""
    isa: str
    """PTX version: ``9.0``."""
    ptxas: str
    """Version in the cubin's note."""
    ptxas_build: str | None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A toolkit that compiled, linked and ran one small program, every witness telling one story.

    ``runtime`` is what ``cudaRuntimeGetVersion`` returned (13000 is 13.0), None where this machine
    may not run the program; ``driver`` is ``cudaDriverGetVersion``'s, 0 without a driver.
    """

    nvcc: str
    nvcc_build: str | None
    cudacc: str
    """``__CUDACC_VER_*`` in the compile: ``13.0.88``."""
    cudart: int
    """``CUDART_VERSION`` in the compile: 13000."""
    cublas: str
    """``CUBLAS_VER_*`` in the compile: ``13.1.0.3``."""
    codes: tuple[TrialCode, ...]
    object_targets: tuple[str, ...]
    """GPU code in the object file: ``sm_121a``."""
    host_compiler: str
    """As nvcc's preprocessor run saw it: ``GNU 12.2.0``."""
    glibc: str
    runtime: int | None
    driver: int | None
    folder: str
    """Where the log, the PTX and the cubins are."""


class HostCompiler(msgspec.Struct, frozen=True, kw_only=True):
    """The C and C++ compilers: absolute paths, CMake's identification, target triple."""

    c: str
    cxx: str
    identification: str
    """As CMake prints it: ``GNU 12.2.0``."""
    target: str
    sha256: str
    """Digest over both drivers' files."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A defect that matches a toolkit and that the user took upon himself: ``--accept ID``."""

    id: str
    effect: str


class Toolkit(msgspec.Struct, frozen=True, kw_only=True):
    """A whole toolkit: host compiler and, for CUDA, every part under one root."""

    toolchain: str
    label: str
    kind: Literal["cpu", "cuda"]
    host: HostCompiler
    root: str | None = None
    parts: tuple[Part, ...] = ()
    architectures: tuple[str, ...] = ()
    """Such as ``121a``, in the order asked for; empty for a CPU build."""
    options: dict[str, str] = {}
    """CMake options of the toolchain on this platform."""
    notes: tuple[str, ...] = ()
    """What must be said even though nothing was refused."""
    accepted: tuple[Accepted, ...] = ()
    """Advisories that match this toolkit and that the user accepted."""
    lifted: tuple[Accepted, ...] = ()
    """Advisories that match and that a patch works around: qualification has to show it."""

    @property
    def identity(self) -> str:
        """Digest of every part and of the host compiler, places left out."""
        return digest_of(
            {
                "host": [self.host.identification, self.host.target, self.host.sha256],
                "parts": {part.name: [part.version, part.sha256] for part in self.parts},
            }
        )

    def part(self, name: str) -> Part:
        """The part of that name. Raises KeyError where there is none."""
        return next(part for part in self.parts if part.name == name)
