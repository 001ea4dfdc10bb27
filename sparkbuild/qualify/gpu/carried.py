"""A folder that takes assembled probes to the machine with the GPU: nothing else is needed there.

It holds the PTX and the cubin of every unit, the files of the source that probes and references
read, and a manifest with the digest of each.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from sparkbuild.errors import ArchiveError, UsageError
from sparkbuild.files import sha256_bytes, sha256_file, write_atomic
from sparkbuild.qualify.gpu.assemble import Assembled
from sparkbuild.qualify.model import Compiler, Unit
from sparkbuild.qualify.reference.library import inputs_of
from sparkbuild.qualify.reference.source import HEADERS

SCHEMA: Final = 1
MANIFEST: Final = "qualify.json"
SOURCE: Final = "source"


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the folder; paths are relative to it, ``files`` has their digests."""

    schema: int
    compiler: Compiler
    target: str
    units: tuple[Assembled, ...]
    failed: tuple[Unit, ...]
    """Units that did not compile."""
    files: Mapping[str, str]


def carry(
    folder: Path, source: Path, compiler: Compiler, target: str,
    units: Iterable[Assembled], failed: Iterable[Unit],
) -> Carried:  # fmt: skip
    """Write the folder anew. Raises UsageError where it holds anything else."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise UsageError(
            f"{folder} is not empty, and no earlier --assemble wrote it",
            next_step="name a folder that does not exist yet",
        )
    shutil.rmtree(folder, ignore_errors=True)
    files: dict[str, str] = {}
    for path in (*inputs_of(source), *(source / "ggml/src" / name for name in HEADERS)):
        if path.is_file():
            _put(folder, f"{SOURCE}/{path.relative_to(source)}", path, files)
    moved = []
    for unit in units:
        ptx = _put(folder, f"{unit.name}.ptx", Path(unit.ptx), files)
        cubin = _put(folder, f"{unit.name}.cubin", Path(unit.cubin), files) if unit.cubin else ""
        moved.append(msgspec.structs.replace(unit, ptx=ptx, cubin=cubin))
    made = Carried(
        schema=SCHEMA,
        compiler=compiler,
        target=target,
        units=tuple(moved),
        failed=tuple(failed),
        files=dict(sorted(files.items())),
    )
    write_atomic(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(made)) + b"\n")
    return made


def unpacked(folder: Path) -> Carried:
    """The folder's manifest, every file as it says and units' paths absolute.

    Raises UsageError where there is none, ArchiveError where a file is missing or another one.
    """
    manifest = folder / MANIFEST
    try:
        found = msgspec.json.decode(manifest.read_bytes(), type=Carried)
    except OSError as error:
        raise UsageError(
            f"{folder} has no {MANIFEST}",
            next_step=f"toolkit qualify RELEASE --on gpu --device 90a --assemble {folder}",
        ) from error
    except msgspec.MsgspecError as error:
        raise _damaged(manifest, [str(error)]) from error
    if found.schema != SCHEMA:
        raise _damaged(manifest, [f"schema {found.schema}, known is {SCHEMA}"])
    wrong = [problem for name, sha in found.files.items() if (problem := _wrong(folder, name, sha))]
    listed = {name for unit in found.units for name in (unit.ptx, unit.cubin) if name}
    wrong += [f"{name} has no digest" for name in sorted(listed - found.files.keys())]
    if wrong:
        raise _damaged(manifest, wrong)
    here = folder.resolve()
    units = tuple(
        msgspec.structs.replace(
            unit,
            ptx=str(here / unit.ptx),
            cubin=str(here / unit.cubin) if unit.cubin else "",
        )
        for unit in found.units
    )
    return msgspec.structs.replace(found, units=units)


def _put(folder: Path, name: str, path: Path, files: dict[str, str]) -> str:
    data = path.read_bytes()
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(place, data)
    files[name] = sha256_bytes(data)
    return name


def _wrong(folder: Path, name: str, sha256: str) -> str:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        return f"{name} is outside of the folder"
    path = folder / name
    if not path.is_file():
        return f"{name} is missing"
    found = sha256_file(path)
    return "" if found == sha256 else f"{name}: expected {sha256}, found {found}"


def _damaged(manifest: Path, problems: list[str]) -> ArchiveError:
    return ArchiveError(
        f"{manifest.parent} is not what --assemble wrote",
        problems=problems,
        evidence=[manifest],
        next_step="carry the folder over again",
    )
