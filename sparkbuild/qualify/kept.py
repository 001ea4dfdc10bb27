"""Verdicts by what they depend on: the same compiler, source and flags are judged once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparkbuild.files import digest_of, sha256_bytes, sha256_file, write_atomic
from sparkbuild.qualify.model import SCHEMA, Compiler, Qualification
from sparkbuild.toolkit.model import HostCompiler

_CODE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is judged: a compiler for one target, with flags, on a patched source.

    ``parts`` are digests of the toolkit's parts by name, ``source`` is the tree's folder.
    """

    compiler: Compiler
    root: str
    parts: Mapping[str, str]
    host: HostCompiler
    source: str

    @property
    def key(self) -> str:
        """Digest over all that a verdict depends on, this package's own judgement included."""
        return digest_of(
            {
                "schema": SCHEMA,
                "code": code_digest(),
                "parts": dict(sorted(self.parts.items())),
                "host": self.host.sha256,
                "tree": self.compiler.tree,
                "architecture": self.compiler.architecture,
                "platform": self.compiler.platform,
                "flags": list(self.compiler.flags),
                "executor": [self.compiler.executor, self.compiler.device],
            }
        )


def code_digest() -> str:
    """Digest over every file of this room: probes, references, reader and executor decide."""
    files = sorted(path for path in _CODE.rglob("*") if path.suffix in {".py", ".cu", ".cuh", ".h"})
    listed = [f"{path.relative_to(_CODE)} {sha256_file(path)}" for path in files]
    return sha256_bytes("\n".join(listed).encode())


def known(path: Path, key: str) -> Qualification | None:
    """The verdict kept in ``path`` where it is that of ``key``; None for anything else."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Qualification)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    return msgspec.structs.replace(kept, cached=True) if kept.key == key else None


def keep(path: Path, found: Qualification) -> None:
    """Remember a verdict; written last and at once, so that its presence means it is whole."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(found)) + b"\n")
