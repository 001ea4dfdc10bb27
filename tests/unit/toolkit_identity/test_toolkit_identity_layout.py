"""Where parts lie: every vendor's layout, links that leave the root, files that are not whole."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import ToolkitMismatchError
from sparkbuild.toolkit.book import Book, cuda
from sparkbuild.toolkit.identity.facts import facts_of
from sparkbuild.toolkit.parts import SPECS, spec

from .conftest import R130, R1320, World, elf, part_files, signature, swap, texts, without, write

NAMES = [part.name for part in SPECS]
PROGRAMS = [part.name for part in SPECS if part.kind == "program"]


def to_nvidia_layout(root: Path, target: str = "x86_64-linux") -> Path:
    """As NVIDIA's packages lie: real folders below targets, libraries under their full names."""
    (root / "lib64").unlink()
    place = root / "targets" / target
    place.mkdir(parents=True)
    (root / "lib").rename(place / "lib")
    (root / "include").rename(place / "include")
    (root / "lib64").symlink_to(f"targets/{target}/lib")
    (root / "include").symlink_to(f"targets/{target}/include")
    full = {"libcudart": R130.cudart, "libcublas": R130.cublas, "libcublasLt": R130.cublas}
    for name, version in full.items():
        (place / f"lib/{name}.so.13").rename(place / f"lib/{name}.so.{version}")
        (place / f"lib/{name}.so.13").symlink_to(f"{name}.so.{version}")
    return root


def to_conda_layout(root: Path) -> Path:
    """As conda packages lie: no lib64, no include; a lib of the prefix's own with links."""
    to_nvidia_layout(root)
    (root / "lib64").unlink()
    (root / "include").unlink()
    (root / "include").mkdir()
    write(root / "include/zlib.h", b"/* another package */\n")
    write(root / "lib/libz.so.1", b"another package")
    (root / "lib/libcudart.so.13").symlink_to("../targets/x86_64-linux/lib/libcudart.so.13")
    return root


@pytest.mark.parametrize("change", [to_nvidia_layout, to_conda_layout])
def test_each_vendors_layout_is_good(world: World, change: Callable[[Path], Path]) -> None:
    identity = world.identity(change(world.copy(R130)))
    assert (identity.state, identity.problems, identity.notes) == ("good", (), ())


def test_a_cross_toolkits_other_target_is_not_looked_at(world: World) -> None:
    root = to_nvidia_layout(world.copy(R130))
    other = to_nvidia_layout(world.copy(R1320, "linux-aarch64"), "sbsa-linux")
    (other / "targets/sbsa-linux").rename(root / "targets/sbsa-linux")
    assert world.identity(root).state == "good"


def test_two_ways_to_different_bytes(world: World) -> None:
    root = to_nvidia_layout(world.copy(R130))
    (root / "include").unlink()
    shutil.copytree(root / "targets/x86_64-linux/include", root / "include")
    assert world.identity(root).state == "good"
    (root / "include/cuda_runtime_api.h").write_text("#define CUDART_VERSION 13020\n")
    identity = world.identity(root)
    assert identity.state == "mixed"
    assert "CUDART_VERSION 13020" in texts(identity)
    assert "CUDART_VERSION 13000" in texts(identity)


def test_two_copies_of_a_library(world: World) -> None:
    root = world.copy(R130)
    shutil.copy2(root / "lib/libcublas.so.13", root / "lib/libcublas.so.13.1.0.3")
    assert world.identity(root).state == "good"
    shutil.copy2(world.root(R1320) / "lib/libcublas.so.13", root / "lib/libcublas.so.13.3.0.5")
    identity = world.identity(root)
    assert identity.state == "mixed"
    assert "libcublas.so.13.3.0.5 (13.3.0.5) differ" in texts(identity)


def test_the_linkers_name_leads_to_another_file_than_the_loaders(world: World) -> None:
    root = world.copy(R130)
    shutil.copy2(world.root(R1320) / "lib/libcudart.so.13", root / "lib/old.so")
    (root / "lib/libcudart.so").unlink()
    (root / "lib/libcudart.so").symlink_to("old.so")
    identity = world.identity(root)
    assert identity.state == "mixed"
    assert "libcudart.so differ" in texts(identity)


def test_plain_wheels_are_incomplete_and_the_remedy_is_named(world: World) -> None:
    root = world.copy(R130)
    (root / "lib64").unlink()
    for name in ("cudart", "cublas", "cublasLt"):
        (root / f"lib/lib{name}.so").unlink()
    identity = world.identity(root)
    assert identity.state == "incomplete"
    assert [problem.kind for problem in identity.problems] == ["missing"] * 4
    assert f"ln -s lib {root}/lib64" in texts(identity)
    assert f"ln -s libcublasLt.so.13 {root}/lib/libcublasLt.so" in texts(identity)
    for problem in identity.problems:
        command = problem.text.rpartition("to make it: ")[2].split()
        Path(command[3]).symlink_to(command[2])
    assert world.identity(root).state == "good"


def test_each_part_missing(world: World) -> None:
    root = world.copy(R130)
    for part in NAMES:
        with without(root, part):
            identity = world.identity(root)
        assert identity.state == "incomplete"
        assert identity.part(part) is None
        assert f"{part} is missing" in texts(identity)
        assert len(identity.parts) == len(NAMES) - 1
        assert identity.toolchain == (None if part == "nvcc" else "cuda-13.0")


def test_one_header_of_several_missing(world: World) -> None:
    root = world.copy(R130)
    (root / "include/cuda_bf16.hpp").unlink()
    identity = world.identity(root)
    assert identity.state == "incomplete"
    assert f"cudart headers is incomplete: {root}/include/cuda_bf16.hpp" in texts(identity)


def test_nothing_of_a_toolkit(world: World) -> None:
    for place in (world.tmp, world.tmp / "nowhere", Path("/dev/null")):
        with pytest.raises(ToolkitMismatchError) as caught:
            world.identity(place)
        assert "no CUDA toolkit" in caught.value.message


@pytest.mark.parametrize("place", ["bin", "include", "lib", "nvvm", "nvvm/libdevice"])
def test_a_folder_that_is_linked_into_another_toolkit(world: World, place: str) -> None:
    root, other = world.copy(R130), world.copy(R1320)
    shutil.rmtree(root / place)
    (root / place).symlink_to(other / place)
    identity = world.identity(root)
    assert identity.state == "mixed"
    text = next(one.text for one in identity.problems if "leads out" in one.text)
    assert f"into {other} (nvcc 13.2.51)" in text
    ours = "13.2.51" if place == "bin" else "13.0.88"
    assert f"(nvcc {ours}) to {other / place}" in text


def test_a_file_that_is_linked_into_the_same_release_elsewhere(world: World) -> None:
    root, other = world.copy(R130), world.root(R130)
    for part in NAMES:
        first = part_files(other, part)[0].relative_to(other)
        with without(root, part):
            swap(root, part, other)
            (root / first).unlink()
            (root / first).symlink_to(other / first)
            identity = world.identity(root)
            (root / first).unlink()
        assert identity.state == "mixed"
        assert f"{first.name} leads out of this toolkit (nvcc 13.0.88)" in texts(identity)
        assert f"into {other} (nvcc 13.0.88)" in texts(identity)


def test_lib64_linked_elsewhere(world: World) -> None:
    root, other = world.copy(R130), world.copy(R1320)
    (root / "lib64").unlink()
    (root / "lib64").symlink_to(other / "lib")
    identity = world.identity(root)
    assert identity.state == "mixed"
    assert f"{root}/lib64 leads out of this toolkit (nvcc 13.0.88)" in texts(identity)


def test_a_root_by_another_name_is_the_same(world: World) -> None:
    root = world.copy(R130)
    (world.tmp / "cuda").symlink_to(root)
    identity = world.identity(world.tmp / "cuda")
    assert (identity.state, identity.root) == ("good", str(root))


def test_links_to_nowhere_and_in_circles(world: World) -> None:
    root = world.copy(R130)
    for place, target in (("bin/ptxas", "gone"), ("nvvm/bin/cicc", "cicc"),
                          ("lib/libcudart.so", "libcudart.so.12")):  # fmt: skip
        (root / place).unlink()
        (root / place).symlink_to(target)
    identity = world.identity(root)
    assert identity.state == "incomplete"
    assert "bin/ptxas is a link to gone, which is not there" in texts(identity)
    assert "libcudart.so is a link to libcudart.so.12, which is not there" in texts(identity)
    assert "cicc is missing" in texts(identity)


def test_things_that_are_no_files(world: World) -> None:
    root = world.copy(R130)
    (root / "lib/libcudart.so.13").unlink()
    (root / "lib/libcudart.so.13").mkdir()
    (root / "bin/fatbinary").unlink()
    os.mkfifo(root / "bin/fatbinary")
    identity = world.identity(root)
    assert "libcudart.so.13 is no file" in texts(identity)
    assert "fatbinary is no file" in texts(identity)


@given(st.data())
def test_a_file_cut_anywhere_is_refused(made: tuple[Book, Path], data: st.DataObject) -> None:
    """With no lock to compare with, by its own structure."""
    kinds = {"program", "library", "archive", "bitcode"}
    part = data.draw(st.sampled_from([part for part in SPECS if part.kind in kinds]))
    root = World(book=made[0], folder=made[1], tmp=Path()).root(R130)
    whole = part_files(root, part.name)[0].read_bytes()
    size = data.draw(st.integers(0, len(whole) - 1))
    facts = facts_of(lambda at, length: whole[:size][at : at + length], size)
    assert facts.damage or facts.form in {"text", "other"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n", "is a script"),
        (b"Cuda compilation tools, release 13.0, V13.0.88\n", "is no program"),
        (elf(signature("13.0.88", "36424714_0"))[:-1], "is cut off"),
        (elf(signature("13.0.88", "36424714_0"), kind=3), "is no program"),
    ],
    ids=["empty", "script", "text", "cut", "library"],
)
def test_programs_that_are_none(world: World, content: bytes, words: str) -> None:
    root = world.copy(R130)
    for part in PROGRAMS:
        write(root / spec(part).files[0], content)
    identity = world.identity(root)
    assert identity.state == "incomplete"
    for part in PROGRAMS:
        assert f"{spec(part).files[0]} {words}" in texts(identity)


def test_a_program_that_may_not_be_executed(world: World) -> None:
    root = world.copy(R130)
    (root / "bin/ptxas").chmod(0o644)
    assert "ptxas may not be executed" in texts(world.identity(root))


def test_a_stand_in_that_prints_the_right_version(world: World) -> None:
    """All programs of a release come from one build of the compiler, and name it."""
    root = world.copy(R130)
    for part in ("nvcc", "cicc", "ptxas", "fatbinary", "nvlink"):
        for build in (None, "1_0"):
            with without(root, part):
                place = root / spec(part).files[0]
                write(place, elf(b"stand-in" + signature("13.0.88", build)))
                identity = world.identity(root)
            assert identity.state == "mixed"
            assert f"{part} 13.0.88" in texts(identity)
            assert "36424714_0" in texts(identity)


def test_a_program_with_two_versions(world: World) -> None:
    root = world.copy(R130)
    both = signature("13.0.88", "36424714_0") + signature("13.2.51", "36424714_0")
    write(root / "bin/ptxas", elf(both))
    identity = world.identity(root)
    assert identity.state == "mixed"
    assert "embeds several versions: 13.0.88, 13.2.51" in texts(identity)


@pytest.mark.parametrize(
    ("place", "text", "words"),
    [
        ("include/cuda.h", "#define CUDA_VERSION 12090\n", "CUDA_VERSION is 12.9"),
        ("include/cccl/cub/version.cuh", "#define CUB_VERSION 200802\n", "CUB_VERSION is 2.8.2"),
        ("include/cuda_runtime_api.h",
         "#define CUDART_VERSION 13000\n#define CUDART_VERSION 12090\n", "12090 and as 13000"),
        ("include/cublas_api.h", "\n".join(f"#define CUBLAS_VER_{name} 12" for name in
         ("MAJOR", "MINOR", "PATCH", "BUILD")), "12.12.12.12 (CUBLAS_VER_*"),
    ],
)  # fmt: skip
def test_headers_of_which_one_is_another_releases(
    world: World, place: str, text: str, words: str
) -> None:
    root = world.copy(R130)
    (root / place).write_text(text)
    identity = world.identity(root)
    assert identity.state == "mixed"
    assert words in texts(identity)


def test_a_library_under_a_false_name(world: World) -> None:
    root = to_nvidia_layout(world.copy(R130))
    lib = root / "targets/x86_64-linux/lib"
    (lib / "libcublas.so.13.1.0.3").rename(lib / "libcublas.so.13.3.0.5")
    (lib / "libcublas.so.13").unlink()
    (lib / "libcublas.so.13").symlink_to("libcublas.so.13.3.0.5")
    identity = world.identity(root)
    assert identity.state == "mixed"
    assert (
        "libcublas states 13.3.0.5 (file name libcublas.so.13.3.0.5), its bytes are of "
        "cuda-13.0 (13.1.0.3)" in texts(identity)
    )


def test_a_profile_that_points_elsewhere(world: World) -> None:
    root, other = world.copy(R130), world.root(R1320)
    with (root / "bin/nvcc.profile").open("a") as file:
        file.write(f'INCLUDES += "-I{other}/include"\n')
    identity = world.identity(root)
    assert identity.state == "mixed"
    assert f"to {other}/include, in {other} (nvcc 13.2.51)" in texts(identity)


def test_an_unknown_release_is_unknown_only_while_its_parts_agree(world: World) -> None:
    book = type(world.book)(toolchains={}, locks={}, known_bad=world.book.known_bad)
    root = world.copy(R130)
    identity = world.identity(root, book=book)
    assert (identity.state, identity.toolchain, identity.problems) == ("unknown", None, ())
    assert identity.part("nvcc").version == "13.0.88"  # type: ignore[union-attr]
    for part in ("ptxas", "cudart headers", "cublas headers"):
        spoiled = world.copy(R130)
        for path in part_files(spoiled, part):
            shutil.copy2(world.root(R1320) / path.relative_to(spoiled), path)
        if part == "cublas headers":
            name = "libcublas.so.13.1.0.3"
            (spoiled / "lib/libcublas.so.13").rename(spoiled / "lib" / name)
            (spoiled / "lib/libcublas.so.13").symlink_to(name)
        identity = world.identity(spoiled, book=book)
        assert identity.state == "mixed"
        assert part in texts(identity)


def test_a_newer_cublas_that_the_recipe_accepts(world: World) -> None:
    chain = world.book.toolchains["cuda-13.0"]
    section = cuda(chain)
    accepting = type(section)(
        release=section.release, nvcc=section.nvcc, cudart=section.cudart,
        architectures=section.architectures, accepts={"cublas": (R1320.cublas,)},
    )  # fmt: skip
    chains = {
        **world.book.toolchains,
        chain.name: type(chain)(
            schema=1, name=chain.name, summary="", label="cu130", cuda=accepting
        ),
    }
    book = Book(toolchains=chains, locks=world.book.locks, known_bad=world.book.known_bad)
    root = world.copy(R130)
    for part in ("cublas headers", "libcublas"):
        for path in part_files(root, part):
            shutil.copy2(world.root(R1320) / path.relative_to(root), path)
    identity = world.identity(root, book=book)
    assert identity.state == "mixed"  # libcublasLt was left behind
    assert "libcublasLt 13.1.0.3" in texts(identity)
    shutil.copy2(world.root(R1320) / "lib/libcublasLt.so.13", root / "lib/libcublasLt.so.13")
    assert world.identity(root, book=book).state == "good"
    assert world.identity(root).state == "mixed"


def test_a_second_look_reads_nothing_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    root = world.copy(R130)
    first = world.identity(root)
    monkeypatch.setattr("sparkbuild.toolkit.identity.identify.read_facts", lambda path: 1 / 0)
    assert world.identity(root) == first
