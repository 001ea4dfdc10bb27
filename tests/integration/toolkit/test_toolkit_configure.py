"""Configure, build and inspect with one root, while everything else points to another."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from sparkbuild.build.compile import build
from sparkbuild.build.configure import configure
from sparkbuild.build.inspect import inspect
from sparkbuild.build.model import Binaries, BinaryFacts, Configuration
from sparkbuild.errors import BinaryError, ToolkitMismatchError
from sparkbuild.files import DigestCache
from sparkbuild.manifest import BuildSection, Patchset, SmokeSection, SourcePin, find_recipes
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.identity.identify import identity_of
from sparkbuild.toolkit.model import Toolkit

pytestmark = pytest.mark.network

TOY = Path(__file__).parents[2] / "data" / "build" / "toy"
TARGETS = ("llama-server", "llama-quantize")


@dataclass(frozen=True, kw_only=True)
class Shop:
    """Stages 5 to 7 on the toy, in one folder."""

    folder: Path
    toolkit: Toolkit
    digests: DigestCache

    @property
    def tree(self) -> PatchedTree:
        return PatchedTree(
            source_digest="2" * 64,
            commit="0123456789abcdef0123456789abcdef01234567",
            tree="3" * 40,
            build=11434,
            patches=(),
            directory=str(TOY),
        )

    @property
    def cmake(self) -> Path:
        return self.folder / "cmake"

    def configure(self, toolkit: Toolkit | None = None) -> Configuration:
        patchset = Patchset(
            schema=1,
            name="toy",
            summary="",
            source=SourcePin(build=11434, paths=(), origins=()),
            build=BuildSection(targets=TARGETS, cmake={}),
            smoke=SmokeSection(suite="basic"),
        )
        log = self.folder / "configure.log"
        return configure(
            patchset, toolkit or self.toolkit, self.tree, binary_dir=self.cmake, log=log
        )

    def build(self, configuration: Configuration) -> Binaries:
        return build(
            configuration, TARGETS, install_dir=self.folder / "install",
            log=self.folder / "build.log", jobs=2,
        )  # fmt: skip

    def inspect(self, binaries: Binaries, toolkit: Toolkit | None = None) -> BinaryFacts:
        return inspect(
            binaries, toolkit or self.toolkit, self.tree, log=self.folder / "inspect.log",
            digest=self.digests.sha256,
        )  # fmt: skip


@pytest.fixture(scope="module")
def shop(cuda_root: Path, real_work: Path, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    digests = DigestCache(real_work / "digests.json")
    identity = identity_of(cuda_root, read_book(find_recipes(None)), digests)
    toolkit = Toolkit(
        toolchain="cuda-13.0",
        label="cu130",
        kind="cuda",
        host=find_host_compiler(),
        root=str(cuda_root),
        parts=identity.parts,
        architectures=("121a",),
        options={"GGML_NATIVE": "OFF", "GGML_CUDA": "ON"},
    )
    return Shop(folder=tmp_path_factory.mktemp("toy"), toolkit=toolkit, digests=digests)


@pytest.fixture(scope="module")
def configured(shop: Shop) -> Configuration:
    return shop.configure()


@pytest.fixture(scope="module")
def built(shop: Shop, configured: Configuration) -> Binaries:
    return shop.build(configured)


def test_right_binaries_meet_the_run_time_of_the_identity(shop: Shop, built: Binaries) -> None:
    facts = shop.inspect(built)
    (gpu,) = [binary for binary in facts.binaries if binary.sm_targets]
    assert gpu.sm_targets == ("sm_121a",)
    assert "libcudart.so.13" in gpu.needed
    assert json.loads((shop.folder / "inspect.log").read_text())["problems"] == []


def test_another_run_time_after_the_build(
    shop: Shop, built: Binaries, other_parts: Path, tmp_path: Path
) -> None:
    """The root's libcudart is replaced by the one of CUDA 13.2.0, which has the same SONAME."""
    part = shop.toolkit.part("libcudart")
    (tmp_path / "lib64").mkdir()
    for path in Path(part.path).parent.glob("libcu*.so*"):
        (tmp_path / "lib64" / path.name).symlink_to(path.resolve())
    for path in (tmp_path / "lib64").glob("libcudart.so*"):
        path.unlink()
        shutil.copy(other_parts / "lib" / Path(part.path).name, path)
    moved = msgspec.structs.replace(shop.toolkit, root=str(tmp_path))
    with pytest.raises(BinaryError) as refusal:
        shop.inspect(built, moved)
    (changed, version) = refusal.value.problems
    assert f"expected the libcudart {part.version} of the toolkit" in changed
    assert f"the loader takes {tmp_path}/lib64/libcudart.so.13" in changed
    assert version.startswith(f"libcudart: expected {part.version} (cudart headers), at run time")
    assert "it says 13.2 (" in version


def test_a_stale_cache_and_a_shell_full_of_traps_change_nothing(
    shop: Shop, configured: Configuration, poison: dict[str, str], marker: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The build folder holds another toolkit's cache, PATH and every variable another toolkit."""
    root = poison["CUDA_PATH"]
    stale = "".join(
        f"{name}:{kind}={root}/{place}\n"
        for name, kind, place in (
            ("CMAKE_CUDA_COMPILER", "FILEPATH", "bin/nvcc"),
            ("CMAKE_CUDA_HOST_COMPILER", "FILEPATH", "bin/c++"),
            ("CUDAToolkit_ROOT", "PATH", ""),
            ("CUDAToolkit_NVCC_EXECUTABLE", "FILEPATH", "bin/nvcc"),
            ("CUDA_CUDART", "FILEPATH", "lib64/libcudart.so"),
            ("CUDA_cudart_LIBRARY", "FILEPATH", "lib64/libcudart.so"),
            ("_cmake_CUDAToolkit_include_directories", "INTERNAL", "include"),
        )
    )
    (shop.cmake / "CMakeCache.txt").write_text(stale)
    compiler = next(shop.cmake.glob("CMakeFiles/*/CMakeCUDACompiler.cmake"))
    compiler.write_text(f'set(CMAKE_CUDA_COMPILER "{root}/bin/nvcc")\n')
    for name, value in poison.items():
        monkeypatch.setenv(name, value)
    assert _ordered(shop.configure()) == _ordered(configured)
    assert not marker.exists()
    assert root not in (shop.cmake / "CMakeCache.txt").read_text()
    assert root not in (shop.folder / "configure.log").read_text()
    assert root not in compiler.read_text()


def _ordered(configuration: Configuration) -> Configuration:
    """CMake lists a target's dependencies in another order from run to run."""
    artifacts = tuple(sorted(configuration.artifacts, key=lambda artifact: artifact.path))
    return msgspec.structs.replace(configuration, artifacts=artifacts)


def test_a_root_with_another_release_in_it_is_refused_when_configured(
    shop: Shop, cuda_root: Path, other_parts: Path, tmp_path: Path
) -> None:
    """Had identity and trial been passed by: nvcc 13.2.51 among the headers of 13.0."""
    root = tmp_path / "root"
    shutil.copytree(cuda_root, root, copy_function=_share, symlinks=True)
    (root / "bin/nvcc").unlink()
    _share(str(other_parts / "bin/nvcc"), str(root / "bin/nvcc"))
    mixed = Shop(
        folder=tmp_path,
        toolkit=msgspec.structs.replace(shop.toolkit, root=str(root)),
        digests=shop.digests,
    )
    with pytest.raises(ToolkitMismatchError) as refusal:
        mixed.configure()
    text = "\n".join(refusal.value.problems)
    assert "CUDA compiler: expected NVIDIA 13.0.88, found NVIDIA 13.2.51" in text
    assert "CMAKE_CUDA_COMPILER_TOOLKIT_VERSION in CMakeCUDACompiler.cmake" in text


def _share(origin: str, target: str) -> None:
    try:
        os.link(origin, target, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(origin, target, follow_symlinks=False)
