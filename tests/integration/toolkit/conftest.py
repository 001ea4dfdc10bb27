"""A real toolkit, made once a session as a user would."""

from __future__ import annotations

import os
import subprocess  # noqa: TID251 - asks for a namespace
from pathlib import Path
from typing import cast

import pytest

from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.lock import Platform
from sparkbuild.toolkit.provision import tree
from sparkbuild.toolkit.provision.fetch import fetch_wheels
from sparkbuild.toolkit.provision.provision import install
from sparkbuild.toolkit.provision.unpack import unpack
from sparkbuild.workspace import Workspace


@pytest.fixture(scope="session")
def cuda_root(real_work: Path) -> Path:
    """CUDA 13.0, provisioned from its lock for this machine; treat it as read-only."""
    platform = cast("Platform", current_platform())
    work = Workspace(real_work)
    root = tree.default_root(work.toolkits, "cuda-13.0", platform)
    install(
        read_book(find_recipes(None)),
        "cuda-13.0",
        platform,
        root=root,
        downloads=work.downloads,
        progress=lambda _done, _total, _text: None,
    )
    return root


@pytest.fixture(scope="session")
def other_parts(real_work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real parts of CUDA 13.2.0 (nvcc 13.2.51): compiler, crt headers, run time; no cuBLAS.

    Laid out as a root, to take parts from; treat it as read-only.
    """
    locked = read_book(find_recipes(None)).locked(
        "cuda-13.2.0", cast("Platform", current_platform())
    )
    assert locked is not None
    wanted = {"nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime"}
    wheels = [wheel for wheel in locked.wheels if wheel.project in wanted]
    assert len(wheels) == len(wanted)
    fetched = fetch_wheels(wheels, Workspace(real_work).downloads, lambda *_: None)
    place = tmp_path_factory.mktemp("other") / "cuda-13.2.0"
    unpack(fetched.files, place)
    return place


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """Written by any program of ``poison`` that is started."""
    return tmp_path / "poison" / "was-here"


@pytest.fixture
def poison(tmp_path: Path, marker: Path) -> dict[str, str]:
    """The environment of a shell that points every compiler, linker and CMake at a false toolkit.

    Its header does not compile, its libraries are no libraries, its programs leave ``marker``.
    """
    root = tmp_path / "poison"
    for folder in ("bin", "include", "lib64"):
        (root / folder).mkdir(parents=True)
    for name in ("cuda_runtime.h", "cuda_runtime_api.h", "cmath", "stdio.h"):
        (root / "include" / name).write_text("#error poisoned\n")
    for name in ("libcudart.so", "libcudart.so.13", "libcublas.so", "libc.so", "libstdc++.so"):
        (root / "lib64" / name).write_text("poisoned\n")
    for name in ("nvcc", "ptxas", "cicc", "fatbinary", "cudafe++", "c++", "g++", "cc", "ld", "as",
                 "launcher", "nvcc.profile"):  # fmt: skip
        program = root / "bin" / name
        program.write_text(f"#!/bin/sh\necho {name} >> {marker}\nexit 1\n")
        program.chmod(0o755)
    (root / "toolchain.cmake").write_text('message(FATAL_ERROR "poisoned")\n')
    folders = {
        "LD_LIBRARY_PATH": "lib64", "LIBRARY_PATH": "lib64", "LD_RUN_PATH": "lib64",
        "CPATH": "include", "C_INCLUDE_PATH": "include", "CPLUS_INCLUDE_PATH": "include",
        "COMPILER_PATH": "bin", "GCC_EXEC_PREFIX": "bin/", "NVVMIR_LIBRARY_DIR": "lib64",
        "CICC_PATH": "bin", "CUDA_PATH": "", "CUDA_HOME": "", "CUDA_ROOT": "", "CUDA_BIN_PATH": "",
        "CUDA_TOOLKIT_ROOT_DIR": "", "CUDAToolkit_ROOT": "", "CMAKE_PREFIX_PATH": "", "TOP": "",
        "CMAKE_INCLUDE_PATH": "include", "CMAKE_LIBRARY_PATH": "lib64", "CMAKE_PROGRAM_PATH": "bin",
        "CUDACXX": "bin/nvcc", "CUDAHOSTCXX": "bin/c++", "NVCC_CCBIN": "bin/c++", "CC": "bin/cc",
        "CXX": "bin/c++", "LD": "bin/ld", "CMAKE_TOOLCHAIN_FILE": "toolchain.cmake",
        "CMAKE_CUDA_COMPILER_LAUNCHER": "bin/launcher", "CMAKE_C_COMPILER_LAUNCHER": "bin/launcher",
        "CMAKE_CXX_COMPILER_LAUNCHER": "bin/launcher", "CMAKE_CUDA_COMPILER": "bin/nvcc",
    }  # fmt: skip
    flags = f"-I{root}/include -DPOISONED"
    texts = {
        "CFLAGS": flags, "CXXFLAGS": flags, "CPPFLAGS": flags, "CUDAFLAGS": flags,
        "LDFLAGS": f"-L{root}/lib64 -lpoison", "NVCC_PREPEND_FLAGS": flags,
        "NVCC_APPEND_FLAGS": "-Xptxas -O0 --poisoned", "CUDAARCHS": "50",
        "CMAKE_GENERATOR": "Xcode", "CMAKE_BUILD_TYPE": "Debug", "INCLUDES": flags,
        "PTXAS_FLAGS": "--poisoned",
        "PATH": f"{root}/bin{os.pathsep}{os.environ['PATH']}", "HOME": str(root),
    }  # fmt: skip
    return {**{name: f"{root}/{place}" for name, place in folders.items()}, **texts}


@pytest.fixture
def offline() -> list[str]:
    """The beginning of a command line that runs the rest without any network."""
    try:
        done = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if done.returncode:
        pytest.skip(f"unshare -rn: {done.stderr.decode().strip()}")
    return ["unshare", "-rn"]
