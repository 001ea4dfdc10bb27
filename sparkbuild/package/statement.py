"""The in-toto statement of a wheel, with the SLSA v1 provenance predicate: typed, both ways.

Field names are those of the two specifications (in-toto attestation framework v1, "Statement" and
"ResourceDescriptor"; SLSA v1 "Provenance").
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PROVENANCE: Final = "https://slsa.dev/provenance/v1"
SBOM: Final = "https://cyclonedx.org/bom"
"""in-toto's predicate type for a CycloneDX document, which is the predicate as it is."""

BUILD_TYPE: Final = "urn:sparkbuild:make:1"
UNSIGNED: Final = "urn:sparkbuild:builder:unsigned"
"""The builder in the copy inside a wheel: its bytes do not depend on who made it."""

SOURCE: Final = "source"
PATCHED: Final = "patched source"
PATCH: Final = "patch/"
PART: Final = "toolkit/"
HOST: Final = "host compiler"
"""Names of resolved dependencies, the last three as prefixes or whole."""

QUALIFICATION: Final = "qualification"
SMOKE: Final = "smoke"
REPORT: Final = "report"
SBOM_FILE: Final = "sbom"
MEMBER: Final = "statement in the wheel"
"""Names of byproducts."""


Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]
"""A time with its zone: without one nothing can be said of before and after."""


class _Part(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A part of a statement as sparkbuild writes it: nothing else is in it."""


class Resource(_Part, frozen=True):
    """A ResourceDescriptor: a name and what proves which bytes are meant."""

    name: str
    uri: str = ""
    digest: dict[str, str] = {}
    content: bytes = b""
    annotations: dict[str, Any] = {}

    @property
    def sha256(self) -> str:
        """Its SHA-256; empty where it has none."""
        return self.digest.get("sha256", "")


class Asked(_Part, frozen=True):
    """SLSA's external parameters: what the user of ``sparkbuild make`` chose."""

    variant: str
    toolchain: str
    architectures: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    """Ids of known defects that were taken on."""
    targets: tuple[str, ...] = ()


class Flags(_Part, frozen=True):
    """SLSA's internal parameters: CMake's arguments, places replaced by ``<source>`` and others."""

    cmake: tuple[str, ...]
    toolkit: str
    """Digest over every part of the toolkit and the host compiler."""
    label: str = ""


class Definition(_Part, frozen=True):
    """SLSA's ``buildDefinition``."""

    build_type: str
    external_parameters: Asked
    internal_parameters: Flags
    resolved_dependencies: tuple[Resource, ...]

    def dependency(self, name: str) -> Resource | None:
        """The dependency of that name, None where there is none."""
        return next((one for one in self.resolved_dependencies if one.name == name), None)

    def dependencies(self, prefix: str) -> dict[str, Resource]:
        """Those whose names begin so, by the rest of their names."""
        return {
            one.name.removeprefix(prefix): one
            for one in self.resolved_dependencies
            if one.name.startswith(prefix)
        }


class Builder(_Part, frozen=True):
    """Who vouches for the build, and with which sparkbuild."""

    id: str
    version: dict[str, str]


class Metadata(_Part, frozen=True):
    """The run: its id, when it began and ended, and when the statement was signed; UTC."""

    invocation_id: str
    started_on: Moment
    finished_on: Moment
    signed_on: Moment = msgspec.field(name="sparkbuild_signedOn")
    """SLSA lets a vendor add fields under its own prefix."""


class Run(_Part, frozen=True):
    """SLSA's ``runDetails``; without metadata in the copy inside a wheel."""

    builder: Builder
    metadata: Metadata | None = None
    byproducts: tuple[Resource, ...] = ()

    def byproduct(self, name: str) -> Resource | None:
        """The byproduct of that name, None where there is none."""
        return next((one for one in self.byproducts if one.name == name), None)


class Provenance(_Part, frozen=True):
    """SLSA's predicate."""

    build_definition: Definition
    run_details: Run


class Statement(_Part, frozen=True):
    """An in-toto statement; the predicate is kept as its text."""

    kind: str = msgspec.field(name="_type")
    subject: tuple[Resource, ...]
    predicate_type: str
    predicate: msgspec.Raw


class Judged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What qualification or smoke came to: the part that is the same on every machine."""

    verdict: str
    """Of the qualification; ``passed`` or ``failed`` of the smoke suite."""
    suite: str = ""
    model_sha256: str = ""


def canonical(value: object) -> bytes:
    """JSON with sorted keys, no spaces and a line break at the end: equal values, equal bytes."""
    return msgspec.json.encode(msgspec.to_builtins(value), order="sorted") + b"\n"


def statement_text(subject: tuple[Resource, ...], predicate_type: str, predicate: object) -> bytes:
    """A statement's bytes; subjects sorted by name."""
    statement = Statement(
        kind=STATEMENT,
        subject=tuple(sorted(subject, key=lambda one: one.name)),
        predicate_type=predicate_type,
        predicate=msgspec.Raw(msgspec.json.encode(msgspec.to_builtins(predicate), order="sorted")),
    )
    return canonical(msgspec.json.decode(msgspec.json.encode(statement)))


def subjects(members: Mapping[str, str]) -> tuple[Resource, ...]:
    """Names and SHA-256 as subjects."""
    return tuple(Resource(name=name, digest={"sha256": members[name]}) for name in sorted(members))


def read_statement(payload: bytes, predicate_type: str) -> Statement:
    """A statement with that predicate. Raises ValueError, one line of reason, for anything else."""
    statement = _decoded(payload, Statement, "in-toto statement")
    if statement.kind != STATEMENT or statement.predicate_type != predicate_type:
        raise ValueError(
            f"it is a {statement.predicate_type!r} in a {statement.kind!r}, "
            f"expected {predicate_type} in {STATEMENT}"
        )
    return statement


def read_provenance(statement: Statement) -> Provenance:
    """The predicate of a provenance statement. Raises ValueError, one line of reason."""
    found = _decoded(bytes(statement.predicate), Provenance, "SLSA v1 provenance of sparkbuild")
    if found.build_definition.build_type != BUILD_TYPE:
        raise ValueError(
            f"its build type is {found.build_definition.build_type!r}, expected {BUILD_TYPE}"
        )
    return found


def read_judged(resource: Resource | None, name: str) -> Judged:
    """What a byproduct says of itself. Raises ValueError where it is not there or contradicts."""
    if resource is None:
        raise ValueError(f"it says nothing of the {name}")
    return _decoded(resource.content, Judged, f"{name} result")


_T = TypeVar("_T")


def _decoded(data: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no {what}: {error}") from error
