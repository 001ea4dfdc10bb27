"""One part of a root from its files: digest, version and its source, damage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.identity.facts import FileFacts, Form
from sparkbuild.toolkit.identity.layout import Found, Layout
from sparkbuild.toolkit.identity.versions import agree, cccl, cub, cublas, file_version, thousands
from sparkbuild.toolkit.lock import Platform
from sparkbuild.toolkit.model import UNSTATED, Part, Problem
from sparkbuild.toolkit.parts import Kind, Spec, part_digest

Studied = Mapping[Path, tuple[str, FileFacts] | OSError]
"""Digest and facts by real path, as ``DigestCache.study`` gives them."""

_FORMS: Final[dict[Kind, tuple[Form, str]]] = {
    "program": ("program", "no program"),
    "library": ("library", "no shared library"),
    "archive": ("archive", "no static library"),
    "bitcode": ("bitcode", "no LLVM bitcode"),
    "headers": ("text", "no text"),
    "text": ("text", "no text"),
}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A lock that holds a part's bytes: whose it is, for which platform, as which version."""

    toolchain: str
    platform: Platform
    version: str


Index = Mapping[tuple[str, str], Sequence[Origin]]
"""Origins by part and digest."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A part, and all that its files say of it.

    ``stated`` is the version that the files themselves name, read from ``stated_from``; ``builds``
    the compiler builds that a program names; ``origins`` the locks that hold the very bytes.
    ``sound`` is False where a problem with the files was noted already.
    """

    part: Part
    stated: str | None = None
    stated_from: str = ""
    builds: tuple[str, ...] = ()
    machine: str = ""
    origins: tuple[Origin, ...] = ()
    sound: bool = True


@dataclass(kw_only=True)
class Readings:
    """Every part that could be read, and what is wrong with files."""

    parts: list[Reading] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def index_of(book: Book) -> Index:
    """Every digest that the locks know."""
    index: dict[tuple[str, str], list[Origin]] = {}
    for name, lock in sorted(book.locks.items()):
        for platform, locked in lock.platform.items():
            for part, known in locked.parts.items():
                origin = Origin(toolchain=name, platform=platform, version=known.version)
                index.setdefault((part, known.sha256), []).append(origin)
    return index


def read_part(
    part: Spec, layout: Layout, studied: Studied, index: Index, prefer: str | None
) -> tuple[Reading | None, list[Problem]]:
    """One part of a root; ``prefer`` is the toolchain whose word counts first for its version."""
    files = layout.files.get(part.name, [])
    if not files:
        text = f"{part.name} is missing: there is no {layout.root}/{part.files[0]}"
        return None, [Problem(kind="missing", text=text)]
    problems = [*_damage(part, files, studied), *_duplicates(files, studied)]
    known = {file: found for file in files if not isinstance(found := studied[file.real], OSError)}
    if len(known) < len(files):
        return None, problems
    first = {file.canonical: file for file in reversed(files)}
    sha256 = part_digest({name: known[file][0] for name, file in first.items()})
    origins = tuple(index.get((part.name, sha256), ()))
    if not origins:
        problems += _absent(part, layout)
    facts = {name: known[first[name]][1] for name in sorted(first)}
    stated, source, more = _stated(part, facts, first)
    problems += more
    chosen = next((one for one in origins if one.toolchain == prefer), next(iter(origins), None))
    version, read_from = stated or UNSTATED, source if stated else "digest only"
    if chosen is not None:
        version, read_from = chosen.version, f"lock of {chosen.toolchain}"
    reading = Reading(
        part=Part(
            name=part.name,
            version=version,
            read_from=read_from,
            path=_path(part, files),
            sha256=sha256,
            known=tuple(sorted({one.toolchain for one in origins})),
        ),
        stated=stated,
        stated_from=source,
        builds=tuple(sorted({build for one in facts.values() for build in one.builds})),
        machine=", ".join(sorted({one.machine for one in facts.values() if one.machine})),
        origins=origins,
        sound=not problems,
    )
    return reading, problems


def _path(part: Spec, files: Sequence[Found]) -> str:
    if "*" in part.files[0] and len(files) > 1:
        return str(Path(files[0].place).parent)
    return str(files[0].real)


def _damage(part: Spec, files: Sequence[Found], studied: Studied) -> Iterator[Problem]:
    form, otherwise = _FORMS[part.kind]
    for file in files:
        found = studied[file.real]
        if isinstance(found, OSError):
            yield Problem(
                kind="damaged", text=f"{file.place} cannot be read: {found.strerror or found}"
            )
            continue
        facts = found[1]
        if facts.damage:
            yield Problem(kind="damaged", text=f"{file.place} {facts.damage}")
        elif facts.form == "script":
            text = f"{file.place} is a script, {otherwise}: what it prints proves nothing"
            yield Problem(kind="damaged", text=text)
        elif facts.form != form:
            yield Problem(kind="damaged", text=f"{file.place} is {otherwise}")
        elif form == "program" and not file.mode & 0o111:
            yield Problem(kind="damaged", text=f"{file.place} may not be executed")


def _duplicates(files: Sequence[Found], studied: Studied) -> Iterator[Problem]:
    """Two ways to one file that end at different bytes: who takes which is chance."""
    first: dict[str, Found] = {}
    for file in files:
        other = first.setdefault(file.canonical, file)
        one, two = studied[other.real], studied[file.real]
        if isinstance(one, OSError) or isinstance(two, OSError) or one[0] == two[0]:
            continue
        names = [f"{each.place}{_says(each, facts)}"
                 for each, (_, facts) in ((other, one), (file, two))]  # fmt: skip
        text = f"{' and '.join(names)} differ: one root must not hold two"
        yield Problem(kind="mixed", text=text)


def _says(file: Found, facts: FileFacts) -> str:
    """What a file states, in brackets."""
    named = [f"{name} {value}" for name, values in facts.macros.items() for value in values]
    version = file_version(file.real.name)
    says = [*facts.versions, *named, *([version] if version else [])]
    return f" ({', '.join(says)})" if says else ""


def _absent(part: Spec, layout: Layout) -> Iterator[Problem]:
    for place in layout.absent.get(part.name, ()):
        text = f"{part.name} is incomplete: {layout.root}/{place} is missing"
        yield Problem(kind="missing", text=text)


def _stated(
    part: Spec, facts: Mapping[str, FileFacts], files: Mapping[str, Found]
) -> tuple[str | None, str, list[Problem]]:
    """The version that a part's files name, where, and what they contradict themselves in."""
    if part.kind == "program":
        place = part.files[0]
        versions = next(iter(facts.values())).versions
        if len(versions) > 1:
            text = f"{place} embeds several versions: {', '.join(versions)}"
            return None, "", [Problem(kind="mixed", text=text)]
        return next(iter(versions), None), f"embedded in {place}", []
    if part.kind == "library":
        name = next(iter(files.values())).real.name
        return file_version(name), f"file name {name}", []
    if part.kind == "headers":
        return _from_macros(part, facts)
    return None, "", []


def _from_macros(
    part: Spec, facts: Mapping[str, FileFacts]
) -> tuple[str | None, str, list[Problem]]:
    found: dict[str, tuple[int, ...]] = {}
    problems = []
    for place, one in facts.items():
        found.update(one.macros)
        problems += [
            Problem(
                kind="mixed", text=f"{place} defines {name} as {' and as '.join(map(str, all_))}"
            )
            for name, all_ in one.macros.items()
            if len(all_) > 1
        ]
    if part.group == "cublas":
        return cublas(found), "CUBLAS_VER_* of include/cublas_api.h", problems
    readers = {
        "CUDART_VERSION": thousands,
        "CUDA_VERSION": thousands,
        "CCCL_VERSION": cccl,
        "CUB_VERSION": cub,
        "THRUST_VERSION": cub,
    }
    said = {name: read(found[name][0]) for name, read in readers.items() if name in found}
    if not said:
        return None, "", problems
    name, version = next(iter(said.items()))
    if any(not agree(version, other) for other in said.values()):
        texts = [f"{name} is {version}" for name, version in said.items()]
        problems.append(Problem(kind="mixed", text=f"{part.name}: {', '.join(texts)}"))
    return version, name, problems
