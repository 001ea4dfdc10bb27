"""Versions as files state them."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkbuild.toolkit.identity import versions
from sparkbuild.toolkit.identity.identify import nvcc_version
from sparkbuild.toolkit.identity.versions import (
    agree,
    cccl,
    cub,
    cublas,
    embedded,
    file_version,
    macros,
    profile_places,
    shortened,
    thousands,
)

from .conftest import elf, signature

numbers = st.integers(0, 99)
dotted = st.lists(numbers, min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


def found_in(data: bytes) -> tuple[set[str], set[str]]:
    return embedded(lambda at, length: data[at : at + length], len(data))


@given(st.binary(max_size=300), numbers, numbers, numbers, st.binary(max_size=300))
def test_a_programs_version_wherever_it_lies(
    before: bytes, major: int, minor: int, patch: int, after: bytes
) -> None:
    version = f"{major}.{minor}.{patch}"
    data = before + b"\0" + signature(version, "36424714_0") + b"\0" + after
    build = f"cuda_{major}.{minor}.r{major}.{minor}/compiler.36424714_0"
    assert found_in(data) == ({version}, {build})


@given(st.integers(-700, 700))
@example(-80)
def test_a_version_across_the_border_of_two_reads(shift: int) -> None:
    data = b"\1" * (versions._CHUNK + shift) + signature("13.0.88", "1_0") + b"\1" * 900
    assert found_in(data) == ({"13.0.88"}, {"cuda_13.0.r13.0/compiler.1_0"})


@given(st.binary(max_size=2000))
def test_any_bytes_have_no_version(data: bytes) -> None:
    assert found_in(data) == (set(), set())


def test_several_versions_and_a_lie_about_the_release() -> None:
    both = signature("13.0.88", None) + signature("13.2.51", None)
    assert found_in(both)[0] == {"13.0.88", "13.2.51"}
    assert found_in(signature("13.0.88", None) * 3)[0] == {"13.0.88"}
    lie = b"Cuda compilation tools, release 12.9, V13.0.88\0"
    assert found_in(lie)[0] == {"12.9", "13.0.88"}
    assert found_in(b"release 13.0, V13.0.88")[0] == set()


def test_nvcc_version_needs_one_program_with_one_version(tmp_path: Path) -> None:
    nvcc = tmp_path / "bin/nvcc"
    assert nvcc_version(tmp_path) is None
    nvcc.parent.mkdir()
    for data, version in (
        (elf(signature("13.0.88", "1_0")), "13.0.88"),
        (elf(signature("13.0.88", "1_0") + signature("13.2.51", "1_0")), None),
        (elf(b"nothing"), None),
        (b"#!/bin/sh\n" + signature("13.0.88", "1_0"), None),
        (b"", None),
    ):
        nvcc.write_bytes(data)
        assert nvcc_version(tmp_path) == version
    nvcc.unlink()
    nvcc.mkdir()
    assert nvcc_version(tmp_path) is None


@given(st.integers(0, 99), st.integers(0, 99))
def test_runtime_versions(major: int, minor: int) -> None:
    assert thousands(major * 1000 + minor * 10) == f"{major}.{minor}"


@given(numbers, st.integers(0, 999), st.integers(0, 999))
def test_cccl_versions(major: int, minor: int, patch: int) -> None:
    assert cccl(major * 1000000 + minor * 1000 + patch) == f"{major}.{minor}.{patch}"
    assert cub(major * 100000 + minor * 100 + patch % 100) == f"{major}.{minor}.{patch % 100}"


def test_macros_as_the_real_headers_define_them() -> None:
    header = b"""
 * \\note CUB_VERSION is formatted as `MMMmmmpp`
#define CUB_VERSION 300001 // macro expansion with ## requires this to be a single value
# define CUDART_VERSION  13000
#define CUBLAS_VERSION (CUBLAS_VER_MAJOR * 10000)
#define CUDA_VERSION_OLD 1
// #define CUDA_VERSION 12000
#define CUDA_VERSION 13000
#define CCCL_MAJOR_VERSION (CCCL_VERSION / 1000000)
"""
    assert macros(header) == {
        "CUB_VERSION": (300001,),
        "CUDART_VERSION": (13000,),
        "CUDA_VERSION": (13000,),
    }
    assert macros(b"#define CUDART_VERSION 13000\n#define CUDART_VERSION 12090\n") == {
        "CUDART_VERSION": (12090, 13000)
    }


@given(st.binary(max_size=300))
def test_macros_take_any_bytes(data: bytes) -> None:
    assert macros(data) == {}


@given(st.tuples(numbers, numbers, numbers, numbers))
def test_cublas_versions_need_all_four_numbers(parts: tuple[int, int, int, int]) -> None:
    names = ("MAJOR", "MINOR", "PATCH", "BUILD")
    found = {f"CUBLAS_VER_{name}": (part,) for name, part in zip(names, parts, strict=True)}
    assert cublas(found) == ".".join(map(str, parts))
    for name in names:
        without = {key: value for key, value in found.items() if not key.endswith(name)}
        assert cublas(without) is None
    assert cublas({**found, "CUBLAS_VER_PATCH": (1, 2)}) is None


@given(dotted)
def test_library_names(version: str) -> None:
    assert file_version(f"libcublas.so.{version}") == version


@pytest.mark.parametrize(
    "name", ["libcublas.so", "libcublas.so.", "libcublas.so.13.a", "libcublas.a", "x/libc.so.1"]
)
def test_names_without_a_version(name: str) -> None:
    assert file_version(name) is None


@given(dotted, dotted)
def test_versions_agree_as_far_as_both_go(one: str, other: str) -> None:
    assert agree(one, other) == agree(other, one)
    assert agree(one, one)
    assert agree(one, f"{one}.7")
    assert agree(shortened(one), one)
    a, b = one.split("."), other.split(".")
    shared = min(len(a), len(b))
    assert agree(one, other) == (a[:shared] == b[:shared])


def test_a_shorter_number_is_no_prefix() -> None:
    assert not agree("13.0.8", "13.0.88")
    assert not agree("13", "130")


REAL_PROFILE = """
TOP              = $(_HERE_)/..

CICC_PATH        = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice

LD_LIBRARY_PATH += $(TOP)/lib:
PATH            += $(CICC_PATH):$(_HERE_):

INCLUDES        +=  "-I$(TOP)/$(_TARGET_DIR_)/include" $(_SPACE_)
SYSTEM_INCLUDES +=  "-isystem" "$(TOP)/$(_TARGET_DIR_)/include/cccl" $(_SPACE_)

LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)/stubs" "-L$(TOP)/x"
"""


def test_the_real_profile_stays_inside() -> None:
    places = profile_places(REAL_PROFILE, "/opt/cuda")
    assert "/opt/cuda/include/cccl" in places
    assert "/opt/cuda/nvvm/bin" in places
    assert all(place == "/opt/cuda" or place.startswith("/opt/cuda/") for place in places)


@pytest.mark.parametrize(
    "line",
    [
        "TOP = /usr/local/cuda-12.9",
        'INCLUDES += "-I/usr/local/cuda-12.9"',
        "INCLUDES += -I/usr/local/cuda-12.9",
        'SYSTEM_INCLUDES += "-isystem" "/usr/local/cuda-12.9"',
        "PATH += $(TOP)/bin:/usr/local/cuda-12.9:",
        'LIBRARIES =+ "-L$(TOP)/../../usr/local/cuda-12.9"',
    ],
)
def test_a_profile_that_leads_elsewhere(line: str) -> None:
    assert "/usr/local/cuda-12.9" in profile_places(REAL_PROFILE + line + "\n", "/opt/cuda")


@given(st.text(max_size=200))
def test_profiles_take_any_text(text: str) -> None:
    assert all(place.startswith("/") for place in profile_places(text, "/opt/cuda"))
