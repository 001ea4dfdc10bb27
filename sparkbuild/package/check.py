"""Whether a wheel may be trusted: signatures, clock, digests, members and the team's policy.

Nothing is read that was not vouched for: signatures before the statement, the statement before the
wheel, the wheel's digest before its members.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.errors import TrustError
from sparkbuild.files import sha256_bytes
from sparkbuild.package import signed, statement
from sparkbuild.package.contents import Contents, read_contents
from sparkbuild.package.envelope import Opened, open_envelope, signed_by
from sparkbuild.package.keys import PublicKey
from sparkbuild.package.policy import Policy, breaches
from sparkbuild.package.signed import SKEW, beside
from sparkbuild.package.statement import Metadata, Provenance, Statement

_MOST: Final = 1 << 28
"""Bytes of a file beside a wheel; the largest real one, a report, is below 1 MB."""


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was verified, and what it was."""

    name: str
    found: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel that may be trusted, and why."""

    wheel: str
    sha256: str
    keys: tuple[str, ...]
    """Ids of the keys that signed it."""
    signed_on: dt.datetime
    variant: str
    toolchain: str
    accepted: tuple[str, ...]
    checks: tuple[Passed, ...]
    notes: tuple[str, ...]


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """Files beside a wheel whose signatures are right."""

    keys: tuple[PublicKey, ...]
    proof: Statement
    made: Provenance
    when: Metadata
    bill: Statement
    report: bytes


def verify_wheel(
    wheel: Path,
    keys: Sequence[PublicKey],
    *,
    now: dt.datetime,
    policy: Policy | None = None,
    folder: Path | None = None,
) -> Verified:
    """Verify a wheel with the files beside it, or in ``folder``.

    ``keys`` are the trusted ones; every signature must be by one of them. Raises TrustError with
    every reason that could be found out safely.
    """
    read = _read(wheel, keys, folder, now)
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
        outside = [*_subject_problems(wheel, read, digest, size), *_bound_problems(read)]
        _refuse(wheel, [*outside, *_clock_problems(read, now)])
        inside = read_contents(file)
    within = [*inside.damage, *inside.problems, *_inside_problems(inside, read, digest)]
    _refuse(wheel, within)
    broken = breaches(policy, read.made, read.keys, now=now) if policy else []
    if broken:
        raise TrustError(
            f"{wheel.name} is genuine, and the policy does not let it in",
            problems=broken,
            evidence=[wheel],
            next_step="take a wheel that the policy allows, or change the policy",
        )
    return _verified(wheel, digest, read, inside, policy=policy is not None, now=now)


def _read(wheel: Path, keys: Sequence[PublicKey], folder: Path | None, now: dt.datetime) -> _Read:
    """Read what lies beside, and believe it only where its signatures are right."""
    suffixes = (signed.PROVENANCE_SUFFIX, signed.SBOM_SUFFIX, signed.REPORT_SUFFIX)
    files = {suffix: beside(wheel, suffix, folder) for suffix in suffixes}
    texts, problems = _texts(files)
    opened: dict[str, Opened] = {}
    for suffix in suffixes[:2]:
        if suffix not in texts:
            continue
        try:
            opened[suffix] = open_envelope(texts[suffix], keys)
        except ValueError as error:
            problems.append(f"{files[suffix].name}: {error}")
    for key in {one.keyid: one for two in opened.values() for one in two.keys}.values():
        if key.expired(now):
            problems.append(
                f"the key {key.shown} expired on {key.expires}; "
                f"it is {now:%Y-%m-%d} by this machine's clock"
            )
    _refuse(wheel, problems)
    try:
        proof = statement.read_statement(opened[suffixes[0]].payload, statement.PROVENANCE)
        made = statement.read_provenance(proof)
        bill = statement.read_statement(opened[suffixes[1]].payload, statement.SBOM)
        when = made.run_details.metadata
        if when is None:
            raise ValueError("it does not say when it was signed")
    except ValueError as error:
        raise _refusal(wheel, [f"what was signed is not what sparkbuild signs: {error}"]) from error
    return _Read(
        keys=signed_by(opened),
        proof=proof,
        made=made,
        when=when,
        bill=bill,
        report=texts[suffixes[2]],
    )


def _texts(files: Mapping[str, Path]) -> tuple[dict[str, bytes], list[str]]:
    texts, problems = {}, []
    for suffix, path in files.items():
        try:
            if path.stat().st_size > _MOST:
                problems.append(f"{path.name} is {path.stat().st_size} bytes long")
                continue
            texts[suffix] = path.read_bytes()
        except OSError as error:
            problems.append(f"{path.name} is not in {path.parent.absolute()}: {error.strerror}")
    return texts, problems


def _subject_problems(wheel: Path, read: _Read, digest: str, size: int) -> Iterator[str]:
    """The wheel is the one that both statements are about."""
    for name, found in (("provenance", read.proof), ("SBOM", read.bill)):
        if len(found.subject) != 1:
            yield f"the signed {name} is about {len(found.subject)} files, expected one"
            continue
        subject = found.subject[0]
        if subject.name != wheel.name:
            yield f"the signed {name} is about {subject.name}, not about a file of this name"
        if subject.sha256 != digest:
            stated = subject.annotations.get("size")
            how = f", {size} bytes instead of {stated}" if stated != size else ""
            yield (
                f"the wheel is not the one that was signed ({name}): expected sha256 "
                f"{subject.sha256 or 'none'}, found {digest}{how}"
            )


def _bound_problems(read: _Read) -> Iterator[str]:
    """The report is the one that was signed, by one set of keys, at a time that can be."""
    stated = read.made.run_details.byproduct(statement.REPORT)
    found = sha256_bytes(read.report)
    if stated is None or stated.sha256 != found:
        yield (
            f"the report is not the one that was signed: expected sha256 "
            f"{stated.sha256 if stated else 'none'}, found {found}"
        )
    if not read.keys:
        yield "no key signed both the provenance and the SBOM"


def _inside_problems(inside: Contents, read: _Read, digest: str) -> Iterator[str]:
    """What the wheel says of itself is what was signed, and the report agrees."""
    run = read.made.run_details
    for name, found in (
        (statement.MEMBER, inside.statement_sha256),
        (statement.SBOM_FILE, sha256_bytes(inside.sbom)),
    ):
        stated = run.byproduct(name)
        if stated is None or stated.sha256 != found:
            yield f"the {name} is not the signed one: found sha256 {found}"
    if inside.provenance:
        told = inside.provenance.run_details.byproducts
        same = all(run.byproduct(one.name) == one for one in told)
        if inside.provenance.build_definition != read.made.build_definition or not same:
            yield "the statement inside the wheel tells of another build than the signed one"
    try:
        if msgspec.json.decode(inside.sbom) != msgspec.json.decode(bytes(read.bill.predicate)):
            yield "the SBOM inside the wheel is not the signed one"
        report = signed.read_report(read.report)
        yield from signed.report_problems(report, read.made, digest)
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        yield str(error)


def _clock_problems(read: _Read, now: dt.datetime) -> Iterator[str]:
    """What a wrong clock would make believe."""
    signed_on = read.when.signed_on
    for key in read.keys:
        if signed_on < key.created - SKEW:
            yield (
                f"it was signed on {signed_on:%F %H:%M} UTC, before the key {key.shown} was made "
                f"({key.created:%F %H:%M} UTC)"
            )
    if now < signed_on - SKEW:
        yield (
            f"this machine's clock says {now:%F %H:%M} UTC, and it was signed on "
            f"{signed_on:%F %H:%M} UTC: with a clock in the past no expiry can be judged"
        )


def _verified(
    wheel: Path, digest: str, read: _Read, inside: Contents, *, policy: bool, now: dt.datetime
) -> Verified:
    asked = read.made.build_definition.external_parameters
    smoke = read.made.run_details.byproduct(statement.SMOKE)
    counted = read.made.run_details.byproduct(signed.SMOKE_RESULTS)
    age = (now - read.when.signed_on).days
    notes = [f"it was signed {age} days ago by this machine's clock"] if age > 0 else []
    notes += [f"made in spite of the known defect {one}" for one in asked.accepted]
    if not policy:
        notes.append("no policy was asked: what it was made with and tested by is not judged")
    names = ", ".join(key.shown for key in read.keys)
    checks = {
        "signatures": f"provenance and SBOM, by {names}",
        "wheel": f"sha256 {digest}",
        "report": f"sha256 {sha256_bytes(read.report)}",
        "members": f"{len(inside.members)} as RECORD and the statement inside have them",
        "smoke": f"{statement.read_judged(smoke, statement.SMOKE).suite}, "
        f"{counted.annotations.get('checks') if counted else 0} checks passed",
    }
    if policy:
        checks["policy"] = "every rule kept"
    return Verified(
        wheel=wheel.name,
        sha256=digest,
        keys=tuple(key.keyid for key in read.keys),
        signed_on=read.when.signed_on,
        variant=asked.variant,
        toolchain=asked.toolchain,
        accepted=asked.accepted,
        checks=tuple(Passed(name=name, found=found) for name, found in checks.items()),
        notes=tuple(notes),
    )


def _refuse(wheel: Path, problems: Sequence[str]) -> None:
    if problems:
        raise _refusal(wheel, problems)


def _refusal(wheel: Path, problems: Sequence[str]) -> TrustError:
    return TrustError(
        f"{wheel.name} is not to be trusted",
        problems=problems,
        evidence=[wheel],
        next_step="do not install it; get it again, with the files beside it, from its builder",
    )
