"""What lies beside a wheel: the signed provenance, the signed SBOM, and the report it names.

The signatures are outside of the wheel, so that its bytes are the same whoever signs it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkbuild.errors import TrustError
from sparkbuild.files import sha256_bytes, write_atomic
from sparkbuild.package import statement
from sparkbuild.package.contents import Contents, read_contents
from sparkbuild.package.envelope import seal
from sparkbuild.package.keys import SigningKey
from sparkbuild.package.statement import Builder, Metadata, Moment, Provenance, Resource, Run

PROVENANCE_SUFFIX: Final = ".provenance.json"
SBOM_SUFFIX: Final = ".sbom.json"
REPORT_SUFFIX: Final = ".report.json"

SMOKE_RESULTS: Final = "smoke results"
QUALIFICATION_RESULTS: Final = "qualification results"
"""Names of byproducts that only the signed statement has: they differ from run to run."""

SKEW: Final = dt.timedelta(minutes=5)
"""By how much two machines' clocks may differ; Kerberos' usual tolerance (RFC 4120, 1.6)."""


class _File(msgspec.Struct, frozen=True):
    sha256: str


class _Accepted(msgspec.Struct, frozen=True):
    id: str


class _Stage(msgspec.Struct, frozen=True):
    name: str
    state: str
    result: str | None = None
    inputs: dict[str, str] = {}


class MakeReport(msgspec.Struct, frozen=True):
    """Those parts of a report of ``sparkbuild make`` that a statement has to agree with."""

    schema: int
    sparkbuild: str
    variant: str
    toolchain: str
    started: Moment
    seconds: float
    result: str
    stages: tuple[_Stage, ...]
    smoke_checks: list[dict[str, Any]]
    accepted: tuple[_Accepted, ...] = ()
    wheel: _File | None = None

    def stage(self, name: str) -> _Stage | None:
        """The stage of that name."""
        return next((one for one in self.stages if one.name == name), None)


def beside(wheel: Path, suffix: str, folder: Path | None = None) -> Path:
    """The file that belongs to a wheel: in its own folder, or in the one where such files are."""
    return (folder or wheel.parent) / f"{wheel.name}{suffix}"


def sign_wheel(
    wheel: Path, report: Path, keys: Sequence[SigningKey], *, now: dt.datetime, builder: str = ""
) -> tuple[Path, ...]:
    """Write provenance, SBOM and report beside a wheel, the first two signed by every key.

    The wheel must be whole and the report its own: a passed run of ``sparkbuild make`` that ended
    with these very bytes. ``builder`` is a URI for who built; by default it names the first key.
    Raises TrustError where anything disagrees; nothing is written then.
    """
    text, run = _report(report)
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
        inside = read_contents(file)
    problems = [*inside.damage, *inside.problems]
    if inside.provenance:
        problems += report_problems(run, inside.provenance, digest)
    if run.started.astimezone(dt.UTC) > now + SKEW:
        problems.append(
            f"the report's run began at {run.started}, and now it is {now:%F %H:%M} UTC"
        )
    if problems or not inside.provenance:
        raise TrustError(
            f"{wheel.name} is not signed: it and its report are not what a run of make left",
            problems=problems,
            evidence=[wheel, report],
            next_step="run the same `sparkbuild make` again, and sign what it makes",
        )
    subject = Resource(name=wheel.name, digest={"sha256": digest}, annotations={"size": size})
    id_ = builder or f"urn:sparkbuild:builder:{keys[0].public.keyid}"
    predicate = _predicate(inside, inside.provenance, run, text, now=now, builder=id_)
    bill = statement.statement_text((subject,), statement.SBOM, msgspec.json.decode(inside.sbom))
    proof = statement.statement_text((subject,), statement.PROVENANCE, predicate)
    files = {
        beside(wheel, REPORT_SUFFIX): text,
        beside(wheel, SBOM_SUFFIX): seal(bill, keys),
        beside(wheel, PROVENANCE_SUFFIX): seal(proof, keys),
    }
    for path, data in files.items():
        write_atomic(path, data)
    return tuple(files)


def find_report(wheel: Path) -> Path:
    """The report of the run that made a wheel, in its folder. Raises TrustError where none is."""
    digest = ""
    candidates = [beside(wheel, REPORT_SUFFIX), *sorted(wheel.parent.glob("*-report.json"))]
    for path in candidates:
        if not path.is_file():
            continue
        try:
            run = read_report(path.read_bytes())
        except ValueError:
            continue
        with wheel.open("rb") as file:
            digest = digest or hashlib.file_digest(file, "sha256").hexdigest()
        if run.wheel and run.wheel.sha256 == digest:
            return path
    raise TrustError(
        f"there is no report of the run that made {wheel.name} in {wheel.parent.absolute()}",
        problems=["a wheel is signed together with the report that says what was tested"],
        next_step="name it: --report FILE (`sparkbuild make` puts it beside the wheel)",
    )


def read_report(text: bytes) -> MakeReport:
    """A report of ``sparkbuild make``. Raises ValueError, one line of reason."""
    try:
        run = msgspec.json.decode(text, type=MakeReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no report of `sparkbuild make`: {error}") from error
    if run.schema != 1:
        raise ValueError(f"it is a report of schema {run.schema}, expected 1")
    return run


def report_problems(run: MakeReport, made: Provenance, digest: str) -> Iterator[str]:
    """Where a report and a statement contradict one another, or the report a good end."""
    asked = made.build_definition.external_parameters
    try:
        smoke = statement.read_judged(made.run_details.byproduct(statement.SMOKE), statement.SMOKE)
    except ValueError as error:
        yield f"the statement: {error}"
        return
    stage = run.stage("smoke")
    pairs: dict[str, tuple[object, object]] = {
        "the run's result": (run.result, "passed"),
        "its wheel": (run.wheel.sha256 if run.wheel else None, digest),
        "variant": (run.variant, asked.variant),
        "toolchain": (run.toolchain, asked.toolchain),
        "accepted defects": (sorted(one.id for one in run.accepted), list(asked.accepted)),
        "smoke suite": (stage.inputs.get("suite") if stage else None, smoke.suite),
        "smoke": (_smoke_verdict(run), smoke.verdict),
        "sparkbuild": (run.sparkbuild, made.run_details.builder.version.get("sparkbuild")),
    }
    for what, (found, expected) in pairs.items():
        if found != expected:
            yield f"report, {what}: expected {expected}, found {found}"
    for name, resource in (
        (SMOKE_RESULTS, smoke_results(run)),
        (QUALIFICATION_RESULTS, qualification_results(run)),
    ):
        stated = made.run_details.byproduct(name)
        if stated is not None and stated != resource:
            yield f"report, {name}: expected {stated.digest}, found {resource.digest}"


def smoke_results(run: MakeReport) -> Resource:
    """Every smoke check of a report, by one digest, with how many there were."""
    failed = sum(1 for one in run.smoke_checks if one.get("passed") is not True)
    return Resource(
        name=SMOKE_RESULTS,
        digest={"sha256": sha256_bytes(statement.canonical(run.smoke_checks))},
        annotations={"checks": len(run.smoke_checks), "failed": failed},
    )


def qualification_results(run: MakeReport) -> Resource:
    """All that the qualify stage found, by the digest that the report has of it."""
    stage = run.stage("qualify")
    return Resource(
        name=QUALIFICATION_RESULTS, digest={"sha256": (stage.result if stage else None) or ""}
    )


def _smoke_verdict(run: MakeReport) -> str:
    checks = run.smoke_checks
    return "passed" if checks and all(one.get("passed") is True for one in checks) else "failed"


def _predicate(
    inside: Contents,
    made: Provenance,
    run: MakeReport,
    text: bytes,
    *,
    now: dt.datetime,
    builder: str,
) -> Provenance:
    """The provenance inside the wheel, and what only this run knows: when, by whom, its results."""
    started = run.started.astimezone(dt.UTC)
    proofs = {
        statement.REPORT: sha256_bytes(text),
        statement.SBOM_FILE: sha256_bytes(inside.sbom),
        statement.MEMBER: inside.statement_sha256,
    }
    return Provenance(
        build_definition=made.build_definition,
        run_details=Run(
            builder=Builder(id=builder, version=made.run_details.builder.version),
            metadata=Metadata(
                invocation_id=f"urn:sparkbuild:run:{sha256_bytes(text)}",
                started_on=started,
                finished_on=started + dt.timedelta(seconds=round(run.seconds)),
                signed_on=now.astimezone(dt.UTC).replace(microsecond=0),
            ),
            byproducts=(
                *made.run_details.byproducts,
                smoke_results(run),
                qualification_results(run),
                *(
                    Resource(name=name, digest={"sha256": digest})
                    for name, digest in proofs.items()
                ),
            ),
        ),
    )


def _report(path: Path) -> tuple[bytes, MakeReport]:
    try:
        text = path.read_bytes()
        return text, read_report(text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise TrustError(
            f"cannot sign with the report {path}: {reason}",
            evidence=[path],
            next_step="name the report that `sparkbuild make` put beside the wheel: --report FILE",
        ) from error
