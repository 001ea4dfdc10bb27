"""A look at one ELF file from anywhere: nothing of it is run, no part of it is believed unchecked.

Headers are read, the beginnings of GPU code images, and the texts; whatever a file of several
hundred megabytes holds, not more than some megabytes of it are in memory at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import fatbin
from sparkbuild.build import gb10
from sparkbuild.build.elf import FATBIN_SECTIONS, Outline, read_outline
from sparkbuild.build.model import Look
from sparkbuild.build.stamp import stamp_of, symbol_names
from sparkbuild.build.window import Metered, Window
from sparkbuild.errors import BinaryError
from sparkbuild.model.build import Library, mtp_graphs, pieces, texts_in
from sparkbuild.model.finding import Finding, State, listed, named, shown
from sparkbuild.model.opening import IrregularError, opened
from sparkbuild.model.types import BY_NUMBER

MOST_TEXT: Final = 1 << 30
_FEW_TEXT: Final = 64 << 20
"""Bytes of a file, its GPU code left out, in which texts are looked for where its symbols have
ggml's or llama.cpp's names, and where they have not."""
_NAMES: Final = (b"ggml_", b"llama_")
SAMPLES: Final = 8
"""Pieces of machine code that are unpacked to ask who made them: the smallest."""
_SAMPLE: Final = 1 << 22
"""Bytes of such a piece, unpacked."""
_TYPES: Final = {"ET_EXEC": "program", "ET_DYN": "library", "ET_REL": "object"}
_LLAMA: Final = "unknown model architecture: '"
"""What only libllama says (src/llama-model-loader.cpp)."""
_PAIR: Final = re.compile(
    r"flash_attn_ext_vec\w*?9ggml_type(?P<k>\d+)EL(?:9ggml_type|S\d*_)(?P<v>\d+)E"
)
"""In the name of a kernel that was compiled for one pair of types (ggml-cuda/fattn-vec.cuh)."""
_CUDA: Final = re.compile(r"lib(?:cudart|cublas|cublasLt)\.so\.(?P<major>\d+)")
_AARCH64: Final = "EM_AARCH64"


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What was seen, and some of the GPU machine code in the file, unpacked."""

    look: Look
    cubins: tuple[bytes, ...]


def look(path: Path, architectures: Iterable[str] = ()) -> Looked:
    """Look at a file; ``architectures`` are names that it is asked about where it is libllama.

    Raises BinaryError where it is no ELF file, damaged, or nothing that may be read.
    """
    try:
        with opened(path) as (handle, size):
            return look_at(handle, size, path, architectures)
    except (OSError, ValueError) as error:
        kind = isinstance(error, IrregularError)
        found = str(error) if kind or not isinstance(error, OSError) else error.strerror
        raise BinaryError(
            f"{path.name} cannot be looked at",
            problems=[f"expected a file that can be read, found: {found}"],
            evidence=[path],
            next_step="name the file itself, and check its rights",
        ) from error


def look_at(handle: int, size: int, path: Path, architectures: Iterable[str] = ()) -> Looked:
    """The same of an open file of ``size`` bytes; ``path`` is what it is called."""
    outline = read_outline(path, Metered(handle, size))
    sections = list(_gpu_sections(handle, size, outline, path))
    symbols = symbol_names(handle, size, outline)
    ours = any(name in symbols for name in _NAMES)
    places = [images for section in sections for images in fatbin.fatbin_places(section)]
    texts = _texts(handle, size, sections, MOST_TEXT if ours else _FEW_TEXT)
    library = Library(path=path, machine=outline.facts.machine, texts=texts)
    containers = [tuple(place.target for place in images) for images in places]
    facts, stamp = outline.facts, stamp_of(handle, size, outline)
    llama = _LLAMA in library.texts
    looked = Look(
        path=str(path),
        size=size,
        machine=facts.machine,
        type=_type(outline),
        soname=facts.soname,
        interpreter=facts.interpreter,
        needed=facts.needed,
        runpath=facts.runpath,
        rpath=facts.rpath,
        build_id=facts.build_id,
        fat_binaries=len(containers),
        gpu=gb10.targets(containers),
        build=stamp.build,
        commit=stamp.commit,
        architectures=tuple(sorted(name for name in architectures if library.knows(name)))
        if llama
        else (),
        drafts=tuple(sorted(mtp_graphs(library.texts))) if llama else (),
        kv_pairs=tuple(sorted(_pairs(library.texts))),
        findings=(
            _machine(facts.machine),
            gb10.verdict(containers, uniform=ours or bool(_pairs(texts))),
            _run_time(facts.needed),
            _search(outline),
        ),
    )
    return Looked(look=looked, cubins=tuple(_samples(sections)))


def _type(outline: Outline) -> str:
    kind = _TYPES.get(outline.type, outline.type)
    return "program" if kind == "library" and outline.facts.interpreter else kind


def _gpu_sections(handle: int, size: int, outline: Outline, path: Path) -> Iterator[Window]:
    for name, start, length in outline.sections:
        if name in FATBIN_SECTIONS:
            if start + length > size:
                raise BinaryError(
                    f"{path.name} is damaged",
                    problems=[f"{name}: expected {length} bytes at {start}, the file has {size}"],
                    evidence=[path],
                    next_step="get or build it again",
                )
            yield Window(handle=handle, start=start, size=length)


def _texts(handle: int, size: int, sections: list[Window], most: int) -> frozenset[str]:
    """Texts outside of the GPU code, which is compressed and has none."""
    gaps, at = [], 0
    for section in sorted(sections, key=lambda one: one.start):
        gaps.append((at, section.start))
        at = max(at, section.start + section.size)
    gaps.append((at, size))
    if sum(max(0, end - begin) for begin, end in gaps) > most:
        return frozenset()
    return texts_in(piece for begin, end in gaps for piece in pieces(handle, begin, end))


def _pairs(texts: frozenset[str]) -> set[str]:
    found = {(int(m["k"]), int(m["v"])) for text in texts if (m := _PAIR.search(text))}
    return {
        f"{BY_NUMBER[k].name}-{BY_NUMBER[v].name}"
        for k, v in found
        if k in BY_NUMBER and v in BY_NUMBER
    }


def _samples(sections: list[Window]) -> Iterator[bytes]:
    """Machine code of each target, the smallest pieces first."""
    code = [
        (place.size, number, place)
        for number, section in enumerate(sections)
        for images in fatbin.fatbin_places(section)
        for place in images
        if place.target.startswith("sm_") and (place.real_size or place.size) <= _SAMPLE
    ]
    for _, number, place in sorted(code, key=lambda one: one[:2])[:SAMPLES]:
        content = place.image(sections[number]).unpacked()
        if content:
            yield content


def _finding(name: str, state: State, expected: str, found: str, *why: str) -> Finding:
    reason, step = why or ("", "")
    return Finding(
        name=name, state=state, expected=expected, found=found, reason=reason, next_step=step
    )


def _machine(machine: str) -> Finding:
    if machine == _AARCH64:
        return _finding("machine", "ok", _AARCH64, machine)
    return _finding(
        "machine", "note", _AARCH64, shown(machine) if not machine.isprintable() else machine,
        "made for another machine: GB10's processor is aarch64 and does not start it", "",
    )  # fmt: skip


def _run_time(needed: tuple[str, ...]) -> Finding:
    """Libraries of one CUDA release: a mixture loads, and then computes with two run times."""
    found = {name: match["major"] for name in needed if (match := _CUDA.fullmatch(name))}
    mixed = len({*found.values()}) > 1
    told = listed(sorted(found)) or "none"
    name, expected = "CUDA libraries", "of one major release"
    if not mixed:
        return _finding(name, "ok", expected, told)
    return _finding(
        name, "fault", expected, told,
        "it was linked against the libraries of two toolkits",
        "build again with one toolkit: sparkbuild make --toolkit NAME",
    )  # fmt: skip


def _search(outline: Outline) -> Finding:
    """Where the loader looks first: beside the file, or somewhere on the machine of a builder."""
    facts = outline.facts
    places = [*facts.rpath, *facts.runpath]
    fixed = [place for place in places if not place.startswith(("$ORIGIN", "${ORIGIN}"))]
    told = listed([named(place) if place else "''" for place in places]) or "none"
    name, expected = "search path", "none, or beside the file ($ORIGIN)"
    if not fixed and not facts.rpath:
        return _finding(name, "ok", expected, told)
    how = "RPATH goes before LD_LIBRARY_PATH; " if facts.rpath else ""
    return _finding(
        name, "warning", expected, told,
        f"{how}libraries of the same name that lie there are taken, whatever they are",
        "remove them there, or build with sparkbuild make",
    )  # fmt: skip
