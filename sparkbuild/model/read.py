"""A model as its files tell it: one GGUF file, or the shards of one, headers only."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from sparkbuild.errors import ModelError
from sparkbuild.model.header import MAGIC, Header, HeaderError, Tensor, Value, padded, read_header
from sparkbuild.model.opening import IrregularError, opened

SHARD: Final = re.compile(
    r"^(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.DOTALL
)
MOST_SHARDS: Final = 1024
"""Of a model: 1 TB in the smallest shards that are published (1 GB each)."""

_AGAIN: Final = "download it again, and compare its size and SHA-256 with what its publisher states"
_OTHERS: Final = (
    (b"version https://git-lfs", "a git-lfs pointer", "fetch the file itself: git lfs pull"),
    (b"<", "a web page", "download the file itself, not the page about it"),
    (b"PK\x03\x04", "a PyTorch checkpoint", "convert it: llama.cpp's convert_hf_to_gguf.py"),
    (b"ggjt", "a GGML file of 2023", "convert the original weights again"),
    (b"\x7fELF", "a program or a library", "name a model; inspect takes programs as well"),
    (b"!<arch>", "an archive of object files", "name the program that was linked from it"),
    (b"MZ", "a Windows program", "name the Linux build's file"),
    (b"\x1f\x8b", "a gzip archive", "unpack it, and name a file that was in it"),
)  # fmt: skip
"""How files begin that are taken for a GGUF file, what they are, what to do."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A file: its size in bytes and what its header says."""

    path: Path
    size: int
    header: Header

    @property
    def needed(self) -> int:
        """Bytes that the file has at least where its tensors are all there."""
        header = self.header
        return max(
            (header.data + tensor.offset + (tensor.bytes or 0) for tensor in header.tensors),
            default=header.table[1],  # what pads a header is there for tensors
        )

    @property
    def whole(self) -> int:
        """Bytes of the file with the padding after its last tensor."""
        return padded(self.needed, self.header.alignment)

    def split(self, name: str) -> int | None:
        """``split.count``, ``split.no`` or ``split.tensors.count``; None where it is not stated."""
        value = self.header.values.get(f"split.{name}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, kw_only=True)
class Model:
    """All files of a model that are there; ``missing`` are those that are not.

    Metadata is that of the first shard, as in llama.cpp.
    """

    shards: tuple[Shard, ...]
    missing: tuple[Path, ...] = ()

    @property
    def path(self) -> Path:
        """The file to name: the first shard."""
        return self.shards[0].path

    @property
    def values(self) -> dict[str, Value]:
        """Metadata."""
        return self.shards[0].header.values

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Of all shards, by name."""
        return {tensor.name: tensor for shard in self.shards for tensor in shard.header.tensors}

    @property
    def architecture(self) -> str:
        """``general.architecture``; empty where it is not stated."""
        return self.text("general.architecture") or ""

    def key(self, name: str) -> str:
        """A key of the architecture's own, from what follows the dot."""
        return f"{self.architecture}.{name}"

    def text(self, key: str) -> str | None:
        """A text; None where the key is missing or holds another kind of value."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        """An integer, in the same way."""
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """An array of integers or truth values, in the same way."""
        value = self.values.get(key)
        if not isinstance(value, tuple):
            return None
        found = tuple(int(item) for item in value if isinstance(item, int))
        return found if len(found) == len(value) else None

    def length(self, key: str) -> int:
        """Entries of an array; 0 where the key is missing or holds another kind of value."""
        value = self.values.get(key)
        return len(value) if isinstance(value, tuple) else 0

    def texts(self, key: str) -> tuple[str, ...] | None:
        """An array of texts, in the same way."""
        value = self.values.get(key)
        if not isinstance(value, tuple):
            return None
        found = tuple(item for item in value if isinstance(item, str))
        return found if len(found) == len(value) else None


def read_model(path: Path) -> Model:
    """Read a model's headers, given its file or any of its shards; no tensor data is touched.

    Raises ModelError where a file that is there cannot be read, or the first shard is not there.
    """
    given = read_shard(path)
    count = given.split("count") or 1
    if count > MOST_SHARDS:
        raise _refused(path, f"split.count: expected at most {MOST_SHARDS}, found {count}")
    names = _siblings(path, count)
    if path not in names:  # one file, or one with a name that tells nothing of the others
        return Model(shards=(given,))
    there = [name for name in names if name == path or name.exists() or name.is_symlink()]
    missing = tuple(name for name in names if name not in there)
    if names[0] in missing:
        raise ModelError(
            f"{path.name} is a shard, and the first one is not beside it",
            problems=[f"expected {names[0]}, which holds the metadata; found nothing there"],
            evidence=[path],
            next_step=f"put all {count} shards into one folder and name the first one",
        )
    shards = tuple(given if name == path else read_shard(name) for name in there)
    return Model(shards=shards, missing=missing)


def read_shard(path: Path) -> Shard:
    """Read one file's header. Raises ModelError naming the file, what was expected and found."""
    head = b""
    try:
        with opened(path) as (handle, size):
            head = _head(handle)
            return Shard(path=path, size=size, header=read_header(handle, size))
    except IrregularError as error:
        raise _refused(path, f"expected a file, found {error}", "name the file itself") from error
    except HeaderError as error:
        raise _damaged(path, error, head) from error
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        raise _unreadable(path, error) from error


def _siblings(path: Path, count: int) -> tuple[Path, ...]:
    """The names that the shards of a set have beside one of them; none where it has no such name.

    llama.cpp makes them from the first one's name and ``split.count`` in the same way.
    """
    match = SHARD.match(path.name)
    if match is None or count < 2:
        return ()
    return tuple(
        path.with_name(f"{match['prefix']}-{number:05d}-of-{count:05d}.gguf")
        for number in range(1, count + 1)
    )


def _head(handle: int) -> bytes:
    with contextlib.suppress(OSError):
        return os.pread(handle, 64, 0)
    return b""


def _damaged(path: Path, error: HeaderError, head: bytes) -> ModelError:
    for start, what, step in _OTHERS:
        if head.lstrip().startswith(start):
            return _refused(path, f"expected a GGUF file, found {what}", step)
    if head[:4] == MAGIC and head[4:6] == b"\0\0" and head[6:8] != b"\0\0":
        found = "byte order: expected little-endian, found big-endian"
        return _refused(path, found, "convert it: gguf-convert-endian FILE little (package gguf)")
    if head[:8] == MAGIC + b"\1\0\0\0":
        return _refused(path, str(error), "get a newer file: llama.cpp reads version 1 no more")
    return _refused(path, str(error))


def _unreadable(path: Path, error: OSError | ValueError) -> ModelError:
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number) if number else str(error)
    lost = number in {None, errno.ENOENT, errno.ELOOP, errno.ENAMETOOLONG}
    step = "check the path" if lost else "check its rights"
    return _refused(path, f"expected a file that can be read, found: {reason}", step)


def _refused(path: Path, problem: str, next_step: str = _AGAIN) -> ModelError:
    return ModelError(
        f"{path.name} cannot be read as a GGUF file",
        problems=[problem],
        evidence=[path],
        next_step=next_step,
    )
