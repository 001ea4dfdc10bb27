"""Read a wheel of a CUDA release: what RECORD and METADATA say, and where a member belongs.

The file may be on disk or behind a network: only its directory and two members are read.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import errno
import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Final

from packaging.metadata import InvalidMetadata, Metadata
from packaging.utils import canonicalize_name

from sparkbuild.errors import ArchiveError

_MAX_TEXT: Final = 4 << 20
"""Bytes granted to RECORD or METADATA; CCCL's RECORD, the longest, has 0.2 MB."""

_MAX_MEMBERS: Final = 50_000
"""Members granted to a wheel; CCCL's, with the most, has 1,900."""

_JUNK: Final = frozenset({".metadata", "__pycache__", "__init__.py"})
"""Names below ``nvidia/`` that belong to the packaging, not to a toolkit."""

_SIGNED_BY: Final = ("RECORD", "RECORD.jws", "RECORD.p7s")
"""Members of dist-info that RECORD need not list, by the wheel specification."""

_DIGEST: Final = re.compile(r"sha256=(?P<value>[A-Za-z0-9_-]{43})")
"""32 bytes in URL-safe base64 without padding, by the wheel specification."""

_DAMAGE: Final = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, InvalidMetadata,
    ArithmeticError, LookupError, RuntimeError, ValueError,
)  # fmt: skip
"""What zipfile and METADATA's reader say of bytes that are no wheel's."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What RECORD says of a member."""

    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel's own account of itself; ``record`` lists every member but those of RECORD."""

    file: str
    project: str
    version: str
    licence: str
    dist_info: str
    record: dict[str, Recorded]
    members: tuple[zipfile.ZipInfo, ...]

    def toolkit_files(self) -> dict[str, str]:
        """Members that are part of a toolkit: path below the root to member name.

        ``nvidia/cu13/`` and ``nvidia/<part>/`` are left out of the path. Raises ArchiveError for
        two members with one path.
        """
        result: dict[str, str] = {}
        for member in self.record:
            path = toolkit_path(member)
            if path is None:
                continue
            if path in result:
                raise refused(self.file, path, f"brought by {result[path]} and {member}")
            result[path] = member
        return result

    def licence_texts(self) -> tuple[str, ...]:
        """Members of dist-info that hold licence texts."""
        names = (name for name in self.record if name.startswith(f"{self.dist_info}/"))
        return tuple(sorted(name for name in names if _is_licence(name)))


def read_wheel(file: IO[bytes], name: str) -> tuple[Wheel, zipfile.ZipFile]:
    """Read a wheel's directory, RECORD and METADATA, and check that they tell one story.

    Raises ArchiveError naming the member that is absolute, climbs out, is a link, is there twice,
    lies outside ``nvidia/`` and dist-info, or is missing in RECORD or in the archive; and where
    the archive is damaged.
    """
    with damage_refused(name):
        archive = zipfile.ZipFile(file)
        members = archive.infolist()
        _check_members(name, members)
        dist_info = _dist_info(name, members)
        record = read_record(_text(archive, f"{dist_info}/RECORD"))
        metadata = Metadata.from_email(_text(archive, f"{dist_info}/METADATA"), validate=False)
        project, version = canonicalize_name(metadata.name), str(metadata.version)
    names = {member.filename for member in members if not member.is_dir()}
    unlisted = {f"{dist_info}/{own}" for own in _SIGNED_BY}
    for wrong in sorted(names - record.keys() - unlisted):
        raise refused(name, wrong, "RECORD does not list it")
    for wrong in sorted(record.keys() - names):
        raise refused(name, wrong, "RECORD lists it, and it is not there")
    return Wheel(
        file=name,
        project=project,
        version=version,
        licence=_licence(metadata),
        dist_info=dist_info,
        record=record,
        members=tuple(members),
    ), archive


def read_record(text: str) -> dict[str, Recorded]:
    """RECORD's rows by member; those without a digest (RECORD's own) are left out.

    Raises ValueError for a row that is none, or for a member listed twice.
    """
    result: dict[str, Recorded] = {}
    try:
        for row in csv.reader(io.StringIO(text, newline=""), strict=True):
            if len(row) != 3:
                raise ValueError(f"RECORD has a row of {len(row)} fields, 3 expected: {row}")
            path, digest, size = row
            if not digest and PurePosixPath(path).name in _SIGNED_BY:
                continue
            if path in result:
                raise ValueError(f"RECORD lists {path!r} twice")
            if not size.isascii() or not size.isdecimal():
                raise ValueError(f"RECORD gives {path!r} the size {size!r}")
            result[path] = Recorded(sha256=_hex(path, digest), size=int(size))
    except csv.Error as error:
        raise ValueError(f"RECORD is no list of comma separated values: {error}") from error
    return result


def toolkit_path(member: str) -> str | None:
    """Where a member lies below a toolkit's root, None for what is no part of one."""
    first, *rest = member.split("/")
    if first != "nvidia" or len(rest) < 2 or _JUNK & set(rest):
        return None
    return "/".join(rest[1:])


@contextlib.contextmanager
def damage_refused(name: str) -> Iterator[None]:
    """Turn what zipfile says of a damaged archive into a refusal."""
    try:
        yield
    except _DAMAGE as error:
        raise _damaged(name, error) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # zipfile, sent before the beginning by a wrong offset
            raise
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> ArchiveError:
    return ArchiveError(
        f"{name} is damaged, or no wheel",
        problems=[str(error) or type(error).__name__],
        next_step="run the same command again: what is downloaded is checked anew",
    )


def refused(name: str, member: str, problem: str) -> ArchiveError:
    """The refusal of a wheel for one of its members."""
    return ArchiveError(
        f"{name} holds what no toolkit's wheel may",
        problems=[f"{member!r}: {problem}"],
        next_step="do not use it; ask its maker why",
    )


def _hex(path: str, digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ValueError(f"RECORD gives {path!r} the digest {digest!r}, SHA-256 expected")
    return base64.urlsafe_b64decode(f"{match['value']}=").hex()


def _check_members(name: str, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > _MAX_MEMBERS:
        raise refused(name, members[0].filename, f"one of {len(members)} members")
    seen: set[str] = set()
    for member in members:
        problem = _member_problem(member)
        if problem is None and member.filename in seen:
            problem = "the same name twice"
        if problem is not None:
            raise refused(name, member.filename, problem)
        seen.add(member.filename)
    folders = {str(above) for path in seen for above in PurePosixPath(path).parents}
    for path in sorted(seen & folders):
        raise refused(name, path, "both a file and a folder")


def _member_problem(member: zipfile.ZipInfo) -> str | None:
    path = member.filename
    parts = path.removesuffix("/").split("/")
    kind = stat.S_IFMT(member.external_attr >> 16)
    problems = {
        "an absolute path": path.startswith("/") or bool(re.match(r"[A-Za-z]:", path)),
        "a path that climbs out": ".." in parts,
        "an odd path": bool({"", "."} & set(parts)) or not path.isprintable() or "\\" in path,
        "a link": kind == stat.S_IFLNK,
        "neither a file nor a folder": kind not in {0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK},
        "outside nvidia/": parts[0] != "nvidia" and not parts[0].endswith(".dist-info"),
        "encrypted": bool(member.flag_bits & 0x1),  # general purpose bit 0 of the zip format
    }
    return next((text for text, met in problems.items() if met), None)


def _dist_info(name: str, members: list[zipfile.ZipInfo]) -> str:
    found = {member.filename.split("/")[0] for member in members} - {"nvidia"}
    if len(found) != 1:
        raise refused(name, " ".join(sorted(found)), "one dist-info folder expected")
    return found.pop()


def _text(archive: zipfile.ZipFile, member: str) -> str:
    with archive.open(member) as file:
        data = file.read(_MAX_TEXT + 1)
    if len(data) > _MAX_TEXT:
        raise ValueError(f"{member} has more than {_MAX_TEXT} bytes")
    return data.decode()


def _licence(metadata: Metadata) -> str:
    """The licence's name: the SPDX expression, or the older field's first line."""
    lines = (metadata.license_expression or metadata.license or "").strip().splitlines()
    return lines[0] if lines else "unstated"


def _is_licence(name: str) -> bool:
    path = PurePosixPath(name)
    return "licenses" in path.parts[:-1] or path.name.lower().startswith(("licen", "eula"))
