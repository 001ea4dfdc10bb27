"""All that is read of a machine, as one value that can be kept in a file and judged elsewhere.

Sizes are bytes. What could not be read is None, and ``Machine.unread`` has the reason under the
field's name (``gpu.power``). No user, host, serial number or network address is in it, see
``redact``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from sparkbuild.errors import HostError, ManifestError
from sparkbuild.files import write_atomic
from sparkbuild.toolkit.model import State

SCHEMA: Final = 1
UNLIMITED: Final = -1
"""As RLIM_INFINITY."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a machine."""


class Limit(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A resource limit of this process; ``UNLIMITED`` where there is none."""

    soft: int
    hard: int


class Clock(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kernel's view of its clock, and the largest error it allows for, in seconds."""

    synchronised: bool
    error: float


class System(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Operating system, and what a shell there gives to programs."""

    os: str | None
    """As /etc/os-release names it."""
    kernel: str
    architecture: str
    """As ``uname -m`` has it."""
    product: str | None
    """The maker's name for the machine, from DMI."""
    dgx: str | None = None
    """Name and version in /etc/dgx-release; None where there is no such file."""
    tegra: bool = False
    """A Jetson: the one Arm machine that NVIDIA's arm64 packages are for."""
    glibc: str | None = None
    locale: str = ""
    """Of LC_ALL, LC_CTYPE, LANG the first that is set."""
    encoding: str = ""
    """Of that locale; ``unknown`` where the C library does not have it."""
    container: str | None = None
    """Which kind (``docker``), None outside."""
    memory_limit: int | None = None
    """A control group's limit below the machine's memory."""
    process_limit: int | None = None
    """A control group's limit on processes and threads."""
    limits: dict[Literal["memlock", "nofile", "nproc"], Limit] = {}
    clock: Clock | None = None
    openssl: str | None = None
    """Version in the development headers; None where there are none."""
    variables: dict[str, str] = {}
    """Of the environment: those that CMake, the CUDA libraries, the loader, llama.cpp read."""


class GpuProcess(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program on a GPU: its name without folders, and its memory there."""

    program: str
    memory: int | None


class Device(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU."""

    name: str
    capability: tuple[int, int] | None = None
    memory: int | None = None
    """None on GB10, whose driver reports none."""
    power: float | None = None
    """Watts."""
    utilisation: int | None = None
    """Percent of the last sample."""
    processes: tuple[GpuProcess, ...] | None = None


class Gpu(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVIDIA's driver and its GPUs."""

    driver: str | None = None
    """Version of the kernel module; None where none is loaded."""
    cuda: int | None = None
    """The newest CUDA that the driver supports: 13000 is 13.0."""
    devices: tuple[Device, ...] = ()


class Swap(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place that memory is swapped to."""

    path: str
    kind: Literal["zram", "file", "partition"]
    size: int
    used: int
    priority: int


class Mount(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file system in memory."""

    path: str
    used: int


class Memory(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """/proc/meminfo in bytes, and who holds what it does not tell."""

    meminfo: dict[str, int]
    swaps: tuple[Swap, ...] | None = None
    zram: int | None = None
    """Memory that zram devices hold for what was swapped to them."""
    orphans: int | None = None
    """Shared memory segments that no process is attached to."""
    tmpfs: tuple[Mount, ...] | None = None
    swappiness: int | None = None
    watermark_scale_factor: int | None = None


class Speed(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured sequential read that went past the page cache."""

    bytes: int
    seconds: float
    file: Literal["existing", "temporary"]


class Disk(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file system below a folder."""

    folder: str
    kind: str
    size: int
    free: int
    """What a user may still write."""
    speed: Speed | None = None


class AptSource(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line or stanza of apt's that names a repository of NVIDIA's."""

    file: str
    uri: str
    enabled: bool = True


class Tried(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A small program compiled, linked and run with a toolkit and the host compiler."""

    good: bool
    compiler: str
    """``GNU 13.3.0 (/usr/bin/c++)``."""
    error: str = ""


class Root(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CUDA toolkit on this machine."""

    root: str
    platform: str
    """``linux-x86_64`` or ``linux-aarch64``: what its programs run on."""
    toolchain: str | None
    """None where the recipes know no such release."""
    nvcc: str | None
    state: State
    where: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    tried: Tried | None = None
    """With the compiler that a build takes; None where it was not tried."""
    goes_with: str | None = None
    """Where that one was refused: another C++ compiler of this machine that was not."""


class CMake(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one cmake would take by itself."""

    version: str
    toolkit: str | None
    toolkit_version: str
    compiler: str | None
    agrees: bool


class Library(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the loader takes for a library's name."""

    soname: str
    path: str
    """Links followed."""
    through: Literal["LD_LIBRARY_PATH", "cache"]


class Toolkits(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CUDA toolkits, and which of them each tool would take."""

    roots: tuple[Root, ...] | None = None
    cmake: tuple[CMake, ...] | None = None
    shell: str | None = None
    """The nvcc that a shell starts, links followed; None where there is none."""
    libraries: tuple[Library, ...] | None = None
    compiler: str | None = None
    """The host compiler that a build takes; None where there is none."""


class Reach(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a place that the recipes name answered, and after how many seconds."""

    place: str
    reached: bool
    seconds: float
    problem: str = ""


class Machine(_Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine at one moment."""

    schema: Literal[1] = SCHEMA
    origin: str
    """Where this comes from: ``read``, or what is documented and what assumed."""
    sparkbuild: str
    system: System
    gpu: Gpu
    memory: Memory
    disks: tuple[Disk, ...] = ()
    apt: tuple[AptSource, ...] | None = None
    toolkits: Toolkits
    network: tuple[Reach, ...] | None = None
    unread: dict[str, str] = {}
    """Field to the reason why it could not be read, or was not tried."""


def save(machine: Machine, path: Path) -> None:
    """Write a machine to a file. Raises DiskFullError, HostError."""
    try:
        write_atomic(path, msgspec.json.format(msgspec.json.encode(machine)) + b"\n")
    except OSError as error:
        raise HostError(
            f"cannot write {path}: {error.strerror}", next_step="name another file: --capture FILE"
        ) from error


def load(path: Path) -> Machine:
    """A machine from its file. Raises ManifestError where it is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Machine)
    except (OSError, ValueError) as error:
        raise ManifestError(
            f"{path} holds no captured machine: {error}",
            evidence=[path],
            next_step="make one there: sparkbuild doctor --capture FILE.json",
        ) from error
