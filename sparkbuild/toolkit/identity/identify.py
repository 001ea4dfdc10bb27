"""Read a toolkit's root part by part, without running anything of it, and judge it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sparkbuild.errors import ToolkitMismatchError
from sparkbuild.files import DigestCache
from sparkbuild.toolkit.book import Book, cuda
from sparkbuild.toolkit.identity.advise import DEFAULT_ARCHITECTURES, matching, undecided
from sparkbuild.toolkit.identity.facts import FileFacts, read_facts
from sparkbuild.toolkit.identity.judge import judge, state_of
from sparkbuild.toolkit.identity.layout import Layout, inside, locate
from sparkbuild.toolkit.identity.reading import Index, Readings, Studied, index_of, read_part
from sparkbuild.toolkit.identity.versions import profile_places
from sparkbuild.toolkit.lock import PLATFORMS, LockedPlatform
from sparkbuild.toolkit.model import UNSTATED, Identity, Problem
from sparkbuild.toolkit.parts import SPECS, spec
from sparkbuild.toolkit.provision.tree import MANIFEST


class _Made(msgspec.Struct, frozen=True):
    """Of a provisioned root's manifest, what says which lock it was made from."""

    toolchain: str


def identity_of(
    root: Path, book: Book, digests: DigestCache, *, architectures: tuple[str, ...] = ()
) -> Identity:
    """Every part below ``root``, what is wrong with it, and the one word for it.

    ``architectures`` decide which advisories match; none means the toolchain's own. All problems
    are collected. Raises ToolkitMismatchError only where there is nothing of a toolkit at all.
    """
    layout = locate(os.path.realpath(root))
    if not layout.files:
        raise ToolkitMismatchError(
            f"{root} is no CUDA toolkit",
            problems=[f"no {layout.root}/bin/nvcc, and no other part of one"],
            evidence=[root],
            next_step="name the folder that holds bin/nvcc, include and lib64",
        )
    files = [file.real for found in layout.files.values() for file in found]
    studied = digests.study(files, FileFacts, read_facts)
    readings, toolchain_name = _read_all(layout, studied, book)
    toolchain = book.toolchains[toolchain_name] if toolchain_name else None
    platform = f"linux-{layout.machine or 'unknown'}"
    made = _made(layout)
    verdict = judge(
        readings.parts,
        platform=platform,
        toolchain=toolchain,
        locked=_locked(book, toolchain_name, platform),
        provisioned=made.toolchain if made else None,
    )
    if made and made.toolchain != toolchain_name:
        text = f"{layout.root} was made from the lock of {made.toolchain}, its nvcc is not of it"
        layout.problems.append(Problem(kind="damaged", text=text))
    problems = (
        *layout.problems, *_strays(layout), *readings.problems, *_profile(layout),
        *verdict.problems,
    )  # fmt: skip
    parts = tuple(reading.part for reading in readings.parts)
    if not architectures:
        architectures = cuda(toolchain).architectures if toolchain else DEFAULT_ARCHITECTURES
    advisories = matching(book.known_bad, parts, architectures)
    return Identity(
        root=layout.root,
        platform=platform,
        state=state_of(problems, toolchain, advisories),
        toolchain=toolchain_name,
        parts=parts,
        problems=problems,
        notes=(*verdict.notes, *undecided(book.known_bad, parts, architectures)),
        advisories=tuple(advisory.id for advisory in advisories),
    )


def nvcc_version(root: Path) -> str | None:
    """The version that ``bin/nvcc`` embeds, None of what is no program or names none or several.

    Reads about 30 MB; nothing is run.
    """
    try:
        found = read_facts(root / "bin/nvcc")
    except OSError:
        return None
    return found.versions[0] if len(found.versions) == 1 else None


def _read_all(layout: Layout, studied: Studied, book: Book) -> tuple[Readings, str | None]:
    """Every part, and the toolchain whose nvcc this root has."""
    index = index_of(book)
    readings = Readings()
    toolchain = _toolchain(layout, studied, index, book)
    for part in SPECS:
        reading, problems = read_part(part, layout, studied, index, toolchain)
        readings.problems += problems
        if reading is not None:
            readings.parts.append(reading)
    return readings, toolchain


def _toolchain(layout: Layout, studied: Studied, index: Index, book: Book) -> str | None:
    reading, _ = read_part(spec("nvcc"), layout, studied, index, None)
    if reading is None or reading.part.version == UNSTATED:
        return None
    found = book.by_nvcc(reading.part.version)
    return found.name if found else None


def _locked(book: Book, toolchain: str | None, platform: str) -> LockedPlatform | None:
    known = next((name for name in PLATFORMS if name == platform), None)
    return book.locked(toolchain, known) if toolchain and known else None


def _made(layout: Layout) -> _Made | None:
    """Which toolchain a provisioned root was made from, None where the root is another's."""
    try:
        return msgspec.json.decode(Path(layout.root, MANIFEST).read_bytes(), type=_Made)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        text = f"{layout.root}/{MANIFEST} is damaged: nobody can say what was installed here"
        layout.problems.append(Problem(kind="damaged", text=text))
        return None


def _strays(layout: Layout) -> Iterator[Problem]:
    """Links that lead out of the root, with both toolkits' versions where the other is one."""
    if not layout.strays:
        return
    ours = nvcc_version(Path(layout.root)) or UNSTATED
    for place, target in layout.strays.items():
        text = f"{layout.root}/{place} leads out of this toolkit (nvcc {ours}) to {target}"
        other = _toolkit_above(Path(target))
        if other is not None:
            text += f", into {other} (nvcc {nvcc_version(other) or UNSTATED})"
        yield Problem(kind="mixed", text=text)


def _toolkit_above(path: Path) -> Path | None:
    return next((one for one in path.parents if os.access(one / "bin/nvcc", os.F_OK)), None)


def _profile(layout: Layout) -> Iterator[Problem]:
    """Places outside the root that ``nvcc.profile`` tells nvcc to look at."""
    for file in layout.files.get("nvcc.profile", ()):
        try:
            text = file.real.read_text(errors="replace")
        except OSError:
            continue  # said where its facts were read
        for place in profile_places(text, layout.root):
            if not inside(place, layout.root) and not inside(os.path.realpath(place), layout.root):
                other = _toolkit_above(Path(place))
                which = f", in {other} (nvcc {nvcc_version(other) or UNSTATED})" if other else ""
                message = f"{file.place} points out of {layout.root} to {place}{which}"
                yield Problem(kind="mixed", text=message)
