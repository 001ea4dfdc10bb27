"""A wheel that is to be published, read whole with all that lies beside it."""

from __future__ import annotations

import datetime as dt
import email.parser
import email.policy
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from sparkbuild.errors import PackageError
from sparkbuild.files import sha256_bytes
from sparkbuild.package import signed
from sparkbuild.package.contents import read_contents
from sparkbuild.package.index_pages import (
    Entry,
    Hashes,
    Proof,
    Proofs,
    evidence_url,
    file_url,
)
from sparkbuild.package.signed import beside

Verify = Callable[[Path], str]
"""The digest of a wheel that may be published; raises where it may not."""

SUFFIXES: Final = {
    "provenance": signed.PROVENANCE_SUFFIX,
    "sbom": signed.SBOM_SUFFIX,
    "report": signed.REPORT_SUFFIX,
}
"""What lies beside a wheel, by its name in ``Proofs``."""


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel that was read whole, ready to be placed."""

    path: str
    project: str
    entry: Entry
    metadata: bytes
    evidence: dict[str, bytes]
    """File name to bytes."""
    folder: str
    """Of the evidence: named by its digest, so that no file of it is ever replaced."""


def read_incoming(path: Path, now: dt.datetime, verify: Verify | None) -> Incoming:
    """A wheel and what lies beside it, read whole. Raises PackageError, or what ``verify`` does."""
    verified = verify(path) if verify is not None else ""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
        inside = read_contents(file)
    name, problems = _name_problems(path, inside.metadata)
    if verified not in {"", digest}:
        problems.append(f"it changed after it was verified: sha256 {verified}, then {digest}")
    if inside.damage or problems:
        raise PackageError(
            f"{path.name} is no wheel that can be published",
            problems=[*inside.damage, *problems],
            evidence=[path],
            next_step="publish a wheel that `sparkbuild make` made, unchanged",
        )
    evidence = _evidence(path)
    folder = sha256_bytes(b"".join(evidence[name] for name in sorted(evidence)))[:16]
    entry = Entry(
        filename=path.name,
        url=file_url(path.name),
        hashes=Hashes(sha256=digest),
        size=size,
        upload_time=f"{now.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        requires_python=_header(inside.metadata, "Requires-Python"),
        core_metadata=Hashes(sha256=sha256_bytes(inside.metadata)),
        proofs=_proofs(path, evidence, folder) if evidence else None,
    )
    return Incoming(
        path=str(path),
        project=name,
        entry=entry,
        metadata=inside.metadata,
        evidence=evidence,
        folder=folder,
    )


def _name_problems(path: Path, metadata: bytes) -> tuple[str, list[str]]:
    """The project, and where the file's name and its metadata differ."""
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        return "", [f"no installer accepts this file name: {error}"]
    said = (_header(metadata, "Name"), _header(metadata, "Version"))
    try:
        same = canonicalize_name(said[0]) == name and Version(said[1]) == version
    except InvalidVersion:
        same = False
    told = " ".join(said).strip() or "nothing"
    return name, [] if same else [f"its name says {name} {version}, its METADATA {told}"]


def _header(metadata: bytes, name: str) -> str:
    parser = email.parser.BytesHeaderParser(policy=email.policy.compat32)
    return str(parser.parsebytes(metadata).get(name, ""))


def _evidence(path: Path) -> dict[str, bytes]:
    """What lies beside a wheel: all three files, or none."""
    files = [beside(path, suffix) for suffix in SUFFIXES.values()]
    there = [file for file in files if file.is_file()]
    if there and len(there) < len(files):
        missing = [file.name for file in files if file not in there]
        raise PackageError(
            f"beside {path.name} lies a part of what belongs to it",
            problems=[f"missing: {', '.join(missing)}"],
            evidence=there,
            next_step=f"sparkbuild wheel sign {path} --key KEY",
        )
    return {file.name: file.read_bytes() for file in there}


def _proofs(path: Path, evidence: dict[str, bytes], folder: str) -> Proofs:
    found = {}
    for kind, suffix in SUFFIXES.items():
        name = beside(path, suffix).name
        url = evidence_url(folder, name)
        found[kind] = Proof(url=url, sha256=sha256_bytes(evidence[name]))
    return Proofs(**found)
