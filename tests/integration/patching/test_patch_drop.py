"""Is a patch still needed: its proof is run on real builds with it and without it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkbuild.errors import ManifestError
from sparkbuild.manifest import PatchEntry, find_recipes
from sparkbuild.patch_build import cpu_job, kept_build
from sparkbuild.patch_proof import check_proofs, prover
from sparkbuild.patch_work import dependents, drop_check
from sparkbuild.report.patches import DropChecked, Dropped

if TYPE_CHECKING:
    from patching.conftest import Kit

CMAKE = """cmake_minimum_required(VERSION 3.18)
project(tiny C CXX)
add_executable(tiny src/main.c src/a.c src/b.c src/c.c)
"""
MAIN = """#include <stdio.h>
int a(void);
int b(void);
int c(void);
int main(void) {
    printf("a=%d b=%d c=%d\\n", a(), b(), c());
    return 0;
}
"""


def part(name: str, value: str = "1") -> str:
    return f"int {name}(void) {{\n    return {value};\n}}\n"


FILES = {"CMakeLists.txt": CMAKE, "src/main.c": MAIN, "src/a.c": part("a"), "src/b.c": part("b"),
         "src/c.c": part("c")}  # fmt: skip
TOOLCHAIN = 'schema = 1\nname = "cpu"\nsummary = "s"\nlabel = "cpu"\n'


@pytest.fixture
def tiny(kit: Kit) -> Kit:
    kit.paths = ("CMakeLists.txt", "src")
    (kit.recipes / "toolchains" / "cpu.toml").write_text(TOOLCHAIN)
    kit.pin(FILES)
    return kit


def proof(kit: Kit, name: str, wanted: str) -> str:
    """A program that passes where the build prints ``wanted``."""
    file = kit.folder / name
    file.write_text(f'#!/bin/sh\n"$1/tiny"\n"$1/tiny" | grep -q "{wanted}"\n')
    file.chmod(0o755)
    return f'proof = ["{name}"]'


def dropped(kit: Kit, base: str = "pin") -> dict[str, Dropped]:
    return {patch.file: patch for patch in whole(kit, base).patches}


def whole(kit: Kit, base: str = "pin") -> DropChecked:
    job = cpu_job(kit.patchset, kit.manifest, find_recipes(kit.recipes), kit.work, kit.live,
                  jobs=2, cache=None)  # fmt: skip
    root = kit.work.patches("tiny")
    kept = kept_build(job, root)
    prove = prover(kit.manifest, root / "proofs")
    return drop_check(kit.desk, base, kept.build, prove, root / "logs")[0]


def test_every_answer_on_one_variant(tiny: Kit) -> None:
    tiny.commit("needed", {"src/a.c": part("a", "2")}, extra=proof(tiny, "pa", "a=2"))
    tiny.commit("useless", {"src/b.c": part("b", "1 + 0")}, extra=proof(tiny, "pb", "b=1"))
    tiny.commit("failing", {"src/c.c": part("c", "3")}, extra=proof(tiny, "pc", "c=9"))
    tiny.commit("unproved", {"src/d.h": "\n"})
    found = dropped(tiny)
    assert {name: one.answer for name, one in found.items()} == {
        "needed.patch": "needed",
        "useless.patch": "not needed",
        "failing.patch": "proof fails with it too",
        "unproved.patch": "no proof given",
    }
    needed = found["needed.patch"]
    assert [one.passed for one in (*needed.with_it, *needed.without_it)] == [True, False]
    assert "a=1" in Path(needed.without_it[0].log).read_text()
    assert "a=2" in Path(needed.with_it[0].log).read_text()


def test_only_what_differs_is_compiled_again(tiny: Kit) -> None:
    tiny.commit("one", {"src/a.c": part("a", "2")}, extra=proof(tiny, "pa", "a=2"))
    dropped(tiny)
    log = (tiny.work.patches("tiny") / "logs" / "without_one.patch-build.log").read_text()
    assert "a.c.o" in log
    assert "b.c.o" not in log
    assert "main.c.o" not in log


def test_what_needs_a_patch_is_left_out_with_it(tiny: Kit) -> None:
    tiny.commit("one", {"src/a.c": part("a", "2")}, extra=proof(tiny, "pa", "a="))
    tiny.commit("two", {"src/a.c": part("a", "3")},
                extra=proof(tiny, "pb", "a=3") + '\nneeds = ["one.patch"]')  # fmt: skip
    found = dropped(tiny)
    assert found["one.patch"].answer == "not needed"
    assert found["two.patch"].answer == "needed"


def test_undeclared_needs_make_the_answer_impossible(tiny: Kit) -> None:
    tiny.commit("one", {"src/a.c": part("a", "2")}, extra=proof(tiny, "pa", "b=1"))
    tiny.commit("two", {"src/a.c": part("a", "3")})
    one = dropped(tiny)["one.patch"]
    assert one.answer == "cannot tell"
    assert "without it these do not apply: two.patch; say so in their `needs`" in one.reason


def test_without_it_the_rest_may_not_compile(tiny: Kit) -> None:
    tiny.commit("one", {"src/x.h": "#define TWO 2\n"}, extra=proof(tiny, "pa", "a=2"))
    tiny.commit("two", {"src/a.c": '#include "x.h"\n' + part("a", "TWO")})
    one = dropped(tiny)["one.patch"]
    assert one.answer == "cannot tell"
    assert "does not compile" in one.reason


def test_a_base_that_has_the_change_or_does_not_take_it(tiny: Kit) -> None:
    tiny.commit("one", {"src/a.c": part("a", "2")}, extra=proof(tiny, "pa", "a=2"))
    took = tiny.base("took", {**FILES, "src/a.c": part("a", "2")})
    found = dropped(tiny, took)["one.patch"]
    assert (found.state, found.answer) == ("already upstream", "not needed")
    other = tiny.base("other", {**FILES, "src/a.c": part("a", "7")})
    found = dropped(tiny, other)["one.patch"]
    assert (found.state, found.answer) == ("conflicts", "needed")
    assert "patch refresh" in found.reason


def test_a_build_of_a_changed_list_of_sources(tiny: Kit) -> None:
    """CMake runs again where a file that it read changes; nothing of another build stays."""
    cmake = CMAKE.replace("src/c.c)", "src/c.c src/d.c)")
    files = {"CMakeLists.txt": cmake, "src/d.c": "int d(void) {\n    return 5;\n}\n",
             "src/a.c": "int d(void);\n" + part("a", "d()")}  # fmt: skip
    tiny.commit("one", files, extra=proof(tiny, "pa", "a=5"))
    assert dropped(tiny)["one.patch"].answer == "needed"
    assert not (tiny.work.patches("tiny") / "source" / "src" / "d.c").exists()


def test_a_test_of_the_checkout_is_a_proof_unless_it_is_skipped(tiny: Kit) -> None:
    tests = tiny.recipes / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text(
        "import os, subprocess, pytest\n"
        "def out():\n"
        "    tiny = os.environ['SPARKBUILD_TEST_BUILD'] + '/tiny'\n"
        "    return subprocess.run([tiny], capture_output=True, text=True).stdout\n"
        "def test_two():\n    assert 'a=2' in out()\n"
        "def test_skipped():\n    pytest.skip('no GPU')\n"
    )
    one = 'proof = ["tests/test_it.py::test_two"]'
    tiny.commit("one", {"src/a.c": part("a", "2")}, extra=one)
    assert dropped(tiny)["one.patch"].answer == "needed"
    tiny.extra["one.patch"] = 'proof = ["tests/test_it.py::test_skipped"]'
    tiny.write()
    found = dropped(tiny)["one.patch"]
    assert found.answer == "proof fails with it too"
    assert "0 ran, 1 skipped" in found.reason


def test_a_python_program_gets_the_build_its_sources_and_a_folder(tiny: Kit) -> None:
    """Run by our own Python, so it needs no permission to be executed, and leaves no file there."""
    file = tiny.folder / "proofs" / "two.py"
    file.parent.mkdir()
    (file.parent / "beside.py").write_text("WANTED = 'a=2'\n")
    file.write_text(
        "import subprocess, sys\n"
        "from pathlib import Path\n"
        "from beside import WANTED\n"
        "import sparkbuild.patch_bench\n"
        "build, source, scratch = map(Path, sys.argv[1:])\n"
        "with (scratch / 'seen').open('a') as seen:\n"
        "    seen.write((source / 'src/a.c').read_text().split()[-2])\n"
        "told = subprocess.run([build / 'tiny'], capture_output=True, text=True).stdout\n"
        "sys.exit(WANTED not in told)\n"
    )
    tiny.commit("one", {"src/a.c": part("a", "2")}, extra='proof = ["proofs/two.py"]')
    assert dropped(tiny)["one.patch"].answer == "needed"
    assert (tiny.work.patches("tiny") / "proofs" / "seen").read_text() == "2;1;"
    assert sorted(path.name for path in file.parent.iterdir()) == ["beside.py", "two.py"]


def test_proofs_that_cannot_be_run_are_named_before_anything_is_built(tiny: Kit) -> None:
    (tiny.folder / "plain").write_text("no program\n")
    with pytest.raises(ManifestError) as refusal:
        check_proofs(tiny.manifest, ("missing", "plain", "tests/none.py::test"))
    assert len(refusal.value.problems) == 3


def test_dependents_are_followed() -> None:
    def entry(name: str, *needs: str) -> PatchEntry:
        return PatchEntry(file=name, sha256="0" * 64, reason="", needs=needs)

    patches = [entry("a"), entry("b", "a"), entry("c"), entry("d", "c", "b")]
    assert dependents(patches, "a") == {"a", "b", "d"}
    assert dependents(patches, "c") == {"c", "d"}


def test_the_commands_answer_for_people_and_programs(
    tiny: Kit, run_sparkbuild: Callable[..., Any]
) -> None:
    tiny.commit("one", {"src/a.c": part("a", "2")}, extra=proof(tiny, "pa", "a=2"))
    places = ("--recipes", str(tiny.recipes), "--work", str(tiny.work.root))
    done = run_sparkbuild("patch", "check", "--variant", "tiny", "--build", "--json", *places)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["compiled"]["passed"]
    assert os.access(Path(answer["compiled"]["directory"]) / "tiny", os.X_OK)
    done = run_sparkbuild("patch", "drop-check", "--variant", "tiny", "--json", *places)
    assert (done.returncode, json.loads(done.stdout)["patches"][0]["answer"]) == (0, "needed")
    done = run_sparkbuild("patch", "drop-check", "--variant", "tiny", *places, COLUMNS="200")
    assert "needed" in done.stdout
    done = run_sparkbuild(
        "patch", "table", "--variant", "tiny", "--base", "pin", "--prove", *places
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["applies", "needed"]
    bad = tiny.base("bad", {**FILES, "src/b.c": "int b(void) { return x; }\n"})
    done = run_sparkbuild("patch", "check", "--variant", "tiny", "--base", bad, "--build", "--json",
                          *places)  # fmt: skip
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["exit_code"], answer["compiled"]["passed"]) == (8, 8, False)
    assert answer["patches"][0]["state"] == "applies"
    out = str(tiny.root / "merge")
    done = run_sparkbuild("patch", "refresh", "--variant", "tiny", "--out", out, "--json", *places)
    assert (done.returncode, json.loads(done.stdout)["result"]) == (0, "ready"), done.stderr
    done = run_sparkbuild("patch", "refresh", "--continue", out, "--json", *places[2:])
    assert (done.returncode, json.loads(done.stdout)["result"]) == (0, "written"), done.stderr
    assert run_sparkbuild("patch", "refresh", "--json").returncode == 2
