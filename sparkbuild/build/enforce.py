"""What was asked against what CMake settled on: every mismatch is collected, then one refusal."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.build import cuda_paths
from sparkbuild.build.output import Message, Prose, deprecated_names
from sparkbuild.build.reply import Reply
from sparkbuild.errors import ConfigureError, ToolkitMismatchError
from sparkbuild.manifest import Patchset
from sparkbuild.toolkit.model import Toolkit

_PROJECT_PREFIXES: Final = ("GGML_", "LLAMA_")
"""Options that llama.cpp declares. ggml reads every GGML_ variable to write its package file, so
CMake counts a misspelt one as used: only its missing declaration gives it away."""

_TRUE: Final = frozenset({"1", "ON", "TRUE", "Y", "YES"})

_EXPECTED_WARNINGS: Final = ("Git repository not found",)
"""The sources look for a .git folder; their questions to git are answered all the same."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that a configure run left to be judged."""

    prose: Prose
    reply: Reply
    cmake_version: str
    """Of the program that was started."""
    roots: tuple[str, ...]
    """The toolkit's root under every name that CMake may print: as given, and with links resolved.
    """


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """One difference; ``versions`` marks CUDA parts that disagree, which has its own exit code."""

    text: str
    versions: bool = False


def enforce(patchset: Patchset, toolkit: Toolkit, facts: Facts, *, evidence: Sequence[Path]) -> str:
    """Refuse a configuration that is not the one asked for; returns OpenSSL's version or ``off``.

    Raises ToolkitMismatchError when CUDA versions or places disagree, else ConfigureError; both
    list every mismatch.
    """
    found = list(mismatches(patchset, toolkit, facts))
    if found:
        versions = any(mismatch.versions for mismatch in found)
        error = ToolkitMismatchError if versions else ConfigureError
        raise error(
            "CMake configured something other than what was asked for",
            problems=[mismatch.text for mismatch in found],
            evidence=evidence,
            next_step=f"correct the recipe or the toolkit; the whole output is in {evidence[0]}",
        )
    return facts.prose.openssl or "off"


def mismatches(patchset: Patchset, toolkit: Toolkit, facts: Facts) -> Iterator[Mismatch]:
    """Every difference between what was asked and what CMake's prose and file API say."""
    options = {**patchset.build.cmake, **toolkit.options}
    if not facts.cmake_version.startswith(facts.reply.cmake_version):
        yield _differs("CMake", facts.cmake_version, facts.reply.cmake_version)
    yield from _host_compilers(toolkit, facts)
    yield from _cuda(patchset, toolkit, facts)
    yield from _options(options, facts)
    yield from _openssl(options, facts.prose)
    yield from _targets(patchset, facts.reply)


def remaining_warnings(prose: Prose) -> tuple[str, ...]:
    """Warnings that are no reason to refuse and not expected either, one line each."""
    return tuple(
        warning.summary
        for warning in prose.warnings
        if not any(text in warning.summary for text in _EXPECTED_WARNINGS)
    )


def _differs(what: str, expected: str, found: str, *, versions: bool = False) -> Mismatch:
    return Mismatch(text=f"{what}: expected {expected}, found {found}", versions=versions)


def _host_compilers(toolkit: Toolkit, facts: Facts) -> Iterator[Mismatch]:
    for language, path in (("C", toolkit.host.c), ("CXX", toolkit.host.cxx)):
        said = facts.prose.compiler(language)
        replied = facts.reply.compilers.get(language)
        if said is None:
            yield _differs(f"{language} compiler in CMake's output", "its identification", "none")
        elif said.identification != toolkit.host.identification:
            expected = toolkit.host.identification
            yield _differs(f"{language} compiler", expected, said.identification)
        if replied is None:
            yield _differs(f"{language} compiler in the file API", path, "none")
            continue
        if replied.path != path:
            yield _differs(f"{language} compiler's place", path, replied.path)
        both = f"{replied.id} {replied.version}"
        if said is not None and both != said.identification:
            name = f"{language} compiler in the file API"
            yield _differs(name, f"{said.identification} as in CMake's output", both)


def _cuda(patchset: Patchset, toolkit: Toolkit, facts: Facts) -> Iterator[Mismatch]:
    codes = facts.reply.cuda_code(patchset.build.targets)
    if toolkit.kind == "cpu":
        if codes or "CUDA" in facts.reply.compilers:
            yield _differs("CUDA", f"none, {toolkit.toolchain} has no CUDA", "CUDA enabled")
        return
    yield from _cuda_versions(toolkit, facts)
    if "CMAKE_CUDA_COMPILER" not in facts.reply.cache:
        yield _differs("CMAKE_CUDA_COMPILER in the cache", f"{toolkit.root}/bin/nvcc", "none")
    folders = {f"CUDAToolkit folder {n}": p for n, p in enumerate(facts.prose.toolkit_include, 1)}
    linked = facts.reply.linked(patchset.build.targets)
    for name, place in cuda_paths.strangers(facts.reply, facts.roots, linked, folders):
        yield _differs(name, f"a place below {toolkit.root}", place, versions=True)
    asked = tuple(sorted(f"sm_{name}" for name in toolkit.architectures))
    if not codes:
        yield _differs("CUDA code", " ".join(asked), "no CUDA target below the asked ones")
    for target, code in codes.items():
        if code != asked:
            yield _differs(f"GPU code of {target}", " ".join(asked), " ".join(code) or "none")
    wanted = tuple(f"{name}-real" for name in toolkit.architectures)
    if facts.prose.architectures not in {None, wanted}:
        printed = ";".join(facts.prose.architectures or ())
        yield _differs("CMAKE_CUDA_ARCHITECTURES in use", ";".join(wanted), printed)
    for old, new in facts.prose.replaced:
        yield Mismatch(text=f"the sources rewrite architecture {old} to {new}: ask for that one")


def _cuda_versions(toolkit: Toolkit, facts: Facts) -> Iterator[Mismatch]:
    nvcc = toolkit.part("nvcc").version
    said = facts.prose.compiler("CUDA")
    replied = facts.reply.compilers.get("CUDA")
    expected = f"NVIDIA {nvcc}"
    if said is None or said.identification != expected:
        found = said.identification if said else "no identification in CMake's output"
        yield _differs("CUDA compiler", expected, found, versions=True)
    if said is not None and said.host not in {None, toolkit.host.identification}:
        host = said.host or ""
        yield _differs("nvcc's host compiler", toolkit.host.identification, host)
    if facts.prose.toolkit_version != nvcc:
        found = facts.prose.toolkit_version or "no `Found CUDAToolkit` in CMake's output"
        yield _differs("CUDAToolkit", nvcc, found, versions=True)
    for name, learnt, wanted in cuda_paths.settings(facts.reply, nvcc, toolkit.host.cxx):
        yield _differs(name, wanted, learnt, versions=True)
    if replied is None:
        yield _differs("CUDA compiler in the file API", expected, "none")
    elif replied.version not in {"", nvcc}:
        name = "CUDA compiler in the file API"
        yield _differs(name, nvcc, replied.version, versions=True)


def _options(options: dict[str, str], facts: Facts) -> Iterator[Mismatch]:
    cache = facts.reply.cache
    declared = [name for name, entry in cache.items() if entry.type != "UNINITIALIZED"]
    known_bad = {name for message in facts.prose.deprecated for name in deprecated_names(message)}
    known_bad |= set(facts.prose.unused)
    for name in facts.prose.unused:
        yield Mismatch(text=f"option {name} is not used by the sources{_near(name, declared)}")
    for message in facts.prose.deprecated:
        yield _deprecated(message)
    for name, value in sorted(options.items()):
        entry = cache.get(name)
        if entry is None:
            yield _differs(f"option {name} in the cache", value, "none")
        elif entry.type == "UNINITIALIZED":
            if name.startswith(_PROJECT_PREFIXES) and name not in known_bad:
                near = _near(name, declared)
                yield Mismatch(text=f"option {name} is not declared by the sources{near}")
        elif entry.value != value and entry.type not in {"PATH", "FILEPATH"}:
            yield _differs(f"option {name}", value, entry.value)


def _deprecated(message: Message) -> Mismatch:
    names = ", ".join(deprecated_names(message))
    return Mismatch(text=f"option {names} is deprecated: {message.summary}")


def _openssl(options: dict[str, str], prose: Prose) -> Iterator[Mismatch]:
    asked = options.get("LLAMA_OPENSSL")
    found = prose.openssl or "none"
    if asked is None:
        if prose.openssl or prose.openssl_missing:
            yield _differs("OpenSSL", "the recipe to set LLAMA_OPENSSL", f"{found} by chance")
    elif asked.upper() in _TRUE and prose.openssl is None:
        yield _differs("OpenSSL", f"a version, LLAMA_OPENSSL is {asked}", found)
    elif asked.upper() not in _TRUE and prose.openssl is not None:
        yield _differs("OpenSSL", f"none, LLAMA_OPENSSL is {asked}", found)


def _targets(patchset: Patchset, reply: Reply) -> Iterator[Mismatch]:
    programs = [target.name for target in reply.targets if target.artifacts]
    for name in patchset.build.targets:
        target = reply.named(name)
        if target is None:
            yield Mismatch(text=f"there is no target {name}{_near(name, programs)}")
        elif not target.artifacts:
            yield Mismatch(text=f"target {name} makes no file, it is a {target.type}")


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""
