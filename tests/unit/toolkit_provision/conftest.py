"""Wheels in small: as NVIDIA lays them out, a few bytes each, and spoilt on demand."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkbuild.files import sha256_bytes
from sparkbuild.manifest import CudaSection, Toolchain
from sparkbuild.toolkit.advisories import KnownBad
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.lock import Lock, LockedPlatform, LockedWheel, Metapackage, Platform
from sparkbuild.toolkit.provision.locking import locked_platform
from sparkbuild.toolkit.provision.wheel import read_wheel

LICENCE = "LicenseRef-NVIDIA-Proprietary"

CUDA_H = b"""
#define cuMemAlloc cuMemAlloc_v2
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define cuMemcpy cuMemcpy_ptds
#endif
typedef enum { CUDA_SUCCESS = 0 } CUresult;
CUresult cuInit(unsigned int flags);
CUresult cuMemAlloc(void **pointer, unsigned long size);
CUresult cuMemcpy(void *to, const void *from, unsigned long size);
typedef CUresult (*CUsomething)(int);
int cuNoDriverFunction(void);
"""

PARTS: Mapping[str, Mapping[str, bytes]] = {
    "nvidia-cuda-nvcc": {
        "bin/nvcc": b"nvcc", "bin/nvcc.profile": b"TOP = .\n", "bin/cudafe++": b"cudafe",
        "bin/ptxas": b"ptxas", "bin/fatbinary": b"fatbinary", "bin/nvlink": b"nvlink",
        ".metadata/scan.txt": b"junk",
    },
    "nvidia-nvvm": {"nvvm/bin/cicc": b"cicc", "nvvm/libdevice/libdevice.10.bc": b"BC",
                    "lib/libnvvm.so.4": b"nvvm"},
    "nvidia-cuda-crt": {"include/crt/host_config.h": b"// crt\n"},
    "nvidia-cuda-runtime": {
        "include/cuda_runtime_api.h": b"#define CUDART_VERSION 13000\n", "include/cuda.h": CUDA_H,
        "lib/libcudart.so.13": b"cudart", "lib/libcudart_static.a": b"!<arch>\n",
    },
    "nvidia-cuda-cccl": {"include/cccl/cub/version.cuh": b"// cub\n"},
    "nvidia-cublas": {"include/cublas_v2.h": b"// blas\n", "lib/libcublas.so.13": b"blas",
                      "lib/libcublasLt.so.13": b"lt"},
}  # fmt: skip
"""A release: files below ``nvidia/cu13/`` by project."""


def row(member: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{member},sha256={digest},{len(data)}"


@dataclass
class Spoiled:
    """What a wheel has that it should not, or lacks."""

    extra: list[tuple[zipfile.ZipInfo | str, bytes]] = field(default_factory=list)
    record: str | None = None
    """RECORD's text instead of the right one."""
    rows: str = ""
    """More rows for RECORD."""
    licence: str = LICENCE


def wheel_bytes(
    project: str, version: str, members: Mapping[str, bytes], spoiled: Spoiled | None = None
) -> bytes:
    """A wheel with ``members`` by their full names; programs below ``bin/`` are executable."""
    spoiled = spoiled or Spoiled()
    info = f"{project.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.4\nName: {project}\nVersion: {version}\n"
    metadata += f"License-Expression: {spoiled.licence}\n"
    everything = {**members, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": b"x\n",
                  f"{info}/licenses/License.txt": b"the terms of " + project.encode()}  # fmt: skip
    rows = [row(member, data) for member, data in everything.items()]
    rows += [row(getattr(name, "filename", str(name)), data) for name, data in spoiled.extra]
    record = "\n".join([*rows, f"{info}/RECORD,,", spoiled.rows])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in everything.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = (0o100744 if "/bin/" in member else 0o100644) << 16
            archive.writestr(entry, data)
        for name, data in spoiled.extra:
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", record if spoiled.record is None else spoiled.record)
    return buffer.getvalue()


def file_name(project: str, version: str, platform: Platform = "linux-x86_64") -> str:
    machine = platform.partition("-")[2]
    return f"{project.replace('-', '_')}-{version}-py3-none-manylinux_2_27_{machine}.whl"


@dataclass
class Release:
    """A lock and the wheels that it locks, in a folder of downloads."""

    name: str
    downloads: Path
    locked: LockedPlatform
    nvcc: str

    @property
    def book(self) -> Book:
        cuda = CudaSection(release="13.0", nvcc=self.nvcc, cudart="13.0", architectures=("121a",))
        chain = Toolchain(schema=1, name=self.name, summary="s", label="cu130", cuda=cuda)
        meta = Metapackage(project="cuda-toolkit", version="1", file="a.whl", sha256="0" * 64)
        platforms: dict[Platform, LockedPlatform] = {"linux-x86_64": self.locked}
        lock = Lock(schema=1, name=self.name, metapackage=meta, platform=platforms)
        return Book(
            toolchains={self.name: chain}, locks={self.name: lock}, known_bad=KnownBad(schema=1)
        )


def members_of(project: str, changes: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    files = {**PARTS[project], **(changes or {})}
    return {f"nvidia/cu13/{path}": data for path, data in files.items()}


def make_release(
    downloads: Path, name: str = "cuda-13.0", *, changes: Mapping[str, bytes] | None = None
) -> Release:
    """Every wheel downloaded and locked; ``changes`` go into the compiler's wheel."""
    pairs = []
    for project in PARTS:
        members = members_of(project, changes if project == "nvidia-cuda-nvcc" else None)
        data = wheel_bytes(project, "13.0.88", members)
        file, digest = file_name(project, "13.0.88"), sha256_bytes(data)
        place = downloads / digest / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        locked = LockedWheel(
            project=project, version="13.0.88", file=file, sha256=digest, size=len(data)
        )
        pairs.append((locked, read_wheel(io.BytesIO(data), file)[0]))
    return Release(name, downloads, locked_platform(pairs), "13.0.88")


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return make_release(tmp_path / "downloads")
