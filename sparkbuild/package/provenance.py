"""What a wheel says of its own making: the statement and the SBOM inside it, unsigned.

They hold no time, no name of a machine and no place on it: their bytes follow from the pin, the
patches, the toolkit, the host compiler and the flags alone.
"""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from sparkbuild import __version__
from sparkbuild.files import sha256_bytes
from sparkbuild.manifest import GitOrigin, Patchset, SdistOrigin
from sparkbuild.package import archive, statement
from sparkbuild.package.model import Made
from sparkbuild.package.statement import (
    Asked,
    Builder,
    Definition,
    Flags,
    Judged,
    Provenance,
    Resource,
    Run,
)

STATEMENT_FILE: Final = "provenance.json"
SBOM_FILE: Final = "sboms/sparkbuild.cdx.json"
"""PEP 770: documents in ``sboms/`` of the metadata folder."""

Extra = Callable[[Mapping[str, str]], Mapping[str, bytes]]
"""From the digests of a wheel's members (path to SHA-256, RECORD left out) to further members."""


def provenance_members(
    members: Mapping[str, str], made: Made, *, dist_info: str, sbom: bytes
) -> dict[str, bytes]:
    """The members that tell a wheel's making, by path: the SBOM, and the statement over the rest.

    ``members`` are the other members' digests, RECORD left out.
    """
    place = f"{dist_info}/{SBOM_FILE}"
    subject = statement.subjects({**members, place: sha256_bytes(sbom)})
    predicate = Provenance(
        build_definition=definition(made),
        run_details=Run(
            builder=Builder(id=statement.UNSIGNED, version={"sparkbuild": __version__}),
            byproducts=tuple(judgements(made)),
        ),
    )
    text = statement.statement_text(subject, statement.PROVENANCE, predicate)
    return {place: sbom, f"{dist_info}/{STATEMENT_FILE}": text}


def definition(made: Made) -> Definition:
    """What was built out of what, as SLSA's ``buildDefinition``."""
    toolkit = made.toolkit
    return Definition(
        build_type=statement.BUILD_TYPE,
        external_parameters=Asked(
            variant=made.patchset.name,
            toolchain=toolkit.toolchain,
            architectures=toolkit.architectures,
            accepted=tuple(sorted(one.id for one in toolkit.accepted)),
            targets=tuple(sorted(made.patchset.build.targets)),
        ),
        internal_parameters=Flags(
            cmake=made.arguments, toolkit=toolkit.identity, label=toolkit.label
        ),
        resolved_dependencies=tuple(_dependencies(made)),
    )


def judgements(made: Made) -> Iterator[Resource]:
    """Qualification and smoke: what they came to, by digest, with the words themselves."""
    smoke = made.smoke
    found = {
        statement.QUALIFICATION: Judged(verdict=made.qualification.verdict),
        statement.SMOKE: Judged(
            verdict="passed" if smoke.passed else "failed",
            suite=smoke.suite,
            model_sha256=smoke.model_sha256,
        ),
    }
    for name, judged in found.items():
        content = statement.canonical(judged)
        yield Resource(name=name, digest={"sha256": sha256_bytes(content)}, content=content)


def _dependencies(made: Made) -> Iterator[Resource]:
    source, tree, toolkit = made.source, made.tree, made.toolkit
    origins = tuple(_origins(made.patchset))
    yield Resource(
        name=statement.SOURCE,
        uri=origins[0] if origins else "",
        digest={"sparkbuildSource": source.digest, "gitTree": source.tree},
        annotations={"origins": list(origins), "build": source.build, "commit": source.commit},
    )
    yield Resource(name=statement.PATCHED, digest={"gitTree": tree.tree, "gitCommit": tree.commit})
    for patch in tree.patches:
        yield Resource(
            name=f"{statement.PATCH}{patch.file}",
            digest={"sha256": patch.sha256},
            annotations={"reason": patch.reason},
        )
    for part in sorted(toolkit.parts, key=lambda one: one.name):
        yield Resource(
            name=f"{statement.PART}{part.name}",
            digest={"sha256": part.sha256},
            annotations={"version": part.version},
        )
    yield Resource(
        name=statement.HOST,
        digest={"sha256": toolkit.host.sha256},
        annotations={
            "identification": toolkit.host.identification,
            "target": toolkit.host.target,
        },
    )


def _origins(patchset: Patchset) -> Iterator[str]:
    """Where the pin says that its source is; places of this machine are left out."""
    for origin in patchset.source.origins:
        if isinstance(origin, GitOrigin):
            address = urlsplit(origin.url)
            if address.hostname and address.scheme != "file":
                # Without a user's name and password, which an address may hold.
                place = f"{address.scheme}://{address.hostname}{address.path}"
                yield f"git+{place}@{origin.commit or origin.tag or origin.branch}"
        elif isinstance(origin, SdistOrigin):
            yield f"pkg:pypi/{origin.project}@{origin.version}?file_name={origin.file}"


def enclose(wheel: Path, extra: Extra) -> None:
    """Put further members into a canonical wheel, in its canonical order, with RECORD brought up.

    Nothing that is there is read or compressed again: RECORD, the last member, is cut off and the
    rest follows in its place. Digests are RECORD's; ``verify.mismatches`` compares them with the
    members. ``wheel`` is changed where it lies: it must not have its final name yet.
    """
    with zipfile.ZipFile(wheel, "a") as opened:
        record = record_of(opened)
        rows = archive.parse_record(opened.read(record).decode("utf-8"))
        added = extra({name: _hex(form) for name, form, _ in rows if name != record})
        last = opened.infolist()[-1]
        if last.filename != record:
            raise ValueError(f"the last member is {last.filename}, expected {record}")
        # What zipfile keeps of the archive's end; a test compares the result with a rewritten one.
        opened.filelist.remove(last)
        del opened.NameToInfo[record]
        opened.start_dir = last.header_offset
        for name in archive.canonical_order(added, record):
            opened.writestr(archive.fresh(name), added[name])
        new = [(name, archive.record_digest(data), str(len(data))) for name, data in added.items()]
        order = archive.canonical_order([*opened.namelist(), record], record)
        by_name = {row[0]: row for row in [*rows, *new]}
        text = archive.record_text([by_name[name] for name in order])
        opened.writestr(archive.fresh(record), text)
        canonical = archive.is_canonical(opened.infolist(), record)
    if not canonical:
        again = wheel.with_name(f"{wheel.name}.ordered")
        archive.rewrite(wheel, again, record)
        again.replace(wheel)


def record_of(opened: zipfile.ZipFile) -> str:
    """The path of a wheel's RECORD. Raises ValueError where it has none, or several."""
    found = [
        name
        for name in opened.namelist()
        if len(parts := PurePosixPath(name).parts) == 2
        and parts[0].endswith(".dist-info")
        and parts[1] == "RECORD"
    ]
    if len(found) != 1:
        raise ValueError(f"expected one RECORD in it, found {len(found)}")
    return found[0]


def _hex(form: str) -> str:
    """A digest as RECORD writes it, in hex. Raises ValueError for any but SHA-256."""
    raw = base64.urlsafe_b64decode(form.removeprefix("sha256=") + "=")
    if archive.record_form(raw) != form:
        raise ValueError(f"RECORD has {form!r}, expected a SHA-256")
    return raw.hex()
