"""Which toolkit is meant, and whether it is whole."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import HostError, ToolkitMismatchError, UnknownNameError, UsageError
from sparkbuild.files import DigestCache
from sparkbuild.manifest import CudaSection, find_recipes
from sparkbuild.toolkit.cuda import candidate_roots, cudart_version, identify, tool_version
from sparkbuild.toolkit.host import find_host_compiler, identification
from sparkbuild.toolkit.select import choose, plain_architectures, settle

NO_DRIVER = Path("/nonexistent/driver")
CUDA = CudaSection(release="13.0", nvcc="13.0.88", cudart="13.0", architectures=("121a",))


def fake_root(
    root: Path, *, nvcc: str = "13.0.88", ptxas: str = "13.0.88", cudart: int = 13000
) -> Path:
    """A toolkit's layout; its programs are shell scripts that print what real ones print."""
    versions = {"nvcc": nvcc, "ptxas": ptxas, "fatbinary": nvcc}
    for name, version in versions.items():
        release = version.rpartition(".")[0]
        program = root / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(
            f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{version}'\n"
        )
        program.chmod(0o755)
    for place in ("nvvm/bin/cicc", "lib64/libcudart.so.13.0.96", "lib64/libcublas.so.13.1.0.3",
                  "lib64/libcublasLt.so.13.1.0.3"):  # fmt: skip
        file = root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(place)
        if ".so." in place:
            file.with_name(file.name.partition(".so")[0] + ".so").symlink_to(file.name)
    header = root / "include/cuda_runtime_api.h"
    header.parent.mkdir()
    header.write_text(f"#define CUDART_VERSION  {cudart}\n")
    return root


def test_nothing_asked_for_without_a_driver_means_cpu_and_says_so() -> None:
    choice = choose(find_recipes(None), None, driver=NO_DRIVER)
    assert choice.toolchain.name == "cpu"
    assert "CPU only" in choice.reason


def test_nothing_asked_for_with_a_driver_is_a_question(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        choose(find_recipes(None), None, driver=tmp_path)
    assert "--toolkit cpu" in caught.value.next_step


@pytest.mark.parametrize("asked", ["13.0", "13.0.88", "cuda-13.0"])
def test_release_version_and_name_mean_the_same(asked: str) -> None:
    assert choose(find_recipes(None), asked).toolchain.name == "cuda-13.0"


def test_an_unknown_toolkit_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        choose(find_recipes(None), "13.00")
    assert "13.0" in caught.value.problems[0]


def test_a_root_is_recognised_by_its_nvcc(tmp_path: Path) -> None:
    choice = choose(find_recipes(None), str(fake_root(tmp_path / "cuda")))
    assert (choice.toolchain.name, choice.root) == ("cuda-13.0", tmp_path / "cuda")
    with pytest.raises(UnknownNameError):
        choose(find_recipes(None), str(fake_root(tmp_path / "old", nvcc="9.1.85")))
    with pytest.raises(ToolkitMismatchError):
        choose(find_recipes(None), str(tmp_path / "none"))


def test_the_host_compiler_is_what_it_says() -> None:
    host = find_host_compiler()
    assert host.identification.split()[0] in {"GNU", "Clang"}
    assert Path(host.cxx).is_absolute()
    assert len(host.sha256) == 64
    assert "linux" in host.target


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as caught:
        find_host_compiler()
    assert len(caught.value.problems) == 3
    assert "install" in caught.value.next_step


def test_a_compiler_that_is_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("cc", "c++"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as caught:
        find_host_compiler()
    assert "no compiler" in caught.value.problems[0]


def test_identification_uses_cmakes_words() -> None:
    gnu = "#define __GNUC__ 12\n#define __GNUC_MINOR__ 2\n#define __GNUC_PATCHLEVEL__ 0\n"
    clang = (
        "#define __clang__ 1\n#define __clang_major__ 14\n#define __clang_minor__ 0\n"
        "#define __clang_patchlevel__ 6\n"
    )
    assert identification(gnu) == "GNU 12.2.0"
    assert identification(gnu + clang) == "Clang 14.0.6"
    assert identification("") is None
    assert identification("#define __clang__ 1") is None


@given(st.text())
def test_parsers_take_any_text(text: str) -> None:
    assert identification(text) is None or " " in str(identification(text))
    assert cudart_version(text) is None


def test_cudart_version_as_headers_state_it() -> None:
    assert cudart_version("x\n#define CUDART_VERSION  13000\n") == "13.0"
    assert cudart_version("#define CUDART_VERSION 12090\n") == "12.9"


def test_a_whole_toolkit_is_identified(tmp_path: Path) -> None:
    root = fake_root(tmp_path / "cuda")
    parts = identify(root, CUDA, DigestCache(tmp_path / "digests.json"))
    versions = {part.name: part.version for part in parts}
    assert versions["nvcc"] == versions["ptxas"] == "13.0.88"
    assert versions["cudart headers"] == "13.0"
    assert versions["libcudart"] == "13.0.96"
    toolkit = settle(
        choose(find_recipes(None), str(root)), (), DigestCache(tmp_path / "digests.json")
    )
    assert toolkit.architectures == ("121a",)
    (root / "nvvm/bin/cicc").write_text("another compiler")
    other = settle(
        choose(find_recipes(None), str(root)), ("90",), DigestCache(tmp_path / "digests.json")
    )
    assert other.architectures == ("90",)
    assert other.identity != toolkit.identity


def test_all_that_is_wrong_comes_in_one_refusal(tmp_path: Path) -> None:
    root = fake_root(tmp_path / "cuda", ptxas="13.2.51", cudart=12090)
    (root / "nvvm/bin/cicc").unlink()
    (root / "lib64/libcublas.so").unlink()
    with pytest.raises(ToolkitMismatchError) as caught:
        identify(root, CUDA, DigestCache(tmp_path / "digests.json"))
    text = "\n".join(caught.value.problems)
    for words in ("ptxas is 13.2.51", "expected 13.0.88", "headers is 12.9", "cicc: missing",
                  "libcublas.so: missing"):  # fmt: skip
        assert words in text
    assert len(caught.value.problems) == 4


def test_candidates_are_real_and_each_comes_once(tmp_path: Path) -> None:
    root = fake_root(tmp_path / "cuda")
    (tmp_path / "link").symlink_to(root)
    found = candidate_roots("13.0", {"CUDA_HOME": str(tmp_path / "link"), "CUDA_PATH": str(root)})
    assert found[0] == root
    assert found.count(root) == 1


def test_architectures_are_plain_and_come_once() -> None:
    assert plain_architectures(("sm_121a", "121a-real", "90", "121a")) == ("121a", "90")
    assert plain_architectures(()) == ()


@pytest.mark.parametrize("word", ["", "blackwell", "90;80", "-90", "0", "121A", "1234", "12 1"])
def test_what_is_no_architecture_is_refused(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        plain_architectures(("90", word))
    assert repr(word) in caught.value.problems[0]


def test_arch_means_nothing_to_a_cpu_build(tmp_path: Path) -> None:
    choice = choose(find_recipes(None), "cpu")
    with pytest.raises(UsageError):
        settle(choice, ("121a",), DigestCache(tmp_path / "d.json"))
    assert settle(choice, (), DigestCache(tmp_path / "d.json")).parts == ()


@pytest.mark.cuda_toolkit
def test_this_machines_own_nvcc_tells_its_version() -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH")
    version = tool_version(Path(nvcc))
    assert version is not None
    assert version.count(".") == 2
