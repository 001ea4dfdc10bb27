"""The JSON schema of what ``sparkbuild inspect --json`` prints, made from its types."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from sparkbuild.build.model import Look
from sparkbuild.model.facts import Facts, Vision
from sparkbuild.model.finding import Finding
from sparkbuild.model.inspection import Cached, Mendable
from sparkbuild.model.serve import Flag
from sparkbuild.package.model import WheelLook
from sparkbuild.report.model import Failure

SCHEMA_FILE: Final = Path(__file__).parent / "schema" / "inspect-1.json"
"""Checked in, so that other programs can rely on it; a test compares it with ``schema_text``."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """How the command ends."""

    result: Literal["passed", "failed"]
    exit_code: int
    schema: Literal[1] | msgspec.UnsetType = msgspec.UNSET
    """Of the whole document, so not of a file among several."""
    digests: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """SHA-256 of each file, with ``--digest``."""


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of a server; sizes in bytes."""

    context: int
    slots: int
    unified_cache: bool
    cache_k: str
    cache_v: str
    draft_cache_k: str
    draft_cache_v: str
    flash_attention: bool
    micro_batch: int
    speculation: tuple[str, ...]
    draft_depth: int
    load_mode: str
    checkpoints: int
    prompt_cache: int


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: Literal["start", "margin", "growth"]
    bytes: int
    how: str


class _Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The sum; all but ``context`` and ``largest_context``, which are tokens, in bytes."""

    context: int
    parts: tuple[_Part, ...]
    doubts: tuple[str, ...]
    needed: int
    growth: int
    available: int
    margin: int
    largest_context: int


class _Serve(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    program: str
    flags: tuple[Flag, ...]
    left_out: tuple[str, ...]


class ModelDocument(_Head, frozen=True, kw_only=True):
    """A model."""

    kind: Literal["model"]
    asked: _Asked
    facts: Facts
    caches: tuple[Cached, ...]
    findings: tuple[Finding, ...]
    memory: _Memory
    mendable: tuple[Mendable, ...]
    serve: _Serve | None


class TowerDocument(_Head, frozen=True, kw_only=True):
    """An mmproj without its model."""

    kind: Literal["mmproj"]
    name: str
    facts: Vision
    findings: tuple[Finding, ...]
    mendable: tuple[Mendable, ...]


class RefusedDocument(_Head, frozen=True, kw_only=True):
    """A file among several that could not be looked at."""

    kind: Literal["refused"]
    path: str
    failure: Failure


def schema_text() -> str:
    """The JSON schema of version 1."""
    binary, wheel = (
        msgspec.defstruct(
            f"{name}Document",
            [("kind", Literal[kind]), *_fields(of)],
            bases=(_Head,),
            frozen=True,
            kw_only=True,
        )
        for name, kind, of in (("Binary", "binary", Look), ("Wheel", "wheel", WheelLook))
    )
    kinds: list[Any] = [ModelDocument, TowerDocument, binary, wheel, RefusedDocument]
    refs, parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    several = {
        "title": "Several files",
        "type": "object",
        "properties": {
            "schema": {"const": 1},
            "result": {"enum": ["passed", "failed"]},
            "exit_code": {"type": "integer"},
            "files": {"type": "array", "items": {"anyOf": list(refs)}},
        },
        "required": ["schema", "result", "exit_code", "files"],
    }
    document = {
        "$schema": _DIALECT,
        "title": "sparkbuild inspect, version 1",
        "anyOf": [*refs, several],
        "$defs": parts,
    }
    text = msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2)
    return text.decode("utf-8") + "\n"


def _fields(of: type[msgspec.Struct]) -> list[tuple[str, Any]]:
    return [(one.name, one.type) for one in msgspec.structs.fields(of)]
