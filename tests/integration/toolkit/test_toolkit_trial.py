"""Try toolkits for real: one that is whole, and real parts of another release in its place."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sparkbuild.errors import HostError, ToolkitMismatchError
from sparkbuild.files import DigestCache
from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.identity.identify import identity_of
from sparkbuild.toolkit.model import Toolkit, Trial
from sparkbuild.toolkit.trial.trial import try_toolkit

pytestmark = pytest.mark.network

OURS, THEIRS = "13.0.88", "13.2.51"
MADE = ("*.ii", "*.ptx", "*.cubin", "*.o")
"""What a compile leaves."""

MakeRoot = Callable[..., Path]


@pytest.fixture(scope="module")
def toolkit(cuda_root: Path, real_work: Path) -> Toolkit:
    """The provisioned root as identity sees it."""
    identity = identity_of(
        cuda_root, read_book(find_recipes(None)), DigestCache(real_work / "digests.json")
    )
    assert identity.state == "good"
    return Toolkit(
        toolchain="cuda-13.0",
        label="cu130",
        kind="cuda",
        host=find_host_compiler(),
        root=str(cuda_root),
        parts=identity.parts,
        architectures=("121a",),
    )


@pytest.fixture(scope="module")
def tried(toolkit: Toolkit, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Path]:
    """A pass, and the folder that keeps it."""
    folder = tmp_path_factory.mktemp("trials")
    return try_toolkit(toolkit, folder=folder), folder


@pytest.fixture
def root_with(cuda_root: Path, other_parts: Path, tmp_path: Path) -> MakeRoot:
    """The whole root again, files shared, with the named parts of the other release put in."""

    def make(*places: str) -> Path:
        root = tmp_path / "root"
        shutil.copytree(cuda_root, root, copy_function=_share, symlinks=True)
        for place in places:
            (root / place).unlink()
            _share(str(other_parts / place), str(root / place))
        return root

    return make


def _share(origin: str, target: str) -> None:
    try:
        os.link(origin, target, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(origin, target, follow_symlinks=False)


def at(toolkit: Toolkit, root: Path) -> Toolkit:
    """The same identity believed of another root: as if a part had changed after it was taken."""
    return msgspec.structs.replace(toolkit, root=str(root))


def refused(toolkit: Toolkit, tmp_path: Path) -> tuple[str, set[str]]:
    """The whole refusal as text, and the names of what was compiled until then."""
    folder = tmp_path / "trials"
    with pytest.raises(ToolkitMismatchError) as refusal:
        try_toolkit(toolkit, folder=folder)
    assert not list(folder.glob("*.json")), "a refusal must not be kept as a pass"
    made = {path.name for pattern in MADE for path in folder.glob(f"*/{pattern}")}
    return "\n".join([refusal.value.message, *refusal.value.problems]), made


def test_every_witness_tells_one_story(tried: tuple[Trial, Path], toolkit: Toolkit) -> None:
    trial, folder = tried
    assert (trial.nvcc, trial.cudacc, trial.cudart, trial.runtime) == (OURS, OURS, 13000, 13000)
    (code,) = trial.codes
    assert (code.architecture, code.cicc, code.ptxas, code.isa) == ("121a", OURS, OURS, "9.0")
    assert trial.nvcc_build == code.cicc_build == code.ptxas_build
    assert trial.object_targets == ("sm_121a",)
    assert trial.host_compiler == toolkit.host.identification
    assert trial.cublas == toolkit.part("cublas headers").version
    assert "glibc " + trial.glibc == os.confstr("CS_GNU_LIBC_VERSION")
    kept = {path.suffix for path in Path(trial.folder).iterdir()}
    assert {".log", ".ptx", ".cubin"} <= kept
    assert ".ii" not in kept
    files = json.loads(next(folder.glob("*.json")).read_text())["files"]
    for place in ("nvvm/bin/cicc", "bin/ptxas", "include/cuda_fp16.h", "include/cublas_v2.h"):
        assert os.path.realpath(f"{toolkit.root}/{place}") in files
    assert os.path.realpath(toolkit.part("libcudart").path) in files
    assert os.path.realpath(toolkit.host.cxx) in files


def test_a_second_trial_runs_nothing(tried: tuple[Trial, Path], toolkit: Toolkit) -> None:
    trial, folder = tried
    shutil.rmtree(trial.folder)
    assert try_toolkit(toolkit, folder=folder) == trial
    assert not Path(trial.folder).exists()


def test_a_shell_full_of_traps_changes_nothing(
    tried: tuple[Trial, Path], toolkit: Toolkit, tmp_path: Path, poison: dict[str, str],
    marker: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in poison.items():
        monkeypatch.setenv(name, value)
    trial = try_toolkit(toolkit, folder=tmp_path / "trials")
    assert not marker.exists()
    assert msgspec.structs.replace(trial, folder="") == msgspec.structs.replace(tried[0], folder="")


@pytest.mark.parametrize("place", ["bin/nvcc", "bin/ptxas", "bin/cudafe++", "bin/fatbinary"])
def test_a_program_of_another_release_is_refused_before_anything_compiles(
    place: str, toolkit: Toolkit, root_with: MakeRoot, tmp_path: Path
) -> None:
    text, made = refused(at(toolkit, root_with(place)), tmp_path)
    assert f"expected {OURS}" in text
    assert f"found {THEIRS}" in text
    assert Path(place).name in text
    assert made == set()


def test_another_cicc_is_told_by_its_ptx(
    toolkit: Toolkit, root_with: MakeRoot, tmp_path: Path
) -> None:
    """cicc answers no question about its version: only what it writes tells."""
    text, made = refused(at(toolkit, root_with("nvvm/bin/cicc")), tmp_path)
    assert f"cicc: expected {OURS}" in text
    assert f"found {THEIRS} (the heading of trial.ptx)" in text
    assert not [name for name in made if name.endswith(".o")]


def test_headers_of_another_release(toolkit: Toolkit, root_with: MakeRoot, tmp_path: Path) -> None:
    text, made = refused(at(toolkit, root_with("include/cuda_runtime_api.h")), tmp_path)
    assert f"nvcc: expected {OURS}" in text
    assert "found 13.2 (CUDART_VERSION in trial.cpp4.ii)" in text
    assert not [name for name in made if name.endswith(".o")]


def test_another_run_time_library(toolkit: Toolkit, root_with: MakeRoot, tmp_path: Path) -> None:
    """Nothing in a compile shows it: only a program that runs does."""
    name = Path(toolkit.part("libcudart").path).name
    text, _ = refused(at(toolkit, root_with(f"lib/{name}")), tmp_path)
    assert "libcudart: expected 13.0 (CUDART_VERSION 13000), found 13.2 at run time" in text


def script(path: Path, body: str) -> None:
    path.unlink()
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)


def test_a_fake_nvcc_that_prints_a_good_version(
    toolkit: Toolkit, root_with: MakeRoot, cuda_root: Path, other_parts: Path, tmp_path: Path
) -> None:
    root = root_with()
    body = f'[ "$1" = --version ] && exec {cuda_root}/bin/nvcc --version\n'
    script(root / "bin/nvcc", f'{body}exec {other_parts}/bin/nvcc "$@"\n')
    text, made = refused(at(toolkit, root), tmp_path)
    assert f"the CUDA {OURS} that it says it is" in text
    for place in ("bin/ptxas", "nvvm/bin/cicc", "bin/cudafe++"):
        assert f"nvcc would run {other_parts}/{place} ({THEIRS}), which is not below" in text
    assert made == set()


def test_a_fake_nvcc_that_shows_a_good_plan_too(
    toolkit: Toolkit, root_with: MakeRoot, other_parts: Path, tmp_path: Path
) -> None:
    root = root_with()
    (root / "bin/nvcc").rename(root / "bin/nvcc.real")
    (root / "bin/nvcc").touch()
    script(
        root / "bin/nvcc",
        f'case "$*" in *--version*|*--dryrun*) exec {root}/bin/nvcc.real "$@";; esac\n'
        f'exec {other_parts}/bin/nvcc -isystem {root}/include "$@"\n',
    )
    text, _ = refused(at(toolkit, root), tmp_path)
    assert f"a CUDA header was read from {other_parts}/" in text
    assert f"nvcc: expected {OURS}" in text
    assert f"found {THEIRS} (__CUDACC_VER_* in trial.cpp4.ii)" in text


def test_a_fake_nvcc_that_only_talks(toolkit: Toolkit, root_with: MakeRoot, tmp_path: Path) -> None:
    root = root_with()
    script(root / "bin/nvcc", f'echo "Cuda compilation tools, release 13.0, V{OURS}"\n')
    text, made = refused(at(toolkit, root), tmp_path)
    assert "nvcc cannot plan a compile (status 0)" in text
    assert made == set()


def host_wrapped(toolkit: Toolkit, tmp_path: Path, options: str) -> Toolkit:
    """The host compiler as another one or another C library would make it behave."""
    wrapper = tmp_path / "c++"
    wrapper.write_text(f'#!/bin/sh\nexec {toolkit.host.cxx} {options} "$@"\n')
    wrapper.chmod(0o755)
    host = msgspec.structs.replace(toolkit.host, cxx=str(wrapper))
    return msgspec.structs.replace(toolkit, host=host)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("-U__GNUC__ -D__GNUC__=99", "unsupported GNU version"),
        ("-include {}/newer.h", 'previous function "cospi"'),
    ],
)
def test_a_host_that_does_not_go_with_the_toolkit(
    options: str, error: str, toolkit: Toolkit, tmp_path: Path
) -> None:
    """A compiler that is too new, and the declaration that C libraries since 2.41 have."""
    declared = 'extern "C" double cospi(double) noexcept(true);\n'
    (tmp_path / "newer.h").write_text(declared)
    changed = host_wrapped(toolkit, tmp_path, options.format(tmp_path))
    with pytest.raises(HostError) as refusal:
        try_toolkit(changed, folder=tmp_path / "trials")
    assert f"{toolkit.host.identification} ({tmp_path}/c++) with glibc 2." in refusal.value.message
    assert error in refusal.value.problems[0]
    assert "newer CUDA release" in refusal.value.next_step
    (log,) = refusal.value.evidence
    assert error in log.read_text()
    assert not list((tmp_path / "trials").glob("*.json"))
