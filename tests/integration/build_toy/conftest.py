"""A small CMake project with llama.cpp's target names, configured and built for real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.build.compile import build
from sparkbuild.build.configure import configure
from sparkbuild.build.inspect import inspect
from sparkbuild.build.model import Binaries, BinaryFacts, Configuration
from sparkbuild.manifest import BuildSection, Patchset, SmokeSection, SourcePin
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.model import Part, Toolkit

TOY = Path(__file__).parents[2] / "data" / "build" / "toy"


def pretend_patchset(targets: tuple[str, ...], options: dict[str, str]) -> Patchset:
    return Patchset(
        schema=1,
        name="toy",
        summary="",
        source=SourcePin(build=11434, paths=(), origins=()),
        build=BuildSection(targets=targets, cmake=options),
        smoke=SmokeSection(suite="basic"),
    )


def pretend_tree(directory: Path) -> PatchedTree:
    return PatchedTree(
        source_digest="2" * 64,
        commit="0123456789abcdef0123456789abcdef01234567",
        tree="3" * 40,
        build=11434,
        patches=(),
        directory=str(directory),
    )


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Stages 5 to 7 on one source tree, in one folder."""

    folder: Path
    toolkit: Toolkit
    source: Path = TOY
    targets: tuple[str, ...] = ("llama-server", "llama-quantize")

    @property
    def tree(self) -> PatchedTree:
        return pretend_tree(self.source)

    def log(self, stage: str) -> Path:
        return self.folder / f"{stage}.log"

    def configure(self, **options: str) -> Configuration:
        return configure(
            pretend_patchset(self.targets, options),
            self.toolkit,
            self.tree,
            binary_dir=self.folder / "cmake",
            log=self.log("configure"),
        )

    def build(self, configuration: Configuration, **how: Any) -> Binaries:
        return build(
            configuration,
            self.targets,
            install_dir=self.folder / "install",
            log=self.log("build"),
            **{"jobs": 2, **how},
        )

    def inspect(self, binaries: Binaries) -> BinaryFacts:
        return inspect(binaries, self.toolkit, self.tree, log=self.log("inspect"))


@pytest.fixture(scope="session")
def cpu_toolkit() -> Toolkit:
    return Toolkit(
        toolchain="cpu",
        label="cpu",
        kind="cpu",
        host=find_host_compiler(),
        options={"GGML_NATIVE": "OFF"},
    )


@pytest.fixture
def workshop(tmp_path: Path, cpu_toolkit: Toolkit) -> Workshop:
    return Workshop(folder=tmp_path, toolkit=cpu_toolkit)


@pytest.fixture(scope="session")
def built(
    tmp_path_factory: pytest.TempPathFactory, cpu_toolkit: Toolkit
) -> tuple[Workshop, Configuration, Binaries]:
    """The toy, built once; tests that change its files copy them first."""
    shop = Workshop(folder=tmp_path_factory.mktemp("toy"), toolkit=cpu_toolkit)
    configuration = shop.configure()
    return shop, configuration, shop.build(configuration)


@pytest.fixture(scope="session")
def make_cuda_toolkit(cpu_toolkit: Toolkit) -> Callable[..., Toolkit]:
    """A toolkit of this machine, taken as it is: the toolkit stage has its own tests."""
    roots = sorted(Path("/usr/local").glob("cuda-*/bin/nvcc"))
    if not roots:
        pytest.skip("no CUDA toolkit below /usr/local")
    root = roots[-1].parent.parent

    def make(*architectures: str) -> Toolkit:
        from sparkbuild.toolkit.identity.identify import nvcc_version

        version = nvcc_version(root)
        assert version is not None
        part = Part(name="nvcc", version=version, read_from="", path="", sha256="0" * 64)
        return Toolkit(
            toolchain="cuda",
            label="cuda",
            kind="cuda",
            host=cpu_toolkit.host,
            root=str(root),
            parts=(part,),
            architectures=architectures,
            options={"GGML_NATIVE": "OFF", "GGML_CUDA": "ON"},
        )

    return make
