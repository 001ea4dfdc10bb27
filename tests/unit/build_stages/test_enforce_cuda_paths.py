"""Every CUDA path of a reply lies below the one root, wherever the reply names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.build import cuda_paths
from sparkbuild.build.enforce import Facts, mismatches
from sparkbuild.build.output import parse_output
from sparkbuild.build.reply import (
    CacheEntry,
    Implicit,
    Link,
    Reply,
    Target,
    parse_settings,
    read_reply,
)
from sparkbuild.manifest import Patchset
from sparkbuild.toolkit.model import Toolkit

CUDA = "/opt/cuda-13.0"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another toolkit on disk, as far as a path can tell."""
    for place in ("bin/nvcc", "include/cuda_runtime_api.h", "lib64/libfoo.so"):
        (tmp_path / "other" / place).parent.mkdir(parents=True)
        (tmp_path / "other" / place).touch()
    return tmp_path / "other"


@pytest.fixture
def reply(data: Path) -> Reply:
    return read_reply(data / "reply" / "cuda-4")


def found(reply: Reply, *roots: str) -> list[tuple[str, str]]:
    linked = reply.linked(["llama-server"])
    return list(cuda_paths.strangers(reply, roots or (CUDA,), linked, {}))


def with_group(reply: Reply, language: str, **changes: Any) -> Reply:
    group = msgspec.convert({"language": language, **changes}, _group_type())
    target = Target(name="ggml-cuda", id="x", type="SHARED_LIBRARY", compile_groups=(group,))
    return msgspec.structs.replace(reply, targets=(*reply.targets, target))


def _group_type() -> Any:
    groups = next(f for f in msgspec.structs.fields(Target) if f.name == "compile_groups")
    return groups.type.__args__[0]


@pytest.mark.parametrize("name", ["cuda-3", "cuda-4", "cuda-replaced-4"])
def test_a_right_reply_has_no_stranger(name: str, data: Path) -> None:
    known = read_reply(data / "reply" / name)
    assert found(known) == []
    assert known.cuda["CMAKE_CUDA_COMPILER_TOOLKIT_ROOT"] == CUDA
    assert list(cuda_paths.settings(known, "13.0.88", "/usr/bin/c++")) == []


def test_a_mixed_reply_tells_both_toolkits(
    data: Path, make_patchset: Callable[..., Patchset], make_toolkit: Callable[..., Toolkit]
) -> None:
    """nvcc 13.2.78, and CMake's toolkit 13.0: whichever was asked for, the other is found."""
    known = read_reply(data / "reply" / "mixed-3")
    for asked, version, others in (
        (CUDA, "13.0.88", "13.2"),
        ("/opt/cuda-13.2", "13.2.78", "13.0"),
    ):
        facts = Facts(
            prose=parse_output((data / "cmake" / "mixed-3.txt").read_text()),
            reply=known,
            cmake_version=known.cmake_version,
            roots=(asked,),
        )
        toolkit = make_toolkit(root=asked, nvcc=version)
        wrong = [
            each.text
            for each in mismatches(make_patchset(LLAMA_OPENSSL="OFF"), toolkit, facts)
            if each.versions
        ]
        assert all(f"cuda-{others}" in text or f"{others}." in text for text in wrong)
        assert len(wrong) >= 8
    assert [name for name, _, _ in cuda_paths.settings(known, "13.0.88", "/usr/bin/c++")] == [
        "CMAKE_CUDA_COMPILER_TOOLKIT_VERSION in CMakeCUDACompiler.cmake",
        "CMAKE_CUDA_COMPILER_VERSION in CMakeCUDACompiler.cmake",
    ]


@pytest.mark.parametrize("language", ["CUDA", "CXX", "C"])
def test_an_include_folder_of_another_toolkit(language: str, reply: Reply, other: Path) -> None:
    includes = [{"path": f"{other}/include"}, {"path": f"{CUDA}/include"}, {"path": "/usr/include"}]
    assert found(with_group(reply, language, includes=includes)) == [
        (f"include folder of the {language} of ggml-cuda", f"{other}/include")
    ]


@pytest.mark.parametrize(
    "option", ["-I{}/include", "-isystem {}/include", '-L"{}/include"', "--options-file={}/include",
               '"-Xcompiler=-I{}/include"', "-Wl,-rpath,/build:{}/include"]
)  # fmt: skip
def test_an_option_that_names_another_toolkit(option: str, reply: Reply, other: Path) -> None:
    fragment = [{"fragment": "-O3 " + option.format(other)}]
    compiled = with_group(reply, "CUDA", compileCommandFragments=fragment)
    assert found(compiled) == [("compile options of the CUDA of ggml-cuda", f"{other}/include")]
    link = msgspec.convert({"commandFragments": fragment}, Link)
    target = Target(name="llama", id="y", type="SHARED_LIBRARY", link=link)
    linked = msgspec.structs.replace(reply, targets=(*reply.targets, target))
    assert found(linked) == [("link line of llama", f"{other}/include")]


@pytest.mark.parametrize(
    ("name", "stranger"),
    [
        ("libcudart.so", True), ("libcudart.so.13", True), ("libcudart_static.a", True),
        ("libcublasLt.so.13.1.0.3", True), ("libcublas_static.a", True), ("libcudadevrt.a", True),
        ("libcuda.so.1", False), ("librt.a", False), ("libcudarts.so", False),
    ],
)  # fmt: skip
def test_a_cuda_library_from_anywhere_on_a_link_line(
    name: str, stranger: bool, reply: Reply
) -> None:
    """A distribution's own libcudart lies between all other libraries, not in a toolkit."""
    link = msgspec.convert({"commandFragments": [{"fragment": f"/usr/lib/none/{name}"}]}, Link)
    target = Target(name="llama", id="y", type="SHARED_LIBRARY", link=link)
    linked = msgspec.structs.replace(reply, targets=(*reply.targets, target))
    expected = [("link line of llama", f"/usr/lib/none/{name}")] if stranger else []
    assert found(linked) == expected


def test_folders_that_compilers_search_unasked(reply: Reply, other: Path) -> None:
    implicit = Implicit(
        include_directories=("/usr/include", f"{other}/include"),
        link_directories=(f"{other}/lib64", f"{CUDA}/lib64"),
    )
    cxx = msgspec.structs.replace(reply.compilers["CXX"], implicit=implicit)
    cuda = {
        **reply.cuda,
        "CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES": f"/usr/lib;{other}/lib64",
        "CMAKE_CUDA_DEVICE_LINKER": "/usr/bin/nvlink",
    }
    changed = msgspec.structs.replace(reply, compilers={**reply.compilers, "CXX": cxx}, cuda=cuda)
    assert found(changed) == [
        ("CMAKE_CUDA_DEVICE_LINKER in CMakeCUDACompiler.cmake", "/usr/bin/nvlink"),
        ("CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES in CMakeCUDACompiler.cmake", f"{other}/lib64"),
        ("CXX compiler's own include folder", f"{other}/include"),
        ("CXX compiler's own library folder", f"{other}/lib64"),
    ]


@pytest.mark.parametrize(
    ("name", "kind", "stranger"),
    [
        ("NCCL_INCLUDE_DIR", "PATH", True),
        ("CCCL_DIR", "PATH", True),
        ("SOME_LIBRARY", "FILEPATH", True),
        ("_cmake_CUDAToolkit_include_directories", "INTERNAL", True),
        ("FIND_PACKAGE_MESSAGE_DETAILS_CUDAToolkit", "INTERNAL", True),
        ("CMAKE_CUDA_FLAGS", "STRING", False),
        ("SOME_TEXT", "STRING", False),
        ("CMAKE_MAKE_PROGRAM", "FILEPATH", False),
        ("CMAKE_AR", "FILEPATH", False),
        ("CMAKE_CUDA_COMPILER_LAUNCHER", "FILEPATH", False),
        ("CMAKE_CUDA_HOST_COMPILER", "FILEPATH", False),
    ],
)
def test_cache_entries(name: str, kind: str, stranger: bool, reply: Reply, other: Path) -> None:
    """CMake's own tools may lie in a conda environment that also holds a toolkit."""
    value = {
        "FIND_PACKAGE_MESSAGE_DETAILS_CUDAToolkit": f"[{other}/include][/usr/include][v13.0.88()]",
        "CMAKE_CUDA_FLAGS": f"-DSOMETHING={other.name}",
    }.get(name, f"/usr/include;{other}/include")
    entry = CacheEntry(name=name, type=kind, value=value)
    changed = msgspec.structs.replace(reply, cache={**reply.cache, name: entry})
    assert found(changed) == ([(name, f"{other}/include")] if stranger else [])


def test_a_package_file_of_another_toolkit(reply: Reply, other: Path) -> None:
    place = f"{other}/lib64/cmake/cccl/cccl-config.cmake"
    changed = msgspec.structs.replace(reply, inputs=(place,))
    assert found(changed) == [("a CMake file that was read", place)]


def test_a_path_in_the_root_that_leads_into_another(
    reply: Reply, other: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "lib64").symlink_to(other / "lib64")
    text = msgspec.json.encode(reply).replace(CUDA.encode(), str(root).encode())
    moved = msgspec.json.decode(text, type=Reply)
    places = found(moved, str(root))
    assert ("CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES in CMakeCUDACompiler.cmake",
            f"{root}/lib64") in places  # fmt: skip
    (root / "lib64").unlink()
    (root / "lib64").mkdir()
    assert found(moved, str(root)) == []


def test_another_host_compiler_behind_nvcc_and_another_version(reply: Reply) -> None:
    cuda = {**reply.cuda, "CMAKE_CUDA_HOST_COMPILER": "/opt/gcc/c++"}
    cuda["CMAKE_CUDA_COMPILER_TOOLKIT_VERSION"] = "13.0.48"
    changed = msgspec.structs.replace(reply, cuda=cuda)
    assert list(cuda_paths.settings(changed, "13.0.88", "/usr/bin/c++")) == [
        ("CMAKE_CUDA_COMPILER_TOOLKIT_VERSION in CMakeCUDACompiler.cmake", "13.0.48", "13.0.88"),
        ("CMAKE_CUDA_HOST_COMPILER in CMakeCUDACompiler.cmake", "/opt/gcc/c++", "/usr/bin/c++"),
    ]


def test_nothing_learnt_about_nvcc_is_no_agreement(reply: Reply) -> None:
    missing = msgspec.structs.replace(reply, cuda={})
    assert [item[1] for item in cuda_paths.settings(missing, "13.0.88", "/usr/bin/c++")] == [
        "none"
    ] * 4


def test_a_toolkit_is_known_by_what_is_in_it(other: Path, tmp_path: Path) -> None:
    assert cuda_paths.toolkit_above(str(other / "lib64" / "libfoo.so")) == str(other)
    assert cuda_paths.toolkit_above(str(other)) == str(other)
    assert cuda_paths.toolkit_above(str(tmp_path / "elsewhere")) is None
    headers_only = tmp_path / "nvidia" / "cuda_runtime"
    (headers_only / "include").mkdir(parents=True)
    (headers_only / "include" / "cuda_runtime_api.h").touch()
    assert cuda_paths.toolkit_above(f"{headers_only}/lib") == str(headers_only)


def test_settings_are_read_from_cmake_s_own_file(data: Path) -> None:
    text = next((data / "reply" / "mixed-3").rglob("CMakeCUDACompiler.cmake")).read_text()
    settings = parse_settings(text)
    assert settings["CMAKE_CUDA_COMPILER_VERSION"] == "13.2.78"
    assert settings["CMAKE_CUDA_HOST_COMPILER"] == "/usr/bin/c++"
    assert "CMAKE_SIZEOF_VOID_P" not in settings


@given(st.text())
def test_any_text_is_settings(text: str) -> None:
    assert all(
        name.startswith("CMAKE_CUDA_") for name in parse_settings(f'set({text} "x")\n{text}')
    )


@given(st.text(), st.text())
def test_any_fragment_and_cache_value_is_read(fragment: str, value: str) -> None:
    link = msgspec.convert({"commandFragments": [{"fragment": fragment}]}, Link)
    target = Target(name="llama", id="y", type="SHARED_LIBRARY", link=link)
    entry = CacheEntry(name="CUDAToolkit_X", type="PATH", value=value)
    reply = Reply(
        cmake_version="4", cache={"CUDAToolkit_X": entry}, compilers={}, targets=(target,)
    )
    for _, path in cuda_paths.strangers(reply, (CUDA,), (), {}):
        assert path.startswith("/")
