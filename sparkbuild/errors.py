"""One base error: what happened, expected and found, the evidence, the next command, the exit code.

Exit codes are part of the interface. Each class owns one; a test proves them unique.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar


class SparkbuildError(Exception):
    """A refusal that a person can act on.

    ``problems`` lists every mismatch found, not only the first. ``evidence`` names the files that
    prove the claim, ``next_step`` the command or edit to try now.
    """

    exit_code: ClassVar[int] = 1
    title: ClassVar[str] = "refused"

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[str] = (),
        evidence: Sequence[Path] = (),
        next_step: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.problems = tuple(problems)
        self.evidence = tuple(evidence)
        self.next_step = next_step
        self.detail = detail
        """Verbatim text from another program, a log's tail for instance."""


class UsageError(SparkbuildError):
    """The command line asks for something that cannot be."""

    exit_code = 2
    title = "usage"


class UnknownNameError(SparkbuildError):
    """No variant, toolchain or toolkit answers to that name."""

    exit_code = 3
    title = "unknown name"


class ManifestError(SparkbuildError):
    """A recipe file is not valid TOML or holds what the schema does not know."""

    exit_code = 4
    title = "manifest"


class SourceMismatchError(SparkbuildError):
    """A source was fetched, and it is not the one that the manifest pins."""

    exit_code = 5
    title = "source differs from its pin"


class SourceUnavailableError(SparkbuildError):
    """No origin of a pin could be reached, and the store does not hold it."""

    exit_code = 6
    title = "source unavailable"


class ArchiveError(SparkbuildError):
    """An archive is damaged, or a member of it would write outside its root."""

    exit_code = 7
    title = "archive refused"


class PatchError(SparkbuildError):
    """A patch does not apply exactly where it was made for."""

    exit_code = 8
    title = "patch"


class ToolkitMismatchError(SparkbuildError):
    """A CUDA toolkit is missing, incomplete, or its parts disagree."""

    exit_code = 9
    title = "toolkit mismatch"


class ToolkitMiscompilesError(SparkbuildError):
    """A toolkit is whole, and emits wrong code for these sources."""

    exit_code = 10
    title = "toolkit miscompiles"


class ConfigureError(SparkbuildError):
    """CMake failed, or configured something other than what was asked."""

    exit_code = 11
    title = "configure"


class BuildError(SparkbuildError):
    """A compile or link step failed."""

    exit_code = 12
    title = "build"


class BinaryError(SparkbuildError):
    """A binary is not what the build was asked to make."""

    exit_code = 13
    title = "binary"


class SmokeError(SparkbuildError):
    """A binary runs and does not tell the truth."""

    exit_code = 14
    title = "smoke"
    report: object | None = None
    """The ``SmokeReport`` so far, where checks had begun."""
    short_of_memory: bool = False
    """The machine's memory ended it, or left no room to begin: it says nothing of the binary."""


class PackageError(SparkbuildError):
    """The wheel is not what was tested, or cannot be installed."""

    exit_code = 15
    title = "package"


class HostError(SparkbuildError):
    """The machine lacks something that the job needs."""

    exit_code = 16
    title = "this machine"


class DiskFullError(SparkbuildError):
    """The disk ran full; what was finished is kept."""

    exit_code = 17
    title = "disk full"


class BusyError(SparkbuildError):
    """Another sparkbuild holds the same build."""

    exit_code = 18
    title = "busy"


class CanaryError(SparkbuildError):
    """A canary model is not what its record says, or cannot be made, derived or asked."""

    exit_code = 19
    title = "canary"


class ModelError(SparkbuildError):
    """A model file cannot be read, or does not fit the build or the machine."""

    exit_code = 20
    title = "model"


class QualificationIncompleteError(SparkbuildError):
    """Nothing was wrong in what a compiler emits, and something of it could not be judged."""

    exit_code = 21
    title = "qualification incomplete"


class TrustError(SparkbuildError):
    """A wheel, or what lies beside it, is not what a trusted key signed or a policy asks for."""

    exit_code = 22
    title = "not trusted"


class FaultsError(SparkbuildError):
    """A seeded fault was not refused in time or not in words, or a clean product was refused."""

    exit_code = 23
    title = "fault matrix"


class HistoryError(SparkbuildError):
    """The history of runs cannot be read or written, or does not hold what is asked for."""

    exit_code = 24
    title = "history"


class NightError(SparkbuildError):
    """A night was not green, or the last green one is too old."""

    exit_code = 25
    title = "nightly"


class BisectError(SparkbuildError):
    """No culprit can be searched for: the ends are not what they were said to be, or all skip."""

    exit_code = 26
    title = "bisect"


class GpuError(SparkbuildError):
    """There is no GPU here that can run what is asked, or its driver does not take it."""

    exit_code = 27
    title = "gpu"


class InternalError(SparkbuildError):
    """A defect of sparkbuild itself."""

    exit_code = 70
    title = "internal error"


EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


def error_classes(base: type[SparkbuildError] = SparkbuildError) -> Iterator[type[SparkbuildError]]:
    """Every error class below ``base``, for the exit code table."""
    for cls in base.__subclasses__():
        yield cls
        yield from error_classes(cls)
