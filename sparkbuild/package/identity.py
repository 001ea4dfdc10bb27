"""What a wheel is called: distribution, version with local label, platform tag, its scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from packaging.tags import Tag
from packaging.version import InvalidVersion, Version

from sparkbuild.errors import PackageError

DISTRIBUTION: Final = "sparkbuild-llama-cpp"
IMPORT_NAME: Final = "sparkbuild_llama_cpp"
BIN: Final = f"{IMPORT_NAME}/bin"
"""Where the executables and their libraries lie inside the wheel, side by side as they were."""

INFO_FILE: Final = f"{IMPORT_NAME}/build-info.json"
SCRIPTS_MODULE: Final = "_scripts"
REQUIRES_PYTHON: Final = ">=3.9"

TREE_DIGITS: Final = 12
"""Hex digits of the patched tree's git id in the version: 48 bits, as many as the binaries print
of their commit."""

_PLATFORMS: Final = {"EM_X86_64": "linux_x86_64", "EM_AARCH64": "linux_aarch64"}
"""ELF machine to the platform that promises nothing; ``earned.earned_tag`` makes more of it where
that is true."""

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def wheel_version(*, build: int | None, label: str, variant: str, tree: str) -> str:
    """The PEP 440 version ``<build>.0.0+<label>.<variant>.g<tree>``, in its normal form.

    ``build`` is llama.cpp's own number, 0 where a fork has none; ``tree`` the git id of the
    patched tree (hex). Raises PackageError where that is no version.
    """
    parts = [part for part in re.split(r"[^a-z0-9]+", f"{label}.{variant}".lower()) if part]
    text = f"{build or 0}.0.0+{'.'.join(parts)}.g{tree[:TREE_DIGITS]}"
    if not re.fullmatch(rf"[0-9a-f]{{{TREE_DIGITS},}}", tree):
        raise PackageError(
            f"{tree!r} is no git tree id",
            problems=[f"expected {TREE_DIGITS} or more hexadecimal digits"],
            next_step="run the patch stage again: `sparkbuild make` with a fresh --work DIR",
        )
    try:
        return str(Version(text))
    except InvalidVersion as error:
        raise PackageError(
            f"{text!r} is no version that an installer accepts",
            next_step="use only a-z, 0-9 and dashes in the variant's name and the toolchain's "
            "`label`",
        ) from error


def platform_tag(machines: Iterable[str]) -> str:
    """``py3-none-linux_x86_64`` or ``py3-none-linux_aarch64``, by the ELF machine of every file.

    Raises PackageError where the files are for different machines, or for one of no known tag.
    """
    found = sorted(set(machines))
    if len(found) != 1 or found[0] not in _PLATFORMS:
        raise PackageError(
            "the binaries are not all for one machine that wheels know",
            problems=[
                f"expected all of them to be one of {', '.join(sorted(_PLATFORMS))}",
                f"found {', '.join(found) or 'none'}",
            ],
            next_step="build with one host compiler for one machine, then pack again",
        )
    return str(Tag("py3", "none", _PLATFORMS[found[0]]))


def wheel_name(version: str, tag: str) -> str:
    """The wheel's file name."""
    return f"{IMPORT_NAME}-{version}-{tag}.whl"


def dist_info(version: str) -> str:
    """The metadata folder inside the wheel."""
    return f"{IMPORT_NAME}-{version}.dist-info"


def function_name(executable: str) -> str:
    """The Python function that a console script calls: ``llama_server``."""
    return re.sub(r"[^A-Za-z0-9]", "_", executable)


def entry_points(executables: Iterable[str]) -> dict[str, str]:
    """Console script to ``module:function`` for every executable."""
    return {
        name: f"{IMPORT_NAME}.{SCRIPTS_MODULE}:{function_name(name)}"
        for name in sorted(executables)
    }


def name_problems(names: Iterable[str]) -> list[str]:
    """One line for each file name that is not plain, or that meets another one as a function.

    File names go into CMake, Python and zip text: plain ones need no quoting anywhere.
    """
    problems = []
    functions: dict[str, str] = {}
    for name in names:
        if not _FILE_NAME.fullmatch(name):
            problems.append(f"{name!r} is not a plain file name (letters, digits, . _ + -)")
        other = functions.setdefault(function_name(name), name)
        if other != name:
            problems.append(f"{name!r} and {other!r} would be one function, {function_name(name)}")
    return problems
