"""What a wheel of sparkbuild's says of its making, out of ``build-info.json`` and its statement."""

from __future__ import annotations

import msgspec

from sparkbuild.package import statement
from sparkbuild.package.model import Making, Patched
from sparkbuild.package.statement import Provenance


class _Source(msgspec.Struct, frozen=True):
    digest: str
    commit: str
    build: int | None = None


class _Named(msgspec.Struct, frozen=True):
    id: str


class _Part(msgspec.Struct, frozen=True):
    version: str


class _Host(msgspec.Struct, frozen=True):
    identification: str


class _Toolchain(msgspec.Struct, frozen=True):
    name: str
    host_compiler: _Host
    architectures: tuple[str, ...] = ()
    accepted: tuple[_Named, ...] = ()
    parts: dict[str, _Part] = {}


class _Info(msgspec.Struct, frozen=True):
    """Those parts of ``build-info.json`` that are shown; whatever else it holds is passed over."""

    sparkbuild: str
    variant: str
    source: _Source
    toolchain: _Toolchain
    patches: tuple[Patched, ...] = ()


def making(info: bytes, made: Provenance | None) -> Making | None:
    """Both read together; None where there is no ``build-info.json``, or none that can be read."""
    try:
        told = msgspec.json.decode(info, type=_Info)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    chain = told.toolchain
    return Making(
        sparkbuild=told.sparkbuild,
        variant=told.variant,
        toolchain=chain.name,
        architectures=chain.architectures,
        accepted=tuple(one.id for one in chain.accepted),
        build=told.source.build,
        commit=told.source.commit,
        source=told.source.digest,
        patches=told.patches,
        parts={name: part.version for name, part in chain.parts.items()},
        host_compiler=chain.host_compiler.identification,
        qualification=_verdict(made, statement.QUALIFICATION),
        smoke=_verdict(made, statement.SMOKE),
    )


def _verdict(made: Provenance | None, name: str) -> str:
    if made is None:
        return ""
    try:
        judged = statement.read_judged(made.run_details.byproduct(name), name)
    except ValueError:
        return ""
    return f"{judged.verdict}, suite {judged.suite}" if judged.suite else judged.verdict
