"""Identity against the tree, and the plan of an install tree."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sparkbuild.build.inspect import identity_problems
from sparkbuild.build.install_tree import BIN, plan_tree, write_tree
from sparkbuild.build.model import Artifact
from sparkbuild.errors import BinaryError
from sparkbuild.source.model import PatchedTree

RIGHT = "version: 0.6.0-dev (build 11434, commit 0123456789ab)"


@pytest.mark.parametrize("line", [RIGHT, "version: 11434 (0123456789ab)"])
def test_the_right_identity(line: str, tree: PatchedTree) -> None:
    assert identity_problems(line, tree) == []


@pytest.mark.parametrize(
    ("line", "problems"),
    [
        (
            "version: 0.6.0-dev (build 0, commit unknown)",
            [
                "build number: expected 11434, found 0",
                "commit: expected 0123456789ab, found unknown",
            ],
        ),
        (
            "version: 11434 (0123456)",  # an abbreviation is not the identity
            ["commit: expected 0123456789ab, found 0123456"],
        ),
        ("", ["llama-server --version: expected its build and commit, found nothing"]),
        (
            "status 127: no libx",
            ["llama-server --version: expected its build and commit, found status 127: no libx"],
        ),
    ],
)
def test_a_wrong_identity(line: str, problems: list[str], tree: PatchedTree) -> None:
    assert identity_problems(line, tree) == problems


def test_an_unknown_build_number_is_not_compared_and_the_commit_is(tree: PatchedTree) -> None:
    fork = msgspec.structs.replace(tree, build=None)
    assert identity_problems("version: 0.6.0 (build 0, commit 0123456789ab)", fork) == []
    assert len(identity_problems("version: 0.6.0 (build 0, commit unknown)", fork)) == 1


def program(name: str) -> Artifact:
    return Artifact(target=Path(name).name, kind="EXECUTABLE", path=name)


def test_two_files_for_one_name_are_refused(tmp_path: Path) -> None:
    for folder, content in (("a", "one"), ("b", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text(content)
    with pytest.raises(BinaryError) as refusal:
        plan_tree([program("a/tool"), program("b/tool"), program("c/gone")], tmp_path)
    first, second = refusal.value.problems
    assert first.startswith("tool: both ")
    assert second == "gone: c/gone was not made"


def test_the_same_bytes_twice_are_one_file(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text("one")
    assert len(plan_tree([program("a/tool"), program("b/tool")], tmp_path)) == 1


def test_the_tree_appears_whole_and_replaces_what_a_killed_run_left(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("new")
    install = tmp_path / "install"
    (install / BIN).mkdir(parents=True)
    (install / BIN / "stale").touch()
    (tmp_path / ".install.killed").mkdir()
    write_tree(plan_tree([program("tool")], tmp_path), install)
    assert [path.name for path in (install / BIN).iterdir()] == ["tool"]
    assert (install / BIN / "tool").stat().st_mode & 0o777 == 0o755
    assert not list(tmp_path.glob(".install.*"))


def test_links_become_files(tmp_path: Path) -> None:
    (tmp_path / "tool-1.0").write_text("x")
    (tmp_path / "tool").symlink_to("tool-1.0")
    write_tree(plan_tree([program("tool")], tmp_path), tmp_path / "install")
    made = tmp_path / "install" / BIN / "tool"
    assert made.is_file()
    assert not made.is_symlink()


def test_a_copy_that_fails_leaves_the_old_tree(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("x")
    entries = plan_tree([program("tool")], tmp_path)
    write_tree(entries, tmp_path / "install")
    (tmp_path / "tool").unlink()
    with pytest.raises(FileNotFoundError):
        write_tree(entries, tmp_path / "install")
    assert (tmp_path / "install" / BIN / "tool").read_text() == "x"
    assert not list(tmp_path.glob(".install.*"))
