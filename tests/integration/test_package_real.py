"""The wheel of a real build, installed where nothing else is and started from ``/``."""

from __future__ import annotations

import hashlib
import json
import subprocess  # noqa: TID251 - these tests are the wheel's user
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

SCRIPTS = ("llama-mtmd-cli", "llama-quantize", "llama-server")


@pytest.fixture(scope="module")
def venv(real_make: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run(
        [place / "bin" / "python", "-m", "pip", "--isolated", "--disable-pip-version-check",
         "install", "--no-index", "--no-deps", real_make.wheel],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return place


def call(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run from ``/`` without PATH, HOME or any other variable."""
    return subprocess.run(
        [program, *arguments], cwd="/", env={}, capture_output=True, text=True, check=False
    )


def test_the_server_says_the_pinned_build_and_identity(venv: Path, real_make: Any) -> None:
    done = call(venv / "bin" / "llama-server", "--version")
    said = done.stdout + done.stderr
    assert done.returncode == 0
    assert str(real_make.build) in said
    assert real_make.identity in said


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_starts(script: str, venv: Path) -> None:
    done = call(venv / "bin" / script, "--help")
    binary = call(binary_of(venv, script), "--help")
    assert "usage" in (done.stdout + done.stderr).lower()
    assert (done.returncode, done.stdout) == (binary.returncode, binary.stdout)


def test_a_wrong_argument_is_the_binarys_own_failure(venv: Path) -> None:
    script = call(venv / "bin" / "llama-server", "--no-such-option")
    binary = call(binary_of(venv, "llama-server"), "--no-such-option")
    assert script.returncode == binary.returncode != 0
    assert script.stderr == binary.stderr


def binary_of(venv: Path, name: str) -> Path:
    code = "import sys, sparkbuild_llama_cpp as p; sys.stdout.write(str(p.path_of(sys.argv[1])))"
    done = call(venv / "bin" / "python", "-I", "-c", code, name)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout)


def info_of(venv: Path) -> dict[str, Any]:
    code = "import json, sys, sparkbuild_llama_cpp as p; json.dump(p.build_info(), sys.stdout)"
    done = call(venv / "bin" / "python", "-I", "-c", code)
    assert done.returncode == 0, done.stderr
    info: dict[str, Any] = json.loads(done.stdout)
    return info


def test_build_info_and_files_are_those_of_the_build(venv: Path, real_make: Any) -> None:
    info = info_of(venv)
    assert info["source"]["build"] == real_make.build
    assert info["source"]["identity"] == real_make.identity
    assert info["version"] in real_make.wheel.name
    assert {*SCRIPTS} <= info["binaries"].keys()
    for name, facts in info["binaries"].items():
        tested = hashlib.sha256((real_make.bin / name).read_bytes()).hexdigest()
        installed = hashlib.sha256(binary_of(venv, name).read_bytes()).hexdigest()
        assert tested == installed == facts["sha256"]


def test_libraries_come_from_the_wheel(venv: Path) -> None:
    libraries = {name for name in info_of(venv)["binaries"] if ".so" in name}
    assert libraries
    inside: set[str] = set()
    for script in SCRIPTS:
        binary = binary_of(venv, script)
        done = subprocess.run(
            ["ldd", binary], cwd="/", capture_output=True, text=True, check=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
        assert "not found" not in done.stdout
        found = [Path(line.split(" => ")[1].split(" (")[0]) for line in done.stdout.splitlines()
                 if " => " in line]  # fmt: skip
        inside.update(path.name for path in found if path.parent == binary.parent)
    assert inside == libraries


def test_no_place_of_this_machine_is_in_the_texts(real_make: Any) -> None:
    places = {str(real_make.bin), str(Path.home()), str(Path(sys.prefix))} - {"/"}
    with zipfile.ZipFile(real_make.wheel) as opened:
        for name in opened.namelist():
            if "/bin/" not in name:
                text = opened.read(name).decode()
                assert not [place for place in places if place in text], name
