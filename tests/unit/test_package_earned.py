"""Platform tags: manylinux where a policy holds for every file, no promise where none does."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess  # noqa: TID251 - makes the files that are judged
import zipfile
from pathlib import Path

import pytest
from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.wheel_abi import analyze_wheel_abi, get_wheel_elfdata

from sparkbuild.errors import PackageError
from sparkbuild.package.earned import EXCLUDED, earned_tag

GENERIC = f"py3-none-linux_{platform.machine()}"
OURS = re.compile(rf"py3-none-manylinux_2_\d+_{platform.machine()}")


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) on this machine")
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def library(place: Path, soname: str) -> Path:
    """A library outside the files that are judged."""
    path = place / soname
    source = place / "l.c"
    source.write_text("int outside(void) { return 1; }\n")
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", path, source], check=True
    )
    return path


def program(bin_dir: Path, *links: Path) -> None:
    source = bin_dir.parent / "main.c"
    source.write_text("int outside(void); int main(void) { return "
                      f"{'outside()' if links else '0'}; }}\n")  # fmt: skip
    subprocess.run(["cc", "-o", bin_dir / "llama-server", source, *links], check=True)


def test_a_program_that_needs_the_c_library_alone(bin_dir: Path) -> None:
    program(bin_dir)
    assert OURS.fullmatch(earned_tag(bin_dir, ["llama-server"], GENERIC))


def test_a_library_beside_the_program_is_no_matter(bin_dir: Path) -> None:
    program(bin_dir, library(bin_dir, "libllama.so.0"))
    subprocess.run(["cc", "-o", bin_dir / "llama-server", bin_dir.parent / "main.c",
                    bin_dir / "libllama.so.0", "-Wl,-rpath,$ORIGIN"], check=True)  # fmt: skip
    found = earned_tag(bin_dir, ["libllama.so.0", "llama-server"], GENERIC)
    assert OURS.fullmatch(found)


@pytest.mark.parametrize(
    ("soname", "earned"),
    [
        ("libcudart.so.13", True),
        ("libcublas.so.13", True),
        ("libcublasLt.so.12", True),
        ("libcuda.so.1", True),
        ("libcufft.so.12", False),
        ("libgomp.so.1", False),
    ],
)
def test_only_cuda_s_own_may_be_missing(
    soname: str, earned: bool, bin_dir: Path, tmp_path: Path
) -> None:
    program(bin_dir, library(tmp_path, soname))
    found = earned_tag(bin_dir, ["llama-server"], GENERIC)
    assert bool(OURS.fullmatch(found)) == earned
    assert earned or found == GENERIC


def test_auditwheel_s_own_analysis_says_the_same(bin_dir: Path, tmp_path: Path) -> None:
    for links in ([], [library(tmp_path, "libcudart.so.13")], [library(tmp_path, "libx.so.1")]):
        program(bin_dir, *links)
        wheel = tmp_path / f"sparkbuild_llama_cpp-1-{GENERIC}.whl"
        with zipfile.ZipFile(wheel, "w") as out:
            out.write(bin_dir / "llama-server", "sparkbuild_llama_cpp/bin/llama-server")
            out.writestr("sparkbuild_llama_cpp-1.dist-info/WHEEL", "Wheel-Version: 1.0\n")
            out.writestr("sparkbuild_llama_cpp-1.dist-info/RECORD",
                         "sparkbuild_llama_cpp/bin/llama-server,,\n")  # fmt: skip
        analysis = analyze_wheel_abi(
            Libc.GLIBC, Architecture(platform.machine()), wheel, frozenset(EXCLUDED),
            disable_isa_ext_check=True, allow_graft=False,
        )  # fmt: skip
        get_wheel_elfdata.cache_clear()
        found = earned_tag(bin_dir, ["llama-server"], GENERIC)
        assert found == f"py3-none-{analysis.overall_policy.name}"


def test_what_is_no_elf_file_is_refused(bin_dir: Path) -> None:
    (bin_dir / "llama-server").write_bytes(b"\x7fELF but not for long")
    with pytest.raises(PackageError, match="llama-server cannot be read"):
        earned_tag(bin_dir, ["llama-server"], GENERIC)


@pytest.mark.skipif(shutil.which("aarch64-linux-gnu-gcc") is None, reason="no cross compiler")
def test_another_platform_s_files(bin_dir: Path) -> None:
    source = bin_dir.parent / "main.c"
    source.write_text("int main(void) { return 0; }\n")
    argv: list[str | Path] = ["aarch64-linux-gnu-gcc", "-o", bin_dir / "llama-server", source]
    subprocess.run(argv, check=True)
    found = earned_tag(bin_dir, ["llama-server"], "py3-none-linux_aarch64")
    assert re.fullmatch(r"py3-none-manylinux_2_\d+_aarch64", found)
