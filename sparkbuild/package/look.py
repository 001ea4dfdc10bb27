"""A look at one wheel from anywhere: what it is, whether its members are those that it lists.

Nothing is installed or run, and what an archive announces is limited before it is followed.
"""

from __future__ import annotations

import email.parser
import email.policy
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from sparkbuild.errors import PackageError
from sparkbuild.files import disk_full_refused
from sparkbuild.model.finding import Finding, listed, named
from sparkbuild.model.opening import IrregularError, opened
from sparkbuild.package import identity
from sparkbuild.package.contents import DAMAGED, Contents, read_contents
from sparkbuild.package.directory import MOST_MEMBERS, directory_problem
from sparkbuild.package.making import making
from sparkbuild.package.model import Member, WheelLook

MOST_BYTES: Final = 8 << 30
"""Of all members together, unpacked; the largest published ones, PyTorch's for CUDA, have 2 GB."""
_LARGEST_TEXT: Final = 1 << 20
"""Bytes of METADATA or WHEEL that are read here."""
_CHUNK: Final = 1 << 20
_AGAIN: Final = "get it again, and compare its SHA-256 with what its publisher states"
_LISTED: Final = 3
_LONGEST: Final = 400
"""Characters of one problem."""


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """A wheel's own files, as far as they are read here."""

    metadata: str = ""
    wheel: str = ""
    info: bytes = b""


def look(path: Path) -> WheelLook:
    """Look at a wheel. Raises PackageError where it is none, or one that cannot be read at all."""
    with _archive(path) as (file, size, archive):
        sizes = {one.filename: one.file_size for one in archive.infolist()}
        texts = _texts(archive, path)
        file.seek(0)
        contents = read_contents(file, folders=identity.INFO_FILE not in sizes)
    metadata, wheel = _headers(texts.metadata), _headers(texts.wheel)
    made = making(texts.info, contents.provenance)
    ours = identity.INFO_FILE in sizes
    name, version = (str(metadata.get(key) or "") for key in ("Name", "Version"))
    tags = tuple(str(tag) for tag in wheel.get_all("Tag", []))
    return WheelLook(
        path=str(path),
        size=size,
        name=name,
        version=version,
        summary=str(metadata.get("Summary") or ""),
        tags=tags,
        made=made,
        members=tuple(
            Member(path=member, size=sizes[member], sha256=digest)
            for member, digest in contents.members.items()
        ),
        findings=(
            _file_name(path.name, name, version, tags),
            _record(contents),
            *([_statement(contents, readable=made is not None)] if ours else []),
        ),
    )


def elf_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Each ELF file in a wheel that ``look`` took, in a file without a name, one at a time.

    A member that cannot be unpacked is left out: ``look`` has told it. Raises DiskFullError.
    """
    place = Path(tempfile.gettempdir())
    with _archive(path) as (_, _, archive):
        for member in archive.infolist():
            if member.filename.endswith("/"):
                continue
            with tempfile.TemporaryFile() as out:
                try:
                    with disk_full_refused(place):
                        is_elf = _unpacked(archive, member, out)
                    if is_elf:
                        yield member.filename, out
                except (*DAMAGED, LookupError):
                    continue


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, out: IO[bytes]) -> bool:
    with archive.open(member) as source:
        if source.read(4) != b"\x7fELF":
            return False
        out.write(b"\x7fELF")
        while chunk := source.read(_CHUNK):
            out.write(chunk)
    out.flush()
    return True


@contextmanager
def _archive(path: Path) -> Iterator[tuple[IO[bytes], int, zipfile.ZipFile]]:
    """An archive whose directory and sizes are within the limits."""
    try:
        with opened(path) as (handle, size), os.fdopen(os.dup(handle), "rb") as file:
            if problem := directory_problem(handle, size):
                raise _refused(path, problem)
            with zipfile.ZipFile(file) as archive:
                if problem := _too_much(archive):
                    raise _refused(path, problem)
                yield file, size, archive
    except (*DAMAGED, LookupError, IrregularError) as error:
        raise _refused(path, f"it cannot be read: {str(error) or type(error).__name__}") from error


def _too_much(archive: zipfile.ZipFile) -> str:
    members = archive.infolist()
    total = sum(one.file_size for one in members)
    if total > MOST_BYTES:
        return f"its members unpack to {total:,} bytes, expected at most {MOST_BYTES:,}"
    if len(members) > MOST_MEMBERS:
        return f"it has {len(members)} members, expected at most {MOST_MEMBERS}"
    return ""


def _texts(archive: zipfile.ZipFile, path: Path) -> _Texts:
    folders = sorted({
        parts[0]
        for name in archive.namelist()
        if len(parts := PurePosixPath(name).parts) == 2 and parts[0].endswith(".dist-info")
    })  # fmt: skip
    if not folders:
        checkpoint = any(name.endswith("/data.pkl") for name in archive.namelist())
        what = "a PyTorch checkpoint" if checkpoint else "an archive of other files"
        raise PackageError(
            f"{path.name} is no wheel",
            problems=[f"expected a folder NAME-VERSION.dist-info in it, found {what}"],
            evidence=[path],
            next_step="convert it: llama.cpp's convert_hf_to_gguf.py"
            if checkpoint
            else "name a wheel, a GGUF file, a program or a library",
        )

    def text(name: str, most: int = _LARGEST_TEXT) -> bytes:
        return archive.read(name) if name in names and names[name] <= most else b""

    names = {one.filename: one.file_size for one in archive.infolist()}
    metadata, wheel = (
        text(f"{folders[0]}/{file}").decode(errors="replace") for file in ("METADATA", "WHEEL")
    )
    return _Texts(metadata=metadata, wheel=wheel, info=text(identity.INFO_FILE, 16 * _LARGEST_TEXT))


def _headers(text: str) -> Any:
    return email.parser.HeaderParser(policy=email.policy.compat32).parsestr(text)


def _file_name(file: str, name: str, version: str, tags: tuple[str, ...]) -> Finding:
    """Installers go by the file's name, and refuse one that says other than what is in it."""
    inside = f"{name} {version} for {', '.join(sorted(tags))}".strip()
    try:
        told, number, _, found = parse_wheel_filename(file)
        same = told == canonicalize_name(name) and str(number) == version
        wrong = "" if same and {str(tag) for tag in found} == _each(tags) else file
    except InvalidWheelFilename as error:
        wrong = str(error)
    expected = "the name, version and tags that METADATA and WHEEL tell"
    if not wrong:
        return Finding(name="file name", state="ok", expected=expected, found="all of them")
    return Finding(
        name="file name",
        state="warning",
        expected=_said(f"{expected}: {inside}"),
        found=_said(wrong),
        reason="installers go by the name, and refuse one that its contents do not bear out",
        next_step="give it back the name that it was published with",
    )


def _said(text: str) -> str:
    """A sentence with a file's own words in it: no control characters, and an end."""
    plain = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 3]}..."


def _each(tags: tuple[str, ...]) -> set[str]:
    """Tags one by one: ``py2.py3-none-any`` is two."""
    return {
        f"{python}-{abi}-{platform}"
        for tag in tags
        if tag.count("-") == 2
        for python in tag.split("-")[0].split(".")
        for abi in tag.split("-")[1].split(".")
        for platform in tag.split("-")[2].split(".")
    }


def _record(contents: Contents) -> Finding:
    wrong = [_said(text) for text in contents.damage]
    return Finding(
        name="RECORD",
        state="fault" if wrong else "ok",
        expected="every member with the digest and size that RECORD lists, and no other",
        found=listed(wrong, most=_LISTED) if wrong else f"{len(contents.members)} members so",
        reason="it is not the archive that was packed, and installers refuse it" if wrong else "",
        next_step=_AGAIN if wrong else "",
    )


def _statement(contents: Contents, *, readable: bool) -> Finding:
    """What it says of its making: one story, told three times."""
    folder = next((one.partition("/")[0] for one in contents.members if ".dist-info/" in one), "")
    problems = [text.replace(f"{folder}/", "") if folder else text for text in contents.problems]
    if not readable:
        problems.append(f"{identity.INFO_FILE} cannot be read")
    wrong = [_said(text) for text in problems]
    # Those before there was any statement, or of a build that was packed by hand.
    silent = contents.provenance is None and not contents.statement_sha256 and readable
    return Finding(
        name="provenance",
        state="ok" if not wrong else "warning" if silent else "fault",
        expected="a statement, an SBOM and build-info.json that tell one story",
        found=listed(wrong, most=_LISTED) if wrong else "all three",
        reason=(_SILENT if silent else _CHANGED) if wrong else "",
        next_step=_AGAIN if wrong else "",
    )


_CHANGED: Final = "one of them was changed, or another program made the wheel"
_SILENT: Final = "nothing in it can be compared with what was built"


def _refused(path: Path, problem: str) -> PackageError:
    return PackageError(
        f"{named(path.name)} is no wheel that can be read",
        problems=[problem],
        evidence=[path],
        next_step=_AGAIN,
    )
