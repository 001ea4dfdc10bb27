"""Small toolkits that are real as far as anything reads them: ELF files, headers, links."""

from __future__ import annotations

import shutil
import subprocess  # noqa: TID251 - the host compiler makes the small programs
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkbuild.files import DigestCache
from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.advisories import Advisory, KnownBad
from sparkbuild.toolkit.book import Book, read_book
from sparkbuild.toolkit.choice.places import System

_FIELD = 120
"""Bytes of a program that hold its version; the longest text has 95."""

_PROGRAM = f"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
const char version[{_FIELD}] = "@@VERSION@@";
int main(int argc, char **argv) {{
    char self[4096] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    *strrchr(self, '/') = 0;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--dryrun") || !strcmp(argv[i], "-v"))
            fprintf(stderr, "#$ _HERE_=%s\\n#$ TOP=%s/..\\n", self, self);
    puts(version);
    return 0;
}}
"""
"""Answers a dry run as nvcc does, and otherwise prints the version that it embeds."""

_HEADERS = (
    "cuda_runtime.h", "cuda.h", "driver_types.h", "vector_types.h", "cuda_fp16.h", "cuda_fp16.hpp",
    "cuda_bf16.h", "cuda_bf16.hpp", "cuda_fp8.h", "cuda_fp8.hpp", "cuda_device_runtime_api.h",
    "cublas_v2.h", "cublasLt.h", "crt/host_config.h",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Roots:
    """Makes toolkit roots from one small program, one small library and a few texts."""

    program: bytes
    library: bytes
    archive: bytes

    def make(
        self, root: Path, nvcc: str = "13.0.88", *, cublas: str = "13.1.0.3", extra: str = ""
    ) -> Path:
        """A whole toolkit; ``extra`` goes into a header, so that the bytes differ."""
        release = ".".join(nvcc.split(".")[:2])
        major, minor = release.split(".")
        self.programs(root, nvcc)
        for name in _HEADERS:
            self._write(root / "include" / name, f"/* {name} {extra} */\n")
        number = int(major) * 1000 + int(minor) * 10
        self._write(root / "include/cuda_runtime_api.h", f"#define CUDART_VERSION  {number}\n")
        self._write(root / "include/cuda.h", f"#define CUDA_VERSION {number}\n")
        names = ("MAJOR", "MINOR", "PATCH", "BUILD")
        self._write(root / "include/cublas_api.h", "".join(
            f"#define CUBLAS_VER_{name} {value}\n"
            for name, value in zip(names, cublas.split("."), strict=True)))  # fmt: skip
        self._write(root / "include/cuda/std/__cccl/version.h", "#define CCCL_VERSION 3000001\n")
        self._write(root / "include/cub/version.cuh", "#define CUB_VERSION 300001\n")
        self._write(root / "include/thrust/version.h", "#define THRUST_VERSION 300001\n")
        for name, version in (("cudart", f"{release}.96"), ("cublas", cublas),
                              ("cublasLt", cublas)):  # fmt: skip
            self._library(root / "lib64", name, version)
        (root / "lib64/libcudart_static.a").write_bytes(self.archive)
        return root

    def programs(self, root: Path, version: str) -> None:
        """The compiler's programs alone, as the smallest thing that is found as a toolkit."""
        for name in ("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "bin/nvlink",
                     "nvvm/bin/cicc"):  # fmt: skip
            self.put(root / name, version)
        self._write(root / "bin/nvcc.profile", "TOP = $(_HERE_)/..\n")
        bitcode = root / "nvvm/libdevice/libdevice.10.bc"
        bitcode.parent.mkdir(parents=True)
        # One empty block of one word: what LLVM's reader takes as whole.
        bitcode.write_bytes(b"BC\xc0\xde\x01\0\0\0\x01\0\0\0\0\0\0\0")

    def put(self, path: Path, version: str) -> None:
        """A program that embeds a version as NVIDIA's do."""
        release = ".".join(version.split(".")[:2])
        lines = (
            f"Cuda compilation tools, release {release}, V{version}",
            f"Build cuda_{release}.r{release}/compiler.1_0",
        )
        field = "\n".join(lines).encode().ljust(_FIELD, b"\0")
        start = self.program.index(b"@@VERSION@@")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.program[:start] + field + self.program[start + _FIELD :])
        path.chmod(0o755)

    def _library(self, folder: Path, name: str, version: str) -> None:
        folder.mkdir(exist_ok=True)
        real = folder / f"lib{name}.so.{version}"
        real.write_bytes(self.library)
        soname = folder / f"lib{name}.so.{version.partition('.')[0]}"
        soname.symlink_to(real.name)
        (folder / f"lib{name}.so").symlink_to(soname.name)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(scope="session")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Roots:
    folder = tmp_path_factory.mktemp("program")
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler, as sparkbuild itself does"
    (folder / "nvcc.c").write_text(_PROGRAM)
    (folder / "part.c").write_text("int part(void) { return 1; }\n")
    for arguments in (["-o", "nvcc", "nvcc.c"], ["-shared", "-fPIC", "-o", "part.so", "part.c"],
                      ["-c", "-o", "part.o", "part.c"]):  # fmt: skip
        subprocess.run([compiler, *arguments], cwd=folder, check=True)
    subprocess.run(["ar", "rcs", "part.a", "part.o"], cwd=folder, check=True)
    return Roots(
        program=(folder / "nvcc").read_bytes(),
        library=(folder / "part.so").read_bytes(),
        archive=(folder / "part.a").read_bytes(),
    )


@pytest.fixture
def system(tmp_path: Path) -> System:
    """A machine with nothing on it."""
    for name in ("local", "opt", "python"):
        (tmp_path / name).mkdir()
    return System(local=tmp_path / "local", opt=tmp_path / "opt", python=tmp_path / "python")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    (tmp_path / "path").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}


@pytest.fixture
def digests(tmp_path: Path) -> DigestCache:
    return DigestCache(tmp_path / "digests.json")


WRONG = Advisory(
    id="wrong-code", part="cicc", versions=("13.2.51", "13.2.78"), effect="drops a mask",
    evidence=("seen in PTX",), source=("https://example.org/1",), action="refuse",
    architectures=("120a", "121a"), tensor_types=("iq3_s",),
)  # fmt: skip
RARE = Advisory(
    id="rare-values", part="nvcc", versions=("13.0.88",), effect="may lose a register",
    evidence=("said by its maker",), source=("https://example.org/2",), action="warn",
)  # fmt: skip


@pytest.fixture(scope="session")
def book() -> Book:
    """The real toolchains, without locks: small roots are of no known bytes."""
    return Book(
        toolchains=read_book(find_recipes(None)).toolchains,
        locks={},
        known_bad=KnownBad(schema=1, advisory=(WRONG, RARE)),
    )
