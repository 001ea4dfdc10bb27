"""A wheel of the toy, and the same wheel again: the whole way that a real one goes."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkbuild.errors import PackageError
from sparkbuild.manifest import find_recipes
from sparkbuild.package.provenance import enclose
from sparkbuild.source.digest import tree_digest
from sparkbuild.wheel_rebuild import Rebuilt, rebuild_and_compare
from sparkbuild.wheel_rebuild_commands import rebuild_command
from sparkbuild.wheel_remake import Order, remake
from sparkbuild.workspace import Workspace

from .conftest import TOY

PATHS = ("CMakeLists.txt", "LICENSE", "engine", "gpu", "server")
CHEAT = "\nconst char * base_when(void) { return __TIMESTAMP__; }\n"
"""The time of the file: the second build writes its sources anew."""


class Quiet:
    """An observer that looks away."""

    def started(self, stage: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finished(self, report: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Shop:
    """Recipes for the toy, a work folder, and a first wheel."""

    recipes: Path
    work: Path
    wheel: Path

    def again(self) -> Rebuilt:
        return rebuild_and_compare(self.wheel, recipes=find_recipes(self.recipes),
                                   workspace=Workspace(self.work), observer=Quiet())  # fmt: skip


def write_recipes(place: Path, source: Path) -> None:
    folder = place / "patchsets" / "toy"
    folder.mkdir(parents=True, exist_ok=True)
    (place / "toolchains").mkdir(exist_ok=True)
    shutil.copyfile(find_recipes(None).root / "toolchains" / "cpu.toml",
                    place / "toolchains" / "cpu.toml")  # fmt: skip
    lines = ["schema = 1", 'name = "toy"', 'summary = "s"', "[source]", "build = 11434",
             f"paths = {json.dumps(PATHS)}", f'digest = "{tree_digest(source, PATHS)}"',
             "[[source.origins]]", 'kind = "path"', f"path = {json.dumps(str(source))}",
             "[build]", 'targets = ["llama-server", "llama-quantize"]',
             "[smoke]", 'suite = "basic"']  # fmt: skip
    (folder / "patchset.toml").write_text("\n".join(lines) + "\n")


def shop(place: Path, cheat: str = "") -> Shop:
    source = place / "pinned"
    shutil.copytree(TOY, source)
    (source / "LICENSE").write_text("MIT\n")
    with (source / "engine" / "base.c").open("a") as file:
        file.write(cheat)
    write_recipes(place / "recipes", source)
    first = place / "first"
    first.mkdir()
    made = remake(
        Order(
            variant="toy", toolkit="cpu", architectures=(), accept=(),
            recipes=str(place / "recipes"), work=str(place / "work"), place=str(first), jobs=1,
            original="", carried=(),
        )
    )  # fmt: skip
    wheel = Path(made.wheel)
    folder = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    statements = {f"{folder}/provenance.json": b"{}", f"{folder}/sboms/sparkbuild.cdx.json": b"[]"}
    enclose(wheel, lambda _digests: statements)
    return Shop(recipes=place / "recipes", work=place / "work", wheel=wheel)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return shop(tmp_path_factory.mktemp("honest"))


def test_the_same_bytes_come_out(honest: Shop) -> None:
    found = honest.again()
    assert [f"{d.member} {d.place}: {d.what}" for d in found.comparison.differences] == []
    assert found.comparison.identical
    assert [name.partition(".dist-info/")[2] for name in sorted(found.carried)] == [
        "provenance.json", "sboms/sparkbuild.cdx.json",
    ]  # fmt: skip
    assert found.wheel != honest.wheel
    assert found.wheel.read_bytes() == honest.wheel.read_bytes()
    assert found.wheel.is_relative_to(honest.work / "rebuilds")


def test_a_source_that_tells_its_own_time_is_found_out_and_named(tmp_path: Path) -> None:
    found = shop(tmp_path, CHEAT).again()
    assert not found.comparison.identical
    places = {(d.member.rpartition("/")[2], d.kind, d.place) for d in found.comparison.differences}
    assert ("libggml-base.so.0", "section", ".rodata.str1.1") in places or (
        "libggml-base.so.0", "section", ".rodata") in places  # fmt: skip
    assert not {d.member for d in found.comparison.differences if d.kind == "symbol"} & {
        "sparkbuild_llama_cpp/bin/llama-server"
    }


def test_a_build_that_fails_here_is_told_as_such(
    honest: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The recipes still pin the same source, and its place is gone."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(PackageError, match="cannot be built again here: no C and C"):
        honest.again()


def test_the_command_says_it(honest: Shop) -> None:
    done = CliRunner().invoke(
        rebuild_command,
        [str(honest.wheel), "--recipes", str(honest.recipes), "--work", str(honest.work), "--json"],
    )
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["identical"], len(said["carried"])) == (True, 2)
    assert said["different"]["TZ"] == "Pacific/Chatham"
    assert said["different"]["umask"] == "0077"
