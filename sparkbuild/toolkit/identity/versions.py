"""What versions files state: strings in programs, macros in headers, names of libraries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

_SIGNATURE: Final = b"Cuda compilation tools, release "
_RELEASE: Final = re.compile(rb"(\d{1,3}\.\d{1,3}), V(\d{1,3}\.\d{1,3}\.\d{1,5})(?!\d)")
_BUILD: Final = re.compile(rb"Build (cuda_[0-9a-z.]{1,40}/compiler\.[0-9_]{1,40})(?=[^0-9_])")

_NEAR: Final = 256
"""Bytes around a program's version in which its compiler build is named; 102 at most in the
programs of CUDA 12.9 to 13.5."""

_CHUNK: Final = 1 << 20

MACROS: Final = (
    "CUDART_VERSION", "CUDA_VERSION", "CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH",
    "CUBLAS_VER_BUILD", "CCCL_VERSION", "CUB_VERSION", "THRUST_VERSION",
)  # fmt: skip
"""Macros by which a toolkit's headers state versions."""

_MACRO: Final = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(%s)[ \t]+(\d{1,9})\b" % "|".join(MACROS).encode(), re.MULTILINE
)


def embedded(read: Callable[[int, int], bytes], size: int) -> tuple[set[str], set[str]]:
    """The versions and compiler builds that a program embeds, to print them when asked.

    ``Cuda compilation tools, release 13.0, V13.0.88`` states 13.0.88, and 13.0 too where the two
    disagree; ``Build cuda_13.0.r13.0/compiler.36424714_0`` beside it is the build, which all
    programs of one release share. ``read(offset, length)`` gives fewer bytes past ``size``.
    """
    versions: set[str] = set()
    builds: set[str] = set()
    beside = len(_SIGNATURE) + 2 * _NEAR
    for start in range(0, size, _CHUNK):
        # With room on both sides: what belongs to a signature is never seen cut in two.
        first = max(start - beside, 0)
        data = read(first, start - first + _CHUNK + beside)
        at = data.find(_SIGNATURE, start - first)
        while 0 <= at < start - first + _CHUNK:
            end = at + len(_SIGNATURE)
            match = _RELEASE.match(data, end)
            if match:
                release, version = match[1].decode(), match[2].decode()
                versions |= {version} if agree(release, version) else {release, version}
                around = data[max(at - _NEAR, 0) : end + _NEAR]
                builds |= {build.decode() for build in _BUILD.findall(around)}
            at = data.find(_SIGNATURE, end)
    return versions, builds


def macros(text: bytes) -> dict[str, tuple[int, ...]]:
    """Values of the version macros that a header defines, each once, sorted."""
    found: dict[str, set[int]] = {}
    for name, value in _MACRO.findall(text):
        found.setdefault(name.decode(), set()).add(int(value))
    return {name: tuple(sorted(values)) for name, values in found.items()}


def thousands(number: int) -> str:
    """``13.0`` from the 13000 of CUDART_VERSION and CUDA_VERSION (cuda_runtime_api.h)."""
    return f"{number // 1000}.{number % 1000 // 10}"


def cccl(number: int) -> str:
    """``3.0.1`` from the 3000001 of CCCL_VERSION (cuda/std/__cccl/version.h)."""
    return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"


def cub(number: int) -> str:
    """``3.0.1`` from the 300001 of CUB_VERSION and THRUST_VERSION."""
    return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"


def cublas(found: Mapping[str, tuple[int, ...]]) -> str | None:
    """``13.1.0.3`` from CUBLAS_VER_MAJOR, _MINOR, _PATCH and _BUILD, None where one lacks."""
    numbers = [found.get(f"CUBLAS_VER_{part}", ()) for part in ("MAJOR", "MINOR", "PATCH", "BUILD")]
    if any(len(number) != 1 for number in numbers):
        return None
    return ".".join(str(number[0]) for number in numbers)


def file_version(name: str) -> str | None:
    """``13.1.0.3`` of ``libcublas.so.13.1.0.3``, None where the name states none."""
    match = re.fullmatch(r"lib[^/]+\.so\.(\d+(?:\.\d+)*)", name, re.ASCII)
    return match[1] if match else None


def agree(one: str, other: str) -> bool:
    """True where two versions are equal as far as both go: 13.0 and 13.0.96 are."""
    return all(a == b for a, b in zip(one.split("."), other.split("."), strict=False))


def shortened(version: str, parts: int = 2) -> str:
    """``13.0`` of ``13.0.88``."""
    return ".".join(version.split(".")[:parts])


_ASSIGNED: Final = re.compile(r"\s*(\w+)\s*(?:\+=|=\+|\?=|=)\s*(.*)")
_NAMED: Final = re.compile(r"\$\((\w+)\)")
_PLACE: Final = re.compile(r"""(?:^|[\s"':;=]|-[A-Za-z]+)(/[^\s"':;]*)""")


def profile_places(text: str, root: str) -> tuple[str, ...]:
    """The places that an ``nvcc.profile`` below ``root`` names, absolute, in its order.

    ``_HERE_`` is the folder of nvcc; other variables of nvcc itself (``_TARGET_DIR_``) are taken
    as empty, which leaves a place in the root where it belongs.
    """
    known = {"_HERE_": f"{root}/bin", "_SPACE_": " "}
    found: dict[str, None] = {}
    for line in text.splitlines():
        match = _ASSIGNED.fullmatch(line.partition("#")[0])
        if match is None:
            continue
        value = _NAMED.sub(lambda name: known.get(name[1], ""), match[2])
        known[match[1]] = value
        found.update({os.path.normpath(place): None for place in _PLACE.findall(value)})
    return tuple(found)
