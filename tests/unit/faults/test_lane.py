"""A lane is put back to what it was, however a fault ended; ninja then has nothing to do."""

from __future__ import annotations

import os
import shutil
import subprocess  # noqa: TID251 - tests run tools from outside
import sys
from pathlib import Path

import pytest

from sparkbuild.faults.contract import NotPlantedError, Place
from sparkbuild.faults.lane import Lane, build, find_lane, patch, put_back
from sparkbuild.faults.model import SourceSeed
from sparkbuild.faults.seeds import source

NINJA = Path(sys.executable).parent / "ninja"
RULES = """\
rule copy
  command = cp $in $out
  description = COPY $out
build bin/llama-server: copy {source}/server.txt
build bin/libllama.so: copy {source}/llama.txt
build all: phony bin/llama-server bin/libllama.so
"""
PATCH = """\
--- a/llama.txt
+++ b/llama.txt
@@ -1,4 +1,4 @@
 one
 two
-three
+four
 five
"""


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    """A toy tree, built."""
    root, tree = tmp_path / "lane-1", tmp_path / "lane-1" / "sources" / "tree"
    binary = root / "builds" / "vision-cpu-1" / "cmake"
    tree.mkdir(parents=True)
    (tree / "server.txt").write_text("server\n")
    (tree / "llama.txt").write_text("one\ntwo\nthree\nfive\n")
    for file in tree.iterdir():
        os.utime(file, (946_684_800, 946_684_800))
    (binary / "bin").mkdir(parents=True)
    (binary / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={tree}\n")
    (binary / "build.ninja").write_text(RULES.format(source=tree))
    made(binary)
    found = find_lane(root)
    assert found
    put_back(found)
    return found


def made(binary: Path) -> str:
    """What ninja has to do; it is done."""
    done = subprocess.run(
        [NINJA, "-C", binary, "all"], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def write(tmp_path: Path, text: str = PATCH) -> Path:
    file = tmp_path / "one.patch"
    file.write_text(text)
    return file


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_what_a_patch_changes_is_built_and_put_back(lane: Lane, tmp_path: Path) -> None:
    before = contents(lane.binary), contents(lane.source)
    patch(lane, write(tmp_path), tmp_path / "log")
    assert build(lane, ["all"], jobs=1, log=tmp_path / "log") == ("libllama.so",)
    assert (lane.bin / "libllama.so").read_text() == "one\ntwo\nfour\nfive\n"
    assert put_back(lane) > 0
    assert (contents(lane.binary), contents(lane.source)) == before
    assert put_back(lane) == 0
    assert "no work to do" in made(lane.binary)


def test_a_kill_in_the_middle_leaves_nothing(lane: Lane, tmp_path: Path) -> None:
    before = contents(lane.binary), contents(lane.source)
    patch(lane, write(tmp_path), tmp_path / "log")
    (lane.binary / "bin" / "libllama.so").unlink()
    (lane.binary / "bin" / "half.o").write_text("half an object")
    (lane.source / "llama.txt.rej").write_text("a reject")
    found = find_lane(lane.root)  # a new run knows the folder alone
    assert found
    assert put_back(found) == 4
    assert (contents(lane.binary), contents(lane.source)) == before
    assert "no work to do" in made(lane.binary)


def test_copies_that_were_not_finished_are_made_anew(lane: Lane) -> None:
    part = lane.clean_binary.with_name("build.part")
    shutil.move(lane.clean_binary, part)
    (part / "build.ninja").unlink()
    put_back(lane)
    assert contents(lane.clean_binary) == contents(lane.binary)


def test_a_patch_that_does_not_fit_is_not_planted(lane: Lane, tmp_path: Path) -> None:
    with pytest.raises(NotPlantedError, match=r"one\.patch does not apply"):
        patch(lane, write(tmp_path, PATCH.replace("two", "deux")), tmp_path / "log")


def test_a_patch_that_lands_elsewhere_is_not_planted(lane: Lane, tmp_path: Path) -> None:
    text = (lane.source / "llama.txt").read_text()
    (lane.source / "llama.txt").write_text(f"a\nb\nc\nd\ne\nf\n{text}")
    (lane.source / "llama.txt").write_text(f"a\nb\nc\n{text}six\nseven\neight\n")
    moved = "@@ -2,6 +2,6 @@\n one\n two\n-three\n+four\n five\n six\n seven\n"
    text = PATCH.partition("@@")[0] + moved
    with pytest.raises(NotPlantedError, match="lands elsewhere"):
        patch(lane, write(tmp_path, text), tmp_path / "log")


def test_a_patch_that_changes_no_code_is_not_planted(lane: Lane, tmp_path: Path) -> None:
    (lane.source / "unused.txt").write_text("one\ntwo\nthree\nfive\n")
    patch(lane, write(tmp_path, PATCH.replace("llama.txt", "unused.txt")), tmp_path / "log")
    with pytest.raises(NotPlantedError, match="changes no code"):
        build(lane, ["all"], jobs=1, log=tmp_path / "log")


def test_what_does_not_compile_is_not_planted(lane: Lane, tmp_path: Path) -> None:
    (lane.source / "llama.txt").unlink()
    with pytest.raises(NotPlantedError, match=r"does not compile.*llama\.txt"):
        build(lane, ["all"], jobs=1, log=tmp_path / "log")


def place(lane: Lane, tmp_path: Path) -> Place:
    (tmp_path / "patches").mkdir(exist_ok=True)
    write(tmp_path).rename(tmp_path / "patches" / "one.patch")
    return Place(
        scratch=tmp_path / "scratch", catalogue=tmp_path, work=tmp_path / "work", lane=lane.root,
        log=tmp_path / "log",
    )  # fmt: skip


def test_the_planter_asks_the_lane_and_puts_it_back(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "targets_of", lambda variant: ("all",))
    before = contents(lane.binary)
    with source.plant_source(SourceSeed(patch="one.patch"), place(lane, tmp_path)) as planted:
        assert planted.stage == "smoke"
        assert planted.arguments[:2] == ("smoke", str(lane.bin))
        assert "four" in (lane.bin / "libllama.so").read_text()
    assert contents(lane.binary) == before
    with (
        pytest.raises(RuntimeError),
        source.plant_source(SourceSeed(patch="one.patch"), place(lane, tmp_path)),
    ):
        raise RuntimeError
    assert contents(lane.binary) == before


def test_a_lane_without_a_build_is_not_planted_in(lane: Lane, tmp_path: Path) -> None:
    shutil.rmtree(lane.binary)
    with (
        pytest.raises(NotPlantedError, match="holds no finished build"),
        source.plant_source(SourceSeed(patch="one.patch"), place(lane, tmp_path)),
    ):
        pass
