"""CMake's command line, computed from the recipes, and the key that a build goes by."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sparkbuild.build.cache import CompileCache
from sparkbuild.build.policy import runpath
from sparkbuild.build.rules import cuda_object
from sparkbuild.build.tools import Tools, find_tools
from sparkbuild.errors import ConfigureError
from sparkbuild.files import digest_of
from sparkbuild.manifest import Patchset
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Toolkit

KEY_VERSION: Final = 2
"""Raise it when the same inputs would make other bytes: older builds then no longer answer."""

LINKER_FLAGS: Final = "-Wl,--build-id=sha1,--enable-new-dtags"
"""A build id for every file whatever the distribution's default, and RUNPATH, never RPATH.

One word: ggml hands these flags to the compiler as a single argument to learn the linker's
version.
"""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]*")

_APPENDED: Final = (
    "CMAKE_C_FLAGS", "CMAKE_CUDA_FLAGS", "CMAKE_CXX_FLAGS", "CMAKE_EXE_LINKER_FLAGS",
    "CMAKE_MODULE_LINKER_FLAGS", "CMAKE_SHARED_LINKER_FLAGS",
)  # fmt: skip
"""Flags of a recipe go after ours; every other option has one owner."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where things are on this machine: all that may differ between two equal builds."""

    source: str
    binary: str
    ninja: str
    c: str
    cxx: str
    toolkit: str
    launchers: tuple[tuple[str, str], ...] = ()
    """Language and program where compilers are started through a compile cache."""


PLACEHOLDERS: Final = Places(
    source="<source>",
    binary="<binary>",
    ninja="<ninja>",
    c="<c>",
    cxx="<cxx>",
    toolkit="<toolkit>",
)


def places(
    toolkit: Toolkit,
    *,
    source: str,
    binary: str,
    ninja: str,
    cache: CompileCache | None = None,
) -> Places:
    """The real places of a build."""
    return Places(
        source=source,
        binary=binary,
        ninja=ninja,
        c=toolkit.host.c,
        cxx=toolkit.host.cxx,
        toolkit=toolkit.root or "",
        launchers=tuple((name, str(cache.program)) for name in cache.languages) if cache else (),
    )


def configure_arguments(patchset: Patchset, toolkit: Toolkit, where: Places) -> tuple[str, ...]:
    """CMake's arguments, without the program: options sorted, so that equal builds read equal.

    Raises ConfigureError when two sides set one option to different values.
    """
    options = _merged(
        {
            "sparkbuild": _own_options(toolkit, where),
            f"patchset {patchset.name}": patchset.build.cmake,
            f"toolchain {toolkit.toolchain}": toolkit.options,
        }
    )
    settings = [f"-D{name}={value}" for name, value in sorted(options.items())]
    return ("-S", where.source, "-B", where.binary, "-G", "Ninja", *settings)


def build_key(
    patchset: Patchset,
    toolkit: Toolkit,
    tree: PatchedTree,
    *,
    tools: Tools | None = None,
) -> str:
    """The name of a build, 64 hex digits: same key, nothing to do.

    Machine-specific folders enter as placeholders, so that a moved checkout keeps its key.
    ``tools`` are those of this installation where none are given.
    """
    tools = tools or find_tools()
    languages = tools.cache.languages if tools.cache else ()
    where = replace(PLACEHOLDERS, launchers=tuple((name, "<cache>") for name in languages))
    return digest_of(
        {
            "version": KEY_VERSION,
            "tree": tree.commit,
            "number": tree.build,
            "toolkit": toolkit.identity,
            "arguments": configure_arguments(patchset, toolkit, where),
            "targets": sorted(patchset.build.targets),
            "cmake": tools.cmake_version,
            "ninja": tools.ninja_version,
            # Only where something was accepted: a key without it stays what it was.
            **_accepted(toolkit),
        }
    )


def _accepted(toolkit: Toolkit) -> dict[str, object]:
    """The wheel carries what was accepted, word for word."""
    if not toolkit.accepted:
        return {}
    return {"accepted": sorted([accepted.id, accepted.effect] for accepted in toolkit.accepted)}


def _own_options(toolkit: Toolkit, where: Places) -> dict[str, str]:
    """What a build is made with whatever the recipes say."""
    maps = _prefix_maps(where)
    cuda_maps = (_prefix_map(where.toolkit, "cuda"), *maps)
    own = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        "CMAKE_CXX_COMPILER": where.cxx,
        "CMAKE_CXX_FLAGS": " ".join(maps),
        "CMAKE_C_COMPILER": where.c,
        "CMAKE_C_FLAGS": " ".join(maps),
        "CMAKE_EXE_LINKER_FLAGS": LINKER_FLAGS,
        "CMAKE_INSTALL_RPATH": ";".join(runpath(toolkit)),
        "CMAKE_MAKE_PROGRAM": where.ninja,
        "CMAKE_MODULE_LINKER_FLAGS": LINKER_FLAGS,
        "CMAKE_SHARED_LINKER_FLAGS": LINKER_FLAGS,
    }
    own |= {f"CMAKE_{name}_COMPILER_LAUNCHER": program for name, program in where.launchers}
    if toolkit.kind == "cuda":
        own |= {
            "CMAKE_CUDA_ARCHITECTURES": ";".join(f"{a}-real" for a in toolkit.architectures),
            "CMAKE_CUDA_COMPILER": f"{where.toolkit}/bin/nvcc",
            "CMAKE_CUDA_COMPILE_OBJECT": cuda_object(where.cxx),
            "CMAKE_CUDA_FLAGS": " ".join(_for_host(flag) for flag in cuda_maps),
            "CMAKE_CUDA_HOST_COMPILER": where.cxx,
            "CUDAToolkit_ROOT": where.toolkit,
        }
    return own


def _prefix_maps(where: Places) -> tuple[str, ...]:
    """Keep this machine's folders out of the binaries: ``__FILE__`` of every assert holds one."""
    return (_prefix_map(where.binary, "build"), _prefix_map(where.source, "llama.cpp"))


def _prefix_map(place: str, name: str) -> str:
    """Quoted behind its first word: CMake takes quotes away that stand around a whole value."""
    return f"-ffile-prefix-map={shlex.quote(f'{place}={name}')}"


def _for_host(flag: str) -> str:
    """Quoted once more where it has quotes: nvcc starts the host compiler through a shell."""
    return f"-Xcompiler={shlex.quote(flag)}"


def _merged(sides: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    options: dict[str, str] = {}
    owner: dict[str, str] = {}
    problems: list[str] = []
    for side, name, value in _settings(sides):
        if not _NAME.fullmatch(name) or "\n" in value:
            problems.append(f"{side}: {name!r} = {value!r} is no CMake option")
        elif name not in options:
            options[name], owner[name] = value, side
        elif name in _APPENDED and owner[name] == "sparkbuild":
            options[name], owner[name] = f"{options[name]} {value}", side
        elif options[name] != value:
            first = f"{options[name]!r} ({owner[name]})"
            problems.append(f"{name}: {first} against {value!r} ({side})")
    if problems:
        raise ConfigureError(
            "the recipes disagree about CMake options",
            problems=problems,
            next_step="set each of these options in one place only",
        )
    return options


def _settings(sides: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str]]:
    for side, options in sides.items():
        for name, value in options.items():
            yield side, name, value
