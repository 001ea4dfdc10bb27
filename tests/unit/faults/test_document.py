"""The matrix for other programs: its schema, and what makes a run fail."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from rich.console import Console

from sparkbuild.errors import FaultsError
from sparkbuild.faults import document
from sparkbuild.faults.model import Clean, Fault, Found, Matrix, SourceSeed, Verdict
from sparkbuild.report.faults import faults_view, matrix_view

REGENERATE = (
    "python -c 'from sparkbuild.faults.document import *; SCHEMA_FILE.write_text(schema_text())'"
)


def fault(**changes: Any) -> Fault:
    one = Fault(
        id="one", kind="source", summary="a sign is lost", imitates="i", reach="everything",
        subtle=False, latest="smoke", says=("nmse",), seed=SourceSeed(patch="one.patch"),
    )  # fmt: skip
    return msgspec.structs.replace(one, **changes)


def found(verdict: Verdict, **changes: Any) -> Found:
    one = Found(
        id="one", kind="source", verdict=verdict, stage="smoke", check="llama f32, references",
        message="NMSE 0.4", exit_code=14, command=("smoke",), planted_seconds=3.0, seconds=2.0,
        log="one.log",
    )  # fmt: skip
    return msgspec.structs.replace(one, **changes)


def matrix(*every: Found, clean: tuple[int, ...] = ()) -> Matrix:
    runs = tuple(
        Clean(command=("smoke",), exit_code=code, seconds=1.0, message="log: x", log="c.log")
        for code in clean
    )
    return Matrix(
        sparkbuild="0", source="s", machine={"cpu": "c"}, catalogue="d", started="t", seconds=9.0,
        found=every, clean=runs,
    )  # fmt: skip


def shown(one: Matrix, *faults: Fault) -> str:
    out = Console(file=StringIO(), width=200)
    out.print(matrix_view(one, faults, document.problems(one, faults)), crop=False)
    return str(out.file.getvalue())  # type: ignore[attr-defined]


def test_the_schema_that_is_checked_in_is_the_model() -> None:
    checked_in = document.SCHEMA_FILE.read_text()
    assert checked_in == document.schema_text(), f"regenerate with: {REGENERATE}"


def test_a_matrix_is_of_its_schema() -> None:
    one = matrix(found("caught"), clean=(0,))
    plain = json.loads(json.dumps({"schema": 1, **document.document(one, (), 0)}))
    Draft202012Validator(json.loads(document.SCHEMA_FILE.read_text())).validate(plain)
    assert plain["result"] == "passed"
    failed = document.document(one, ["x"], FaultsError.exit_code)
    assert (failed["result"], failed["exit_code"]) == ("failed", 23)


def test_all_that_is_caught_is_well() -> None:
    assert document.problems(matrix(found("caught"), clean=(0, 0)), [fault()]) == ()


@pytest.mark.parametrize("verdict", ["late", "other words", "missed", "not run"])
def test_any_other_verdict_is_none(verdict: Verdict) -> None:
    (problem,) = document.problems(matrix(found(verdict, reason="because")), [fault()])
    assert problem == f"one: {verdict}, because"


def test_what_this_machine_has_no_part_for_is_no_failure() -> None:
    assert document.problems(matrix(found("not run")), [fault(needs=("gpu",))]) == ()
    assert document.problems(matrix(found("missed")), [fault(needs=("gpu",))])


def test_a_clean_product_that_is_refused_is_a_false_alarm() -> None:
    (problem,) = document.problems(matrix(found("caught"), clean=(0, 14)), [fault()])
    assert problem == "false alarm, exit code 14: log: x"


def test_nothing_asked_is_nothing_proved() -> None:
    assert document.problems(matrix(), [fault()])


def test_a_person_reads_what_was_not_caught_at_length() -> None:
    text = shown(matrix(found("caught"), found("missed", id="two", exit_code=0, message="")),
                 fault(), fault(id="two"))  # fmt: skip
    assert "two, missed: a sign is lost" in text
    assert "a refusal at smoke or before, saying 'nmse'" in text
    assert "exit code 0" in text
    assert "2 faults: 1 caught, 1 missed" in text


def test_a_person_reads_why_a_fault_was_not_run_and_which_clean_run_was_refused() -> None:
    text = shown(matrix(found("not run", reason="it does not compile"), clean=(0, 14)), fault())
    assert "it does not compile" in text
    assert "clean run 2: refused with exit code 14" in text
    assert "1 false alarms in 2 clean runs" in text


def test_the_catalogue_is_listed() -> None:
    out = Console(file=StringIO(), width=200)
    out.print(faults_view([fault(), fault(id="two", subtle=True, fast=True)]))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert "subtle" in text
    assert "fast" in text
    assert "2 faults" in text
