"""The layout of an aarch64 wheel, on x86-64: cross compiler, qemu-user, and a canary that answers.

It compiles llama.cpp once more, ten minutes on two slow cores, and needs Debian's packages
g++-aarch64-linux-gnu and qemu-user: SPARKBUILD_TEST_AARCH64=1 asks for it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess  # noqa: TID251 - these tests are the wheel's user
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.build.compile import build
from sparkbuild.build.configure import configure
from sparkbuild.build.elf import read_elf
from sparkbuild.build.model import Binaries, Binary, BinaryFacts
from sparkbuild.files import sha256_file
from sparkbuild.manifest import find_recipes
from sparkbuild.package.make import package
from sparkbuild.package.model import Wheel
from sparkbuild.process import capture
from sparkbuild.toolkit.host import identification
from sparkbuild.toolkit.model import HostCompiler, Toolkit

SYSTEM = "/usr/aarch64-linux-gnu"
"""Debian's folder for that platform's C library."""
QEMU = ("qemu-aarch64", "-L", SYSTEM)
PREFIX = "aarch64-linux-gnu-"
TARGETS = ("llama-server", "llama-quantize")

pytestmark = [
    pytest.mark.real,
    pytest.mark.network,
    pytest.mark.skipif(
        not os.environ.get("SPARKBUILD_TEST_AARCH64"),
        reason="SPARKBUILD_TEST_AARCH64 is not set",
    ),
    pytest.mark.skipif(
        platform.machine() != "x86_64"
        or any(shutil.which(name) is None for name in (f"{PREFIX}gcc", f"{PREFIX}g++", QEMU[0])),
        reason="no aarch64 cross compiler with qemu-user on this machine",
    ),
]


def cross_compiler() -> HostCompiler:
    c, cxx = (str(shutil.which(f"{PREFIX}{name}")) for name in ("gcc", "g++"))
    macros = capture([cxx, "-dM", "-E", "-x", "c++", "/dev/null"]).stdout
    return HostCompiler(
        c=c, cxx=cxx, identification=identification(macros) or "", target="aarch64-linux-gnu",
        sha256="0" * 64,
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(real_tree: Any, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """The variant text's targets for aarch64, with the options of the cpu toolchain there."""
    place = Path(os.environ.get("SPARKBUILD_TEST_AARCH64_DIR") or tmp_path_factory.mktemp("arm"))
    recipes = find_recipes(None)
    patchset, _ = recipes.patchset("text")
    chain, _ = recipes.toolchain("cpu")
    toolkit = Toolkit(
        toolchain="cpu",
        label="cpu",
        kind="cpu",
        host=cross_compiler(),
        options={
            **chain.cmake,
            **chain.platform["linux-aarch64"].cmake,
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        },
    )
    configuration = configure(patchset, toolkit, real_tree, binary_dir=place / "cmake",
                              log=place / "configure.log")  # fmt: skip
    binaries = build(configuration, patchset.build.targets, install_dir=place / "install",
                     log=place / "build.log")  # fmt: skip
    return package(
        binaries=binaries,
        facts=facts_of(binaries),
        tree=real_tree,
        toolkit=toolkit,
        variant="text",
        source_dir=Path(real_tree.directory),
        workdir=place / "package",
        log=place / "package.log",
    )


def facts_of(binaries: Binaries) -> BinaryFacts:
    """What inspection reads; its questions to the loader need the files' own platform."""
    found = []
    for name in sorted([*binaries.executables, *binaries.libraries]):
        path = Path(binaries.directory) / name
        elf = read_elf(path)
        assert elf.runpath == ("$ORIGIN",), name
        found.append(
            Binary(
                name=name, sha256=sha256_file(path), size=path.stat().st_size, soname=elf.soname,
                needed=elf.needed, runpath=elf.runpath, build_id=elf.build_id or "",
                machine=elf.machine,
            )
        )  # fmt: skip
    return BinaryFacts(
        binaries=tuple(found), system_libraries=("libc.so.6",), version_line="version: of another"
    )


@pytest.fixture(scope="module")
def installed(made: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installed by pip as for an aarch64 machine; the folder of the programs."""
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install",
         "--no-index", "--no-deps", "--only-binary", ":all:", "--target", target,
         "--platform", made.tag.removeprefix("py3-none-"), made.path],
        check=True, capture_output=True,
    )  # fmt: skip
    return target / "sparkbuild_llama_cpp" / "bin"


def test_the_tag_is_aarch64_s_and_earned(made: Wheel) -> None:
    assert made.tag.startswith("py3-none-manylinux_2_")
    assert made.tag.endswith("_aarch64")


def test_pip_on_this_machine_refuses_it(made: Wheel, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install",
         "--no-index", "--no-deps", "--target", tmp_path, made.path],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert "not a supported wheel on this platform" in done.stderr


def test_the_server_starts_and_says_who_it_is(installed: Path, real_tree: Any) -> None:
    done = subprocess.run([*QEMU, installed / "llama-server", "--version"], cwd="/", env={
        "PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"commit {real_tree.identity}" in done.stdout + done.stderr
    assert "aarch64" in (done.stdout + done.stderr).lower()


def test_a_canary_answers_rightly(installed: Path, run_sparkbuild: Any, tmp_path: Path) -> None:
    """Scripts in place of its programs start them in qemu; words and numbers have to be right."""
    build_dir = tmp_path / "bin"
    build_dir.mkdir()
    qemu = shutil.which(QEMU[0])
    for name in TARGETS:
        script = build_dir / name
        script.write_text(f'#!/bin/sh\nexec {qemu} -L {SYSTEM} {installed / name} "$@"\n')
        script.chmod(0o755)
    done = run_sparkbuild(
        "canary", "run", "llama", "--build", str(build_dir), "--form", "q8_0", "--no-drafts",
        "--work", str(tmp_path / "work"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(done.stdout)["schema"]
