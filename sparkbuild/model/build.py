"""What a build knows, read from the strings of its libraries: nothing is run.

So it works for a build made for another machine. A linker may let a string share the end of a
longer one (``qwen2`` in ``rwkv6qwen2``): such a name counts as known too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.errors import BinaryError, UsageError
from sparkbuild.model.opening import IrregularError, opened

SERVER: Final = "llama-server"
MOST_BYTES: Final = 1 << 30
"""Of a library. libllama has 5 MB, a server linked with everything and CUDA some hundreds."""

_LIBRARIES: Final = {"llama": "libllama.so*", "mtmd": "libmtmd.so*", "ggml": "libggml-base.so*"}
_FOLDERS: Final = ("", "bin", "lib", "lib64")
_ELF: Final = b"\x7fELF"
_MACHINES: Final = {62: "x86_64", 183: "aarch64"}
_MACHINE_AT: Final = 18
_TEXT: Final = re.compile(rb"[\x20-\x7e]{2,}")
_PIECE: Final = 4 << 20
MOST_TEXTS: Final = 1 << 18
"""Of a library. libllama has 18,000, libggml-cuda for one architecture 63,000."""
_LONGEST: Final = 512
"""Characters of a text that is kept: names and messages, not the pages of a built-in UI."""
_GRAPH: Final = re.compile(r"^(?:_ZTS)?N(?P<length>\d+)(?P<rest>llama_model_\w+)$")
_GRAPH_CLASS: Final = "9graph_mtpE"
"""How the C++ ABI writes the end of the type name of ``llama_model_X::graph_mtp``."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library's texts."""

    path: Path
    machine: str
    texts: frozenset[str]

    def knows(self, name: str) -> bool:
        """Whether the library holds this text, alone or as the end of another one."""
        return bool(name) and (
            name in self.texts or any(text.endswith(name) for text in self.texts)
        )


@dataclass(frozen=True, kw_only=True)
class Build:
    """A build's libraries; the same program three times where everything is linked into it.

    ``mtmd`` is None where it was built without vision.
    """

    folder: Path
    llama: Library
    ggml: Library | None
    mtmd: Library | None
    server: Path | None = None
    """``llama-server``, where the folder has it."""

    @property
    def mtp_graphs(self) -> frozenset[str]:
        """Architectures with an MTP graph, by ``plain`` name; empty where no type name tells."""
        return mtp_graphs(self.llama.texts)

    def has_mtp_graph(self, architecture: str) -> bool:
        """Whether the build has an MTP graph of that architecture's own."""
        return plain(architecture) in self.mtp_graphs


def plain(architecture: str) -> str:
    """An architecture's name as class names and file names agree on it: ``glm-dsa``, ``glmdsa``."""
    return re.sub(r"[^a-z0-9]", "", architecture.lower())


def read_build(folder: Path) -> Build:
    """Read the libraries of a build.

    Raises UsageError where there are none, BinaryError where a file is not what its name says.
    """
    found = {name: _find(folder, pattern) for name, pattern in _LIBRARIES.items()}
    server = _find(folder, SERVER)
    llama = found["llama"] or server
    if llama is None:
        raise UsageError(
            f"{folder} holds no build of llama.cpp",
            problems=[f"expected libllama.so or {SERVER} there, or in bin/ or lib/; found neither"],
            next_step="name the folder with llama-server and its libraries",
        )
    read = {path: _library(path) for path in {llama, *found.values()} - {None} if path}
    linked = read[llama] if found["llama"] is None else None
    return Build(
        folder=folder,
        llama=read[llama],
        ggml=read[found["ggml"]] if found["ggml"] else linked,
        mtmd=read[found["mtmd"]] if found["mtmd"] else linked,
        server=server,
    )


def _find(folder: Path, pattern: str) -> Path | None:
    for name in _FOLDERS:
        files = [path for path in (folder / name).glob(pattern) if path.is_file()]
        if files:
            return min(files, key=lambda path: len(path.name))
    return None


def _library(path: Path) -> Library:
    try:
        with opened(path) as (handle, size):
            if size > MOST_BYTES:
                raise _not_a_library(path, f"at most {MOST_BYTES} bytes", str(size))
            data = os.pread(handle, _MACHINE_AT + 2, 0)
            if data[:4] != _ELF or len(data) < _MACHINE_AT + 2:
                raise _not_a_library(path, "an ELF file", repr(data[:4]))
            texts = texts_in(pieces(handle, 0, size))
    except (OSError, IrregularError) as error:
        raise _not_a_library(path, "a file that can be read", str(error)) from error
    number = int.from_bytes(data[_MACHINE_AT : _MACHINE_AT + 2], "little")
    machine = _MACHINES.get(number, f"machine {number}")
    return Library(path=path, machine=machine, texts=texts)


def pieces(handle: int, begin: int, end: int) -> Iterator[bytes]:
    """The bytes of an open file from ``begin`` to ``end``, some megabytes at a time."""
    while begin < end and (data := os.pread(handle, min(_PIECE, end - begin), begin)):
        begin += len(data)
        yield data


def texts_in(data: Iterable[bytes]) -> frozenset[str]:
    """The texts in pieces of a file: printable, ended by a NUL, names and messages.

    Of more than ``MOST_TEXTS`` the rest is left out: no program has as many.
    """
    found: set[str] = set()
    rest = b""
    for piece in data:
        text = rest + piece
        # What the piece's end cuts off is read with the next one.
        cut = text.rfind(b"\0") + 1
        found.update(_texts(text[:cut]))
        rest = text[max(cut, len(text) - _LONGEST - 1) :]
        if len(found) > MOST_TEXTS:
            break
    return frozenset(found)


def _texts(data: bytes) -> Iterator[str]:
    for match in _TEXT.finditer(data):
        end = match.end()
        if data[end : end + 1] == b"\0" and end - match.start() <= _LONGEST:
            yield match.group().decode("ascii")


def mtp_graphs(texts: frozenset[str]) -> frozenset[str]:
    """Architectures of whose MTP graph a type name is among the texts, by ``plain`` name."""
    return frozenset(_graphs(texts))


def _graphs(texts: frozenset[str]) -> Iterator[str]:
    for text in texts:
        match = _GRAPH.match(text) if text.endswith(_GRAPH_CLASS) else None
        if match:
            length = int(match["length"])
            if match["rest"][length:] == _GRAPH_CLASS:
                yield plain(match["rest"][:length].removeprefix("llama_model_"))


def _not_a_library(path: Path, expected: str, found: str) -> BinaryError:
    return BinaryError(
        f"{path.name} cannot be read",
        problems=[f"expected {expected}, found {found}"],
        evidence=[path],
        next_step="build again, or name another folder",
    )
