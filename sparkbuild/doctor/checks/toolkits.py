"""Checks of CUDA toolkits: which are whole, which each tool would take, what they go with."""

from __future__ import annotations

import re
import shlex
from typing import Final

from sparkbuild.doctor.captured import AptSource, Library, Machine, Root
from sparkbuild.doctor.checks.common import Check, good_roots, has_driver, plain, unread
from sparkbuild.doctor.model import Command, Finding
from sparkbuild.doctor.rules import Rule

DRIVER_LIBRARY: Final = "libcuda.so.1"
_VERSIONED: Final = re.compile(r"libcuda\.so\.(?P<version>\d+\.\d+(\.\d+)?)")
_REPOSITORY: Final = re.compile(r"/compute/cuda/repos/[^/]+/(?P<platform>[^/]+)")
_HARMLESS: Final = re.compile(r"[A-Za-z0-9:/._~-]+")
"""What may stand in a sed expression and in an address."""
_INSTALL: Final[tuple[Command, ...]] = (("sparkbuild", "toolkit", "install", "13.0"),)
_LISTED: Final = 4


def _told(root: Root, *, why: bool = False) -> str:
    first = f": {plain(root.problems[0])}" if why and root.problems else ""
    told = f"nvcc {plain(root.nvcc or 'none')}, {root.platform}, {root.state}{first}"
    return f"{plain(root.root)} ({told})"


def toolkits(machine: Machine, rule: Rule) -> Finding:
    """One whole toolkit without a known defect."""
    expected, roots = "a whole toolkit without known defects", machine.toolkits.roots
    if roots is None:
        return unread(machine, rule, "toolkits.roots", expected)
    good = good_roots(machine)
    rest = [root for root in roots if root not in good]
    told = [*(_told(root) for root in good), *(_told(root, why=not good) for root in rest)]
    more = f" and {len(told) - _LISTED} more" if len(told) > _LISTED else ""
    found = (", ".join(told[:_LISTED]) or "none") + more
    if good:
        return rule.ok(expected, found)
    if not rule.on_spark and not has_driver(machine):
        reason = "for CUDA builds: sparkbuild toolkit install 13.0 (no root rights needed)"
        return rule.note(expected, found, reason, blocks=rule.entry.concerns)
    return rule.fault(expected, found, mend=_INSTALL)


def cmake_choice(machine: Machine, rule: Rule) -> Finding:
    """What a cmake takes that is told nothing; sparkbuild's own builds tell it everything."""
    expected, choices = "one good toolkit, with its own compiler", machine.toolkits.cmake
    if choices is None:
        return unread(machine, rule, "toolkits.cmake", expected)
    found = "; ".join(
        f"cmake {plain(one.version)}: {plain(one.toolkit or 'no toolkit')} "
        f"({plain(one.toolkit_version or 'no version')}), {plain(one.compiler or 'no compiler')}"
        for one in choices
    )
    states = {root.root: root.state for root in machine.toolkits.roots or ()}
    apart = [one for one in choices if not one.agrees]
    bad = [one for one in choices if one.toolkit and states.get(one.toolkit, "good") != "good"]
    if apart or bad:
        good = good_roots(machine)
        if not good:
            return rule.warning(expected, found, mend=_INSTALL)
        root = good[0].root
        named = f"-DCUDAToolkit_ROOT={root} -DCMAKE_CUDA_COMPILER={root}/bin/nvcc"
        step = f"name both where cmake is run by hand: {named}"
        return rule.warning(expected, found, step=step)
    if not any(one.toolkit for one in choices):
        reason = "cmake finds none by itself; sparkbuild names the toolkit in its builds"
        return rule.note(expected, found or "no cmake", reason)
    return rule.ok(expected, found)


def shell(machine: Machine, rule: Rule) -> Finding:
    """The compiler that ``nvcc`` means in a shell."""
    expected, nvcc = "none, or a good toolkit's", machine.toolkits.shell
    if "toolkits.shell" in machine.unread:
        return unread(machine, rule, "toolkits.shell", expected)
    if nvcc is None:
        return rule.ok(expected, "none")
    root = next(
        (one for one in machine.toolkits.roots or () if nvcc.startswith(f"{one.root}/")), None
    )
    good = good_roots(machine)
    if root in good:
        return rule.ok(expected, plain(nvcc))
    state = root.state if root is not None else "of no toolkit that is known"
    step = f"export PATH={plain(good[0].root)}/bin:$PATH" if good else "take it off PATH"
    return rule.warning(expected, f"{plain(nvcc)}, {state}", step=step)


def _library(machine: Machine, soname: str) -> Library | None:
    there = machine.toolkits.libraries or ()
    return next((one for one in there if one.soname == soname), None)


def driver_library(machine: Machine, rule: Rule) -> Finding:
    """The running driver's own library, before stubs and compatibility packages."""
    expected = f"the driver's own {DRIVER_LIBRARY}"
    if machine.toolkits.libraries is None:
        return unread(machine, rule, "toolkits.libraries", expected)
    library = _library(machine, DRIVER_LIBRARY)
    if not has_driver(machine):
        return rule.note(expected, plain(library.path) if library else "none", "no driver loaded")
    if library is None:
        step = "sudo ldconfig, or in a container NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return rule.fault(expected, "none", step=step)
    return _taken(rule, library, machine.gpu.driver or "", expected)


def _taken(rule: Rule, library: Library, driver: str, expected: str) -> Finding:
    """What the library that is taken means for the driver that runs."""
    found = f"{plain(library.path)} (through {library.through})"
    step = "unset LD_LIBRARY_PATH, or put the driver's folder first"
    if library.through == "cache":
        step = "take that folder out of /etc/ld.so.conf.d, then: sudo ldconfig"
    if "/stubs/" in library.path:
        return rule.fault(expected, found, step=step)
    if "/compat/" in library.path or "/cuda-compat" in library.path:
        return rule.warning(expected, found, step=step)
    version = _VERSIONED.search(library.path)
    if version is not None and version["version"] != driver:
        told = f"{found}, driver {plain(driver)}"
        return rule.fault(expected, told, step="restart: the driver was updated meanwhile")
    return rule.ok(expected, found)


def foreign_libraries(machine: Machine, rule: Rule) -> Finding:
    """Libraries that come before a wheel's own."""
    expected = "none through LD_LIBRARY_PATH"
    if machine.toolkits.libraries is None:
        return unread(machine, rule, "toolkits.libraries", expected)
    others = [one for one in machine.toolkits.libraries if one.soname != DRIVER_LIBRARY]
    first = [one for one in others if one.through == "LD_LIBRARY_PATH"]
    if first:
        found = ", ".join(f"{one.soname} from {plain(one.path)}" for one in first)
        return rule.warning(expected, found, step="unset LD_LIBRARY_PATH")
    cached = ", ".join(plain(one.path) for one in others)
    return rule.ok(expected, f"none; for programs without a RUNPATH: {cached or 'none'}")


def host_compiler(machine: Machine, rule: Rule) -> Finding:
    """A compiler that the toolkits take: tried, since no table knows every pair."""
    expected, compiler = "one that every toolkit takes", machine.toolkits.compiler
    if "toolkits.compiler" in machine.unread:
        return unread(machine, rule, "toolkits.compiler", expected)
    if compiler is None:
        mend = (("sudo", "apt-get", "install", "--yes", "g++"),)
        return rule.fault(expected, "none", mend=mend)
    roots = machine.toolkits.roots or ()
    tried = [(root, root.tried) for root in roots if root.tried is not None]
    refused = [f"{plain(root.root)}: {plain(one.error)}" for root, one in tried if not one.good]
    if not tried:
        reason = machine.unread.get("toolkits.tried", "there is no whole toolkit to try it with")
        return rule.note(expected, plain(compiler), f"not tried with a toolkit: {reason}")
    good = [plain(root.root) for root, one in tried if one.good]
    if not refused:
        return rule.ok(expected, f"{plain(compiler)}, tried with {', '.join(good)}")
    found = f"{plain(compiler)}; refused by {'; '.join(refused)}"
    others = [root.goes_with for root, one in tried if not one.good and root.goes_with]
    step = "put an older g++ first on PATH, or choose a newer CUDA release"
    if others:
        step = _first_on_path(others[0])
    if good:
        return rule.warning(expected, found, step=step)
    return rule.fault(expected, found, step=step, blocks=("build-cuda",))


def _first_on_path(compiler: str) -> str:
    """How a build is made to take another C++ compiler, ``/usr/bin/g++-13``."""
    folder, _, name = compiler.rpartition("/")
    c = shlex.quote(f"{folder}/{name.replace('g++', 'gcc').replace('clang++', 'clang')}")
    links = f"ln -sf {c} ~/cc/cc && ln -sf {shlex.quote(compiler)} ~/cc/c++"
    return f"{plain(compiler)} goes with it: mkdir -p ~/cc && {links} && export PATH=~/cc:$PATH"


def _wanted(machine: Machine) -> str:
    if machine.system.tegra:
        return "arm64"
    return "sbsa" if machine.system.architecture == "aarch64" else machine.system.architecture


def _mend(source: AptSource, platform: str, wanted: str) -> tuple[Command, ...]:
    """Name the right repository in the same file; empty where that cannot be written safely."""
    found = _REPOSITORY.search(source.uri)
    if found is None or not _HARMLESS.fullmatch(source.uri):
        return ()
    old = found[0]
    new = f"{old.removesuffix(platform)}{wanted}"
    expression = f"s|{old.replace('.', '[.]')}|{new}|g"
    return (("sudo", "sed", "-i", expression, source.file),)


def apt_source(machine: Machine, rule: Rule) -> Finding:
    """NVIDIA's repositories, each for this kind of machine."""
    wanted = _wanted(machine)
    expected = f"NVIDIA's for {wanted}, or none"
    if machine.apt is None:
        return unread(machine, rule, "apt", expected)
    on = [source for source in machine.apt if source.enabled]
    wrong: list[str] = []
    mend: list[Command] = []
    for source in on:
        found = _REPOSITORY.search(source.uri)
        jetson = "/jetson" in source.uri.lower() and not machine.system.tegra
        if jetson or (found is not None and found["platform"] != wanted):
            wrong.append(f"{plain(source.uri)} in {plain(source.file)}")
            mend += _mend(source, found["platform"], wanted) if found and not jetson else ()
    if wrong:
        step = "take Jetson's sources out" if len(mend) < len(wrong) else ""
        commands = (*dict.fromkeys(mend), ("sudo", "apt-get", "update")) if mend else ()
        return rule.warning(expected, "; ".join(wrong), mend=commands, step=step)
    return rule.ok(expected, ", ".join(plain(source.uri) for source in on) or "none")


CHECKS: Final[dict[str, Check]] = {
    "toolkits": toolkits,
    "cmake's choice": cmake_choice,
    "nvcc of the shell": shell,
    "driver library": driver_library,
    "foreign libraries": foreign_libraries,
    "host compiler": host_compiler,
    "apt source": apt_source,
}
