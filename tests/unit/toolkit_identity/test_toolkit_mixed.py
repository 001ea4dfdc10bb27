"""Parts of different releases under one root: every one is refused, with both versions."""

from itertools import combinations, permutations

import pytest

from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.book import Book, read_book
from sparkbuild.toolkit.identity.judge import judge
from sparkbuild.toolkit.identity.reading import Origin, Reading, index_of
from sparkbuild.toolkit.lock import Platform
from sparkbuild.toolkit.model import Part
from sparkbuild.toolkit.parts import SPECS, spec

from .conftest import (
    LOCKED,
    R129,
    R130,
    R1320,
    R1321,
    Release,
    World,
    bytes_of,
    make_root,
    part_files,
    swap,
    texts,
    without,
)

NAMES = [part.name for part in SPECS]


@pytest.mark.parametrize("release", LOCKED, ids=lambda release: release.name)
@pytest.mark.parametrize("platform", ["linux-x86_64", "linux-aarch64"])
def test_a_whole_root_is_good_whatever_machine_it_is_for(
    world: World, release: Release, platform: Platform
) -> None:
    identity = world.identity(world.root(release, platform))
    assert (identity.state, identity.problems, identity.notes) == ("good", (), ())
    assert (identity.toolchain, identity.platform) == (release.name, platform)
    assert [part.name for part in identity.parts] == NAMES
    assert {part.read_from for part in identity.parts} == {f"lock of {identity.toolchain}"}


@pytest.mark.parametrize(("ours", "theirs"), [(R130, R1320), (R1320, R1321)],
                         ids=lambda release: release.nvcc)  # fmt: skip
def test_each_part_of_another_release(world: World, ours: Release, theirs: Release) -> None:
    root, other = world.copy(ours), world.root(theirs)
    identical = set()
    for part in NAMES:
        before = bytes_of(root, part)
        with without(root, part):
            swap(root, part, other)
            identity = world.identity(root)
        found = identity.part(part)
        assert found is not None
        if before == bytes_of(other, part):
            # The same bytes in both releases: there is nothing to tell apart, and nothing wrong.
            identical.add(part)
            assert identity.state == "good"
            assert {ours.name, theirs.name} <= set(found.known)
            continue
        assert identity.state == "mixed", part
        assert ours.version(part) in texts(identity)
        assert theirs.version(part) in texts(identity)
    shared = {"libdevice", "crt headers", "cudart headers", "CCCL"}
    assert identical == {"nvcc.profile"} | (shared if ours.shared else set())
    assert world.identity(root).state == "good"


def _locked_readings(book: Book, name: str) -> dict[str, Reading]:
    index = index_of(book)
    return {
        part: Reading(
            part=Part(
                name=part,
                version=known.version,
                read_from="",
                path="",
                sha256=known.sha256,
                known=tuple(sorted({one.toolchain for one in index[part, known.sha256]})),
            ),
            origins=tuple(index[part, known.sha256]),
        )
        for part, known in book.locks[name].platform["linux-x86_64"].parts.items()
    }


def test_the_real_locks_tell_every_pair_of_releases_apart_where_bytes_differ() -> None:
    book = read_book(find_recipes(None))
    names = sorted(book.locks)
    assert len(names) >= 9
    readings = {name: _locked_readings(book, name) for name in names}
    identical = set()
    for ours, theirs in permutations(names, 2):
        for part in readings[ours].keys() & readings[theirs].keys():
            verdict = judge(
                list({**readings[ours], part: readings[theirs][part]}.values()),
                platform="linux-x86_64",
                toolchain=book.toolchains[ours],
                locked=book.locked(ours, "linux-x86_64"),
            )
            mine, other = readings[ours][part].part, readings[theirs][part].part
            if mine.sha256 == other.sha256:
                identical.add((part, *sorted((ours, theirs))))
                assert verdict.problems == ()
            else:
                text = "\n".join(problem.text for problem in verdict.problems)
                assert {problem.kind for problem in verdict.problems} == {"mixed"}
                assert part in text
                assert mine.version in text
                assert other.version in text
    # NVIDIA changed nothing in these between the patch releases of 13.2.
    assert ("libdevice", "cuda-13.2.0", "cuda-13.2.1") in identical
    assert ("cicc", "cuda-13.2.0", "cuda-13.2.1") not in identical


@pytest.mark.parametrize(
    ("ours", "theirs"), [("cuda-13.0", "cuda-13.2.0"), ("cuda-13.2.0", "cuda-13.2.1")]
)
def test_every_two_parts_of_another_release_are_both_named(ours: str, theirs: str) -> None:
    book = read_book(find_recipes(None))
    mine, other = _locked_readings(book, ours), _locked_readings(book, theirs)
    for pair in combinations([name for name in NAMES if name != "nvcc"], 2):
        verdict = judge(
            list({**mine, **{name: other[name] for name in pair}}.values()),
            platform="linux-x86_64",
            toolchain=book.toolchains[ours],
            locked=book.locked(ours, "linux-x86_64"),
        )
        differing = {name for name in pair if mine[name].part.sha256 != other[name].part.sha256}
        named = {problem.text.partition(" is of ")[0] for problem in verdict.problems}
        assert named == differing


def test_all_that_is_wrong_is_said_at_once(world: World) -> None:
    root = world.copy(R130)
    swap(root, "ptxas", world.root(R1320))
    swap(root, "libcudart", world.root(R1321))
    (root / "nvvm/libdevice/libdevice.10.bc").unlink()
    (root / "lib64").unlink()
    (root / "bin/fatbinary").write_bytes(b"")
    identity = world.identity(root)
    assert identity.state == "mixed"
    assert {problem.kind for problem in identity.problems} == {"mixed", "missing", "damaged"}
    for word in ("ptxas is of cuda-13.2.0 (13.2.51)", "libcudart is of cuda-13.2.1 (13.2.75)",
                 "libdevice is missing", "lib64 is missing", "fatbinary is empty"):  # fmt: skip
        assert word in texts(identity)


def test_nvcc_alone_of_another_release_names_that_release(world: World) -> None:
    root = world.copy(R130)
    swap(root, "nvcc", world.root(R1320))
    identity = world.identity(root)
    assert (identity.state, identity.toolchain) == ("mixed", "cuda-13.2.0")
    assert (
        "cudart headers is of cuda-13.0 (13.0.96), bytes known from its lock, expected 13.2.51 of "
        "cuda-13.2.0" in texts(identity)
    )


def test_runtime_of_a_release_without_a_lock(world: World) -> None:
    root = world.copy(R130)
    other = make_root(world.tmp / "old", R129)
    swap(root, "cudart headers", other)
    assert "cudart headers is 12.9 (CUDART_VERSION), expected 13.0.96 of cuda-13.0" in texts(
        world.identity(root)
    )


def test_bytes_that_no_lock_knows_with_the_right_version_are_a_note(world: World) -> None:
    root = world.copy(R130)
    with (root / "bin/ptxas").open("ab") as file:
        file.write(b"patched by a package manager")
    (root / "include/crt/host_config.h").write_text("/* patched */\n")
    identity = world.identity(root)
    assert identity.state == "good"
    ptxas, crt = "ptxas 13.0.88 (embedded in bin/ptxas)", "crt headers unstated (digest only)"
    assert identity.notes == (f"not recognised by any lock: {ptxas}, {crt}",)


def test_in_a_provisioned_root_every_byte_must_be_the_locks(world: World) -> None:
    root = world.copy(R130)
    (root / "sparkbuild-toolkit.json").write_text(
        '{"schema": 1, "toolchain": "cuda-13.0", "platform": "linux-x86_64", "files": {}}'
    )
    assert world.identity(root).state == "good"
    for part in NAMES:
        with without(root, part):
            swap(root, part, world.root(R130))
            with part_files(root, part)[0].open("ab") as file:
                file.write(b"\n")
            identity = world.identity(root)
        assert identity.state == "incomplete"
        (problem,) = identity.problems
        assert problem.kind == "damaged"
        assert spec(part).files[0].partition("*")[0].rpartition("/")[2] in problem.text
    assert world.identity(root).state == "good"


def test_a_damaged_manifest_of_a_provisioned_root_is_no_licence(world: World) -> None:
    root = world.copy(R130)
    (root / "sparkbuild-toolkit.json").write_text('{"toolchain": "cuda-13')
    assert "is damaged" in texts(world.identity(root))


def test_parts_for_another_machine(world: World) -> None:
    root, other = world.copy(R130), world.root(R130, "linux-aarch64")
    for part in NAMES[1:]:
        same = bytes_of(root, part) == bytes_of(other, part)
        with without(root, part):
            swap(root, part, other)
            identity = world.identity(root)
        if same:
            assert identity.state == "good"
            continue
        assert identity.state == "mixed"
        assert f"{part} {R130.version(part)}" in texts(identity)
        assert "is for aarch64" in texts(identity)
        assert "for x86_64" in texts(identity)


def test_headers_that_are_another_platforms_though_of_the_same_release(world: World) -> None:
    locked = world.book.locks["cuda-13.0"]
    digest = "a" * 64
    origin = Origin(toolchain="cuda-13.0", platform="linux-aarch64", version="13.0.88")
    part = Part(name="crt headers", version="13.0.88", read_from="the lock", path="", sha256=digest,
                known=("cuda-13.0",))  # fmt: skip
    verdict = judge(
        [Reading(part=part, origins=(origin,))],
        platform="linux-x86_64",
        toolchain=world.book.toolchains["cuda-13.0"],
        locked=locked.platform["linux-x86_64"],
    )
    assert [problem.kind for problem in verdict.problems] == ["mixed"]
    assert "that of linux-aarch64" in verdict.problems[0].text


def test_a_provisioned_root_that_became_another_release(world: World) -> None:
    root = world.copy(R1321)
    (root / "sparkbuild-toolkit.json").write_text('{"toolchain": "cuda-13.0"}')
    identity = world.identity(root)
    assert (identity.state, identity.toolchain) == ("incomplete", "cuda-13.2.1")
    assert "was made from the lock of cuda-13.0, its nvcc is not of it" in texts(identity)
