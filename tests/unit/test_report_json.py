"""``report.json`` is deterministic, meets its schema, and the schema in the tree is the model's."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.report import json_report
from sparkbuild.report.model import Failure, FileRef, Report, StageReport
from sparkbuild.smoke.model import Check

REGENERATE = (
    "python -c 'from sparkbuild.report.json_report import *; SCHEMA_FILE.write_text(schema_text())'"
)


def report(**changed: object) -> Report:
    given: dict[str, object] = {
        "sparkbuild": "0.1.0",
        "variant": "vision",
        "toolchain": "cpu",
        "command": ("sparkbuild", "make"),
        "started": "2026-10-06T12:00:00+00:00",
        "seconds": 1.5,
        "result": "failed",
        "exit_code": 14,
        "key": None,
        "machine": {"os": "Linux", "arch": "x86_64"},
        "stages": (
            StageReport(name="toolkit", state="done", seconds=0.25, summary="GNU 12.2.0"),
            StageReport(
                name="smoke",
                state="failed",
                seconds=1.25,
                summary="wrong tokens",
                inputs={"b": "2" * 64, "a": "1" * 64},
                outputs=(FileRef(path="/w/log", sha256="0" * 64),),
                evidence=("/w/log",),
                notes=("slow",),
                failure=Failure(
                    title="smoke",
                    exit_code=14,
                    message="wrong tokens",
                    problems=("expected 1, found 2",),
                    next_step="look",
                    detail="tail",
                ),
            ),
            StageReport(name="package", state="not reached", seconds=0.0, summary=""),
        ),
        "smoke_checks": (Check(name="health", passed=True, seconds=0.1, expected="a", found="a"),),
        "wheel": FileRef(path="/w/a.whl", sha256="3" * 64),
    }
    return Report(**{**given, **changed})  # type: ignore[arg-type]


SCHEMA = json.loads(json_report.SCHEMA_FILE.read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def validate(text: str) -> None:
    VALIDATOR.validate(json.loads(text))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_in_the_tree_is_the_models() -> None:
    checked_in = json_report.SCHEMA_FILE.read_text()
    assert checked_in == json_report.schema_text(), f"regenerate with: {REGENERATE}"


@pytest.mark.parametrize("key", [None, "4" * 64])
@pytest.mark.parametrize("wheel", [None, FileRef(path="/w/a.whl", sha256="3" * 64)])
def test_reports_meet_the_schema(key: str | None, wheel: FileRef | None) -> None:
    validate(json_report.encode(report(key=key, wheel=wheel)))


@pytest.mark.parametrize(
    ("field", "value"),
    [("schema", 2), ("result", "maybe"), ("stages", None), ("key", 7), ("exit_code", "14")],
)
def test_the_schema_refuses_what_is_no_report(field: str, value: object) -> None:
    document = json.loads(json_report.encode(report()))
    document[field] = value
    with pytest.raises(jsonschema.ValidationError):
        validate(json.dumps(document))
    del document[field]
    if field != "schema":
        with pytest.raises(jsonschema.ValidationError):
            validate(json.dumps(document))


def test_what_is_read_back_is_what_was_written() -> None:
    assert msgspec.json.decode(json_report.encode(report()), type=Report) == report()


def test_maps_come_sorted_and_the_text_is_indented() -> None:
    text = json_report.encode(report())
    other = report(machine={"arch": "x86_64", "os": "Linux"})
    assert json_report.encode(other) == text
    assert text.index('"arch"') < text.index('"os"')
    assert text.startswith('{\n  "schema": 1,\n')
    assert text.endswith("}\n")


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_can_be_reported(text: str) -> None:
    stage = StageReport(name=text, state="done", seconds=0.0, summary=text, inputs={text: text})
    encoded = json_report.encode(report(stages=(stage,), machine={text: text}))
    validate(encoded)
    (read,) = json.loads(encoded)["stages"]
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert read["summary"] == text
