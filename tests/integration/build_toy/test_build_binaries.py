"""Inspect for real: every kind of wrong binary is made, and refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sparkbuild import process
from sparkbuild.build.elf import read_elf
from sparkbuild.build.inspect import inspect
from sparkbuild.build.model import Binaries, Configuration
from sparkbuild.errors import BinaryError
from sparkbuild.fatbin import fatbin_targets
from sparkbuild.toolkit.model import Toolkit

from .conftest import Workshop

Built = tuple[Workshop, Configuration, Binaries]


@pytest.fixture
def copied(built: Built, tmp_path: Path) -> tuple[Workshop, Binaries]:
    """The built toy's tree, to be damaged."""
    shop, _, binaries = built
    directory = tmp_path / "install" / "bin"
    shutil.copytree(binaries.directory, directory)
    shop = Workshop(folder=tmp_path, toolkit=shop.toolkit)
    return shop, msgspec.structs.replace(binaries, directory=str(directory))


def problems(shop: Workshop, binaries: Binaries) -> list[str]:
    with pytest.raises(BinaryError) as refusal:
        shop.inspect(binaries)
    assert json.loads(shop.log("inspect").read_text())["problems"] == list(refusal.value.problems)
    return list(refusal.value.problems)


def link(shop: Workshop, target: Path, source: str, *flags: str) -> None:
    """Replace a library by one that is wrong in the way that ``flags`` say."""
    code = shop.folder / "wrong.c"
    code.write_text(source)
    base = ["-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-Wl,--build-id=sha1"]
    argv = [shop.toolkit.host.c, *base, *flags, "-o", str(target), str(code)]
    answer = process.capture(argv)
    assert answer.returncode == 0, answer.stderr


BASE = "int base_answer(void) { return 42; }\nconst char * base_file(void) { return 0; }\n"
ORIGIN = "-Wl,-rpath,$ORIGIN,--enable-new-dtags"


def test_facts_of_right_binaries(built: Built) -> None:
    shop, _, binaries = built
    facts = shop.inspect(binaries)
    assert facts.version_line == "version: 0.6.0-dev (build 11434, commit 0123456789ab)"
    assert {b.name for b in facts.binaries} == {*binaries.executables, *binaries.libraries}
    for binary in facts.binaries:
        assert binary.runpath == ("$ORIGIN",)
        assert len(binary.build_id) == 40
        assert binary.sm_targets == ()
    assert all(name.startswith(("lib", "ld-linux")) for name in facts.system_libraries)
    assert facts.system_libraries


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            ("-Wl,-rpath,/opt/lib:$ORIGIN,--enable-new-dtags",),
            "RUNPATH: expected $ORIGIN, found /opt",
        ),
        (("-Wl,-rpath,$ORIGIN,--disable-new-dtags",), "RPATH: expected none, found $ORIGIN"),
        ((), "RUNPATH: expected $ORIGIN, found none"),
        ((ORIGIN, "-Wl,--build-id=none"), "has no build id"),
        ((ORIGIN, "-Wl,-z,execstack"), "asks for an executable stack"),
        (
            (ORIGIN, "-Wl,--no-as-needed", "-lgomp"),
            "needs libgomp.so.1, which is neither in the tree nor allowed (OpenMP",
        ),
        ((ORIGIN, "-Wl,-soname,libother.so.0"), "SONAME: expected the file's own name"),
    ],
)
def test_a_wrong_library(
    flags: tuple[str, ...], problem: str, copied: tuple[Workshop, Binaries]
) -> None:
    shop, binaries = copied
    link(shop, Path(binaries.directory) / "libggml-base.so.0", BASE, *flags)
    found = [text for text in problems(shop, binaries) if "libggml-base.so.0: " in text]
    assert any(text.startswith(f"libggml-base.so.0: {problem}") for text in found), found


@pytest.mark.parametrize("place", ["source", "build", "temporary"])
def test_a_place_of_this_machine_in_a_file(place: str, copied: tuple[Workshop, Binaries]) -> None:
    shop, binaries = copied
    directory = Path(binaries.directory)
    text = {"source": f"{shop.source}/src/llama.cpp", "build": f"{directory.parents[1]}/cmake/x.o",
            "temporary": "/tmp/tmpxft_000115d_00000000-6_acc.cudafe1.cpp"}[place]  # fmt: skip
    source = BASE + f'const char *leaked(void) {{ return "{text}"; }}\n'
    link(shop, directory / "libggml-base.so.0", source, ORIGIN)
    found = [one for one in problems(shop, binaries) if "this machine's" in one]
    assert found
    assert all(one.startswith("libggml-base.so.0: holds ") for one in found)


def test_text_relocations(copied: tuple[Workshop, Binaries]) -> None:
    shop, binaries = copied
    source = BASE + 'extern int outside; __asm__(".text\\n.balign 8\\n.quad base_answer\\n");\n'
    library = Path(binaries.directory) / "libggml-base.so.0"
    link(shop, library, source, ORIGIN, "-Wl,-z,notext")
    assert any("has text relocations" in text for text in problems(shop, binaries))


def test_all_problems_of_all_files_at_once(copied: tuple[Workshop, Binaries]) -> None:
    shop, binaries = copied
    directory = Path(binaries.directory)
    link(shop, directory / "libggml-base.so.0", BASE, "-Wl,-z,execstack", "-Wl,--build-id=none")
    (directory / "notes.txt").write_text("x")
    (directory / "libextra.so").symlink_to("libllama.so.0")
    found = problems(shop, binaries)
    assert len(found) >= 5
    assert "notes.txt: is in the tree and no target made it" in found
    assert "libextra.so: is in the tree and no target made it" in found


def test_a_link_where_a_file_should_be(copied: tuple[Workshop, Binaries]) -> None:
    shop, binaries = copied
    library = Path(binaries.directory) / "libllama.so.0"
    library.rename(shop.folder / "moved.so")
    library.symlink_to(shop.folder / "moved.so")
    assert "libllama.so.0: is no regular file" in problems(shop, binaries)


def test_a_library_that_is_missing(copied: tuple[Workshop, Binaries]) -> None:
    shop, binaries = copied
    (Path(binaries.directory) / "libggml-base.so.0").unlink()
    without = msgspec.structs.replace(binaries, libraries=("libllama.so.0",))
    found = problems(shop, without)
    needed = "libllama.so.0: needs libggml-base.so.0, which is neither in the tree nor allowed"
    assert needed in found
    assert any(text.startswith("llama-server --version: expected") for text in found)


def test_a_wrong_machine(copied: tuple[Workshop, Binaries]) -> None:
    """A library for another processor, as a mixed-up toolchain would give."""
    shop, binaries = copied
    library = Path(binaries.directory) / "libllama.so.0"
    content = bytearray(library.read_bytes())
    content[18:20] = (243).to_bytes(2, "little")  # EM_RISCV
    library.write_bytes(content)
    found = "\n".join(problems(shop, binaries))
    assert "libllama.so.0: machine: expected EM_" in found
    assert "found EM_RISCV" in found
    assert "llama-server --version: expected its build and commit, found status" in found


def test_a_damaged_file_hides_no_other_problem(copied: tuple[Workshop, Binaries]) -> None:
    shop, binaries = copied
    directory = Path(binaries.directory)
    (directory / "libllama.so.0").write_bytes(b"cut off")
    (directory / "notes.txt").touch()
    found = problems(shop, binaries)
    assert "libllama.so.0: libllama.so.0 is no ELF file that can be read" in found
    assert "notes.txt: is in the tree and no target made it" in found


def test_another_commit(built: Built, tmp_path: Path) -> None:
    shop, _, binaries = built
    other = msgspec.structs.replace(shop.tree, commit="f" * 40, build=11435)
    with pytest.raises(BinaryError) as refusal:
        inspect(binaries, shop.toolkit, other, log=tmp_path / "log")
    assert refusal.value.problems == (
        "build number: expected 11435, found 11434",
        f"commit: expected {'f' * 12}, found 0123456789ab",
    )


def test_a_hostile_library_path_reaches_neither_loader_nor_server(
    copied: tuple[Workshop, Binaries], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RUNPATH yields to LD_LIBRARY_PATH, so the user's must not be there when facts are read."""
    shop, binaries = copied
    hostile = shop.folder / "hostile"
    hostile.mkdir()
    link(shop, hostile / "libggml-base.so.0", "int base_answer(void) { return 666; }", ORIGIN)
    server = str(Path(binaries.directory) / "llama-server")
    right = process.capture([server])
    hijacked = process.capture([server], env={**os.environ, "LD_LIBRARY_PATH": str(hostile)})
    assert (right.returncode, hijacked.returncode) == (0, 1)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(hostile))
    monkeypatch.setenv("LD_PRELOAD", str(hostile / "libggml-base.so.0"))
    assert shop.inspect(binaries).version_line


def test_a_library_that_the_loader_takes_from_elsewhere(
    copied: tuple[Workshop, Binaries],
) -> None:
    """A RUNPATH before ``$ORIGIN`` wins over the tree: the loader itself says so."""
    shop, binaries = copied
    elsewhere = shop.folder / "elsewhere"
    elsewhere.mkdir()
    directory = Path(binaries.directory)
    shutil.copy(directory / "libggml-base.so.0", elsewhere)
    flags = (f"-Wl,-rpath,{elsewhere}:$ORIGIN,--enable-new-dtags", "-Wl,--no-as-needed",
             str(directory / "libggml-base.so.0"))  # fmt: skip
    link(shop, directory / "libllama.so.0", "int _Z12llama_answerv(void) { return 42; }", *flags)
    expected = f"libggml-base.so.0: expected from the tree, the loader takes {elsewhere}"
    assert any(expected in text for text in problems(shop, binaries))


@pytest.mark.cuda_toolkit
def test_gpu_code_is_exactly_what_was_asked(
    tmp_path: Path, make_cuda_toolkit: Callable[..., Toolkit]
) -> None:
    """Configure, build, inspect with a real nvcc; then the same files against other demands."""
    shop = Workshop(folder=tmp_path, toolkit=make_cuda_toolkit("121a", "90"))
    configuration = shop.configure()
    assert configuration.cuda_architectures == ("121a", "90")
    assert configuration.cuda_toolkit_version == shop.toolkit.part("nvcc").version
    binaries = shop.build(configuration)
    facts = shop.inspect(binaries)
    (gpu,) = [binary for binary in facts.binaries if binary.sm_targets]
    assert (gpu.name, gpu.sm_targets) == ("libggml-cuda.so.0", ("sm_121a", "sm_90"))
    (section,) = read_elf(Path(binaries.directory) / gpu.name).fatbins
    assert [sorted(images) for images in fatbin_targets(section)] == [["sm_121a", "sm_90"]]

    spark = Workshop(folder=tmp_path, toolkit=make_cuda_toolkit("121a"))
    assert problems(spark, binaries) == [
        "libggml-cuda.so.0: expected sm_121a, found sm_121a sm_90 in 1 of 1 fat binaries"
    ]
    cpu = msgspec.structs.replace(shop.toolkit, kind="cpu")
    found = problems(Workshop(folder=tmp_path, toolkit=cpu), binaries)
    assert "libggml-cuda.so.0: holds GPU code in a CPU build" in found


@pytest.mark.cuda_toolkit
def test_a_cuda_build_without_gpu_code(
    built: Built, tmp_path: Path, make_cuda_toolkit: Callable[..., Toolkit]
) -> None:
    _, _, binaries = built
    shop = Workshop(folder=tmp_path, toolkit=make_cuda_toolkit("121a"))
    found = problems(shop, binaries)
    assert "GPU code: expected sm_121a, found none in any file" in found
    # And it would find NVIDIA's libraries nowhere.
    wheels = "RUNPATH: expected $ORIGIN:$ORIGIN/../../nvidia/cu13/lib, found $ORIGIN"
    assert f"libllama.so.0: {wheels}" in found
