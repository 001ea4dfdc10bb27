"""What is inside a wheel from anywhere: its members against RECORD and its own statement."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Final, Literal

import msgspec

from sparkbuild.files import sha256_bytes
from sparkbuild.package import archive, identity, provenance, statement
from sparkbuild.package.statement import Provenance, Statement
from sparkbuild.package.verify import unsafe_names

_LARGEST_TEXT: Final = 64 << 20
"""Bytes that a text inside a wheel may unpack to; the largest real one is an SBOM below 1 MB."""

DAMAGED: Final = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError,
    NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip
"""What reading a damaged archive raises; RuntimeError is zipfile's word for an encrypted member."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel's insides: SHA-256 of every member but RECORD, its texts, what is wrong."""

    members: dict[str, str] = {}
    statement_sha256: str = ""
    provenance: Provenance | None = None
    sbom: bytes = b""
    metadata: bytes = b""
    damage: tuple[str, ...] = ()
    """Why no installer may have it: an unreadable archive, bad names, another RECORD."""
    problems: tuple[str, ...] = ()
    """What its own statement and SBOM lack, or tell otherwise."""


def read_contents(file: IO[bytes], *, folders: bool = False) -> Contents:
    """Read a wheel whole, member by member; what is wrong with it is told, never raised.

    ``folders``: whether a folder may be a member of its own; sparkbuild packs none.
    """
    try:
        with zipfile.ZipFile(file) as opened:
            unsafe = tuple(unsafe_names(opened, folders=folders))
            if unsafe:
                return Contents(damage=unsafe)
            record = provenance.record_of(opened)
            files = [one for one in opened.infolist() if not one.filename.endswith("/")]
            sizes = {one.filename: one.file_size for one in files}
            members = {
                one.filename: archive.digest_of_member(opened, one)[0].hex()
                for one in files
                if one.filename != record
            }
            folder = record.rpartition("/")[0]
            names = [record, f"{folder}/METADATA", f"{folder}/{provenance.STATEMENT_FILE}",
                     f"{folder}/{provenance.SBOM_FILE}", identity.INFO_FILE]  # fmt: skip
            texts = {name: _text(opened, name) for name in names if name in sizes}
    except DAMAGED as error:
        return Contents(damage=(f"it cannot be read: {error}",))
    return _judged(record, members, sizes, texts)


def _text(opened: zipfile.ZipFile, name: str) -> bytes:
    member = opened.getinfo(name)
    if member.file_size > _LARGEST_TEXT:
        raise ValueError(f"{name} unpacks to {member.file_size} bytes")
    return opened.read(member)


def _judged(
    record: str, members: Mapping[str, str], sizes: Mapping[str, int], texts: Mapping[str, bytes]
) -> Contents:
    folder = record.rpartition("/")[0]
    damage = tuple(_record_problems(record, members, sizes, texts[record]))
    problems = []
    place = f"{folder}/{provenance.STATEMENT_FILE}"
    found = made = None
    try:
        found = statement.read_statement(texts.get(place, b""), statement.PROVENANCE)
        made = statement.read_provenance(found)
    except ValueError as error:
        what = f": {error}" if place in texts else ", which sparkbuild's wheels have"
        problems.append(f"{'bad' if place in texts else 'it has no'} {place}{what}")
    if found and made:
        problems += _subject_problems(found, members, place)
        problems += _info_problems(texts.get(identity.INFO_FILE, b""), made)
        problems += _byproduct_problems(made)
    sbom = texts.get(f"{folder}/{provenance.SBOM_FILE}", b"")
    problems += _sbom_problems(sbom, f"{folder}/{provenance.SBOM_FILE}")
    return Contents(
        members=dict(members),
        statement_sha256=members.get(place, ""),
        provenance=made,
        sbom=sbom,
        metadata=texts.get(f"{folder}/METADATA", b""),
        damage=damage,
        problems=tuple(problems),
    )


def _record_problems(
    record: str, members: Mapping[str, str], sizes: Mapping[str, int], text: bytes
) -> Iterator[str]:
    """Every way in which RECORD and the members differ: all of them listed, once, as they are."""
    try:
        rows = archive.parse_record(text.decode("utf-8"))
    except ValueError as error:
        yield f"RECORD cannot be read: {error}"
        return
    for name, count in Counter(row[0] for row in rows).items():
        if count > 1:
            yield f"RECORD lists {name} {count} times"
    listed = {name: (digest, size) for name, digest, size in rows}
    there = {*members, record}
    yield from (
        f"RECORD lists {name}, which is not there" for name in sorted(listed.keys() - there)
    )
    yield from (f"RECORD does not list {name}" for name in sorted(there - listed.keys()))
    for name in sorted(listed.keys() & members.keys()):
        right = (archive.record_form(bytes.fromhex(members[name])), str(sizes[name]))
        if listed[name] != right:
            yield f"RECORD, {name}: expected {' '.join(right)}, found {' '.join(listed[name])}"


def _subject_problems(found: Statement, members: Mapping[str, str], place: str) -> Iterator[str]:
    """The statement inside stands for every member but itself and RECORD."""
    stated = {one.name: one.sha256 for one in found.subject}
    there = {name: digest for name, digest in members.items() if name != place}
    for name in sorted(stated.keys() | there.keys()):
        if stated.get(name) != there.get(name):
            yield (
                f"the statement inside has {stated.get(name) or 'nothing'} for {name}, "
                f"it is {there.get(name) or 'not there'}"
            )


def _byproduct_problems(made: Provenance) -> Iterator[str]:
    """Qualification and smoke are told, and each has the digest of what it tells."""
    for name in (statement.QUALIFICATION, statement.SMOKE):
        resource = made.run_details.byproduct(name)
        try:
            statement.read_judged(resource, name)
        except ValueError as error:
            yield f"the statement inside: {error}"
            continue
        if resource and resource.sha256 != sha256_bytes(resource.content):
            yield f"the statement inside: the digest of {name} is not that of its content"


class _Bom(msgspec.Struct, frozen=True, rename="camel"):
    bom_format: Literal["CycloneDX"]
    spec_version: str


def _sbom_problems(text: bytes, place: str) -> Iterator[str]:
    if not text:
        yield f"it has no {place}"
        return
    try:
        msgspec.json.decode(text, type=_Bom)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield f"bad {place}: it is no CycloneDX document: {error}"


class _Entry(msgspec.Struct, frozen=True):
    sha256: str
    file: str = ""
    id: str = ""


class _Source(msgspec.Struct, frozen=True):
    digest: str
    commit: str
    tree: str


class _Accepted(msgspec.Struct, frozen=True):
    id: str


class _Toolchain(msgspec.Struct, frozen=True):
    name: str
    identity: str
    accepted: tuple[_Accepted, ...]
    parts: dict[str, _Entry]


class _Info(msgspec.Struct, frozen=True):
    """Those parts of ``build-info.json`` that the statement tells too."""

    variant: str
    source: _Source
    patches: tuple[_Entry, ...]
    toolchain: _Toolchain
    binaries: dict[str, _Entry]


def _info_problems(text: bytes, made: Provenance) -> Iterator[str]:
    """``build_info()`` and the statement must tell one story."""
    try:
        info = msgspec.json.decode(text, type=_Info)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield f"{identity.INFO_FILE} cannot be read: {error}"
        return
    built, chain = made.build_definition, info.toolchain
    source = built.dependency(statement.SOURCE)
    patched = built.dependency(statement.PATCHED)
    pairs: dict[str, tuple[object, object]] = {
        "variant": (info.variant, built.external_parameters.variant),
        "toolchain": (chain.name, built.external_parameters.toolchain),
        "toolkit": (chain.identity, built.internal_parameters.toolkit),
        "accepted defects": (_ids(chain.accepted), list(built.external_parameters.accepted)),
        "source": (info.source.digest, source and source.digest.get("sparkbuildSource")),
        "patched tree": (info.source.tree, patched and patched.digest.get("gitTree")),
        "commit": (info.source.commit, patched and patched.digest.get("gitCommit")),
        "patches": (
            sorted((one.file, one.sha256) for one in info.patches),
            sorted((k, v.sha256) for k, v in built.dependencies(statement.PATCH).items()),
        ),
        "toolkit parts": (
            sorted((name, one.sha256) for name, one in chain.parts.items()),
            sorted((k, v.sha256) for k, v in built.dependencies(statement.PART).items()),
        ),
    }
    for what, (said, stated) in pairs.items():
        if said != stated:
            yield f"{what}: {identity.INFO_FILE} has {said}, the statement inside {stated}"


def _ids(accepted: Sequence[_Accepted]) -> list[str]:
    return sorted(one.id for one in accepted)
