"""Captured machines and what the doctor says of each: every finding that is not ok, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.doctor.captured import SCHEMA, load, save
from sparkbuild.doctor.diagnose import CHECKS, diagnose
from sparkbuild.errors import HostError, ManifestError

from .captures import DATA, captured

ALL = "can build (CPU, CUDA), can verify (CPU, CUDA), can serve (CPU, CUDA)"
EXPECTED: dict[str, tuple[str, dict[str, set[str]]]] = {
    "spark": (ALL, {}),
    "spark-stranded": (
        "can build (CPU, CUDA), can verify (CPU), can serve (CPU)",
        {"fault": {"memory held by nobody"}, "warning": {"memory available"}},
    ),
    "spark-jetson-apt": (
        "can build (CPU), can verify (CPU, CUDA), can serve (CPU, CUDA)",
        {
            "fault": {"toolkits"},
            "warning": {"cmake's choice", "nvcc of the shell", "apt source"},
            "note": {"host compiler"},
        },
    ),
    "spark-stock": (
        ALL,
        {
            "warning": {"swap", "zram", "swappiness", "watermark scale"},
            "note": {"kernel", "driver build"},
        },
    ),
    "spark-container": (
        "can build (CPU, CUDA), can verify (CPU), can serve (CPU)",
        {
            "fault": {"driver library"},
            "warning": {"container", "OpenSSL headers", "foreign libraries"},
            "note": {"locale", "GPU processes"},
        },
    ),
    "spark-serving": (
        "can build (CPU), can verify (CPU, CUDA), can serve (CPU, CUDA)",
        {
            "fault": {"toolkits"},
            "warning": {
                "GPU processes", "power", "cmake's choice", "nvcc of the shell",
                "memory available", "disk space",
            },
        },
    ),
    "h200": (
        ALL,
        {
            "note": {
                "machine", "container", "time sync", "compute capability", "zram",
                "watermark scale", "disk space", "network",
            },
        },
    ),
    "virtual-machine": (
        "can build (CPU, CUDA), can verify (CPU), can serve (CPU)",
        {
            "warning": {"cmake's choice", "nvcc of the shell", "network"},
            "note": {
                "machine", "operating system", "container", "time sync", "GPU",
                "compute capability", "driver", "driver and toolkit", "driver build",
                "GPU processes", "power", "driver library", "memory available", "zram",
                "watermark scale", "disk space",
            },
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_a_captured_machine_gets_its_diagnosis(name: str) -> None:
    verdict, states = EXPECTED[name]
    found = diagnose(captured(name))
    assert found.verdict == verdict
    told = {
        state: {one.name for one in found.findings if one.state == state}
        for state in ("note", "warning", "fault")
    }
    assert told == {"note": set(), "warning": set(), "fault": set(), **states}
    assert found.exit_code == (HostError.exit_code if "fault" in states else 0)
    assert found.spark == name.startswith("spark")
    assert [one.name for one in found.findings] == list(CHECKS)


def test_every_capture_is_asked_about() -> None:
    assert {path.stem for path in DATA.glob("*.json")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_finding_says_what_was_read_why_and_what_it_concerns(name: str) -> None:
    for one in diagnose(captured(name)).findings:
        assert one.found, one
        assert one.expected, one
        assert one.reason, one
        assert one.source, one
        assert one.concerns, one
        assert set(one.blocks) <= set(one.concerns), one
        assert (one.state in {"warning", "fault"}) == bool(one.next_step), one
        assert one.state in {"warning", "fault"} or not one.mend, one


@pytest.mark.parametrize("name", EXPECTED)
def test_a_capture_survives_its_file(name: str, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    machine = captured(name)
    save(machine, file)
    assert load(file) == machine
    assert machine.schema == SCHEMA


def test_a_capture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="cannot write"):
        save(captured("spark"), tmp_path / "file" / "machine.json")


def test_what_is_composed_says_what_is_documented_and_what_assumed() -> None:
    for path in DATA.glob("spark*.json"):
        origin = captured(path.stem).origin
        assert origin.startswith("composed"), path
        assert "ocumented" in origin or "spark.json" in origin, path
    assert "Assumed:" in captured("spark").origin


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', "\xff", '{"schema": 2}'], ids=repr)
def test_a_file_that_is_no_capture_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ManifestError, match="holds no captured machine"):
        load(file)
