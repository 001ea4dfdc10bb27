"""The driver stub: real compilers make it, a real linker and loader take it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess  # noqa: TID251 - links a program with the stub
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.manifest import current_platform
from sparkbuild.toolkit.lock import PLATFORMS, Platform
from sparkbuild.toolkit.provision.stub import (
    can_make_stub,
    driver_functions,
    make_stub,
    stub_source,
)

from .conftest import CUDA_H

HERE: Platform = next(platform for platform in PLATFORMS if platform == current_platform())
ELSEWHERE: Platform = next(platform for platform in PLATFORMS if platform != HERE)


@pytest.fixture
def include(tmp_path: Path) -> Path:
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "cuda.h").write_bytes(CUDA_H)
    return folder


@pytest.fixture
def stub(include: Path, tmp_path: Path) -> Path:
    file = tmp_path / "stubs" / "libcuda.so"
    assert make_stub(include, file, HERE) is None
    return file


def test_it_has_the_driver_s_name_and_its_functions(stub: Path) -> None:
    with stub.open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        table = elf.get_section_by_name(".dynsym")
        assert isinstance(dynamic, DynamicSection)
        assert isinstance(table, SymbolTableSection)
        soname = [getattr(tag, "soname", "") for tag in dynamic.iter_tags("DT_SONAME")]
        needed = list(dynamic.iter_tags("DT_NEEDED"))
        exported = {symbol.name for symbol in table.iter_symbols()} - {""}
    assert (soname, needed) == (["libcuda.so.1"], [])
    # Renamed by macros, once more for a stream of each thread, and under its first name.
    assert exported == {"cuInit", "cuMemAlloc_v2", "cuMemcpy", "cuMemcpy_ptds"}
    assert list(stub.parent.iterdir()) == [stub]


def test_every_function_says_that_it_is_a_stub(stub: Path) -> None:
    library = ctypes.CDLL(str(stub))
    assert [library.cuInit(0), library.cuMemcpy_ptds(0, 0, 0)] == [34, 34]


def test_the_same_compiler_makes_the_same_bytes(stub: Path, include: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "libcuda.so"
    assert make_stub(include, other, HERE) is None
    assert other.read_bytes() == stub.read_bytes()


def test_a_program_links_with_it_and_takes_the_driver_at_run_time(
    stub: Path, include: Path, tmp_path: Path
) -> None:
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text('#include "cuda.h"\nint main(void) { return cuInit(0); }\n')
    command = ["cc", str(source), f"-I{include}", f"-L{stub.parent}", "-lcuda", "-o", str(program)]
    subprocess.run(command, check=True)
    driver = tmp_path / "driver"
    driver.mkdir()
    subprocess.run(
        ["cc", "-shared", "-x", "c", "-", "-o", str(driver / "libcuda.so.1")],
        input=b"int cuInit(unsigned f) { return 7; }", check=True,
    )  # fmt: skip

    def status(folder: Path) -> int:
        found = {"LD_LIBRARY_PATH": str(folder)}
        return subprocess.run(
            [str(program)], env=found, capture_output=True, check=False
        ).returncode

    assert status(driver) == 7
    assert status(stub.parent) != 34  # no libcuda.so.1 there: the loader never takes the stub


def test_the_user_s_headers_do_not_get_in(
    include: Path, tmp_path: Path, stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "cuda.h").write_text("CUresult cuEvil(void);")
    (hostile / "stddef.h").write_text("#error hostile")
    for name in ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH"):
        monkeypatch.setenv(name, str(hostile))
    (include / "cuda.h").write_bytes(b"#include <stddef.h>\n" + CUDA_H)
    other = tmp_path / "other" / "libcuda.so"
    assert make_stub(include, other, HERE) is None
    assert other.read_bytes() == stub.read_bytes()


def test_why_there_is_no_stub_is_said(
    include: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "libcuda.so"
    (include / "cuda.h").write_text("int nothing;")
    assert str(make_stub(include, file, HERE)).endswith("declares no driver functions")
    (include / "cuda.h").write_text("#error broken header")
    assert "broken header" in str(make_stub(include, file, HERE))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not can_make_stub(HERE)
    assert (
        make_stub(include, file, HERE) == f"no C compiler for {HERE} on PATH (cc or gcc or clang)"
    )
    assert "aarch64-linux-gnu-gcc" in str(make_stub(include, file, "linux-aarch64")) or (
        HERE == "linux-aarch64"
    )
    assert not file.exists()


def test_another_platform_s_compiler_is_asked_by_its_name(
    include: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in under the cross compiler's name, since few machines have a real one."""
    triple = {"linux-aarch64": "aarch64", "linux-x86_64": "x86_64"}[ELSEWHERE]
    tools = tmp_path / "tools"
    tools.mkdir()
    compiler = shutil.which("cc")
    assert compiler
    (tools / f"{triple}-linux-gnu-gcc").symlink_to(compiler)
    search = f"{tools}:{Path(compiler).parent}"
    monkeypatch.setenv("PATH", search)
    assert can_make_stub(ELSEWHERE)
    assert make_stub(include, tmp_path / "libcuda.so", ELSEWHERE) is None


NAME = st.from_regex(r"cu[A-Z][A-Za-z0-9_]{0,12}", fullmatch=True)


@settings(max_examples=50)
@given(st.lists(st.tuples(NAME, st.sampled_from([" ", "\n", "\t "]))))
def test_declared_functions_are_found_however_they_are_laid_out(
    declared: list[tuple[str, str]],
) -> None:
    text = "typedef int CUresult;" + "".join(
        f"extern{space}CUresult{space}{name}{space}(int a,\n int b);\n" for name, space in declared
    )
    found = driver_functions([text, "typedef CUresult (*cuNot)(void); int cuNeither(void);"])
    assert found == tuple(sorted({name for name, _ in declared}))
    assert stub_source(found).count("return 34;") == len(found)
