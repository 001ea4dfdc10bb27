"""Patches apply exactly where they were made for, or not at all."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - a fresh interpreter shows what is loaded
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkbuild.errors import PatchError

if TYPE_CHECKING:
    from source.conftest import Lab, Upstream

Patched = Callable[..., "Lab"]


def _diff(path: str, old: list[str], new: list[str], at: int = 1) -> bytes:
    """A patch of one hunk that replaces ``old`` lines (from line ``at``) by ``new``."""
    head = f"--- a/{path}\n+++ b/{path}\n@@ -{at},{len(old)} +{at},{len(new)} @@\n"
    common = 0
    while common < min(len(old), len(new)) and old[common] == new[common]:
        common += 1
    tail = 0
    while tail < min(len(old), len(new)) - common and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    lines = [f" {line}" for line in old[:common]]
    lines += [f"-{line}" for line in old[common : len(old) - tail]]
    lines += [f"+{line}" for line in new[common : len(new) - tail]]
    lines += [f" {line}" for line in old[len(old) - tail :]]
    return (head + "".join(f"{line}\n" for line in lines)).encode()


FIRST = ["int a(void) { return 1; }", "/* 0 */", "/* 1 */", "/* 2 */"]
FIX = _diff("src/a.c", FIRST, ["int a(void) { return 2; }", *FIRST[1:]])
FIX_AGAIN = _diff("src/a.c", ["int a(void) { return 2; }", *FIRST[1:]],
                  ["int a(void) { return 3; }", *FIRST[1:]])  # fmt: skip
NEW = b"--- /dev/null\n+++ b/src/new.c\n@@ -0,0 +1 @@\n+int n;\n"


@pytest.fixture
def patched(lab: Lab, upstream: Upstream, tiny: dict[str, bytes]) -> Patched:
    commit = upstream.commit(tiny)

    def write(changes: dict[str, str] | None = None, **patches: bytes) -> Lab:
        files = {f"{name}.patch": data for name, data in patches.items()}
        origin = {"kind": "git", "url": upstream.url, "commit": commit}
        lab.write(origin, patches=files, **(changes or {}))
        return lab

    return write


def test_no_patches_give_the_pin_itself(patched: Patched) -> None:
    lab = patched()
    source, made = lab.obtain(), lab.prepare()
    assert (made.commit, made.tree, made.patches) == (source.commit, source.tree, ())


def test_patches_apply_in_order_on_top_of_the_pin(patched: Patched, upstream: Upstream) -> None:
    lab = patched(one=FIX, two=FIX_AGAIN, three=NEW)
    source, made = lab.obtain(), lab.prepare()
    text = (Path(made.directory) / "src/a.c").read_text()
    assert text.startswith("int a(void) { return 3; }\n/* 0 */\n")
    assert (Path(made.directory) / "src/new.c").read_text() == "int n;\n"
    assert [patch.touched for patch in made.patches] == [
        ("src/a.c",), ("src/a.c",), ("src/new.c",)
    ]  # fmt: skip
    assert upstream.git("rev-parse", f"{made.commit}^", at=lab.store) == source.commit
    assert upstream.git("for-each-ref", "--contains", made.commit, at=lab.store)


def test_the_same_patches_give_the_same_commit_everywhere(patched: Patched, tmp_path: Path) -> None:
    """This id is what binaries print: it may not change between releases."""
    lab = patched(one=FIX)
    made = lab.prepare()
    assert made.commit == "3949222358edffafea6a9cab35182f558b7c0e10"
    lab.work = tmp_path / "another"
    assert lab.prepare().commit == made.commit


def test_another_order_is_another_commit(patched: Patched) -> None:
    one = patched(one=FIX, two=NEW).prepare()
    other = patched(two=NEW, one=FIX).prepare()
    assert one.tree == other.tree
    assert one.commit != other.commit


def test_what_is_patched_already_loads_no_git(patched: Patched) -> None:
    lab = patched(one=FIX)
    first = lab.prepare()
    done = subprocess.run(lab.driver(), capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["commit"] == first.commit
    assert answer["loaded"] == []


def test_patch_files_that_are_not_the_pinned_ones_are_all_named(patched: Patched) -> None:
    lab = patched({"one.patch": "0" * 64}, one=FIX, two=NEW)
    (lab.manifest.parent / "two.patch").unlink()
    with pytest.raises(PatchError, match="are not those that its manifest pins") as refusal:
        lab.prepare()
    one, two = refusal.value.problems
    assert one.startswith(f"one.patch: expected sha256 {'0' * 64}, found ")
    assert two == "two.patch: No such file or directory"


def test_a_patch_edited_after_it_was_applied_is_noticed(patched: Patched) -> None:
    lab = patched(one=FIX)
    lab.prepare()
    (lab.manifest.parent / "one.patch").write_bytes(FIX.replace(b"2; }", b"4; }"))
    with pytest.raises(PatchError):
        lab.prepare()


BINARY = b"""diff --git a/src/x.bin b/src/x.bin
new file mode 100644
index 0000000000000000000000000000000000000000..f76dd238ade08917e6712764a16a22005a50573d
GIT binary patch
literal 1
IcmZPo000310RR91

literal 0
HcmV?d00001

"""
LINK = b"""diff --git a/src/l b/src/l
new file mode 120000
--- /dev/null
+++ b/src/l
@@ -0,0 +1 @@
+../../outside
\\ No newline at end of file
"""
WIDE = [f"/* {n} */" for n in range(10, 17)]
REFUSED: list[tuple[str, bytes, str, str]] = [
    ("wrong context", FIX.replace(b"/* 1 */", b"/* x */"), "does not apply", "src/a.c"),
    ("no such file", FIX.replace(b"a.c", b"q.c"), "does not apply", "q.c"),
    ("cut off", FIX[:-10], "is not a patch", "corrupt"),
    ("empty", b"", "is not a patch", "No valid patches"),
    ("prose", b"please make it faster\n", "is not a patch", "No valid patches"),
    ("offset", _diff("src/a.c", WIDE, [*WIDE[:3], "int z;", *WIDE[4:]], at=5),
     "lands elsewhere", "offset"),
    ("binary", BINARY, "binary", "src/x.bin"),
    ("link", LINK, "touches what it may not", "mode 120000"),
    ("undeclared", NEW.replace(b"src/new.c", b"docs/new.c"), "touches what it may not",
     "docs/new.c: outside the declared paths"),
    ("climbing", NEW.replace(b"b/src/new.c", b"b/../../new.c"), "touches what it may not",
     "climbs out"),
    ("git folder", NEW.replace(b"src/new.c", b".git/config"), "touches what it may not",
     "inside .git"),
    ("existing", NEW.replace(b"src/new.c", b"src/a.c"), "does not apply", "already exists"),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "what", "reason"), [r[1:] for r in REFUSED],
                         ids=[r[0] for r in REFUSED])  # fmt: skip
def test_a_patch_that_is_not_exact_or_not_harmless_is_refused(
    patched: Patched, patch: bytes, what: str, reason: str
) -> None:
    lab = patched(good=NEW, bad=patch)
    with pytest.raises(PatchError, match=what) as refusal:
        lab.prepare()
    assert "bad.patch" in refusal.value.message
    assert reason in " ".join(refusal.value.problems)
    assert refusal.value.evidence == (lab.manifest.parent / "bad.patch",)
    assert not lab.sources.exists()


@pytest.mark.parametrize("patch", [FIX, NEW], ids=["change", "new file"])
def test_a_patch_that_is_in_the_source_already_is_refused(patched: Patched, patch: bytes) -> None:
    with pytest.raises(PatchError, match=r"again\.patch is in the source already"):
        patched(once=patch, again=patch).prepare()


def test_a_patch_may_delete_and_rename_and_make_executable(
    patched: Patched, upstream: Upstream
) -> None:
    rename = (
        b"diff --git a/src/id.c b/src/named.c\nsimilarity index 100%\n"
        b"rename from src/id.c\nrename to src/named.c\n"
        b"diff --git a/CMakeLists.txt b/CMakeLists.txt\nold mode 100644\nnew mode 100755\n"
    )
    made = patched(one=rename).prepare()
    assert made.patches[0].touched == ("CMakeLists.txt", "src/id.c", "src/named.c")
    root = Path(made.directory)
    assert (root / "CMakeLists.txt").stat().st_mode & 0o777 == 0o755
    assert not (root / "src/id.c").exists()
    assert (root / "src/named.c").exists()
