"""CMake's file API: query files before, typed replies after."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sparkbuild.build.model import Artifact
from sparkbuild.errors import ConfigureError

QUERIES: Final = ("codemodel-v2", "cache-v2", "toolchains-v1", "cmakeFiles-v1")
_API: Final = Path(".cmake/api/v1")
_BUILT: Final = ("EXECUTABLE", "SHARED_LIBRARY", "MODULE_LIBRARY")


class _File(msgspec.Struct, frozen=True, rename="camel"):
    json_file: str = ""
    error: str = ""


class _Version(msgspec.Struct, frozen=True):
    string: str


class _CMake(msgspec.Struct, frozen=True):
    version: _Version


class _Index(msgspec.Struct, frozen=True):
    cmake: _CMake
    reply: dict[str, _File] = {}


class CacheEntry(msgspec.Struct, frozen=True):
    """One entry of CMakeCache; ``UNINITIALIZED`` means that no list file ever declared it."""

    name: str
    type: str
    value: str


class _Cache(msgspec.Struct, frozen=True):
    entries: tuple[CacheEntry, ...]


class Implicit(msgspec.Struct, frozen=True, rename="camel"):
    """Folders that a compiler searches unasked."""

    include_directories: tuple[str, ...] = ()
    link_directories: tuple[str, ...] = ()


class ToolchainCompiler(msgspec.Struct, frozen=True):
    """A compiler in ``toolchains-v1``; one enabled in a subdirectory has a path and no version."""

    path: str = ""
    id: str = ""
    version: str = ""
    implicit: Implicit = Implicit()


class _Toolchain(msgspec.Struct, frozen=True):
    language: str
    compiler: ToolchainCompiler


class _Toolchains(msgspec.Struct, frozen=True):
    toolchains: tuple[_Toolchain, ...]


class _Reference(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    id: str
    json_file: str


class _CodemodelConfiguration(msgspec.Struct, frozen=True):
    targets: tuple[_Reference, ...]


class _Codemodel(msgspec.Struct, frozen=True):
    configurations: tuple[_CodemodelConfiguration, ...]


class _Path(msgspec.Struct, frozen=True):
    path: str


class _Id(msgspec.Struct, frozen=True):
    id: str


class _Fragment(msgspec.Struct, frozen=True):
    fragment: str


class _Define(msgspec.Struct, frozen=True):
    define: str


class _CompileGroup(msgspec.Struct, frozen=True, rename="camel"):
    language: str
    defines: tuple[_Define, ...] = ()
    compile_command_fragments: tuple[_Fragment, ...] = ()
    includes: tuple[_Path, ...] = ()


class _Input(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    is_generated: bool = False
    is_c_make: bool = msgspec.field(default=False, name="isCMake")


class _CMakeFiles(msgspec.Struct, frozen=True):
    inputs: tuple[_Input, ...]


class Link(msgspec.Struct, frozen=True, rename="camel"):
    """What a target is linked from."""

    command_fragments: tuple[_Fragment, ...] = ()


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """One target with what it makes, what it needs and how it is compiled."""

    name: str
    id: str
    type: str
    artifacts: tuple[_Path, ...] = ()
    dependencies: tuple[_Id, ...] = ()
    compile_groups: tuple[_CompileGroup, ...] = ()
    link: Link = Link()


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a reply that sparkbuild judges by."""

    cmake_version: str
    cache: dict[str, CacheEntry]
    compilers: dict[str, ToolchainCompiler]
    targets: tuple[Target, ...]
    inputs: tuple[str, ...] = ()
    """CMake files that were read and are neither the sources' (which are relative) nor CMake's."""
    cuda: dict[str, str] = {}
    """What CMake found out by running nvcc, by variable; empty where CUDA is not enabled."""

    def named(self, name: str) -> Target | None:
        """The target of that name, or None."""
        return next((target for target in self.targets if target.name == name), None)

    def closure(self, names: Iterable[str]) -> list[Target]:
        """The named targets and all below them, each once, those nearest to the names first."""
        by_id = {target.id: target for target in self.targets}
        waiting = [target for name in names if (target := self.named(name))]
        seen: dict[str, Target] = {}
        while waiting:
            target = waiting.pop(0)
            if target.id not in seen:
                seen[target.id] = target
                waiting += [by_id[d.id] for d in target.dependencies if d.id in by_id]
        return list(seen.values())

    def artifacts(self, names: Iterable[str]) -> tuple[Artifact, ...]:
        """What an install tree of these targets holds: programs, and libraries loaded by them."""
        asked = tuple(names)
        return tuple(
            Artifact(target=target.name, kind=target.type, path=target.artifacts[0].path)
            for target in self.closure(asked)
            if target.type in _BUILT
            and target.artifacts
            and (target.name in asked or target.type != "EXECUTABLE")
        )

    def linked(self, names: Iterable[str]) -> frozenset[str]:
        """Absolute paths on the link lines of the named targets and of all below them."""
        return frozenset(
            word
            for target in self.closure(names)
            for item in target.link.command_fragments
            for word in shlex.split(item.fragment)
            if word.startswith("/")
        )

    def cuda_flags(self, names: Iterable[str]) -> tuple[str, ...]:
        """Pieces of the compile commands of CUDA targets, in order, defines with their ``-D``."""
        return tuple(
            word
            for target in self.closure(names)
            for group in target.compile_groups
            if group.language == "CUDA"
            for word in (
                *(f"-D{one.define}" for one in group.defines),
                *(piece.fragment for piece in group.compile_command_fragments),
            )
        )

    def cuda_code(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """GPU code that each CUDA target below the named ones is compiled to, sorted.

        ``sm_121a`` is machine code and ``compute_121a`` is PTX; only the compile fragments tell,
        the cache keeps what was asked for.
        """
        return {
            target.name: tuple(sorted(set(codes)))
            for target in self.closure(names)
            for groups in [[g for g in target.compile_groups if g.language == "CUDA"]]
            if groups
            for codes in [[code for group in groups for code in _codes_of(group)]]
        }


def write_queries(binary_dir: Path) -> None:
    """Ask for every reply that ``read_reply`` needs; to be done before CMake runs."""
    directory = binary_dir / _API / "query"
    directory.mkdir(parents=True, exist_ok=True)
    for name in QUERIES:
        (directory / name).touch()


def read_reply(binary_dir: Path) -> Reply:
    """Read the newest reply. Raises ConfigureError naming the part that is missing or damaged."""
    directory = binary_dir / _API / "reply"
    indexes = sorted(directory.glob("index-*.json"))
    if not indexes:
        raise _missing("index", directory, "CMake wrote none")
    index = _decode(indexes[-1], _Index)
    cache = _decode(_named(directory, index, "cache-v2"), _Cache)
    toolchains = _decode(_named(directory, index, "toolchains-v1"), _Toolchains)
    codemodel = _decode(_named(directory, index, "codemodel-v2"), _Codemodel)
    files = _decode(_named(directory, index, "cmakeFiles-v1"), _CMakeFiles)
    return Reply(
        cmake_version=index.cmake.version.string,
        cache={entry.name: entry for entry in cache.entries},
        compilers={entry.language: entry.compiler for entry in toolchains.toolchains},
        targets=tuple(
            _decode(directory / reference.json_file, Target)
            for configuration in codemodel.configurations
            for reference in configuration.targets
        ),
        inputs=tuple(
            file.path
            for file in files.inputs
            if file.path.startswith("/") and not file.is_generated and not file.is_c_make
        ),
        cuda=_cuda_settings(binary_dir),
    )


_SETTING: Final = re.compile(r'^set\((?P<name>CMAKE_CUDA_\w+) "(?P<value>[^"]*)"\)$', re.MULTILINE)


def parse_settings(text: str) -> dict[str, str]:
    """Variables of a ``CMakeCUDACompiler.cmake``, which CMake writes from nvcc's own words."""
    return {match["name"]: match["value"] for match in _SETTING.finditer(text)}


def _cuda_settings(binary_dir: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(binary_dir.glob("CMakeFiles/*/CMakeCUDACompiler.cmake")):
        found |= parse_settings(path.read_text(errors="replace"))
    return found


_KINDS: Final = re.compile(r"(?:sm|compute|lto)_[0-9]+[af]?")


def cuda_codes(command_line: str) -> list[str]:
    """Every GPU target that nvcc embeds for these options, in order, repeats included.

    Reads ``--generate-code``, ``-gencode``, ``-arch`` and ``-code`` in both spellings. A plain
    ``-arch=sm_90`` embeds PTX too, as nvcc's own manual says.
    """
    arch: list[str] = []
    code: list[str] = []
    generated: list[str] = []
    for option, value in _nvcc_options(shlex.split(command_line)):
        if option in {"--generate-code", "-gencode"}:
            generated += _KINDS.findall(value.partition("code=")[2])
        elif option in {"--gpu-architecture", "-arch"}:
            arch.append(value)
        else:
            code += _KINDS.findall(value)
    for value in [] if code else arch:
        if value.startswith("sm_"):
            code += [value, value.replace("sm_", "compute_")]
        else:
            code.append(value)
    return generated + code


def _nvcc_options(words: list[str]) -> Iterator[tuple[str, str]]:
    known = {
        "--generate-code", "-gencode", "--gpu-architecture", "-arch", "--gpu-code", "-code",
    }  # fmt: skip
    for position, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in known:
            following = words[position + 1 : position + 2]
            yield option, value if equals else "".join(following)


def _codes_of(group: _CompileGroup) -> list[str]:
    return cuda_codes(" ".join(part.fragment for part in group.compile_command_fragments))


_T = TypeVar("_T", bound=msgspec.Struct)


def _decode(path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise _missing(path.name, path.parent, "the index names it") from error
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigureError(
            f"CMake's file API reply {path.name} cannot be read",
            problems=[str(error)],
            evidence=[path],
        ) from error


def _named(directory: Path, index: _Index, name: str) -> Path:
    entry = index.reply.get(name)
    if entry is None or not entry.json_file:
        raise _missing(name, directory, entry.error if entry else "the index does not know it")
    return directory / Path(entry.json_file).name


def _missing(name: str, directory: Path, reason: str) -> ConfigureError:
    return ConfigureError(
        f"CMake's file API gave no {name}",
        problems=[reason],
        evidence=[directory],
        next_step="configure again; if it stays so, this CMake is not one that sparkbuild brings",
    )
