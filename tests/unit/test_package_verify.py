"""A wheel written by hand is accepted; each thing that can be wrong with one is found."""

from __future__ import annotations

import dataclasses
import hashlib
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkbuild.package import archive
from sparkbuild.package.project import Plan
from sparkbuild.package.verify import mismatches

VERSION = "7.0.0+cpu.text.g0123456789ab"
TAG = "py3-none-linux_x86_64"
INFO = f"sparkbuild_llama_cpp-{VERSION}.dist-info"
RECORD = f"{INFO}/RECORD"
BIN = "sparkbuild_llama_cpp/bin"

Content = dict[str, tuple[bytes, int]]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "LICENSE").write_text("MIT")
    return Plan(
        version=VERSION,
        tag=TAG,
        description="for a test",
        payload=tmp_path,
        executables={"llama-server": hashlib.sha256(b"\x7fELF server").hexdigest()},
        libraries={"libllama.so.0": hashlib.sha256(b"\x7fELF library").hexdigest()},
        licences={"LICENSE": tmp_path / "LICENSE"},
        info="{}\n",
    )


def content() -> Content:
    return {
        f"{BIN}/libllama.so.0": (b"\x7fELF library", 0o644),
        f"{BIN}/llama-server": (b"\x7fELF server", 0o755),
        "sparkbuild_llama_cpp/__init__.py": (b"", 0o644),
        "sparkbuild_llama_cpp/build-info.json": (b"{}\n", 0o644),
        f"{INFO}/METADATA": (
            f"Metadata-Version: 2.4\nName: sparkbuild-llama-cpp\nVersion: {VERSION}\n"
            "Summary: for a test\nRequires-Python: >=3.9\n\nName: in the body\n".encode(),
            0o644,
        ),
        f"{INFO}/WHEEL": (
            f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(),
            0o644,
        ),
        f"{INFO}/entry_points.txt": (
            b"[console_scripts]\nllama-server = sparkbuild_llama_cpp._scripts:llama_server\n",
            0o644,
        ),
        f"{INFO}/licenses/LICENSE": (b"MIT", 0o644),
    }


def record_of(members: Content) -> str:
    rows = [
        (name, archive.record_digest(data), str(len(data))) for name, (data, _) in members.items()
    ]
    return archive.record_text([*rows, (RECORD, "", "")])


def write(
    place: Path, members: Content, record: str | None = None, *, name: str | None = None
) -> Path:
    path = place / (name or f"sparkbuild_llama_cpp-{VERSION}-{TAG}.whl")
    with zipfile.ZipFile(path, "w") as out:
        for member, (data, mode) in members.items():
            info = zipfile.ZipInfo(member)
            info.external_attr = (stat.S_IFREG | mode) << 16
            out.writestr(info, data)
        out.writestr(zipfile.ZipInfo(RECORD), record_of(members) if record is None else record)
    return path


def test_a_right_wheel_has_no_mismatch(plan: Plan, tmp_path: Path) -> None:
    assert mismatches(write(tmp_path, content()), plan) == []


def test_requirements_are_those_of_the_plan(plan: Plan, tmp_path: Path) -> None:
    wanted = dataclasses.replace(plan, requires=("nvidia-cublas==13.1.0.3",))
    (problem,) = mismatches(write(tmp_path, content()), wanted)
    assert problem == "METADATA, Requires-Dist: expected nvidia-cublas==13.1.0.3, found none"
    members = content()
    text, mode = members[f"{INFO}/METADATA"]
    text = text.replace(b"\n\n", b"\nRequires-Dist: nvidia-cublas==13.1.0.3\n\n", 1)
    members[f"{INFO}/METADATA"] = (text, mode)
    assert mismatches(write(tmp_path, members), wanted) == []
    assert mismatches(write(tmp_path, members), plan)


def put(name: str, data: bytes, mode: int = 0o644) -> Callable[[Content], object]:
    return lambda members: members.update({name: (data, mode)})


def drop(name: str) -> Callable[[Content], object]:
    return lambda members: members.pop(name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(f"{BIN}/llama-server", b"\x7fELF other", 0o755), "llama-server is not the file"),
        (put(f"{BIN}/libllama.so.0", b"\x7fELF other"), "libllama.so.0 is not the file"),
        (put(f"{BIN}/llama-server", b"\x7fELF server"), "llama-server is not executable"),
        (put(f"{BIN}/libllama.so.0", b"\x7fELF library", 0o755), "libllama.so.0 is executable"),
        (drop(f"{BIN}/libllama.so.0"), "libllama.so.0 was tested and is not in the wheel"),
        (put(f"{BIN}/README", b"text"), "README lies among the binaries"),
        (put("sparkbuild_llama_cpp/x", b"\x7fELF", 0o644), "x is an ELF file that was never"),
        (put("sparkbuild_llama_cpp/x", b"#!/bin/sh\n"), "x is a script that was never"),
        (put("sparkbuild_llama_cpp/x", b"", 0o711), "x is executable that was never tested"),
        (put(f"{INFO}/METADATA", b"Name: other\n"), "METADATA, Version"),
        (put(f"{INFO}/METADATA", b"Summary: all is well\n"), "METADATA, Summary"),
        (put(f"{INFO}/WHEEL", b"Root-Is-Purelib: true\nTag: py3-none-any\n"), "WHEEL, Tag"),
        (drop(f"{INFO}/WHEEL"), "WHEEL, Tag: expected py3-none-linux_x86_64, found none"),
        (put(f"{INFO}/entry_points.txt", b"[console_scripts]\nls = os:fork\n"), "console scripts"),
        (put(f"{INFO}/entry_points.txt", b"no section"), "console scripts"),
        (drop(f"{INFO}/entry_points.txt"), "console scripts"),
        (put("sparkbuild_llama_cpp/build-info.json", b"{} \n"), "build-info.json is not the one"),
        (drop(f"{INFO}/licenses/LICENSE"), "licence text LICENSE is not in the wheel"),
        (put("../evil", b""), "'../evil' would be written outside"),
        (put("/etc/evil", b""), "'/etc/evil' would be written outside"),
        (put("a/../../evil", b""), "would be written outside"),
        (put("a\\..\\evil", b""), "would be written outside"),
        (put("C:evil", b""), "would be written outside"),
        (put("a//b", b""), "is no plain file path"),
        (put("folder/", b""), "is no plain file path"),
        (put("a\x1b[31m", b""), "is no plain file path"),
    ],
)
def test_each_fault_is_named(
    change: Callable[[Content], object], words: str, plan: Plan, tmp_path: Path
) -> None:
    members = content()
    change(members)
    found = mismatches(write(tmp_path, members), plan)
    assert [line for line in found if words in line], found


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (record_of(content()).replace("sha256=", "sha256=A", 1), "RECORD, sparkbuild"),
        (record_of(content()).replace(",11\n", ",12\n", 1), "RECORD, sparkbuild"),
        (record_of(content()) + "ghost,sha256=x,1\n", "RECORD lists ghost, which is not there"),
        ("\n".join(record_of(content()).splitlines()[1:]) + "\n", "RECORD does not list"),
        (record_of(content()) + record_of(content()).splitlines()[0] + "\n", "2 times"),
        ("a,b\n", "RECORD has a line of 2 fields"),
    ],
)
def test_each_fault_of_record_is_named(record: str, words: str, plan: Plan, tmp_path: Path) -> None:
    found = mismatches(write(tmp_path, content(), record), plan)
    assert [line for line in found if words in line], found


def test_a_member_twice_is_refused(plan: Plan, tmp_path: Path) -> None:
    path = write(tmp_path, content())
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(path, "a") as opened,
    ):
        opened.writestr(f"{BIN}/llama-server", b"other")
    assert mismatches(path, plan) == [f"'{BIN}/llama-server' is in the wheel 2 times"]


@pytest.mark.parametrize(
    "name",
    [
        f"sparkbuild_llama_cpp-{VERSION}-py3-none-any.whl",
        f"sparkbuild_llama_cpp-8.0.0-{TAG}.whl",
        f"other-{VERSION}-{TAG}.whl",
        "wheel.zip",
    ],
)
def test_a_wrong_file_name_is_named(name: str, plan: Plan, tmp_path: Path) -> None:
    (problem,) = mismatches(write(tmp_path, content(), name=name), plan)
    assert "file name" in problem


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
@given(position=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_of_content_never_passes(
    position: float, flip: int, plan: Plan, tmp_path: Path
) -> None:
    path = write(tmp_path, content())
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as opened:
        member = opened.getinfo(f"{BIN}/llama-server")
    start = member.header_offset + 30 + len(member.filename)
    data[start + int(position * member.compress_size)] ^= flip
    path.write_bytes(data)
    assert mismatches(path, plan)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
@given(noise=st.binary(max_size=400), at=st.integers(0, 2000))
def test_damage_is_reported_and_never_raised(
    noise: bytes, at: int, plan: Plan, tmp_path: Path
) -> None:
    path = write(tmp_path, content())
    data = path.read_bytes()
    path.write_bytes(data[:at] + noise + data[at + len(noise) :])
    assert isinstance(mismatches(path, plan), list)
