"""Programs and libraries: what is read of them, and whether GB10 runs their GPU code."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import pytest
import zstandard

from sparkbuild.build import gb10, window
from sparkbuild.build.look import look
from sparkbuild.build.model import Look
from sparkbuild.errors import BinaryError
from sparkbuild.fatbin import MOST_UNPACKED, Image
from sparkbuild.inspect_binary import known_architectures
from sparkbuild.inspect_toolkit import compilers

from .elf import FATBINS, X86, Elf, fatbin, kernel

LLAMA = ("unknown model architecture: '", "qwen35", "glm5-next", "N18llama_model_qwen359graph_mtpE")


def seen(path: Path, elf: Elf, architectures: tuple[str, ...] = ()) -> Look:
    return look(elf.write(path / "lib.so"), architectures).look


def states(found: Look) -> dict[str, str]:
    return {one.name: one.state for one in found.findings}


@pytest.mark.parametrize(
    ("target", "way"),
    [
        ("sm_121a", "made for it"), ("sm_121f", "made for it"), ("sm_120f", "made for it"),
        ("sm_121", "without FP4"), ("sm_120", "without FP4"),
        ("sm_120a", "no"), ("sm_90", "no"), ("sm_90a", "no"), ("sm_100f", "no"), ("sm_103", "no"),
        ("sm_130", "no"), ("sm_122", "no"), ("lto_121a", "no"), ("strange", "no"), ("", "no"),
        ("compute_121a", "compiled at start"), ("compute_121", "compiled at start"),
        ("compute_120f", "compiled at start"), ("compute_90", "compiled at start"),
        ("compute_120a", "no"), ("compute_90a", "no"), ("compute_100f", "no"),
        ("compute_130", "no"),
    ],
)  # fmt: skip
def test_a_target_runs_on_gb10_or_not(target: str, way: str) -> None:
    assert gb10.way(target) == way


@pytest.mark.parametrize(
    ("containers", "uniform", "state", "found"),
    [
        ([("sm_121a",)] * 3, True, "ok", "sm_121a in 3 fat binaries"),
        ([("sm_90", "sm_120f")], True, "ok", "sm_120f, sm_90 in 1 fat binaries"),
        ([("sm_120a", "compute_120a")], True, "fault", "compute_120a, sm_120a in 1"),
        ([("sm_90",)] * 2, True, "fault", "sm_90 in 2"),
        ([("sm_121a",), ("sm_90",)], True, "warning", ", 1 of them for other GPUs alone"),
        ([("sm_121a",), ("sm_90",)], False, "ok", ", 1 of them made for GB10"),
        ([("sm_121a",), ("sm_121",)], True, "warning", ", 1 of them without FP4"),
        ([("compute_90",)], True, "fault", "compute_90"),
        ([("compute_90",), ("sm_121a",)], True, "warning", ", 1 of them compiled at start"),
        ([("sm_120",), ("sm_90",)], False, "ok", ", 1 of them without FP4"),
        ([("compute_90",), ("sm_90",)], False, "warning", ", 1 of them compiled at start"),
        ([("sm_90",), ("sm_100f",)], False, "fault", "sm_100f, sm_90 in 2"),
        ([()], True, "note", "none in this file"),
        ([], True, "note", "none in this file"),
    ],
)
def test_a_verdict_is_that_of_the_worst_file(
    containers: list[tuple[str, ...]], uniform: bool, state: str, found: str
) -> None:
    said = gb10.verdict(containers, uniform=uniform)
    assert (said.state, found in said.found) == (state, True), said
    assert bool(said.reason) is (state != "ok")
    assert bool(said.next_step) is (state in {"warning", "fault"})


def test_120a_is_said_to_run_on_another_chip_alone(tmp_path: Path) -> None:
    found = seen(tmp_path, Elf(fatbin=fatbin("s120a")))
    verdict = next(one for one in found.findings if one.name == "GPU code")
    assert verdict.state == "fault"
    assert "120a runs on compute capability 12.0 alone" in verdict.reason


def test_ggml_s_files_are_all_for_one_gpu_and_other_libraries_are_not(tmp_path: Path) -> None:
    mixed = fatbin("s121a", "s90")
    assert states(seen(tmp_path, Elf(fatbin=mixed)))["GPU code"] == "warning"
    other = Elf(fatbin=mixed, symbols=("cublasLtMatmul",))
    assert states(seen(tmp_path, other))["GPU code"] == "ok"


def test_a_frame_that_claims_much_is_not_unpacked() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(5000))
    assert Image(target="sm_90", stored=frame, real_size=5000).unpacked() == bytes(5000)
    assert Image(target="sm_90", stored=frame, real_size=5001).unpacked() is None
    assert Image(target="sm_90", stored=frame, real_size=MOST_UNPACKED + 1).unpacked() is None
    huge = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    assert Image(target="sm_90", stored=huge, real_size=5000).unpacked() is None


def test_all_that_a_library_tells_is_read(tmp_path: Path) -> None:
    elf = Elf(
        fatbin=fatbin("s121asize", "b"), build=11434, commit="0f834b00eb9e",
        needed=("libcudart.so.13", "libc.so.6"), texts=(*LLAMA, kernel(8, 8), kernel(1, 8)),
    )  # fmt: skip
    found = seen(tmp_path, elf, known_architectures())
    assert (found.machine, found.type, found.soname) == (
        "EM_AARCH64", "library", "libggml-cuda.so.0",
    )  # fmt: skip
    assert found.needed == ("libcudart.so.13", "libc.so.6")
    assert found.build_id == bytes(range(20)).hex()
    assert (found.build, found.commit) == (11434, "0f834b00eb9e")
    assert found.architectures == ("glm5-next", "qwen35")
    assert found.drafts == ("qwen35",)
    assert found.kv_pairs == ("f16-q8_0", "q8_0-q8_0")
    told = {one.target: (one.kind, one.fat_binaries) for one in found.gpu}
    assert told == {"sm_121a": ("SASS", 2), "sm_90": ("SASS", 1), "compute_121a": ("PTX", 1)}
    assert set(states(found).values()) == {"ok"}


def test_a_commit_that_is_filled_in_already_is_read(tmp_path: Path) -> None:
    elf = Elf(relocated=False, build=7, commit="abcdef")
    assert seen(tmp_path, elf).commit == "abcdef"
    x86 = seen(tmp_path, Elf(machine=X86, build=7, commit="abcdef"))
    assert (x86.commit, x86.machine, states(x86)["machine"]) == ("abcdef", "EM_X86_64", "note")
    assert seen(tmp_path, Elf()).commit is None


@pytest.mark.parametrize(
    ("elf", "name", "state"),
    [
        (Elf(needed=("libcudart.so.12", "libcublas.so.13")), "CUDA libraries", "fault"),
        (Elf(needed=("libcudart.so.13", "libcublasLt.so.13")), "CUDA libraries", "ok"),
        (Elf(runpath="/usr/local/cuda/lib64"), "search path", "warning"),
        (Elf(rpath="$ORIGIN"), "search path", "warning"),
        (Elf(runpath="$ORIGIN:${ORIGIN}/../lib"), "search path", "ok"),
        (Elf(runpath=""), "search path", "ok"),
    ],
)
def test_what_is_wrong_with_its_libraries_is_told(
    elf: Elf, name: str, state: str, tmp_path: Path
) -> None:
    assert states(seen(tmp_path, elf))[name] == state


def test_who_made_gpu_code_is_read_from_it(tmp_path: Path) -> None:
    for name, version in (("s121a", "13.0.88"), ("s121asize", "13.0.88"), ("n132", "13.2.78")):
        path = Elf(fatbin=fatbin(name)).write(tmp_path / "lib.so")
        assert compilers(look(path)) == (version,), name
    assert compilers(look(Elf(fatbin=fatbin("p121a")).write(tmp_path / "lib.so"))) == ()


def test_a_program_of_this_machine_is_looked_at() -> None:
    found = look(Path(sys.executable).resolve()).look
    assert (found.type, found.fat_binaries) == ("program", 0)
    assert any(name.startswith("libc.so") for name in found.needed)


@pytest.mark.parametrize(
    "flags",
    [
        {"phentsize": 0, "phnum": 0xFFFF},
        {"shentsize": 0, "shnum": 0xFFFF},
        {"phnum": 0xFFFF, "phoff": 0},
        {"shoff": 1 << 62},
        {"shnum": 0},
        {"shstrndx": 0xFFFF},
        {"phoff": (1 << 64) - 1},
    ],
)
def test_huge_counts_end_soon(flags: dict[str, int], tmp_path: Path) -> None:
    path = Elf(fatbin=fatbin("s121a"), flags=flags).write(tmp_path / "lib.so")
    begin = time.process_time()
    try:
        look(path)
    except BinaryError as error:
        assert error.problems  # noqa: PT017 - taken or refused, each is right
    assert time.process_time() - begin < 20


def test_a_file_that_reads_for_ever_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "MOST_READS", 50)
    with pytest.raises(BinaryError) as caught:
        look(Elf().write(tmp_path / "lib.so"))
    assert "more than 50 reads" in caught.value.problems[0]


def test_gpu_code_past_the_end_is_damage(tmp_path: Path) -> None:
    data = Elf(fatbin=fatbin("s121a")).data()
    path = tmp_path / "lib.so"
    at = data.index((FATBINS / "s121a").read_bytes()[:16])
    section = data.index(at.to_bytes(8, "little") * 2)
    broken = bytearray(data)
    broken[section + 16 : section + 24] = (1 << 40).to_bytes(8, "little")
    path.write_bytes(broken)
    with pytest.raises(BinaryError, match="damaged"):
        look(path)


def test_a_terabyte_of_nothing_costs_nothing(tmp_path: Path) -> None:
    path = Elf(texts=(kernel(8, 8),), symbols=("main",)).write(tmp_path / "lib.so")
    os.truncate(path, 1 << 40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    found = look(path).look
    assert (found.size, found.kv_pairs) == (1 << 40, ())
    assert time.process_time() - begin < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_gpu_code_that_is_a_hole_is_refused(tmp_path: Path) -> None:
    path = Elf(fatbin=bytes(2 << 20)).write(tmp_path / "lib.so")
    with pytest.raises(BinaryError) as caught:
        look(path)
    assert "more than 1048576 zero bytes at offset 0" in caught.value.problems[0]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(make: object, tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    make(path)  # type: ignore[operator]
    with pytest.raises(BinaryError, match=r"lib\.so cannot be looked at"):
        look(path)
