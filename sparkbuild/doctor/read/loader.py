"""What the loader would take for the names of CUDA's and llama.cpp's libraries."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from sparkbuild.doctor.captured import Library
from sparkbuild.doctor.read.reader import Reader
from sparkbuild.process import capture, environment, find_program

_NAMES: Final = re.compile(
    r"libcuda\.so\.1|lib(cudart|cublas|cublasLt)\.so\.1[1-9]|lib(llama|mtmd|ggml[a-z0-9-]*)\.so(\.\d+)?"
)
_CACHED: Final = re.compile(r"^\s*(?P<soname>\S+) \((?P<kind>[^)]*)\) => (?P<path>/.*)$")
_KINDS: Final = {"aarch64": "AArch64", "x86_64": "x86-64"}
"""How ldconfig calls the libraries of an architecture."""
_SECONDS: Final = 10.0


def read_libraries(
    reader: Reader, architecture: str, variables: Mapping[str, str] = os.environ
) -> tuple[Library, ...] | None:
    """The first of each name: in LD_LIBRARY_PATH's folders, then in the loader's cache."""
    program = find_program(
        "ldconfig", env={"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    )
    if program is None:
        reader.lack("toolkits.libraries", "there is no ldconfig")
        return None
    answer = capture([str(program), "-p"], env=environment(), timeout=_SECONDS)
    if answer.returncode != 0:
        reader.lack("toolkits.libraries", answer.stderr or f"ldconfig: {answer.returncode}")
        return None
    found: dict[str, Library] = {}
    for soname, path in in_path(variables.get("LD_LIBRARY_PATH", "")):
        found.setdefault(soname, _library(soname, path, "LD_LIBRARY_PATH"))
    for soname, path in in_cache(answer.stdout, architecture):
        found.setdefault(soname, _library(soname, path, "cache"))
    return tuple(found[name] for name in sorted(found))


def in_path(value: str) -> Iterator[tuple[str, Path]]:
    """Names and files in the folders of LD_LIBRARY_PATH; an empty entry is the current folder."""
    for entry in value.split(":") if value else ():
        try:
            files = sorted(Path(entry or ".").iterdir())
        except OSError:
            continue
        yield from ((file.name, file) for file in files if _NAMES.fullmatch(file.name))


def in_cache(text: str, architecture: str) -> Iterator[tuple[str, Path]]:
    """Names and files in ``ldconfig -p`` that are for this architecture."""
    kind = _KINDS.get(architecture, architecture)
    for line in text.splitlines():
        found = _CACHED.match(line)
        if found and _NAMES.fullmatch(found["soname"]) and kind in found["kind"]:
            yield found["soname"], Path(found["path"])


def _library(soname: str, path: Path, through: Literal["LD_LIBRARY_PATH", "cache"]) -> Library:
    return Library(soname=soname, path=os.path.realpath(path), through=through)
