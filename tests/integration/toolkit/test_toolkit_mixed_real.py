"""Real parts of real releases mixed under one root, part by part: every root is refused.

The other release is 13.2.0 (nvcc 13.2.51): what differs from 13.0 must show, with both versions,
and what NVIDIA left byte for byte as it was must not. Of its cuBLAS only the headers and libcublas
are fetched, as ranges of the wheel: libcublasLt alone is 355 MB.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess  # noqa: TID251 - makes a stand-in for nvcc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.files import DigestCache, files_below, sha256_file
from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.net.index import find_file
from sparkbuild.toolkit.book import Book, read_book
from sparkbuild.toolkit.identity.facts import facts_of
from sparkbuild.toolkit.identity.identify import identity_of, nvcc_version
from sparkbuild.toolkit.lock import PLATFORMS, LockedWheel, Platform
from sparkbuild.toolkit.model import Identity
from sparkbuild.toolkit.parts import SPECS, canonical, matching, part_digest, spec
from sparkbuild.toolkit.provision import tree
from sparkbuild.toolkit.provision.fetch import fetch_wheels
from sparkbuild.toolkit.provision.remote_wheel import RangesIgnoredError, RemoteFile, new_client
from sparkbuild.toolkit.provision.unpack import unpack
from sparkbuild.toolkit.provision.wheel import read_wheel
from sparkbuild.workspace import Workspace

pytestmark = pytest.mark.network

OURS, THEIRS, NEXT = "cuda-13.0", "cuda-13.2.0", "cuda-13.2.1"
HERE = cast("Platform", current_platform())
ELSEWHERE = next(platform for platform in PLATFORMS if platform != HERE)
NAMES = [part.name for part in SPECS]
NOT_FETCHED = "libcublasLt"
PARTS = {"cublas headers": "nvidia/cu13/include/", "libcublas": "nvidia/cu13/lib/libcublas.so"}
"""Members of the cuBLAS wheel that are fetched alone."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """A whole 13.0 root to spoil and mend, parts of other releases, one cache of digests."""

    root: Path
    other: Path
    folder: Path
    book: Book
    downloads: Path
    digests: DigestCache

    def identity(self, root: Path | None = None) -> Identity:
        return identity_of(root or self.root, self.book, self.digests)

    def version(self, release: str, part: str) -> str:
        return self.book.locks[release].platform[HERE].parts[part].version

    def wheels(self, release: str, projects: Sequence[str], platform: Platform) -> list[Path]:
        """Wheels of a release, fetched as ``toolkit install`` does it."""
        locked = self.book.locks[release].platform[platform].wheels
        wanted: list[LockedWheel] = [
            wheel for wheel in locked if wheel.project.removesuffix("-cu12")[7:] in projects
        ]
        assert len(wanted) == len(projects)
        return list(fetch_wheels(wanted, self.downloads, lambda *_: None).files)

    def tree(self, release: str, *projects: str, platform: Platform = HERE) -> Path:
        """Some of a release's wheels unpacked."""
        place = self.folder / "-".join((release, platform, *projects))
        if not place.exists():
            unpack(self.wheels(release, projects, platform), place)
        return place


@pytest.fixture(scope="module")
def room(
    cuda_root: Path, real_work: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("mixed")
    book = read_book(find_recipes(None))
    found = Room(
        root=folder / "cuda-13.0",
        other=folder / f"{THEIRS}-{HERE}-cuda-nvcc-nvvm-cuda-crt-cuda-runtime-cuda-cccl",
        folder=folder,
        book=book,
        downloads=Workspace(real_work).downloads,
        digests=DigestCache(folder / "digests.json"),
    )
    shutil.copytree(cuda_root, found.root, symlinks=True, ignore=_most_of_cccl)
    found.tree(THEIRS, "cuda-nvcc", "nvvm", "cuda-crt", "cuda-runtime", "cuda-cccl")
    yield found
    shutil.rmtree(folder)


def _most_of_cccl(folder: str, names: list[str]) -> set[str]:
    """CCCL's 1,900 headers but for those that are read."""
    read = {name for path in spec("CCCL").files for name in path.split("/")}
    return set(names) - read if "/include/cccl" in folder else set()


@pytest.fixture(scope="module")
def cublas(room: Room) -> None:
    """Headers and libcublas of the other release, put beside its other parts."""
    wheel = next(
        one for one in room.book.locks[THEIRS].platform[HERE].wheels if "cublas" in one.project
    )
    try:
        url = find_file(wheel.project, wheel.file, sha256=wheel.sha256)
        with new_client() as client, RemoteFile(url, client) as remote:
            _, archive = read_wheel(io.BufferedReader(remote, 8 << 20), wheel.file)
            for member in archive.namelist():
                if not member.startswith(tuple(PARTS.values())):
                    continue
                target = room.other / member.removeprefix("nvidia/cu13/")
                with archive.open(member) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
    except RangesIgnoredError:
        pytest.skip("the index sends whole files only: 403 MB for one library are too many")
    except OriginUnavailableError as error:
        pytest.fail(str(error))


def part_files(root: Path, part: str) -> list[Path]:
    """A part's files below ``root``, links apart."""
    folders = {Path(pattern).parts[0] for pattern in spec(part).files}
    files = {
        canonical(path.relative_to(root).as_posix()): path
        for folder in folders
        for path in files_below(root / folder)
        if not path.is_symlink()
    }
    return [files[name] for name in matching(spec(part), files)]


def digest(root: Path, part: str) -> str:
    return part_digest(
        {
            canonical(path.relative_to(root).as_posix()): sha256_file(path)
            for path in part_files(root, part)
        }
    )


@contextlib.contextmanager
def without(root: Path, part: str) -> Iterator[list[Path]]:
    """A root whose part is away for a while; gives where its files were."""
    aside = root.parent / "aside"
    aside.mkdir()
    places = part_files(root, part)
    assert places
    for number, path in enumerate(places):
        path.rename(aside / str(number))
    yield places
    for path in part_files(root, part):
        path.unlink()
    for number, path in enumerate(places):
        (aside / str(number)).rename(path)
    aside.rmdir()


def put(root: Path, part: str, source: Path) -> None:
    """A part's files from another root."""
    for path in part_files(source, part):
        target = root / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def texts(identity: Identity) -> str:
    return "\n".join(problem.text for problem in identity.problems)


def test_a_provisioned_root_is_good_and_every_part_is_the_locks(room: Room) -> None:
    identity = room.identity()
    assert (identity.state, identity.problems) == ("good", ())
    assert (identity.toolchain, identity.platform) == (OURS, HERE)
    assert [part.name for part in identity.parts] == NAMES
    for part in identity.parts:
        assert OURS in part.known
        assert part.version == room.version(OURS, part.name)
    assert nvcc_version(room.root) == "13.0.88"


def test_a_byte_changed_in_a_provisioned_root(room: Room) -> None:
    with without(room.root, "libdevice") as (place,):
        data = bytearray((room.root.parent / "aside/0").read_bytes())
        data[-100] ^= 1
        place.write_bytes(data)
        identity = room.identity()
    assert identity.state == "incomplete"
    assert f"{place} is not what was installed" in texts(identity)
    # The same in a root of somebody else's: nobody can say, which is said.
    (room.root / tree.MANIFEST).unlink()
    with without(room.root, "libdevice") as (place,):
        place.write_bytes(data)
        identity = room.identity()
    assert identity.state == "good"
    assert "not recognised by any lock: libdevice unstated (digest only)" in identity.notes


@pytest.mark.usefixtures("cublas")
@pytest.mark.parametrize("part", [name for name in NAMES if name != NOT_FETCHED])
def test_each_real_part_of_another_release(room: Room, part: str) -> None:
    same = digest(room.root, part) == digest(room.other, part)
    with without(room.root, part):
        missing = room.identity()
        put(room.root, part, room.other)
        identity = room.identity()
    assert missing.state == "incomplete"
    assert f"{part} is missing" in texts(missing)
    found = identity.part(part)
    assert found is not None
    assert same == (part == "nvcc.profile")
    if same:
        # Byte for byte the same file in both releases: nothing is mixed, and both are named.
        assert identity.state == "good"
        assert {OURS, THEIRS} <= set(found.known)
        return
    ours, theirs = room.version(OURS, part), room.version(THEIRS, part)
    assert identity.state == "mixed"
    if part == "nvcc":
        assert identity.toolchain == THEIRS
        assert (
            "cudart headers is of cuda-13.0 (13.0.96), bytes known from its lock, expected 13.2.51"
            in texts(identity)
        )
        assert len(identity.problems) == len(NAMES) - 2  # all but nvcc and its profile
        return
    (problem,) = identity.problems
    assert problem.text.startswith(f"{part} is of {THEIRS} ({theirs})")
    assert problem.text.endswith(f"expected {ours} of {OURS}")
    assert found.version == theirs


def test_libcublas_lt_by_its_file_name(room: Room) -> None:
    """Not the other release's bytes, which are 355 MB: ours under its name, one byte changed."""
    plain = room.root / "lib/libcublasLt.so.13"
    named = plain.with_name("libcublasLt.so.13.3.0.5")
    plain.rename(named)
    plain.symlink_to(named.name)
    identity = room.identity()
    assert identity.state == "mixed"
    assert "libcublasLt states 13.3.0.5 (file name libcublasLt.so.13.3.0.5)" in texts(identity)
    assert "its bytes are of cuda-13.0 (13.1.0.3)" in texts(identity)
    with named.open("r+b") as file:
        file.seek(100_000_000)
        byte = file.read(1)
        file.seek(100_000_000)
        file.write(bytes([byte[0] ^ 1]))
    identity = room.identity()
    assert identity.state == "mixed"
    assert (
        "libcublasLt is 13.3.0.5 (file name libcublasLt.so.13.3.0.5), expected 13.1.0.3 of "
        "cuda-13.0" in texts(identity)
    )
    with named.open("r+b") as file:
        file.seek(100_000_000)
        file.write(byte)
    plain.unlink()
    named.rename(plain)
    assert room.identity().state == "good"


@pytest.mark.parametrize("part", ["crt headers", "cudart headers", "libcudart",
                                  "libcudart_static", "CCCL"])  # fmt: skip
def test_two_patch_releases(room: Room, part: str) -> None:
    """13.2.0 and 13.2.1, where NVIDIA shipped much unchanged under new numbers."""
    newer = room.tree(NEXT, "cuda-crt", "cuda-runtime", "cuda-cccl")
    root = room.other
    if not (root / "lib64").exists():
        (root / "lib64").symlink_to("lib")
        for library in ("libcudart", "libcublas"):
            (root / f"lib/{library}.so").symlink_to(f"{library}.so.13")
    before = room.identity(root)
    assert (before.toolchain, before.state) == (THEIRS, "incomplete")  # libcublasLt is not here
    same = digest(root, part) == digest(newer, part)
    with without(root, part):
        put(root, part, newer)
        identity = room.identity(root)
    if same:
        found = identity.part(part)
        assert found is not None
        assert {THEIRS, NEXT} <= set(found.known)
        assert identity.problems == before.problems
        return
    assert identity.state == "mixed"
    assert room.version(THEIRS, part) in texts(identity)
    assert f"{part} is of {NEXT} ({room.version(NEXT, part)})" in texts(identity)


@pytest.mark.parametrize("part", ["cudart headers", "libcudart", "libcudart_static"])
def test_nvcc_13_0_with_the_runtime_of_12_9(room: Room, part: str) -> None:
    old = room.tree("cuda-12.9", "cuda-runtime")
    with without(room.root, part):
        put(room.root, part, old)
        identity = room.identity()
    assert identity.state == "mixed"
    assert f"{part} is of cuda-12.9 (12.9.79)" in texts(identity)
    assert "expected 13.0.96 of cuda-13.0" in texts(identity)


@pytest.mark.parametrize("part", ["cudart headers", "libcudart", "libcudart_static"])
def test_parts_of_the_same_release_for_another_machine(room: Room, part: str) -> None:
    foreign = room.tree(OURS, "cuda-runtime", platform=ELSEWHERE)
    same = digest(room.root, part) == digest(foreign, part)
    with without(room.root, part):
        put(room.root, part, foreign)
        identity = room.identity()
    assert same == (part == "cudart headers")
    if same:
        assert identity.state == "good"
        return
    assert identity.state == "mixed"
    machine = ELSEWHERE.removeprefix("linux-")
    assert f"{part} 13.0.96" in texts(identity)
    assert f"is for {machine}" in texts(identity)


@pytest.mark.parametrize(
    ("part", "keep"),
    [("libcublasLt", 100_000_000), ("libcudart", -1), ("libcudart", 4096), ("cicc", -64),
     ("cicc", 40_000_000), ("libdevice", -4), ("libcudart_static", -2), ("ptxas", 0)],
)  # fmt: skip
def test_a_cut_file(room: Room, part: str, keep: int) -> None:
    with without(room.root, part) as (place,):
        with (room.root.parent / "aside/0").open("rb") as whole:
            size = whole.seek(0, io.SEEK_END)
            whole.seek(0)
            place.write_bytes(whole.read(keep if keep >= 0 else size + keep))
        place.chmod(0o755)
        identity = room.identity()
    assert identity.state == "incomplete"
    (problem,) = identity.problems
    assert problem.kind == "damaged"
    assert ("is cut off" if keep else "is empty") in problem.text
    assert Path(problem.text.split()[0]).resolve() == place


@given(st.data())
@settings(max_examples=60)
def test_real_files_cut_anywhere_by_their_structure_alone(room: Room, data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(["libcudart", "libcudart_static", "libdevice"]))
    whole = part_files(room.root, part)[0].read_bytes()
    size = data.draw(st.integers(0, len(whole) - 1))
    facts = facts_of(lambda at, length: whole[at : min(at + length, size)], size)
    assert facts.damage or facts.form in {"text", "other"}
    assert facts_of(lambda at, length: whole[at : at + length], len(whole)).damage == ""


@pytest.mark.parametrize("place", ["include", "lib64", "nvvm"])
def test_a_folder_that_is_another_toolkits(room: Room, place: str) -> None:
    target = "lib" if place == "lib64" else place
    own = room.root / place
    own.rename(room.root.parent / "aside")
    own.symlink_to(room.other / target)
    identity = room.identity()
    own.unlink()
    (room.root.parent / "aside").rename(own)
    assert identity.state == "mixed"
    assert f"{own} leads out of this toolkit (nvcc 13.0.88) to {room.other / target}" in texts(
        identity
    )
    assert f"into {room.other} (nvcc 13.2.51)" in texts(identity)


def test_a_script_that_prints_nvccs_version(room: Room) -> None:
    says = "Cuda compilation tools, release 13.0, V13.0.88"
    with without(room.root, "nvcc") as (place,):
        place.write_text(f"#!/bin/sh\necho '{says}'\necho 'Build cuda_13.0.r13.0/compiler.1_0'\n")
        place.chmod(0o755)
        printed = subprocess.run([place, "--version"], capture_output=True, text=True, check=True)
        identity = room.identity()
        version = nvcc_version(room.root)
    assert says in printed.stdout
    assert version is None
    assert (identity.state, identity.toolchain) == ("incomplete", None)
    assert "bin/nvcc is a script, no program: what it prints proves nothing" in texts(identity)


@pytest.mark.parametrize("build", ["", "Build cuda_13.0.r13.0/compiler.1_0\\n"])
def test_a_program_that_prints_nvccs_version(room: Room, build: str) -> None:
    says = "Cuda compilation tools, release 13.0, V13.0.88"
    source = room.folder / "nvcc.c"
    source.write_text(f'#include <stdio.h>\nint main(void) {{ puts("{says}\\n{build}"); }}\n')
    with without(room.root, "nvcc") as (place,):
        subprocess.run(["cc", "-o", place, source], check=True)
        printed = subprocess.run([place, "--version"], capture_output=True, text=True, check=True)
        identity = room.identity()
    assert says in printed.stdout
    assert identity.state == "mixed"
    assert "nvcc 13.0.88 (embedded in bin/nvcc) names" in texts(identity)
    assert "cicc 13.0.88" in texts(identity)


def test_after_all_this_the_root_is_as_it_was(room: Room) -> None:
    assert room.identity().state == "good"
    locked = room.book.locks[OURS].platform[HERE].parts
    assert {name: digest(room.root, name) for name in NAMES} == {
        name: part.sha256 for name, part in locked.items()
    }
