"""What CMake would take by itself, asked of the real one: toolkit and compiler may be two."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.process import python_program
from sparkbuild.toolkit.choice.cmake_view import CMakeChoice, cmake_choice

from .conftest import Roots


@pytest.fixture
def two(roots: Roots, tmp_path: Path) -> tuple[Path, Path]:
    return roots.make(tmp_path / "a"), roots.make(tmp_path / "b", "13.2.86")


def own(env: dict[str, str]) -> CMakeChoice:
    """The choice of sparkbuild's own CMake, where ``PATH`` has no other."""
    (choice,) = cmake_choice(env)
    assert choice.program == str(python_program("cmake"))
    return choice


def test_variable_and_path_lead_to_two_toolkits(two: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = two
    wrapper = tmp_path / "bin/nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {second}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    choice = own({"PATH": str(wrapper.parent), "HOME": "/", "CUDAToolkit_ROOT": str(first)})
    assert (choice.toolkit, choice.toolkit_version) == (first, "13.0.88")
    assert (choice.compiler, choice.compiler_root) == (wrapper, second)
    assert not choice.agrees


def test_a_compiler_that_is_named_decides_both(two: tuple[Path, Path]) -> None:
    _, second = two
    choice = own({"PATH": "/nonexistent", "HOME": "/", "CUDACXX": f"{second}/bin/nvcc"})
    assert choice.compiler_root == second
    assert (choice.toolkit, choice.agrees) == (second, True)
