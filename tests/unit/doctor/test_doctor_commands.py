"""``sparkbuild doctor`` as it is called: screen, JSON, script, capture, exit codes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from sparkbuild.doctor.captured import load
from sparkbuild.doctor.diagnose import CHECKS, diagnose
from sparkbuild.doctor_commands import doctor_command
from sparkbuild.errors import UsageError
from sparkbuild.report.doctor import diagnosis_view

from .captures import DATA, captured


def doctor(*words: str) -> Result:
    return CliRunner().invoke(doctor_command, list(words), catch_exceptions=False)


def sample(name: str) -> str:
    return str(DATA / f"{name}.json")


def screen(name: str, width: int, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    Console(file=out, width=width, highlight=False).print(diagnosis_view(diagnose(captured(name))))
    out.flush()
    return raw.getvalue().decode(encoding).splitlines()


@pytest.mark.parametrize(
    ("name", "code"), [("spark", 0), ("spark-stock", 0), ("spark-stranded", 16)]
)
def test_a_fault_decides_the_exit_code_and_a_warning_does_not(name: str, code: int) -> None:
    for words in ((), ("--json",), ("--fix",)):
        assert doctor("--from", sample(name), *words).exit_code == code


def test_the_first_line_is_the_verdict() -> None:
    told = doctor("--from", sample("spark-stranded")).stdout.splitlines()
    assert told[0] == "can build (CPU, CUDA), can verify (CPU), can serve (CPU)"
    assert "memory held by nobody" in told[1]


def test_json_has_every_finding_whole() -> None:
    told = json.loads(doctor("--from", sample("spark-jetson-apt"), "--json").stdout)
    assert told["schema"] == 1
    assert told["exit_code"] == 16
    assert told["abilities"] == {"build": ["cpu"], "verify": ["cpu", "cuda"],
                                 "serve": ["cpu", "cuda"]}  # fmt: skip
    assert [one["name"] for one in told["findings"]] == list(CHECKS)
    apt = next(one for one in told["findings"] if one["name"] == "apt source")
    assert apt["state"] == "warning"
    assert apt["mend"][1] == ["sudo", "apt-get", "update"]
    assert apt["concerns"] == ["build-cuda"]


def test_fix_prints_a_script_and_nothing_else() -> None:
    told = doctor("--from", sample("spark-stock"), "--fix").stdout
    assert told.startswith("#!/bin/sh\n")


@pytest.mark.parametrize(
    "words",
    [("--fix", "--json"), ("--from", "a", "--capture", "b"), ("--from", "a", "--offline")],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        doctor(*words)


def test_this_machine_is_captured_and_judged_alike(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    here = doctor("--offline", "--json", "--capture", str(file), "--work", str(tmp_path / "w"))
    assert load(file).origin == "read"
    there = doctor("--from", str(file), "--json")
    assert here.exit_code == there.exit_code
    states = [
        {one["name"]: one["state"] for one in json.loads(told.stdout)["findings"]}
        for told in (here, there)
    ]
    assert states[0] == states[1]


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.json")))
@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_check_is_on_the_screen_within_its_width(name: str, width: int) -> None:
    lines = screen(name, width)
    assert all(len(line) <= width for line in lines)
    if width >= 80:
        for check in CHECKS:
            assert any(check in line for line in lines), check


def test_a_narrow_screen_has_what_was_expected_of_faults() -> None:
    text = " ".join(" ".join(screen("spark-stranded", 80)).split())
    assert "81.1 GiB; expected: less than 4.0 GiB" in text
    assert any("expected" in line for line in screen("spark-stranded", 120)[:8])


def test_a_terminal_of_ascii_gets_ascii() -> None:
    text = "\n".join(screen("spark-stranded", 80, "ascii"))
    assert "x fault" in text
    assert "+ ok" in text


def test_what_a_capture_is_stands_above_its_findings() -> None:
    assert any("as captured: composed" in line for line in screen("spark", 80))


def test_the_last_line_counts() -> None:
    assert screen("spark", 80)[-1].strip() == "no fault, no warnings"
    assert screen("spark-stock", 80)[-1].strip() == "no fault, 4 warnings"
    last = screen("spark-stranded", 80)[-1].strip()
    assert last == "1 fault: memory held by nobody; 1 warning; exit code 16"
