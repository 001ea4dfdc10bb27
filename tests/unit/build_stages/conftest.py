"""Recipes, toolkits and trees as the earlier stages would give them, and captures of real runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.build.tools import Tools
from sparkbuild.manifest import BuildSection, Patchset, SmokeSection, SourcePin
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import HostCompiler, Part, Toolkit

DATA = Path(__file__).parents[2] / "data" / "build"


@pytest.fixture(scope="session")
def data() -> Path:
    return DATA


@pytest.fixture(scope="session")
def capture() -> Callable[[str], str]:
    """CMake's output of a real run: ``cuda-4`` is CMake 4.4.5, ``cuda-3`` is 3.25.1."""
    return lambda name: (DATA / "cmake" / f"{name}.txt").read_text()


@pytest.fixture
def make_patchset() -> Callable[..., Patchset]:
    def make(*targets: str, **cmake: str) -> Patchset:
        return Patchset(
            schema=1,
            name="vision",
            summary="",
            source=SourcePin(build=11434, paths=(), origins=()),
            build=BuildSection(targets=targets or ("llama-server",), cmake=cmake),
            smoke=SmokeSection(suite="basic"),
        )

    return make


@pytest.fixture
def make_toolkit() -> Callable[..., Toolkit]:
    """A CPU toolkit, or with ``root`` a CUDA one."""

    def make(**changes: Any) -> Toolkit:
        cuda = changes.get("root")
        nvcc = changes.pop("nvcc", "13.0.88")
        part = Part(name="nvcc", version=nvcc, read_from="", path="", sha256="1" * 64)
        fields: dict[str, Any] = {
            "toolchain": "cuda-13.0" if cuda else "cpu",
            "label": "cu130" if cuda else "cpu",
            "kind": "cuda" if cuda else "cpu",
            "host": HostCompiler(
                c="/usr/bin/cc",
                cxx="/usr/bin/c++",
                identification="GNU 12.2.0",
                target="x86_64-linux-gnu",
                sha256="0" * 64,
            ),
            "parts": (part,) if cuda else (),
            "architectures": ("121a",) if cuda else (),
            "options": {"GGML_NATIVE": "OFF"},
        }
        return Toolkit(**{**fields, **changes})

    return make


@pytest.fixture
def tree() -> PatchedTree:
    return PatchedTree(
        source_digest="2" * 64,
        commit="0123456789abcdef0123456789abcdef01234567",
        tree="3" * 40,
        build=11434,
        patches=(),
        directory="/source",
    )


@pytest.fixture
def tools() -> Tools:
    return Tools(
        cmake=Path("/opt/cmake"),
        cmake_version="4.4.5",
        ninja=Path("/opt/ninja"),
        ninja_version="1.13.2",
    )
