"""The real CUDA 13.0 from its lock: what CMake, nvcc and the linker make of it."""

from __future__ import annotations

import shutil
import subprocess  # noqa: TID251 - CMake is asked as a user would
import sys
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.lock import PLATFORMS, Platform
from sparkbuild.toolkit.parts import SPECS, canonical, part_digests
from sparkbuild.toolkit.provision import tree
from sparkbuild.toolkit.provision.fetch import fetch_wheels
from sparkbuild.toolkit.provision.stub import driver_functions
from sparkbuild.toolkit.provision.unpack import unpack

pytestmark = [pytest.mark.network, pytest.mark.real]

PROJECT = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.18)
project(small CXX)
find_package(CUDAToolkit REQUIRED)
enable_language(CUDA)
add_executable(small kernel.cu main.cpp)
target_link_libraries(small CUDA::cudart CUDA::cublas CUDA::cuda_driver)
""",
    "kernel.cu": """\
#include <cooperative_groups.h>
#include <cub/version.cuh>
#include <cublas_v2.h>
#include <cuda.h>
__global__ void one(float *x) { *x = 1; }
int kernel() {
    cublasHandle_t handle;
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp wanted = {};
    cublasCreate(&handle);
    one<<<1, 1>>>(nullptr);
    return cuMemCreate(&memory, 4096, &wanted, 0);
}
""",
    "main.cpp": """\
#include <cuda_runtime.h>
int kernel();
int main() { return kernel(); }
""",
}

VMM = {
    "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
    "cuMemGetAllocationGranularity", "cuMemRelease", "cuMemAddressFree", "cuDeviceGet",
    "cuDeviceGetAttribute", "cuGetErrorString",
}  # fmt: skip
"""What llama.cpp asks of the driver for its virtual memory pools."""


def cmakes() -> list[tuple[str, Path | None]]:
    """CMake as sparkbuild brings it, and the machine's own."""
    own = shutil.which("cmake", path="/usr/bin:/usr/local/bin")
    return [("own", Path(sys.executable).parent / "cmake"), ("system", Path(own) if own else None)]


@pytest.mark.parametrize(("name", "cmake"), cmakes())
def test_cmake_takes_the_root_unaided_and_a_program_links(
    cuda_root: Path, tmp_path: Path, name: str, cmake: Path | None
) -> None:
    if cmake is None:
        pytest.skip("no CMake of the system's own")
    for file, text in PROJECT.items():
        (tmp_path / file).write_text(text)
    build = tmp_path / "build"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(cmake), *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    said = run(
        "-S", str(tmp_path), "-B", str(build), "-G", "Unix Makefiles",
        f"-DCUDAToolkit_ROOT={cuda_root}", f"-DCMAKE_CUDA_COMPILER={cuda_root}/bin/nvcc",
        "-DCMAKE_CUDA_ARCHITECTURES=121a-real",
    )  # fmt: skip
    assert f"Found CUDAToolkit: {cuda_root}/include" in said
    assert 'found version "13.0.88"' in said
    assert "The CUDA compiler identification is NVIDIA 13.0.88" in said
    run("--build", str(build))
    with (build / "small").open("rb") as program:
        dynamic = ELFFile(program).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        needed = {getattr(tag, "needed", "") for tag in dynamic.iter_tags("DT_NEEDED")}
    assert {"libcudart.so.13", "libcublas.so.13", "libcuda.so.1"} <= needed
    cache = (build / "CMakeCache.txt").read_text()
    for library in ("cudart", "cublas", "cuda_driver"):
        assert f"CUDA_{library}_LIBRARY:FILEPATH={cuda_root}/" in cache


def test_the_stub_has_every_function_that_llama_cpp_needs(cuda_root: Path) -> None:
    with (cuda_root / tree.STUB).open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        exported = {symbol.name for symbol in table.iter_symbols()}  # type: ignore[union-attr]
    declared = driver_functions([(cuda_root / "include/cuda.h").read_text(errors="replace")])
    assert exported >= VMM
    assert {
        "cuMemAlloc",
        "cuMemAlloc_v2",
        "cuMemcpyAsync_ptsz",
        "cuCtxCreate_v4",
        "cuGetProcAddress_v2",
    } <= exported
    assert len(exported) > 400
    assert set(declared) <= exported


def test_the_root_is_as_its_manifest_says(cuda_root: Path) -> None:
    installed = tree.read_manifest(cuda_root)
    assert installed is not None
    assert installed.licence == "LicenseRef-NVIDIA-Proprietary"
    assert list(tree.differences(cuda_root, installed)) == []
    assert "License Agreement" in (cuda_root / "licenses/nvidia-cublas.txt").read_text()
    digests = {canonical(path): file.sha256 for path, file in installed.files.items()}
    assert part_digests(digests).keys() == {spec.name for spec in SPECS}


def test_small_wheels_of_the_other_platform_are_what_its_lock_says(
    real_work: Path, tmp_path: Path
) -> None:
    other: Platform = next(name for name in PLATFORMS if name != current_platform())
    locked = read_book(find_recipes(None)).locked("cuda-13.0", other)
    assert locked is not None
    small = [wheel for wheel in locked.wheels if wheel.size < 4_000_000]
    fetched = fetch_wheels(small, real_work / "downloads", lambda *_: None)
    files = unpack(fetched.files, tmp_path / "root").files
    found = part_digests({canonical(path): file.sha256 for path, file in files.items()})
    assert found.keys() >= {"crt headers", "cudart headers", "libcudart", "CCCL"}
    assert {name: locked.parts[name].sha256 for name in found} == found
