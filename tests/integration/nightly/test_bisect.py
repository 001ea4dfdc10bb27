"""``sparkbuild bisect`` on git repositories with a fault at a known commit, built for real."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess  # noqa: TID251 - the product from outside
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.bisect_make import judged
from sparkbuild.history.store import History

from .conftest import git

ROOT = Path(__file__).parents[3]
TOY = ROOT / "tests" / "data" / "build" / "toy"
DATA = ROOT / "tests" / "data"
MANIFEST = """schema = 1
name = "toy"
summary = "s"
[source]
paths = ["CMakeLists.txt", "engine", "server"]
[[source.origins]]
kind = "git"
url = "{url}"
commit = "{commit}"
{patches}
[build]
targets = ["llama-server", "llama-quantize"]
[smoke]
suite = "canary"
"""
ANSWERS = """#!{python}
import pathlib, subprocess, sys
server = next(pathlib.Path(sys.argv[1]).rglob("llama-server"))
code = subprocess.run([str(server)]).returncode
print("a line first")
print("the answer is", "right" if code == 0 else "wrong")
sys.exit(code)
"""
AWAY = "\n//" * 6
"""Lines that keep a patch's context from what the seeded fault changes."""

MESSAGE = "patch\n\nWhy: it has to.\nUpstream: does not.\nProof: a test.\nGone-when: merged.\n"
READS = """#!{python}
import pathlib, sys
text = pathlib.Path(sys.argv[1], "engine", "base.c").read_text()
with open({calls!r}, "a") as calls:
    calls.write("x")
if "UNSURE" in text:
    print("first"); print("cannot be told"); sys.exit(125)
sys.exit(0 if "return 42" in text else 1)
"""


@dataclass
class Bench:
    root: Path

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    def commit(self, message: str, **files: str) -> str:
        for name, text in files.items():
            (self.repo / name.replace("__", "/").replace("_c", ".c")).write_text(text)
        git(self.repo, "add", "--all")
        git(self.repo, "commit", "--quiet", "--allow-empty", "-m", message)
        return git(self.repo, "rev-parse", "HEAD")

    def recipes(self, commit: str, patches: str = "") -> Path:
        folder = self.root / "recipes" / "patchsets" / "toy"
        folder.mkdir(parents=True, exist_ok=True)
        if not (self.root / "recipes" / "toolchains").exists():
            shutil.copytree(ROOT / "toolchains", self.root / "recipes" / "toolchains")
        text = MANIFEST.format(url=self.repo, commit=commit, patches=patches)
        (folder / "patchset.toml").write_text(text)
        return self.root / "recipes"

    def script(self, text: str) -> Path:
        file = self.root / "check.py"
        file.write_text(text.format(python=sys.executable, calls=str(self.root / "calls")))
        file.chmod(0o755)
        return file

    def argv(self, good: str, bad: str, *words: str) -> list[str]:
        return [
            sys.executable, "-m", "sparkbuild", "bisect", "--variant", "toy", "--good", good,
            "--bad", bad, "--repo", str(self.repo), "--recipes", str(self.root / "recipes"),
            "--work", str(self.root / "work"), "--json", *words,
        ]  # fmt: skip

    def run(self, good: str, bad: str, *words: str) -> tuple[int, dict[str, Any], str]:
        done = subprocess.run(
            self.argv(good, bad, *words), capture_output=True, text=True, check=False
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    @property
    def calls(self) -> int:
        file = self.root / "calls"
        return len(file.read_text()) if file.exists() else 0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    shutil.copytree(TOY, made.repo)
    git(made.repo, "init", "--quiet", "--initial-branch=main")
    return made


def base_c(value: int, more: str = "") -> str:
    return (
        f'#include "base.h"\n{more}\nint base_answer(void) {{ return {value}; }}\n'
        "const char * base_file(void) { return __FILE__; }\n"
    )


def test_a_seeded_fault_is_found_by_building(bench: Bench) -> None:
    """Twelve commits; the eighth answers wrongly, and one right before it does not compile."""
    line = [bench.commit("start")]
    for number in range(1, 12):
        value, more = (42, "") if number < 8 else (41, "")
        if number == 3:
            more = "#error no build here"
        line.append(bench.commit(f"change {number}", engine__base_c=base_c(value, more)))
    bench.recipes(line[0])
    check = bench.script(ANSWERS)
    history = bench.root / "history"
    words = ("--command", str(check), "--history", str(history))
    code, found, screen = bench.run(line[0], line[-1], *words)
    assert code == 0, screen
    (run,) = History(history).runs(what="bisect")
    assert line[8][:12] in run.message
    assert len(run.evidence) == 2
    assert (found["result"], found["culprit"]) == ("found", line[8][:12])
    assert found["bad"]["title"] == "change 8"
    assert found["bad"]["check"] == "check.py"
    assert found["bad"]["reason"] == "the answer is wrong"
    assert found["good"]["point"] == line[7][:12]
    assert len(found["asked"]) < len(line)
    assert all(Path(one["log"]).is_file() for one in found["asked"])
    assert "is the first bad one" in screen


def test_what_cannot_be_tested_leaves_a_range(bench: Bench) -> None:
    line = [bench.commit("start")]
    for number in range(1, 10):
        more = "// UNSURE" if 4 <= number <= 6 else f"// {number}"
        text = base_c(42 if number < 6 else 41, more)
        line.append(bench.commit(f"change {number}", engine__base_c=text))
    bench.recipes(line[0])
    code, found, screen = bench.run(line[0], line[-1], "--source-command", str(bench.script(READS)))
    assert code == 0, screen
    assert (found["result"], found["culprit"]) == ("range", "")
    assert found["suspects"] == [name[:12] for name in line[4:8]]
    skipped = [one for one in found["asked"] if one["verdict"] == "skip"]
    assert {one["reason"] for one in skipped} == {"cannot be told"}


def test_a_search_that_is_killed_goes_on_and_asks_nothing_twice(bench: Bench) -> None:
    line = [bench.commit("start")]
    for number in range(1, 40):
        text = base_c(42 if number < 23 else 41, f"// {number}")
        line.append(bench.commit(f"change {number}", engine__base_c=text))
    bench.recipes(line[0])
    check = str(bench.script(READS))
    argv = bench.argv(line[0], line[-1], "--source-command", check)
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while bench.calls < 4:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = bench.calls
    code, found, _ = bench.run(line[0], line[-1], "--source-command", check)
    assert (code, found["culprit"]) == (0, line[23][:12])
    assert bench.calls - before <= len(found["asked"]) - (before - 1)
    total = bench.calls
    assert bench.run(line[0], line[-1], "--source-command", check)[0] == 0
    assert bench.calls == total
    assert bench.run(line[0], line[-1], "--source-command", check, "--fresh")[0] == 0
    assert bench.calls > total


def test_patches_are_tested_where_they_hold_and_skipped_where_not(bench: Bench) -> None:
    """The variant's patch mends what the seeded fault breaks, and conflicts with one commit."""
    first = bench.commit("start", engine__base_c=base_c(42, "// one\n// two\n// three" + AWAY))
    text = base_c(42, "// one\n// two, patched\n// three" + AWAY)
    (bench.repo / "engine" / "base.c").write_text(text)
    git(bench.repo, "commit", "--quiet", "-a", "-m", MESSAGE)
    patch = git(bench.repo, "format-patch", "--stdout", "-1") + "\n"
    git(bench.repo, "reset", "--quiet", "--hard", first)
    patches = f"""[[patches]]
file = "0001-a.patch"
sha256 = "{hashlib.sha256(patch.encode()).hexdigest()}"
reason = "r"
"""
    recipes = bench.recipes(first, patches)
    (recipes / "patchsets" / "toy" / "0001-a.patch").write_text(patch)
    line = [first]
    for number in range(1, 8):
        middle = "// something else" if number == 4 else "// two"
        more = f"// one\n{middle}\n// three{AWAY}"
        other = f"// {number}\n"
        (bench.repo / "engine" / "module.c").write_text(other)
        value = 42 if number < 6 else 41
        line.append(bench.commit(f"change {number}", engine__base_c=base_c(value, more)))
    check = bench.script(
        READS.replace('"return 42" in text', '"return 42" in text and "patched" in text')
    )
    code, found, screen = bench.run(line[0], line[-1], "--source-command", str(check))
    assert code == 0, screen
    assert found["culprit"] == line[6][:12]
    skipped = [one for one in found["asked"] if one["verdict"] == "skip"]
    assert [one["point"] for one in skipped] in ([], [line[4][:12]])
    for one in skipped:
        assert "0001-a.patch" in one["reason"]


def test_ends_that_are_not_so_are_refused(bench: Bench) -> None:
    line = [bench.commit("start")]
    line += [bench.commit(f"c {n}", engine__base_c=base_c(42, f"// {n}")) for n in range(3)]
    bench.recipes(line[0])
    check = str(bench.script(READS))
    code, said, _ = bench.run(line[0], line[-1], "--source-command", check)
    assert code == 26
    assert "was said to be bad" in said["failure"]["message"]
    code, said, _ = bench.run(line[-1], line[0], "--source-command", check)
    assert code == 2
    code, said, _ = bench.run("nothing", line[0], "--source-command", check)
    assert code == 6


def test_a_check_that_gives_no_verdict_ends_the_search(bench: Bench) -> None:
    line = [bench.commit("start"), bench.commit("end")]
    bench.recipes(line[0])
    check = bench.script("#!{python}\nimport os\nos.kill(os.getpid(), 9)\n# {calls}\n")
    code, said, _ = bench.run(line[0], line[-1], "--source-command", str(check))
    assert code == 16
    assert "SIGKILL" in said["failure"]["message"]


def test_a_stage_of_make_is_asked_as_a_person_would(bench: Bench) -> None:
    """The product's own commands at each commit: patches carried, then make, up to its build."""
    line = [bench.commit("start")]
    for number in range(1, 4):
        more = "#error broken" if number >= 2 else f"// {number}"
        line.append(bench.commit(f"change {number}", engine__base_c=base_c(42, more)))
    bench.recipes(line[0])
    code, found, screen = bench.run(line[0], line[-1], "--check", "build")
    assert code == 0, screen
    assert found["culprit"] == line[2][:12]
    good, bad = (json.loads(Path(found[end]["report"]).read_text()) for end in ("good", "bad"))
    states = {one["name"]: one["state"] for one in bad["stages"]}
    assert states["build"] == "failed"
    assert {one["name"]: one["state"] for one in good["stages"]}["build"] == "done"


def test_a_report_says_what_it_says_of_a_check() -> None:
    failed = json.loads((DATA / "runs" / "vision-cuda-13.0-121a-on-sm90.json").read_text())
    passed = json.loads((DATA / "nightly" / "make-vision-cpu.json").read_text())
    assert judged(failed, "smoke").verdict == "bad"
    assert judged(failed, "build").verdict == "good"
    assert judged(failed, "package").verdict == "skip"
    assert judged(passed, "package").verdict == "good"
    bad = next(one for one in failed["smoke_checks"] if not one["passed"])
    assert judged(failed, bad["name"]).verdict == "bad"
    assert judged(passed, passed["smoke_checks"][0]["name"]).verdict == "good"
    assert judged(passed, "no such check").verdict == "skip"
