"""The built environment, and the ``git`` that knows one tree only."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild import process
from sparkbuild.build.surroundings import (
    build_environment,
    fresh_directory,
    git_script,
    install_git,
)

IDENTITY = "0123456789ab"


def ask(git: Path, *arguments: str) -> tuple[int, str]:
    env = build_environment(git.parent, ["/usr/bin/cc"])
    answer = process.capture(["git", *arguments], env=env, cwd=Path(__file__).parent)
    return answer.returncode, answer.stdout.strip()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("--version", (0, "git version 2.39.0")),
        ("rev-parse --short HEAD", (0, IDENTITY)),
        ("rev-list --count HEAD", (0, "11434")),
        ("diff-index --quiet HEAD -- .", (0, "")),
        ("log -1 --format=%ad --date=local", (0, "Tue Jan 1 00:00:00 1980")),
        ("log -1 --format=%s", (1, "")),
        ("describe --match=NeVeRmAtCh --always --abbrev=8", (1, "")),
        ("clone https://github.com/ggml-org/llama.cpp", (1, "")),
        ("", (1, "")),
    ],
)
def test_the_build_s_git_knows_this_tree_and_nothing_else(
    question: str, answer: tuple[int, str], tmp_path: Path
) -> None:
    """Asked inside a real repository: sparkbuild's own, where the tests run from a checkout."""
    git = install_git(tmp_path, IDENTITY, 11434)
    assert ask(git, *question.split()) == answer


def test_an_unknown_build_number_reads_zero(tmp_path: Path) -> None:
    assert ask(install_git(tmp_path, IDENTITY, None), "rev-list", "--count", "HEAD") == (0, "0")


@pytest.mark.parametrize("identity", ["", "$(id)", "abc; rm x", "ABCDEF0", "0123456789ab\n"])
def test_only_a_commit_gets_into_the_script(identity: str) -> None:
    with pytest.raises(ValueError, match="not a commit"):
        git_script(identity, 1)


def test_the_user_s_shell_does_not_reach_the_compilers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hostile = {
        "CC": "clang", "CFLAGS": "-O0", "CMAKE_GENERATOR": "Xcode", "CMAKE_PREFIX_PATH": "/opt",
        "CPATH": "/opt/include", "CUDACXX": "/opt/nvcc", "CUDA_PATH": "/opt/cuda",
        "CXXFLAGS": "-O0", "GIT_DIR": "/opt/git", "LDFLAGS": "-s", "LD_LIBRARY_PATH": "/opt/lib",
        "LIBRARY_PATH": "/opt/lib", "NINJAFLAGS": "-n", "NVCC_APPEND_FLAGS": "-G",
    }  # fmt: skip
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"/opt/conda/bin:{tmp_path}")
    env = build_environment(tmp_path, ["/opt/gcc/bin/gcc", "/usr/bin/c++"])
    assert not set(env) & set(hostile)
    search = env["PATH"].split(":")
    assert search[:3] == [str(tmp_path), "/opt/gcc/bin", "/usr/bin"]
    assert "/opt/conda/bin" not in search
    assert env["HOME"] == str(tmp_path)


def test_an_interrupted_configure_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    directory, marker = tmp_path / "b", tmp_path / "b" / ".sparkbuild"
    fresh_directory(directory, marker)
    (directory / "CMakeFiles").mkdir()
    (directory / "CMakeFiles" / "x").touch()
    (directory / "CMakeCache.txt").touch()
    (directory / "link").symlink_to(tmp_path)
    fresh_directory(directory, marker)
    assert list(directory.iterdir()) == [marker]
    assert tmp_path.is_dir()
