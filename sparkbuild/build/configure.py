"""Stage 5: run CMake in a fresh directory, read what it did, refuse what was not asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.build import arguments, enforce, surroundings
from sparkbuild.build.cache import serving
from sparkbuild.build.model import Compiler, Configuration
from sparkbuild.build.output import Prose, parse_output
from sparkbuild.build.reply import Reply, read_reply, write_queries
from sparkbuild.build.rules import OBJCOPY, rule_problems
from sparkbuild.build.tools import Tools, find_tools
from sparkbuild.errors import ConfigureError, HostError
from sparkbuild.files import disk_full
from sparkbuild.manifest import Patchset
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Toolkit

_DISK_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")


def configure(
    patchset: Patchset,
    toolkit: Toolkit,
    tree: PatchedTree,
    *,
    binary_dir: Path,
    log: Path,
    progress: Callable[[int, int, str], None] = lambda *_: None,
    tools: Tools | None = None,
) -> Configuration:
    """Configure ``tree`` into ``binary_dir``, which is made anew.

    ``progress`` gets (lines so far, 0, the line): CMake does not know its own end. ``tools`` are
    those of this installation where none are given.

    Raises ConfigureError with the first CMake error or with every mismatch, ToolkitMismatchError
    when CUDA parts disagree, DiskFullError.
    """
    tools = tools or find_tools()
    _refuse_foreign(binary_dir)
    log.unlink(missing_ok=True)
    own = binary_dir / surroundings.TOOLS_DIRECTORY
    surroundings.fresh_directory(binary_dir, own)
    write_queries(binary_dir)
    surroundings.install_git(own, tree.identity, tree.build)
    where = arguments.places(
        toolkit,
        source=tree.directory,
        binary=str(binary_dir),
        ninja=str(tools.ninja),
        cache=tools.cache,
    )
    argv = arguments.configure_arguments(patchset, toolkit, where)
    env = surroundings.build_environment(own, [toolkit.host.c, toolkit.host.cxx])
    _refuse_no_objcopy(toolkit, env)
    with serving(tools.cache, env, log=log.with_name("cache.log")) as reached:
        prose = _run([str(tools.cmake), *argv], reached, binary_dir, log, progress)
    reply = read_reply(binary_dir)
    _refuse_other_rules(toolkit, binary_dir, log)
    facts = enforce.Facts(
        prose=prose, reply=reply, cmake_version=tools.cmake_version, roots=_roots(toolkit)
    )
    openssl = enforce.enforce(patchset, toolkit, facts, evidence=[log])
    return Configuration(
        source_dir=tree.directory,
        binary_dir=str(binary_dir),
        arguments=argv,
        cmake_version=reply.cmake_version,
        compilers=_compilers(prose, reply),
        cuda_toolkit_version=prose.toolkit_version,
        cuda_architectures=_architectures(patchset, reply),
        cuda_flags=reply.cuda_flags(patchset.build.targets),
        openssl=openssl,
        artifacts=reply.artifacts(patchset.build.targets),
        warnings=(*enforce.remaining_warnings(prose), *_uncached(tools)),
    )


def _uncached(tools: Tools) -> tuple[str, ...]:
    return (tools.cache.note,) if tools.cache and tools.cache.note else ()


def _run(
    argv: Sequence[str],
    env: Mapping[str, str],
    binary_dir: Path,
    log: Path,
    progress: Callable[[int, int, str], None],
) -> Prose:
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        progress(len(lines), 0, line.removeprefix("-- "))

    done = process.run(argv, log=log, env=env, cwd=binary_dir, on_line=on_line)
    prose = parse_output("\n".join(lines))
    if done.returncode == 0:
        return prose
    if any(_DISK_FULL.search(line) for line in lines):
        raise disk_full(binary_dir)
    raise _failed(done, prose, log)


def _refuse_no_objcopy(toolkit: Toolkit, env: Mapping[str, str]) -> None:
    if toolkit.kind == "cuda" and process.find_program(OBJCOPY, env=env) is None:
        raise HostError(
            f"{OBJCOPY} is missing: without it CUDA objects would differ from build to build",
            problems=[f"expected in one of {env['PATH']}"],
            next_step="install the host compiler's binutils (Debian and Ubuntu: apt install "
            "binutils)",
        )


def _refuse_other_rules(toolkit: Toolkit, binary_dir: Path, log: Path) -> None:
    """The rule of ``rules.cuda_object`` must have got through, or no build could be repeated."""
    problems = list(rule_problems(binary_dir)) if toolkit.kind == "cuda" else []
    if problems:
        raise ConfigureError(
            "CMake would make CUDA objects by another rule than it was given",
            problems=problems,
            evidence=[binary_dir / "CMakeFiles" / "rules.ninja", log],
            next_step="report this: sparkbuild has to know this CMake's rules",
        )


def _roots(toolkit: Toolkit) -> tuple[str, ...]:
    if toolkit.root is None:
        return ()
    return tuple(dict.fromkeys([toolkit.root, os.path.realpath(toolkit.root)]))


def _refuse_foreign(directory: Path) -> None:
    """Only a directory that an earlier configure made may be removed."""
    if not directory.exists() or (directory / surroundings.TOOLS_DIRECTORY).is_dir():
        return
    if not directory.is_dir() or any(directory.iterdir()):
        raise ConfigureError(
            f"{directory} holds something that sparkbuild did not make",
            problems=[
                f"expected no such path, or a build directory with {surroundings.TOOLS_DIRECTORY}/"
            ],
            evidence=[directory],
            next_step="move it away, or choose another place with --work DIR",
        )


def _failed(done: process.Finished, prose: Prose, log: Path) -> ConfigureError:
    if done.returncode < 0:
        reason = f"CMake was ended by signal {-done.returncode}"
    elif prose.errors:
        reason = prose.errors[0].summary
    else:
        reason = f"CMake ended with status {done.returncode} and named no error"
    return ConfigureError(
        "CMake could not configure the sources",
        problems=[reason],
        evidence=[log],
        detail=done.tail,
        next_step=f"read the first error in {log}",
    )


def _compilers(prose: Prose, reply: Reply) -> tuple[Compiler, ...]:
    return tuple(
        Compiler(language=c.language, path=replied.path, identification=c.identification)
        for c in prose.compilers
        if (replied := reply.compilers.get(c.language)) is not None
    )


def _architectures(patchset: Patchset, reply: Reply) -> tuple[str, ...]:
    codes = reply.cuda_code(patchset.build.targets).values()
    return tuple(sorted({code.removeprefix("sm_") for group in codes for code in group}))
