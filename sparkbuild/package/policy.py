"""What a team lets in: a TOML file of rules, judged on a wheel's signed provenance."""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from sparkbuild.errors import ManifestError
from sparkbuild.manifest import FullCommit, Name, Sha256, Table, load
from sparkbuild.package import statement
from sparkbuild.package.keys import PublicKey
from sparkbuild.package.signed import SMOKE_RESULTS
from sparkbuild.package.statement import Provenance, read_judged

_Count = Annotated[int, msgspec.Meta(ge=1)]


class SignatureRule(Table, frozen=True):
    """Builder keys: which ones (any that was named where this is empty), how many, how old."""

    keys: tuple[Sha256, ...] = ()
    minimum: _Count = 1
    max_age_days: _Count | None = None


class BuilderRule(Table, frozen=True):
    """Builders by URI, and the sparkbuild that made the wheel as a version specifier."""

    ids: tuple[str, ...] = ()
    sparkbuild: str = ""


class ToolchainRule(Table, frozen=True):
    """Toolchains by name, toolkits by digest, host compilers by pattern; empty allows any."""

    allowed: tuple[Name, ...] = ()
    identities: tuple[Sha256, ...] = ()
    host_compilers: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()


class SourceRule(Table, frozen=True):
    """Variants, sources by content digest, patched trees by git's id, patches; empty allows any.

    Without ``patches`` any patch may be in; with it only those, by SHA-256.
    """

    variants: tuple[Name, ...] = ()
    digests: tuple[Sha256, ...] = ()
    trees: tuple[FullCommit, ...] = ()
    patches: tuple[Sha256, ...] | None = None


class SmokeRule(Table, frozen=True):
    """Suites that are enough, each with its least number of checks; empty: any that passed."""

    suites: dict[str, _Count] = msgspec.field(default_factory=dict)


class QualificationRule(Table, frozen=True):
    """What the qualification of the compiler may have come to."""

    verdicts: tuple[Literal["right", "incomplete", "not applicable", "not tried", "wrong"], ...] = (
        "right",
        "not applicable",
    )


class AdvisoryRule(Table, frozen=True):
    """Known defects that a build may have been made with in spite of them: none by default."""

    accepted: tuple[str, ...] = ()


class Policy(Table, frozen=True):
    """A policy file; what it leaves out has the defaults above."""

    schema: Literal[1]
    signature: SignatureRule = SignatureRule()
    builder: BuilderRule = BuilderRule()
    toolchain: ToolchainRule = ToolchainRule()
    source: SourceRule = SourceRule()
    smoke: SmokeRule = SmokeRule()
    qualification: QualificationRule = QualificationRule()
    advisories: AdvisoryRule = AdvisoryRule()


def read_policy(path: Path) -> Policy:
    """Read a policy. Raises ManifestError naming the file, the key and the nearest known one."""
    policy = load(path, Policy)
    try:
        SpecifierSet(policy.builder.sparkbuild)
    except InvalidSpecifier as error:
        raise ManifestError(
            f"{path}: `builder.sparkbuild` {error}",
            evidence=[path],
            next_step='write it as pip does: sparkbuild = ">=0.1,<1"',
        ) from error
    return policy


def breaches(
    policy: Policy, made: Provenance, keys: Sequence[PublicKey], *, now: dt.datetime
) -> list[str]:
    """Every rule that a wheel breaks, one line each; ``keys`` signed its statement."""
    return [
        *_signature(policy.signature, made, keys, now),
        *_builder(policy.builder, made),
        *_toolchain(policy.toolchain, made),
        *_source(policy.source, made),
        *_smoke(policy.smoke, made),
        *_qualification(policy.qualification, made),
        *_advisories(policy.advisories, made),
    ]


def _signature(
    rule: SignatureRule, made: Provenance, keys: Sequence[PublicKey], now: dt.datetime
) -> Iterator[str]:
    counted = [key for key in keys if not rule.keys or key.keyid in rule.keys]
    if len(counted) < rule.minimum:
        names = ", ".join(key.shown for key in keys) or "none"
        yield (
            f"signature.keys: {rule.minimum} signature{'s' if rule.minimum > 1 else ''} by allowed "
            f"builder keys expected, {len(counted)} found (signed by {names})"
        )
    when = made.run_details.metadata
    if rule.max_age_days and when and now - when.signed_on > dt.timedelta(days=rule.max_age_days):
        yield (
            f"signature.max_age_days: at most {rule.max_age_days}, "
            f"it was signed {(now - when.signed_on).days} days ago"
        )


def _builder(rule: BuilderRule, made: Provenance) -> Iterator[str]:
    builder = made.run_details.builder
    yield from _outside("builder.ids", builder.id, rule.ids)
    version = builder.version.get("sparkbuild", "")
    if rule.sparkbuild and not SpecifierSet(rule.sparkbuild).contains(version, prereleases=True):
        yield f"builder.sparkbuild: expected {rule.sparkbuild}, found {version or 'none'}"


def _toolchain(rule: ToolchainRule, made: Provenance) -> Iterator[str]:
    built = made.build_definition
    asked = built.external_parameters
    yield from _outside("toolchain.allowed", asked.toolchain, rule.allowed)
    yield from _outside("toolchain.identities", built.internal_parameters.toolkit, rule.identities)
    for one in asked.architectures:
        yield from _outside("toolchain.architectures", one, rule.architectures)
    host = built.dependency(statement.HOST)
    name = str(host.annotations.get("identification", "")) if host else ""
    patterns = rule.host_compilers
    if patterns and not any(fnmatch.fnmatchcase(name, one) for one in patterns):
        yield from _outside("toolchain.host_compilers", name, patterns)


def _source(rule: SourceRule, made: Provenance) -> Iterator[str]:
    built = made.build_definition
    yield from _outside("source.variants", built.external_parameters.variant, rule.variants)
    for name, key, allowed in (
        (statement.SOURCE, "sparkbuildSource", rule.digests),
        (statement.PATCHED, "gitTree", rule.trees),
    ):
        found = built.dependency(name)
        where = "source.digests" if name == statement.SOURCE else "source.trees"
        yield from _outside(where, found.digest.get(key, "") if found else "", allowed)
    if rule.patches is not None:
        for file, patch in built.dependencies(statement.PATCH).items():
            if patch.sha256 not in rule.patches:
                yield f"source.patches: {file}, sha256 {patch.sha256}, is not allowed"


def _smoke(rule: SmokeRule, made: Provenance) -> Iterator[str]:
    smoke = read_judged(made.run_details.byproduct(statement.SMOKE), statement.SMOKE)
    results = made.run_details.byproduct(SMOKE_RESULTS)
    count = results.annotations.get("checks", 0) if results else 0
    if smoke.verdict != "passed":
        yield f"smoke: the suite {smoke.suite} {smoke.verdict}"
    least = rule.suites.get(smoke.suite)
    if rule.suites and least is None:
        yield from _outside("smoke.suites", smoke.suite, tuple(rule.suites))
    elif least is not None and count < least:
        yield f"smoke.suites: at least {least} checks of {smoke.suite} expected, {count} were made"


def _qualification(rule: QualificationRule, made: Provenance) -> Iterator[str]:
    found = read_judged(
        made.run_details.byproduct(statement.QUALIFICATION), statement.QUALIFICATION
    )
    yield from _outside("qualification.verdicts", found.verdict, rule.verdicts)


def _advisories(rule: AdvisoryRule, made: Provenance) -> Iterator[str]:
    for one in made.build_definition.external_parameters.accepted:
        if one not in rule.accepted:
            yield f"advisories.accepted: it was made in spite of the known defect {one}"


def _outside(rule: str, found: str, allowed: Sequence[str]) -> Iterator[str]:
    if allowed and found not in allowed:
        yield f"{rule}: {found or 'none'} is not allowed (allowed: {', '.join(allowed)})"
