"""A toolkit of another platform, run by qemu's user mode: a Spark's compiler, judged here."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.errors import HostError
from sparkbuild.files import write_atomic

_MACHINES: Final = {"linux-aarch64": ("qemu-aarch64", "aarch64-linux-gnu")}
"""Platform to qemu's program and the triple of Debian's cross compiler and C library."""
_PROGRAMS: Final = (
    "bin/cudafe++", "bin/fatbinary", "bin/nvlink", "bin/ptxas", "bin/bin2c", "nvvm/bin/cicc",
)  # fmt: skip
"""What nvcc starts."""


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """How programs of another platform run here: the emulator with its C library, a compiler."""

    prefix: tuple[str, ...]
    host: str
    """The cross compiler, which preprocesses with the other platform's headers."""


def emulation(platform: str) -> Emulation:
    """What this machine has for ``platform``.

    Raises HostError where the emulator, the C library or the cross compiler is missing.
    """
    known = _MACHINES.get(platform)
    if known is None:
        raise HostError(
            f"compilers of {platform} cannot be run here",
            problems=[f"known to run emulated: {', '.join(_MACHINES)}"],
            next_step="qualify it on a machine of that platform",
        )
    program, triple = known
    found, host = process.find_program(program), process.find_program(f"{triple}-g++")
    found = found or process.find_program(f"{program}-static")
    library = Path("/usr") / triple
    missing = [
        name
        for name, there in (
            (program, found),
            (f"{triple}-g++", host),
            (str(library / "lib"), (library / "lib").is_dir()),
        )
        if not there
    ]
    if missing or found is None or host is None:
        raise HostError(
            f"compilers of {platform} cannot be run here",
            problems=[f"{name} is missing" for name in missing],
            next_step=f"on Debian and Ubuntu: sudo apt install qemu-user g++-{triple}",
        )
    return Emulation(prefix=(str(found), "-L", str(library)), host=str(host))


def shadow(root: Path, folder: Path, emulation: Emulation) -> Path:
    """A root in ``folder`` that runs ``root``'s programs under the emulator.

    nvcc itself is copied, since it looks for all others beside its own file; those are scripts.
    Headers and device libraries are links.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for place in ("bin", "nvvm/bin"):
        (folder / place).mkdir(parents=True)
    for name in _PROGRAMS:
        if (root / name).is_file():
            argv = shlex.join([*emulation.prefix, str(root / name)])
            write_atomic(folder / name, f'#!/bin/sh\nexec {argv} "$@"\n', mode=0o755)
    for name in ("bin/nvcc", "bin/nvcc.profile"):
        shutil.copy2(root / name, folder / name)
    for name in ("include", "nvvm/libdevice", "lib64", "lib", "bin/crt", "nvvm/include"):
        if (root / name).exists():
            (folder / name).symlink_to((root / name).resolve())
    return folder
