"""ELF facts, the loader's answers, and the policy."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkbuild.build.elf import read_elf
from sparkbuild.build.loader import Resolved, loader_environment, parse_loader_list
from sparkbuild.build.policy import ALLOWED, hint, provider
from sparkbuild.errors import BinaryError

PROGRAM = Path(sys.executable).resolve()


def test_a_program_of_this_machine() -> None:
    facts = read_elf(PROGRAM)
    assert facts.interpreter is not None
    assert any(name.startswith("libc.so") for name in facts.needed)
    assert not facts.executable_stack
    assert facts.fatbins == ()


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", bytes(4096), b"\x7fELF" * 99])
def test_what_is_no_elf_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(content)
    with pytest.raises(BinaryError, match=r"libx\.so is no ELF file"):
        read_elf(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BinaryError):
        read_elf(tmp_path / "none")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 255)), max_size=6),
    data=st.data(),
)
def test_a_damaged_header_never_crashes(
    changes: list[tuple[int, int]], data: st.DataObject, tmp_path: Path
) -> None:
    content = bytearray(PROGRAM.read_bytes()[:65536])
    for position, value in changes:
        content[position] = value
    path = tmp_path / "damaged"
    path.write_bytes(content[: data.draw(st.sampled_from([65536, 4096, 300, 64]))])
    with contextlib.suppress(BinaryError):
        assert read_elf(path).machine


LOADER = """\
\tlinux-vdso.so.1 (0x00007ffe2d5f2000)
\tlibllama.so.0 => /tree/bin/libllama.so.0 (0x00007f0a6c400000)
\tlibcuda.so.1 => not found
\tlibodd.so => /a b/libodd.so (0x00007f0a6c200000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0a6c21f000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f0a6c6b1000)
"""


def test_what_the_loader_says() -> None:
    assert parse_loader_list(LOADER) == (
        Resolved(name="libllama.so.0", place="/tree/bin/libllama.so.0"),
        Resolved(name="libcuda.so.1", place=None),
        Resolved(name="libodd.so", place="/a b/libodd.so"),
        Resolved(name="libc.so.6", place="/lib/x86_64-linux-gnu/libc.so.6"),
        Resolved(name="ld-linux-x86-64.so.2", place="/lib64/ld-linux-x86-64.so.2"),
    )


def test_a_static_program_has_nothing_to_resolve() -> None:
    assert parse_loader_list("\tstatically linked\n") == ()


@given(st.text(alphabet="\tlib.so 0x()=>notfud/\n", max_size=200))
def test_any_loader_output_is_read(text: str) -> None:
    assert all(library.name for library in parse_loader_list(text))


def test_the_user_s_library_path_does_not_reach_the_loader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/hostile")
    monkeypatch.setenv("LD_PRELOAD", "/hostile/lib.so")
    assert not [name for name in loader_environment([]) if name.startswith("LD_")]
    assert loader_environment([Path("/opt/cuda")])["LD_LIBRARY_PATH"] == "/opt/cuda"
    assert loader_environment([])["CUDA_VISIBLE_DEVICES"] == "-1"


@pytest.mark.parametrize(
    ("name", "cpu", "cuda"),
    [
        ("libc.so.6", "system", "system"),
        ("libstdc++.so.6", "system", "system"),
        ("ld-linux-aarch64.so.1", "system", "system"),
        ("ld-linux-x86-64.so.2", "system", "system"),
        ("libcuda.so.1", None, "driver"),
        ("libcudart.so.13", None, "toolkit"),
        ("libcublasLt.so.13", None, "toolkit"),
        ("libgomp.so.1", None, None),
        ("libssl.so.3", None, None),
        ("libc.so.6.evil", None, None),
        ("libcurl.so.4", None, None),
        ("", None, None),
    ],
)
def test_policy(name: str, cpu: str | None, cuda: str | None) -> None:
    assert provider(name, cuda=False) == cpu
    assert provider(name, cuda=True) == cuda


def test_every_allowance_has_a_reason_and_common_intruders_a_hint() -> None:
    assert all(allowed.reason for allowed in ALLOWED)
    assert "GGML_OPENMP" in hint("libgomp.so.1")
    assert "LLAMA_OPENSSL" in hint("libcrypto.so.3")
    assert hint("libunknown.so.1") == ""
