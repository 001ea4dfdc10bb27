"""Toolkits in small: every part that a real root has, a few hundred bytes each, no part real."""

from __future__ import annotations

import contextlib
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkbuild.files import DigestCache, files_below, sha256_file
from sparkbuild.manifest import CudaSection, Toolchain
from sparkbuild.toolkit.advisories import KnownBad
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.identity.identify import identity_of
from sparkbuild.toolkit.lock import Lock, LockedPart, LockedPlatform, Metapackage, Platform
from sparkbuild.toolkit.model import Identity
from sparkbuild.toolkit.parts import canonical, matching, part_digests, spec

MACHINES: dict[Platform, int] = {"linux-x86_64": 62, "linux-aarch64": 183}


@dataclass(frozen=True, kw_only=True)
class Release:
    """What the parts of one release state; ``shared`` are bytes that several releases have."""

    name: str
    nvcc: str
    cudart: str
    cublas: str
    cccl: str
    build: str
    shared: str = ""

    @property
    def minor(self) -> str:
        return ".".join(self.nvcc.split(".")[:2])

    def version(self, part: str) -> str:
        return {
            "compiler": self.nvcc,
            "runtime": self.cudart,
            "cublas": self.cublas,
            "cccl": self.cccl,
        }[spec(part).group]


R130 = Release(name="cuda-13.0", nvcc="13.0.88", cudart="13.0.96", cublas="13.1.0.3",
               cccl="13.0.85", build="36424714_0")  # fmt: skip
R1320 = Release(name="cuda-13.2.0", nvcc="13.2.51", cudart="13.2.51", cublas="13.3.0.5",
                cccl="13.2.27", build="37434383_0", shared="13.2")  # fmt: skip
R1321 = Release(name="cuda-13.2.1", nvcc="13.2.78", cudart="13.2.75", cublas="13.4.0.1",
                cccl="13.2.75", build="37668154_0", shared="13.2")  # fmt: skip
LOCKED = (R130, R1320, R1321)
R129 = Release(name="cuda-12.9", nvcc="12.9.86", cudart="12.9.79", cublas="12.9.2.10",
               cccl="12.9.27", build="36037853_0")  # fmt: skip


def elf(payload: bytes, *, machine: int = 62, kind: int = 2) -> bytes:
    """A whole ELF file: its header, and one segment that holds all of it."""
    size = 64 + 56 + len(payload)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, kind, machine, 1, 64, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096) + payload


def archive(members: Mapping[str, bytes]) -> bytes:
    """A static library with a symbol index that names each member once."""
    bodies, offsets = b"", []
    start = 8 + 60 + 4 + 4 * len(members)
    for name, data in members.items():
        offsets.append(start + len(bodies))
        bodies += _member(name, data)
    index = struct.pack(f">I{len(offsets)}I", len(offsets), *offsets)
    return b"!<arch>\n" + _member("/", index) + bodies


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{'0':<12}{'0':<6}{'0':<6}{'644':<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)


def bitcode(*blocks: bytes) -> bytes:
    """LLVM bitcode: outermost blocks of whole 32-bit words."""
    found = b"BC\xc0\xde"
    for block in blocks:
        padded = block + b"\0" * (-len(block) % 4)
        found += struct.pack("<II", 0b01 | 8 << 2 | 3 << 10, len(padded) // 4) + padded
    return found


def signature(version: str, build: str | None) -> bytes:
    """What a program of the toolkit prints for ``--version``, as it lies in the file."""
    release = version.rpartition(".")[0]
    text = f"Cuda compilation tools, release {release}, V{version}\0\0"
    return (
        text + (f"Build cuda_{release}.r{release}/compiler.{build}\0" if build else "")
    ).encode()


def files_of(release: Release, platform: Platform) -> dict[str, bytes]:
    """Every file of a root made from wheels, links apart."""
    machine = MACHINES[platform]
    common = release.shared or release.nvcc

    def program(name: str, build: str | None = release.build) -> bytes:
        return elf(name.encode() + signature(release.nvcc, build), machine=machine)

    def library(name: str, version: str) -> bytes:
        return elf(f"{name} {version}".encode(), machine=machine, kind=3)

    numbers = release.cublas.split(".")
    cublas = "".join(
        f"#define CUBLAS_VER_{name} {number}\n"
        for name, number in zip(("MAJOR", "MINOR", "PATCH", "BUILD"), numbers, strict=True)
    )
    major, minor = (int(number) for number in release.minor.split("."))
    number = major * 1000 + minor * 10
    files = {
        "bin/nvcc": program("nvcc"),
        "bin/nvcc.profile": b"TOP = $(_HERE_)/..\nINCLUDES += \"-I$(TOP)/include\"\n",
        "bin/cudafe++": program("cudafe++", None),
        "nvvm/bin/cicc": program("cicc"),
        "nvvm/libdevice/libdevice.10.bc": bitcode(f"libdevice {common}".encode()),
        "bin/ptxas": program("ptxas"),
        "bin/fatbinary": program("fatbinary"),
        "bin/nvlink": program("nvlink"),
        "include/crt/host_config.h": f"/* {common} */\n".encode(),
        "include/crt/math_functions.h": f"/* math {common} */\n".encode(),
        "lib/libcudart.so.13": library("cudart", release.cudart),
        "lib/libcudart_static.a": archive({"a.o/": elf(b"a", machine=machine, kind=1),
                                           "b.o/": release.cudart.encode()}),
        "include/cublas_api.h": cublas.encode(),
        "include/cublas_v2.h": b"#include \"cublas_api.h\"\n",
        "include/cublasLt.h": f"/* Lt {release.cublas} */\n".encode(),
        "lib/libcublas.so.13": library("cublas", release.cublas),
        "lib/libcublasLt.so.13": library("cublasLt", release.cublas),
        "include/cccl/cuda/std/__cccl/version.h":
            f"#define CCCL_VERSION {major}{minor:03}000\n".encode(),
        "include/cccl/cub/version.cuh": f"#define CUB_VERSION {major}{minor:03}00\n".encode(),
        "include/cccl/thrust/version.h": f"#define THRUST_VERSION {major}{minor:03}00\n".encode(),
    }  # fmt: skip
    for name in spec("cudart headers").files:
        files[name] = f"/* {common} {name} */\n".encode()
    files["include/cuda_runtime_api.h"] = f"#define CUDART_VERSION  {number}\n".encode()
    files["include/cuda.h"] = f"#define CUDA_VERSION {number}\n".encode()
    return files


def make_root(root: Path, release: Release, platform: Platform = "linux-x86_64") -> Path:
    """A provisioned root's layout: ``lib64``, unversioned links, programs that may be executed."""
    for place, data in files_of(release, platform).items():
        write(root / place, data)
    for name in ("cudart", "cublas", "cublasLt"):
        (root / f"lib/lib{name}.so").symlink_to(f"lib{name}.so.13")
    (root / "lib64").symlink_to("lib")
    return root


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o755 if "/bin/" in str(path) else 0o644)


def part_files(root: Path, part: str) -> list[Path]:
    """The files of a part below ``root``, links apart."""
    files = {
        canonical(path.relative_to(root).as_posix()): path
        for path in files_below(root)
        if not path.is_symlink()
    }
    return [files[name] for name in matching(spec(part), files)]


def bytes_of(root: Path, part: str) -> list[bytes]:
    """What a part's files hold."""
    return [path.read_bytes() for path in part_files(root, part)]


def swap(root: Path, part: str, other: Path) -> None:
    """Replace a part's files in ``root`` by those of another root."""
    for path in part_files(root, part):
        path.unlink()
    for path in part_files(other, part):
        shutil.copy2(path, root / path.relative_to(other))


@contextlib.contextmanager
def without(root: Path, part: str) -> Iterator[None]:
    """A root whose part is away for a while."""
    aside = root.parent / "aside"
    places = part_files(root, part)
    for number, path in enumerate(places):
        aside.mkdir(exist_ok=True)
        path.rename(aside / str(number))
    yield
    for path in part_files(root, part):
        path.unlink()
    for number, path in enumerate(places):
        (aside / str(number)).rename(path)


def _toolchain(release: Release) -> Toolchain:
    section = CudaSection(
        release=release.minor, nvcc=release.nvcc, cudart=release.minor, architectures=("121a",)
    )
    return Toolchain(schema=1, name=release.name, summary="", label="cu", cuda=section)


def _lock(release: Release, folder: Path) -> Lock:
    platforms: dict[Platform, LockedPlatform] = {}
    for platform in MACHINES:
        root = make_root(folder / f"{release.name}-{platform}", release, platform)
        digests = {
            canonical(path.relative_to(root).as_posix()): sha256_file(path)
            for path in root.rglob("*")
            if path.is_file() and not path.is_symlink()
        }
        parts = {
            name: LockedPart(version=release.version(name), sha256=digest)
            for name, digest in part_digests(digests).items()
        }
        platforms[platform] = LockedPlatform(wheels=(), parts=parts)
    package = Metapackage(project="cuda-toolkit", version="1", file="a.whl", sha256="0" * 64)
    return Lock(schema=1, name=release.name, metapackage=package, platform=platforms)


@dataclass(frozen=True, kw_only=True)
class World:
    """A book with locks of three releases, a whole root of each for both platforms."""

    book: Book
    folder: Path
    tmp: Path

    def root(self, release: Release, platform: Platform = "linux-x86_64") -> Path:
        """A whole root that tests leave as it is."""
        return self.folder / f"{release.name}-{platform}"

    def copy(self, release: Release, platform: Platform = "linux-x86_64") -> Path:
        """A whole root for one test to spoil."""
        place = self.tmp / f"cuda{len(list(self.tmp.iterdir()))}"
        return Path(shutil.copytree(self.root(release, platform), place, symlinks=True))

    def identity(self, root: Path, *architectures: str, book: Book | None = None) -> Identity:
        cache = DigestCache(self.tmp / "digests.json")
        return identity_of(root, book or self.book, cache, architectures=architectures)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Book, Path]:
    folder = tmp_path_factory.mktemp("toolkits")
    book = Book(
        toolchains={release.name: _toolchain(release) for release in LOCKED},
        locks={release.name: _lock(release, folder) for release in LOCKED},
        known_bad=KnownBad(schema=1),
    )
    return book, folder


@pytest.fixture
def world(made: tuple[Book, Path], tmp_path: Path) -> World:
    return World(book=made[0], folder=made[1], tmp=tmp_path)


def texts(identity: Identity) -> str:
    """All problems as one text."""
    return "\n".join(problem.text for problem in identity.problems)
