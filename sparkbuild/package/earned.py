"""The platform tag that the files earn: manylinux where auditwheel's policies say it is true."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkbuild.errors import PackageError

if TYPE_CHECKING:
    from auditwheel.policy import Policy, WheelPolicies

EXCLUDED: Final = ("libcuda.so.*", "libcudart.so.*", "libcublas.so.*", "libcublasLt.so.*")
"""Libraries that a policy does not know and that are no matter of the system's: the driver's, and
those of NVIDIA's wheels, which are declared as dependencies."""

_LOADER: Final = "ld-linux"
_GENERIC: Final = "linux_"


def earned_tag(directory: Path, names: Sequence[str], generic: str) -> str:
    """``py3-none-manylinux_2_35_x86_64`` for files that run wherever that policy holds.

    ``generic`` is the tag without any promise, ``py3-none-linux_x86_64``, which is what remains
    where no policy holds. A policy (PEP 600) names the libraries that a system has, and the newest
    versions of their symbols; auditwheel holds the data and reads the files. Its own analysis of a
    wheel gives the same for these and takes two seconds more: it follows every system library, and
    looks for symbols that some versions of zlib lack. Raises PackageError where a file cannot be
    read.
    """
    from auditwheel.architecture import Architecture  # noqa: PLC0415 - needed for packing only
    from auditwheel.libc import Libc  # noqa: PLC0415
    from auditwheel.policy import WheelPolicies  # noqa: PLC0415

    python, abi, platform = generic.split("-")
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture(platform.removeprefix(_GENERIC)))
    needed, versions = _read(directory, names)
    outside = {
        name
        for name in needed - {*names}
        if _LOADER not in name and not any(fnmatch.fnmatchcase(name, form) for form in EXCLUDED)
    }
    symbols = policies.versioned_symbols_policy(
        {name: {*found} for name, found in versions.items()}
    )
    policy = min(symbols, _knowing(policies, outside))
    return f"{python}-{abi}-{policy.name}"


def _knowing(policies: WheelPolicies, libraries: Iterable[str]) -> Policy:
    """The highest policy whose systems have all these libraries, whole; ``linux`` if there is none.

    A library of which only some symbols are promised counts as one that is not there.
    """
    wanted = {*libraries}
    whole = [
        policy
        for policy in policies
        if wanted <= policy.whitelist and not wanted & policy.blacklist.keys()
    ]
    return max(whole, default=policies.linux)


def _read(directory: Path, names: Sequence[str]) -> tuple[set[str], Mapping[str, set[str]]]:
    """Libraries that the files need, and the symbol versions that they ask of each."""
    from auditwheel.elfutils import elf_find_versioned_symbols  # noqa: PLC0415
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    needed: set[str] = set()
    versions: dict[str, set[str]] = {}
    for name in names:
        try:
            with (directory / name).open("rb") as stream:
                elf = ELFFile(stream)
                for library, version in elf_find_versioned_symbols(elf):
                    versions.setdefault(library, set()).add(version)
                segments: list[Any] = list(elf.iter_segments("PT_DYNAMIC"))
                for segment in segments:
                    needed |= {str(tag.needed) for tag in segment.iter_tags("DT_NEEDED")}
        except Exception as error:
            raise PackageError(
                f"{name} cannot be read: which systems it runs on is not known",
                problems=[f"{type(error).__name__}: {error}"],
                evidence=[directory],
                next_step="run the same command again: what is missing is built again",
            ) from error
    return needed, versions
