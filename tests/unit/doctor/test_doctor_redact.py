"""A capture for strangers says nothing of its user, host, hardware and network."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sparkbuild.doctor.captured import Disk, Machine
from sparkbuild.doctor.redact import for_strangers, redacted

from .captures import DATA, captured, changed


def cleaned(text: str) -> str:
    machine = changed(captured("spark"), unread={"gpu": text})
    clean = redacted(machine, user="jane", host="box7.corp.example", home=Path("/home/jane"))
    return clean.unread["gpu"]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/home/jane/models/a.gguf", "~/models/a.gguf"),
        ("/home/jane2/x /home/joe:/home/jane", "/home/USER/x /home/USER:~"),
        ("/data/jane/x", "/data/USER/x"),
        ("http://jane@box7.corp.example:3128/", "http://USER@HOST:3128/"),
        ("/mnt/box7/x", "/mnt/HOST/x"),
        ("proxy 10.1.2.3:3128", "proxy ADDRESS:3128"),
        ("proxy [fe80::1ff:fe23:4567:890a]", "proxy [ADDRESS]"),
        ("aa:bb:cc:dd:ee:ff is up", "XX is up"),
        ("GPU-12345678-90ab-cdef-1234-567890abcdef", "XX"),
        ("janet, 580.159.03, 6.17.0-1014", "janet, 580.159.03, 6.17.0-1014"),
        ("NVML: Not Supported", "NVML: Not Supported"),
    ],
)
def test_what_tells_of_somebody_is_taken_out(text: str, clean: str) -> None:
    assert cleaned(text) == clean


def test_versions_of_toolkits_are_no_addresses() -> None:
    machine = changed(
        captured("spark"), toolkits__roots___0__problems=("cublas 13.1.0.3, not 13.1.1.3",)
    )
    clean = redacted(machine, user="", host="", home=Path("/root"))
    assert clean == machine


def test_common_names_are_left_alone() -> None:
    machine = captured("spark")
    assert redacted(machine, user="nvidia", host="local", home=Path("/")) == machine


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.json")))
def test_the_samples_hold_nothing_that_would_be_taken_out(name: str) -> None:
    machine = captured(name)
    assert for_strangers(machine) == machine


def test_every_text_is_looked_at() -> None:
    """Wherever a text stands: each one replaced by a path with the user's name, all are cleaned."""
    disk = Disk(folder="/data/jane/a", kind="/data/jane/b", size=1, free=1)
    machine: Machine = changed(
        captured("spark"), disks=(disk,), system__variables={"LD_LIBRARY_PATH": "/data/jane/c"}
    )
    clean = redacted(machine, user="jane", host="", home=Path("/home/jane"))
    assert "jane" not in msgspec.json.encode(clean).decode()
