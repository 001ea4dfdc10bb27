"""A wheel as an archive: read safely, and brought into the one order and mode it may have."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

SOURCE_DATE_EPOCH: Final = 315_532_800
"""1980-01-01 UTC, the earliest date a zip archive can hold: it says "no date" plainly."""

_DATE: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
"""``version made by`` in the zip format: external attributes then hold a Unix mode."""

_CHUNK: Final = 1 << 20


def record_digest(data: bytes) -> str:
    """A digest as RECORD writes it: ``sha256=`` and URL-safe base64 without padding."""
    return record_form(hashlib.sha256(data).digest())


def record_form(digest: bytes) -> str:
    """Raw SHA-256 bytes as RECORD writes them."""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def parse_record(text: str) -> list[tuple[str, str, str]]:
    """RECORD's rows: path, digest, size. Raises ValueError for a line that is no such row."""
    rows = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), strict=True):
            if len(row) != 3:
                raise ValueError(f"RECORD has a line of {len(row)} fields, 3 expected: {row}")
            rows.append((row[0], row[1], row[2]))
    except csv.Error as error:
        raise ValueError(f"RECORD is no list of comma separated values: {error}") from error
    return rows


def record_text(rows: Iterable[tuple[str, str, str]]) -> str:
    """RECORD's text, the inverse of ``parse_record``."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def canonical_order(names: Iterable[str], record: str) -> list[str]:
    """Members sorted by path, folder by folder, with RECORD last as installers expect."""
    return sorted(names, key=lambda name: (name == record, PurePosixPath(name).parts))


def is_canonical(members: Sequence[zipfile.ZipInfo], record: str) -> bool:
    """True where order, dates, modes and compression are those that ``rewrite`` would give."""
    names = [member.filename for member in members]
    return names == canonical_order(names, record) and all(
        _attributes(member) == _attributes(_normal(member)) for member in members
    )


def rewrite(source: Path, target: Path, record: str) -> None:
    """Write ``source`` again in canonical order, with fixed dates and modes and a right RECORD.

    For a wheel that ``is_canonical`` the result is the same bytes, given the same zlib.
    """
    rows = []
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in canonical_order(old.namelist(), record):
            if name == record:
                continue
            data = old.read(name)
            rows.append((name, record_digest(data), str(len(data))))
            new.writestr(_normal(old.getinfo(name)), data)
        rows.append((record, "", ""))
        new.writestr(_normal(old.getinfo(record)), record_text(rows))


def executable_bit(member: zipfile.ZipInfo) -> bool:
    """True where an installer would make the member executable."""
    return bool((member.external_attr >> 16) & 0o111)


def fresh(name: str) -> zipfile.ZipInfo:
    """The header of a new member that is no program."""
    return _normal(zipfile.ZipInfo(name))


def digest_of_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[bytes, bytes]:
    """SHA-256 and the first four bytes of a member, read in pieces.

    Raises zipfile.BadZipFile or zlib.error where the archive is damaged.
    """
    digest = hashlib.sha256()
    head = b""
    with archive.open(member) as file:
        while chunk := file.read(_CHUNK):
            head = head or chunk[:4]
            digest.update(chunk)
    return digest.digest(), head


def _normal(member: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """The member's header as it must be: the executable bit is all that is kept of the old one."""
    info = zipfile.ZipInfo(member.filename, date_time=_DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    mode = 0o755 if executable_bit(member) else 0o644
    info.external_attr = (stat.S_IFREG | mode) << 16
    return info


def _attributes(member: zipfile.ZipInfo) -> tuple[object, ...]:
    return (
        member.filename,
        member.date_time,
        member.compress_type,
        member.create_system,
        member.external_attr,
        member.extra,
        member.comment,
    )
