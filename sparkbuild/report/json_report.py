"""``report.json``: one form for the same report, and the schema that describes it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.report.model import Report

SCHEMA_FILE: Final = Path(__file__).parent / "schema" / "report-1.json"
"""Checked in, so that other programs can rely on it; a test compares it with ``schema_text``."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def encode(report: Report) -> str:
    """The report as indented JSON, its maps sorted by key, a line break at the end.

    A file name that is not UTF-8 (Python then keeps lone surrogates) is written with the bytes
    spelled out, since JSON has no other way.
    """
    value = _encodable(msgspec.to_builtins(report, order="deterministic"))
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    return text.decode("utf-8") + "\n"


def schema_text() -> str:
    """The JSON schema of version 1, generated from the model."""
    schema = msgspec.json.schema(Report)
    document = {"$schema": _DIALECT, "title": "sparkbuild report, version 1", **schema}
    text = msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=2)
    return text.decode("utf-8") + "\n"


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", errors="backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value
