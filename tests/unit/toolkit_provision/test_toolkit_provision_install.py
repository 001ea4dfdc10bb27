"""Roots made from wheels that are here: whole, reused, mended, replaced, refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.errors import (
    BusyError,
    DiskFullError,
    SourceUnavailableError,
    ToolkitMismatchError,
    UnknownNameError,
    UsageError,
)
from sparkbuild.files import exclusive
from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.lock import LockedPart
from sparkbuild.toolkit.provision import tree
from sparkbuild.toolkit.provision.fetch import check_space
from sparkbuild.toolkit.provision.provision import Provisioned, install

from .conftest import Release, make_release

pytestmark = pytest.mark.skipif(
    current_platform() != "linux-x86_64", reason="the small release is for x86-64"
)


def made(release: Release, root: Path, seen: list[str] | None = None) -> Provisioned:
    return install(
        release.book, release.name, "linux-x86_64", root=root, downloads=release.downloads,
        progress=lambda _done, _total, text: (seen if seen is not None else []).append(text),
    )  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tree.default_root(tmp_path / "toolkits", "cuda-13.0", "linux-x86_64")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def state(root: Path) -> dict[str, bytes | str]:
    return {
        path.relative_to(root).as_posix(): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in root.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }


def test_a_root_has_every_part_its_links_a_stub_and_its_licences(
    release: Release, root: Path
) -> None:
    done = made(release, root)
    assert (done.root, done.reused, done.downloaded, done.notes) == (str(root), False, 0, ())
    assert done.licence == "LicenseRef-NVIDIA-Proprietary"
    links = {path: text for path, text in state(root).items() if isinstance(text, str)}
    assert links == {
        "lib64": "lib", "lib/libcudart.so": "libcudart.so.13", "lib/libnvvm.so": "libnvvm.so.4",
        "lib/libcublas.so": "libcublas.so.13", "lib/libcublasLt.so": "libcublasLt.so.13",
    }  # fmt: skip
    assert (root / "lib64/stubs/libcuda.so").is_file()
    assert len(list((root / "licenses").iterdir())) == 6
    assert names(root.parent) == {"linux-x86_64", "linux-x86_64.lock", "linux-x86_64.seal"}
    known = tree.read_manifest(root)
    assert known is not None
    assert (known.toolchain, known.platform) == ("cuda-13.0", "linux-x86_64")
    assert known.wheels == release.locked.wheels
    assert len(known.files) == done.files
    assert list(tree.differences(root, known)) == []
    assert tree.provisioned_roots(root.parents[1]) == (root,)


def test_a_whole_root_is_reused_without_its_wheels(release: Release, root: Path) -> None:
    made(release, root)
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    shutil.rmtree(release.downloads)
    again = made(release, root)
    assert (again.reused, again.downloaded) == (True, 0)
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before


def test_a_copied_root_is_read_once_and_believed(
    release: Release, root: Path, tmp_path: Path
) -> None:
    made(release, root)
    other = tmp_path / "copy"
    shutil.copytree(root, other, symlinks=True)
    seen: list[str] = []
    assert made(release, other, seen).reused
    assert seen == [f"checking {other}"]
    seen.clear()
    assert made(release, other, seen).reused
    assert seen == []


def change(root: Path) -> None:
    place = root / "include/cuda_runtime_api.h"
    times = place.stat()
    data = place.read_bytes()
    place.write_bytes(data.replace(b"13000", b"12090"))
    os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))


def relink(root: Path) -> None:
    (root / "lib/libcudart.so").unlink()
    (root / "lib/libcudart.so").symlink_to("libcublas.so.13")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "include/cuda_runtime_api.h was changed": change,
    "lib/libcublas.so.13 is gone": lambda root: (root / "lib/libcublas.so.13").unlink(),
    "bin/ptxas was changed": lambda root: (root / "bin/ptxas").chmod(0o644),
    "include/x.h was added": lambda root: (root / "include/x.h").touch(),
    "lib64 is gone": lambda root: (root / "lib64").unlink(),
    "lib/libcudart.so is no longer a link to libcudart.so.13": relink,
}


def test_a_root_that_was_touched_is_made_anew_and_says_so(release: Release, root: Path) -> None:
    made(release, root)
    good = state(root)
    for what, damage in DAMAGE.items():
        damage(root)
        again = made(release, root)
        assert not again.reused
        assert again.notes == (f"the root was made anew: {what}",)
        assert state(root) == good
    assert made(release, root).reused


def test_another_lock_replaces_the_root_only_when_it_is_complete(
    release: Release, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")  # nobody is there
    made(release, root)
    good = state(root)
    newer = make_release(release.downloads, changes={"bin/nvcc": b"newer"})
    wheel = next(w for w in newer.locked.wheels if w.project == "nvidia-cuda-nvcc")
    broken = newer.downloads / wheel.sha256 / wheel.file
    data = broken.read_bytes()
    broken.unlink()
    with pytest.raises(SourceUnavailableError) as error:
        made(newer, root)
    assert "run the same command again" in error.value.next_step
    assert state(root) == good
    assert made(release, root).reused
    broken.write_bytes(data)
    assert not made(newer, root).reused
    assert (root / "bin/nvcc").read_bytes() == b"newer"
    assert names(root.parent) == {"linux-x86_64", "linux-x86_64.lock", "linux-x86_64.seal"}


def test_a_part_that_is_not_the_lock_s_is_refused(release: Release, root: Path) -> None:
    wrong = LockedPart(version="13.0.88", sha256="1" * 64)
    release.locked.parts["ptxas"] = wrong
    release.locked.parts["nvlink"] = wrong
    with pytest.raises(ToolkitMismatchError, match="not what its lock says") as error:
        made(release, root)
    assert [text.partition(":")[0] for text in error.value.problems] == [
        "nvlink 13.0.88", "ptxas 13.0.88",
    ]  # fmt: skip
    assert names(root.parent) == {"linux-x86_64.lock"}


def test_a_release_that_wheels_do_not_make_is_refused_before_anything(tmp_path: Path) -> None:
    book = read_book(find_recipes(None))
    with pytest.raises(ToolkitMismatchError, match="cannot be made from wheels") as error:
        install(book, "cuda-12.9", "linux-x86_64", root=tmp_path / "a" / "root",
                downloads=tmp_path / "downloads", progress=lambda *_: None)  # fmt: skip
    assert "no wheel of this release brings cicc" in error.value.problems
    assert "sparkbuild toolkit show" in error.value.next_step
    assert list(tmp_path.iterdir()) == []


def test_no_lock_or_no_such_toolchain_is_refused(release: Release, root: Path) -> None:
    places: dict[str, Any] = {"root": root, "downloads": release.downloads}
    with pytest.raises(ToolkitMismatchError, match="no lock for linux-aarch64") as error:
        install(release.book, "cuda-13.0", "linux-aarch64", progress=lambda *_: None, **places)
    assert error.value.next_step == "make one: `sparkbuild toolkit lock cuda-13.0`"
    with pytest.raises(UnknownNameError, match=r"cuda-13\.9"):
        install(release.book, "cuda-13.9", "linux-x86_64", progress=lambda *_: None, **places)


def test_a_folder_of_somebody_else_is_left_alone(release: Release, root: Path) -> None:
    root.mkdir(parents=True)
    (root / "mine").write_text("x")
    with pytest.raises(UsageError, match="sparkbuild did not make it"):
        made(release, root)
    assert names(root) == {"mine"}


def test_what_a_killed_run_left_is_cleared_and_never_believed(release: Release, root: Path) -> None:
    made(release, root)
    good = state(root)
    root.rename(tree.beside(root, "old"))  # killed between the two renames
    shutil.copytree(tree.beside(root, "old"), tree.beside(root, "part"), symlinks=True)
    assert made(release, root).reused
    assert state(root) == good
    assert names(root.parent) == {"linux-x86_64", "linux-x86_64.lock", "linux-x86_64.seal"}


def test_a_root_without_a_manifest_is_no_provisioned_one(release: Release, root: Path) -> None:
    made(release, root)
    (root / tree.MANIFEST).write_text("{}")
    assert tree.read_manifest(root) is None
    with pytest.raises(UsageError):
        made(release, root)


def test_two_at_once_are_refused(release: Release, root: Path) -> None:
    with (
        exclusive(tree.beside(root, "lock"), what="x"),
        pytest.raises(BusyError, match="is being made by another sparkbuild"),
    ):
        made(release, root)
    assert made(release, root).reused is False


def test_too_little_space_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(DiskFullError, match="too little space") as error:
        check_space(tmp_path / "not" / "yet", 1 << 60)
    assert "1152921504607 MB needed" in error.value.problems[0]
    check_space(tmp_path / "not" / "yet", 1)


def test_without_a_compiler_there_is_no_stub_and_a_note_until_there_is_one(
    release: Release, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        first = made(release, root)
        assert "without the driver stub lib/stubs/libcuda.so" in first.notes[0]
        again = made(release, root)
        assert again.reused
        assert again.notes == first.notes
    assert made(release, root).notes == ()
    assert (root / tree.STUB).is_file()


def test_links_are_made_for_libraries_alone() -> None:
    wanted = tree.links_wanted(
        ["lib/libcudart.so.13", "lib/libnvvm.so", "lib/libnvvm.so.4", "lib/libx.so.1.2.3",
         "lib/cmake/liby.so.1", "bin/libz.so.1", "lib/libcudart_static.a"]
    )  # fmt: skip
    assert wanted == {"lib64": "lib", "lib/libcudart.so": "libcudart.so.13"}


def test_compilers_alone_are_a_root_without_cublas(release: Release, root: Path) -> None:
    whole = made(release, root)
    alone = install(
        release.book, release.name, "linux-x86_64", root=root.with_name("alone"),
        downloads=release.downloads, progress=lambda *_: None, compilers=True,
    )  # fmt: skip
    kept, left_out = set(state(root.with_name("alone"))), set(state(root))
    gone = {name for name in left_out - kept if "licenses" not in name}
    assert gone
    assert all("cublas" in name.lower() for name in gone), gone
    assert kept <= left_out
    assert (root.with_name("alone") / "nvvm/bin/cicc").is_file()
    assert alone.files < whole.files
    known = tree.read_manifest(root.with_name("alone"))
    assert known
    assert len(known.wheels) == len(release.locked.wheels) - 1
