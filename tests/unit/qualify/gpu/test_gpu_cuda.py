"""The CUDA driver through ctypes, held against a library with the same functions."""

from __future__ import annotations

import shutil
import struct
import subprocess  # noqa: TID251 - the C compiler of a stand-in
from pathlib import Path

import numpy as np
import pytest

from sparkbuild.errors import GpuError
from sparkbuild.qualify.gpu import cuda
from sparkbuild.qualify.gpu.cuda import Cuda
from sparkbuild.qualify.gpu.driver import Device, DriverError

SOURCE = Path(__file__).parent / "fake_cuda.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("fake") / "libcuda.so.1"
    argv = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(made), str(SOURCE)]
    subprocess.run(argv, check=True)
    return str(made)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKE_CUDA", raising=False)
    monkeypatch.setattr(cuda, "_release", lambda: "")


def test_the_device_says_what_it_is(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Cuda(library).look()
    assert found == Device(name="Fake GPU", capability=(12, 1), driver="for CUDA 13.1")
    assert found.target == "121a"
    monkeypatch.setattr(cuda, "_release", lambda: "580.95.05")
    assert str(Cuda(library).look()) == "Fake GPU (sm_121), driver 580.95.05"


def test_targets_with_all_instructions_of_a_device() -> None:
    made = [Device(name="", capability=one, driver="") for one in ((8, 6), (9, 0), (10, 3))]
    assert [one.target for one in made] == ["86", "90a", "103a"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [("none", "shows no GPU"), ("old", "cannot be used")],
)
def test_no_usable_gpu_is_a_refusal_with_a_next_step(
    library: str, monkeypatch: pytest.MonkeyPatch, asked: str, words: str
) -> None:
    monkeypatch.setenv("FAKE_CUDA", asked)
    for call in (Cuda(library).look, Cuda(library).open):
        with pytest.raises(GpuError, match=words) as caught:
            call()
        assert "nvidia-smi" in caught.value.next_step
    if asked == "old":
        assert "CUDA_ERROR_MISMATCH (803)" in caught.value.problems[0]


def test_no_driver_is_a_refusal_with_a_next_step(tmp_path: Path) -> None:
    for name in ("libcuda-that-nobody-has.so.1", shutil.which("true") or "", "libc.so.6"):
        with pytest.raises(GpuError, match="no CUDA driver") as caught:
            Cuda(name).look()
        assert caught.value.exit_code == 27
        assert "leave out --on gpu" in caught.value.next_step


def test_memory_modules_and_launches(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("FAKE_CUDA_LOG", str(log))
    driver = Cuda(library).open()
    module = driver.load(b"ab\0cd and so on")
    function = driver.function(module, "kernel", 100_000)
    out = driver.allocate(32)
    driver.write(out, np.arange(32, dtype=np.uint8))
    assert driver.read(out + 4, 3).tolist() == [4, 5, 6]
    arguments = [out.to_bytes(8, "little"), struct.pack("<3i", 1, 20, 300)]
    driver.launch(function, (2, 3, 4), (5, 6, 7), 100_000, arguments)
    assert driver.read(out, 32).view(np.int32).tolist() == [321, 2, 3, 4, 5, 6, 7, 100_000]
    assert driver.variable(module, "four") == (0x7F00_0000_0004, 12)
    driver.free(out)
    driver.unload(module)
    assert log.read_text().split() == [
        "shared", "100000", "alloc", "32", "free", "0", "unload", str(0x1234567890),
    ]  # fmt: skip


def test_errors_have_their_call_code_and_words(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Cuda(library).open()
    with pytest.raises(DriverError, match=r"cuModuleLoadData: unknown \(209\): in words"):
        driver.load(b"ab\1cd")
    module = driver.load(b"ab\0cd")
    with pytest.raises(DriverError) as caught:
        driver.function(module, "other", 0)
    assert (caught.value.call, caught.value.code) == ("cuModuleGetFunction", 500)
    monkeypatch.setenv("FAKE_CUDA", "fault")
    function, out = driver.function(module, "kernel", 0), driver.allocate(32)
    with pytest.raises(DriverError) as caught:
        driver.launch(function, (1, 1, 1), (1, 1, 1), 0, [out.to_bytes(8, "little"), bytes(12)])
    assert (caught.value.call, caught.value.code) == ("cuCtxSynchronize", 700)
    assert caught.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS"


def test_the_drivers_release_is_read_where_the_kernel_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    told = tmp_path / "version"
    told.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
        "GCC version:  gcc version 13.3.0\n"
    )
    monkeypatch.setattr(cuda, "_KERNEL_MODULE", told)
    assert cuda._release() == "580.95.05"
    monkeypatch.setattr(cuda, "_KERNEL_MODULE", tmp_path / "none")

    def none(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", none)
    assert cuda._release() == ""
