"""What one file of a toolkit says of itself, whatever its name is; nothing is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

import msgspec

from sparkbuild.toolkit.identity.elf import (
    ARCHIVE_MAGIC,
    BITCODE_MAGIC,
    ELF_MAGIC,
    Binary,
    ReadAt,
    read_archive,
    read_bitcode,
    read_elf,
)
from sparkbuild.toolkit.identity.versions import embedded, macros

_TEXT: Final = 4 << 20
"""Bytes of a text that are searched for macros; the largest header of CUDA 13.5 has 1.4 MB."""

Form = Literal["program", "library", "archive", "bitcode", "script", "text", "empty", "other"]


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One file: what it is by its content, what is wrong with it, which versions it states."""

    form: Form
    machine: str = ""
    damage: str = ""
    """Follows the file's name in a sentence; empty where it is whole."""
    versions: tuple[str, ...] = ()
    """Of a program, as it would print them; more than one is a fault."""
    builds: tuple[str, ...] = ()
    macros: dict[str, tuple[int, ...]] = {}


def read_facts(path: Path) -> FileFacts:
    """Read one file. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not block
    try:
        return facts_of(lambda at, length: _read(handle, at, length), os.fstat(handle).st_size)
    finally:
        os.close(handle)


def _read(handle: int, at: int, length: int) -> bytes:
    return os.pread(handle, length, at)


def facts_of(read: ReadAt, size: int) -> FileFacts:
    """The same of ``size`` bytes behind ``read(offset, length)``."""
    head = read(0, 8)
    if not head:
        return FileFacts(form="empty", damage="is empty")
    if head.startswith(ELF_MAGIC):
        return _elf(read_elf(read, size), read, size)
    if head == ARCHIVE_MAGIC:
        found = read_archive(read, size)
        return FileFacts(form="archive", machine=found.machine, damage=found.damage)
    if head.startswith(BITCODE_MAGIC):
        return FileFacts(form="bitcode", damage=read_bitcode(read, size).damage)
    return _text(head, read, size)


def _text(head: bytes, read: ReadAt, size: int) -> FileFacts:
    if head.startswith(b"#!"):
        return FileFacts(form="script")
    text = read(0, min(size, _TEXT))
    if b"\0" in text:
        return FileFacts(form="other")
    return FileFacts(form="text", macros=macros(text))


def _elf(found: Binary, read: ReadAt, size: int) -> FileFacts:
    versions, builds = embedded(read, size) if found.kind == "program" else (set(), set())
    return FileFacts(
        form=found.kind,
        machine=found.machine,
        damage=found.damage,
        versions=tuple(sorted(versions)),
        builds=tuple(sorted(builds)),
    )
