"""CMake's command line and the build key."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable

import msgspec
import pytest

from sparkbuild.build.arguments import build_key, configure_arguments, places
from sparkbuild.build.tools import Tools
from sparkbuild.errors import ConfigureError
from sparkbuild.manifest import Patchset
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Toolkit

MakePatchset = Callable[..., Patchset]
MakeToolkit = Callable[..., Toolkit]


def options(patchset: Patchset, toolkit: Toolkit, source: str = "/source") -> dict[str, str]:
    where = places(toolkit, source=source, binary="/build", ninja="/opt/ninja")
    arguments = configure_arguments(patchset, toolkit, where)
    settings = [argument for argument in arguments if argument.startswith("-D")]
    return dict(setting.removeprefix("-D").split("=", 1) for setting in settings)


def test_what_is_tested_is_what_is_packed(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    found = options(make_patchset(), make_toolkit())
    assert found["CMAKE_INSTALL_RPATH"] == "$ORIGIN"
    assert found["CMAKE_BUILD_WITH_INSTALL_RPATH"] == "ON"
    for kind in ("EXE", "SHARED", "MODULE"):
        assert "--build-id=sha1" in found[f"CMAKE_{kind}_LINKER_FLAGS"]
        assert " " not in found[f"CMAKE_{kind}_LINKER_FLAGS"]


def test_the_generator_is_the_pinned_ninja(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    toolkit = make_toolkit()
    where = places(toolkit, source="/source", binary="/build", ninja="/opt/ninja")
    arguments = configure_arguments(make_patchset(), toolkit, where)
    assert arguments[:6] == ("-S", "/source", "-B", "/build", "-G", "Ninja")
    assert "-DCMAKE_MAKE_PROGRAM=/opt/ninja" in arguments
    assert not any("warn" in argument for argument in arguments)


def test_cuda_pins_compiler_toolkit_and_host_together(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    toolkit = make_toolkit(root="/opt/cuda", architectures=("121a", "90"))
    found = options(make_patchset(), toolkit)
    assert found["CMAKE_CUDA_COMPILER"] == "/opt/cuda/bin/nvcc"
    assert found["CUDAToolkit_ROOT"] == "/opt/cuda"
    assert found["CMAKE_CUDA_HOST_COMPILER"] == "/usr/bin/c++"
    assert found["CMAKE_CUDA_ARCHITECTURES"] == "121a-real;90-real"


def test_cuda_objects_are_made_by_a_rule_that_knows_no_place(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    """Seed and path are the object's own name; the temporary file's name is taken out."""
    rule = options(make_patchset(), make_toolkit(root="/opt/cuda"))["CMAKE_CUDA_COMPILE_OBJECT"]
    compile_it, _, clean_it = rule.partition(";")
    assert "--frandom-seed=<OBJECT> -Xcudafe --orig_src_path_name=<OBJECT>" in compile_it
    assert compile_it.endswith("-x cu <CUDA_COMPILE_MODE> <SOURCE> -o <OBJECT>")
    assert "-ccbin=/usr/bin/c++" in compile_it
    assert clean_it == "objcopy --wildcard --strip-symbol='*.cudafe1.cpp' <OBJECT>"


def test_a_cuda_build_finds_nvidia_s_wheels_beside_it(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    def found(nvcc: str) -> str:
        toolkit = make_toolkit(root="/opt/cuda", nvcc=nvcc)
        return options(make_patchset(), toolkit)["CMAKE_INSTALL_RPATH"]

    assert found("13.0.88") == "$ORIGIN;$ORIGIN/../../nvidia/cu13/lib"
    assert found("14.1.2") == "$ORIGIN;$ORIGIN/../../nvidia/cu14/lib"
    assert found("12.9.86") == (
        "$ORIGIN;$ORIGIN/../../nvidia/cuda_runtime/lib;$ORIGIN/../../nvidia/cublas/lib"
    )


def test_nvcc_hands_a_folder_with_a_space_on_through_two_shells(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    found = options(make_patchset(), make_toolkit(root="/opt/cuda"), source="/a b")
    words = shlex.split(found["CMAKE_CUDA_FLAGS"])
    assert words[-1] == "-Xcompiler=-ffile-prefix-map='/a b=llama.cpp'"
    assert "-Xcompiler=-ffile-prefix-map=/opt/cuda=cuda" in words


def test_a_cpu_build_is_told_nothing_about_cuda(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    """CMake would report each as unused."""
    assert not [name for name in options(make_patchset(), make_toolkit()) if "CUDA" in name]


def test_a_folder_with_a_space_stays_one_flag(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    found = options(make_patchset(), make_toolkit(), source="/a b")
    assert found["CMAKE_CXX_FLAGS"].endswith("-ffile-prefix-map='/a b=llama.cpp'")
    # CMake drops quotes around a whole value: two flags would become parts of many.
    assert not found["CMAKE_CXX_FLAGS"].startswith("'")


def test_a_recipe_s_flags_go_after_ours(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    found = options(make_patchset(CMAKE_CXX_FLAGS="-g1"), make_toolkit())
    assert found["CMAKE_CXX_FLAGS"].startswith("-ffile-prefix-map=")
    assert found["CMAKE_CXX_FLAGS"].endswith(" -g1")


def test_every_contradiction_is_told_at_once(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    patchset = make_patchset(GGML_NATIVE="ON", CMAKE_BUILD_TYPE="Debug", GGML_RPC="OFF")
    toolkit = make_toolkit(options={"GGML_NATIVE": "OFF", "GGML_RPC": "OFF"})
    with pytest.raises(ConfigureError) as refusal:
        options(patchset, toolkit)
    assert len(refusal.value.problems) == 2
    text = "\n".join(refusal.value.problems)
    assert "CMAKE_BUILD_TYPE: 'Release' (sparkbuild) against 'Debug' (patchset vision)" in text
    assert "GGML_NATIVE: 'ON' (patchset vision) against 'OFF' (toolchain cpu)" in text


@pytest.mark.parametrize("name", ["", "A B", "-X", "A=B", "A\nB", "CMAKE_X:BOOL"])
def test_what_is_no_option_name_is_refused(
    name: str, make_patchset: MakePatchset, make_toolkit: MakeToolkit
) -> None:
    with pytest.raises(ConfigureError):
        options(make_patchset(**{name: "ON"}), make_toolkit())


def test_a_moved_checkout_keeps_its_key(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit, tree: PatchedTree, tools: Tools
) -> None:
    here = build_key(make_patchset(), make_toolkit(root="/opt/cuda"), tree, tools=tools)
    moved = msgspec.structs.replace(tree, directory="/elsewhere")
    toolkit = make_toolkit(root="/usr/local/cuda-13.0")
    assert build_key(make_patchset(), toolkit, moved, tools=tools) == here


def test_whatever_changes_the_binaries_changes_the_key(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit, tree: PatchedTree, tools: Tools
) -> None:
    cuda = {"root": "/opt/cuda"}
    keys = [
        build_key(make_patchset(), make_toolkit(**cuda), tree, tools=tools),
        build_key(make_patchset(GGML_RPC="ON"), make_toolkit(**cuda), tree, tools=tools),
        build_key(make_patchset("llama-quantize"), make_toolkit(**cuda), tree, tools=tools),
        build_key(make_patchset(), make_toolkit(), tree, tools=tools),
        build_key(make_patchset(), make_toolkit(**cuda, nvcc="13.2.78"), tree, tools=tools),
        build_key(make_patchset(), make_toolkit(**cuda, architectures=("90",)), tree, tools=tools),
    ]
    other = msgspec.structs.replace(tree, commit="f" * 40)
    keys.append(build_key(make_patchset(), make_toolkit(**cuda), other, tools=tools))
    newer = [
        dataclasses.replace(tools, cmake_version="99.0"),
        dataclasses.replace(tools, ninja_version="99.0"),
    ]
    keys += [build_key(make_patchset(), make_toolkit(**cuda), tree, tools=t) for t in newer]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 for key in keys)


def test_the_order_of_targets_is_no_difference(
    make_patchset: MakePatchset, make_toolkit: MakeToolkit, tree: PatchedTree, tools: Tools
) -> None:
    one = build_key(make_patchset("a", "b"), make_toolkit(), tree, tools=tools)
    assert build_key(make_patchset("b", "a"), make_toolkit(), tree, tools=tools) == one
