"""The host compiler: found on ``PATH``, asked what it is, identified by its files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sparkbuild.errors import HostError
from sparkbuild.files import digest_of, sha256_file
from sparkbuild.process import capture, environment, find_program
from sparkbuild.toolkit.model import HostCompiler

_PAIRS: Final = (("cc", "c++"), ("gcc", "g++"), ("clang", "clang++"))
"""C and C++ drivers in the order in which CMake itself looks for them."""


def find_host_compiler() -> HostCompiler:
    """The first pair of C and C++ compilers on ``PATH`` that is one compiler.

    Raises HostError where there is none, with each pair's trouble.
    """
    problems: list[str] = []
    for c_name, cxx_name in _PAIRS:
        c, cxx = find_program(c_name), find_program(cxx_name)
        if c is None or cxx is None:
            missing = [name for name, path in ((c_name, c), (cxx_name, cxx)) if path is None]
            problems.append(f"{' and '.join(missing)} not on PATH")
            continue
        c_says, cxx_says = _identify(c, "c"), _identify(cxx, "c++")
        if c_says is None or cxx_says is None or c_says != cxx_says:
            problems.append(f"{c} is {c_says or 'no compiler'}, {cxx} {cxx_says or 'no compiler'}")
            continue
        target = capture([str(cxx), "-dumpmachine"]).stdout.strip()
        digest = digest_of({"c": sha256_file(c.resolve()), "cxx": sha256_file(cxx.resolve())})
        return HostCompiler(
            c=str(c), cxx=str(cxx), identification=cxx_says, target=target, sha256=digest
        )
    raise HostError(
        "no C and C++ compiler on this machine",
        problems=problems,
        next_step="install one, for instance `sudo apt-get install g++`",
    )


def identification(macros: str) -> str | None:
    """CMake's words (``GNU 12.2.0``, ``Clang 14.0.6``) from a compiler's predefined macros."""
    defined = dict(re.findall(r"^#define (\w+) (.*)$", macros, re.MULTILINE))

    def version(*names: str) -> str | None:
        values = [defined.get(name) for name in names]
        return ".".join(v for v in values if v) if all(values) else None

    if "__clang__" in defined:
        number = version("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
        return f"Clang {number}" if number else None
    number = version("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    return f"GNU {number}" if number else None


def _identify(compiler: Path, language: str) -> str | None:
    answer = capture([str(compiler), "-dM", "-E", "-x", language, "/dev/null"], env=environment())
    return identification(answer.stdout) if answer.returncode == 0 else None
