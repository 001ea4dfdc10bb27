"""What was asked against what CMake did: judged on captures of real runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.build.enforce import Facts, enforce, mismatches, remaining_warnings
from sparkbuild.build.output import parse_output
from sparkbuild.build.reply import CacheEntry, Link, Reply, ToolchainCompiler, read_reply
from sparkbuild.errors import ConfigureError, ToolkitMismatchError
from sparkbuild.manifest import Patchset
from sparkbuild.toolkit.model import Toolkit

CUDA = "/opt/cuda-13.0"
OPTIONS = {"GGML_NATIVE": "OFF", "LLAMA_OPENSSL": "OFF"}


@pytest.fixture
def facts(capture: Callable[[str], str], data: Path) -> Callable[..., Facts]:
    """Facts of a capture, with parts of them replaced."""

    def make(name: str, *, prose: str | None = None, **changes: Any) -> Facts:
        reply = read_reply(data / "reply" / (name if name != "openssl-4" else "cpu-4"))
        found = Facts(
            prose=parse_output(prose or capture(name)),
            reply=reply,
            cmake_version=reply.cmake_version,
            roots=(CUDA,),
        )
        return dataclasses.replace(found, **changes)

    return make


@pytest.fixture
def problems(
    facts: Callable[..., Facts],
    make_patchset: Callable[..., Patchset],
    make_toolkit: Callable[..., Toolkit],
) -> Callable[..., list[str]]:
    """Mismatches of a capture against what was asked for in it, with changes."""

    def find(
        name: str, *, targets: tuple[str, ...] = (), cmake: dict[str, str] | None = None,
        toolkit: dict[str, Any] | None = None, given: Facts | None = None, **changes: Any,
    ) -> list[str]:  # fmt: skip
        cuda = {} if name.startswith(("cpu", "openssl")) else {"root": CUDA}
        return [
            mismatch.text
            for mismatch in mismatches(
                make_patchset(*targets, **(OPTIONS if cmake is None else cmake)),
                make_toolkit(**{**cuda, **(toolkit or {})}),
                given or facts(name, **changes),
            )
        ]

    return find


@pytest.mark.parametrize("name", ["cpu-3", "cpu-4", "cuda-3", "cuda-4"])
def test_a_right_configuration_has_no_mismatch(
    name: str, problems: Callable[..., list[str]]
) -> None:
    assert problems(name, targets=("llama-server", "llama-mtmd-cli", "llama-quantize")) == []


def test_mixed_toolkits_are_refused_by_their_own_class(
    facts: Callable[..., Facts],
    make_patchset: Callable[..., Patchset],
    make_toolkit: Callable[..., Toolkit],
) -> None:
    """CMake 3.25, compiler of 13.2, ``CUDAToolkit_ROOT`` of 13.0: it builds, and must not."""
    log = Path("/configure.log")
    with pytest.raises(ToolkitMismatchError) as refusal:
        enforce(
            make_patchset(**OPTIONS),
            make_toolkit(root="/opt/cuda-13.2", nvcc="13.2.78"),
            facts("mixed-3", roots=("/opt/cuda-13.2",)),
            evidence=[log],
        )
    text = "\n".join(refusal.value.problems)
    assert "CUDAToolkit: expected 13.2.78, found 13.0.88" in text
    assert (
        "CUDA_cudart_LIBRARY: expected a place below /opt/cuda-13.2, found /opt/cuda-13.0" in text
    )
    assert refusal.value.evidence == (log,)


def test_every_mismatch_is_collected(
    facts: Callable[..., Facts],
    make_patchset: Callable[..., Patchset],
    make_toolkit: Callable[..., Toolkit],
) -> None:
    with pytest.raises(ConfigureError) as refusal:
        enforce(
            make_patchset("llama-servr", GGML_RPC="ON", LLAMA_OPENSSL="OFF"),
            make_toolkit(options={"GGML_NATIVE": "ON"}),
            facts("cpu-4"),
            evidence=[Path("/log")],
        )
    assert list(refusal.value.problems) == [
        "option GGML_NATIVE: expected ON, found OFF",
        "option GGML_RPC: expected ON, found OFF",
        "there is no target llama-servr; did you mean llama-server?",
    ]


def test_a_rewritten_architecture_is_a_mismatch(problems: Callable[..., list[str]]) -> None:
    found = problems("cuda-replaced-4", toolkit={"architectures": ("121",)})
    assert found == [
        "GPU code of ggml-cuda: expected sm_121, found sm_121a",
        "CMAKE_CUDA_ARCHITECTURES in use: expected 121-real, found 121a-real",
        "the sources rewrite architecture 121-real to 121a-real: ask for that one",
    ]


def test_a_second_architecture_must_be_there(problems: Callable[..., list[str]]) -> None:
    (code, using) = problems("cuda-4", toolkit={"architectures": ("90", "121a")})
    assert code == "GPU code of ggml-cuda: expected sm_121a sm_90, found sm_121a"
    assert "expected 90-real;121a-real" in using


@pytest.mark.parametrize(
    ("line", "mismatch"),
    [
        ("The C compiler", "C compiler in CMake's output: expected its identification, found none"),
        ("The CXX compiler", "CXX compiler in CMake's output"),
        ("The CUDA compiler", "CUDA compiler: expected NVIDIA 13.0.88, found no identification"),
        ("Found CUDAToolkit", "CUDAToolkit: expected 13.0.88, found no `Found CUDAToolkit`"),
    ],
)
def test_a_missing_line_is_an_error(
    line: str, mismatch: str, capture: Callable[[str], str], problems: Callable[..., list[str]]
) -> None:
    lines = [text for text in capture("cuda-4").splitlines() if line not in text]
    found = problems("cuda-4", prose="\n".join(lines))
    assert len(found) == 1
    assert found[0].startswith(mismatch)


@pytest.mark.parametrize("language", ["C", "CXX", "CUDA"])
def test_a_compiler_missing_in_the_reply_is_an_error(
    language: str, facts: Callable[..., Facts], problems: Callable[..., list[str]]
) -> None:
    known = facts("cuda-4")
    compilers = {k: v for k, v in known.reply.compilers.items() if k != language}
    reply = msgspec.structs.replace(known.reply, compilers=compilers)
    found = problems("cuda-4", given=dataclasses.replace(known, reply=reply))
    assert [text.partition(":")[0] for text in found] == [f"{language} compiler in the file API"]


def test_prose_and_reply_must_agree(
    facts: Callable[..., Facts], problems: Callable[..., list[str]]
) -> None:
    known = facts("cuda-4")
    other = ToolchainCompiler(path="/opt/gcc/c++", id="GNU", version="14.1.0")
    old = ToolchainCompiler(path=f"{CUDA}/bin/nvcc", id="NVIDIA", version="12.8.93")
    compilers = {**known.reply.compilers, "CXX": other, "CUDA": old}
    reply = msgspec.structs.replace(known.reply, compilers=compilers)
    found = problems("cuda-4", given=dataclasses.replace(known, reply=reply))
    assert found == [
        "CXX compiler's place: expected /usr/bin/c++, found /opt/gcc/c++",
        "CXX compiler in the file API: expected GNU 12.2.0 as in CMake's output, found GNU 14.1.0",
        "CUDA compiler in the file API: expected 13.0.88, found 12.8.93",
    ]


def test_another_host_compiler_behind_nvcc(
    capture: Callable[[str], str], problems: Callable[..., list[str]]
) -> None:
    prose = capture("cuda-4").replace("host compiler GNU 12.2.0", "host compiler GNU 9.4.0")
    found = problems("cuda-4", prose=prose)
    assert found == ["nvcc's host compiler: expected GNU 12.2.0, found GNU 9.4.0"]


@pytest.mark.parametrize(
    ("entry", "place", "foreign"),
    [
        ("CUDA_cublas_LIBRARY", "/usr/lib/libcublas.so", True),
        ("CUDA_cublas_LIBRARY", "/opt/cuda-13.0.1/lib/libcublas.so", True),
        ("CUDAToolkit_BIN_DIR", "/usr/local/cuda/bin", True),
        ("CUDA_bin2c_EXECUTABLE", "/usr/bin/bin2c", True),
        ("CUDAToolkit_INCLUDE_DIR", f"{CUDA}/include;/usr/include", True),
        ("CMAKE_CUDA_COMPILER", "/usr/bin/nvcc", True),
        ("CUDA_cublas_LIBRARY", f"{CUDA}/targets/sbsa-linux/lib/libcublas.so", False),
        ("CUDA_cuda_driver_LIBRARY", "/usr/lib/aarch64-linux-gnu/libcuda.so", False),
        ("CUDA_cufft_LIBRARY", "CUDA_cufft_LIBRARY-NOTFOUND", False),
    ],
)
def test_every_cuda_path_lies_below_the_toolkit(
    entry: str, place: str, foreign: bool, facts: Callable[..., Facts],
    problems: Callable[..., list[str]],
) -> None:  # fmt: skip
    known = facts("cuda-4")
    cache = {**known.reply.cache, entry: CacheEntry(name=entry, type="FILEPATH", value=place)}
    reply = msgspec.structs.replace(known.reply, cache=cache)
    found = problems("cuda-4", given=dataclasses.replace(known, reply=reply))
    assert [text.partition(":")[0] for text in found] == ([entry] if foreign else [])


@pytest.mark.parametrize("linked", [True, False])
def test_a_system_library_counts_where_it_is_linked(
    linked: bool, facts: Callable[..., Facts], problems: Callable[..., list[str]]
) -> None:
    """CMake looks for OpenCL too, and takes the system's where a toolkit has none."""
    known = facts("cuda-4")
    name, place = "CUDA_OpenCL_LIBRARY", "/usr/lib/libOpenCL.so"
    cache = {**known.reply.cache, name: CacheEntry(name=name, type="FILEPATH", value=place)}
    link = msgspec.convert({"commandFragments": [{"fragment": f"-O3 {place}"}]}, Link)
    targets = tuple(
        msgspec.structs.replace(t, link=link) if linked and t.name == "ggml-cuda" else t
        for t in known.reply.targets
    )
    reply = msgspec.structs.replace(known.reply, cache=cache, targets=targets)
    found = problems("cuda-4", given=dataclasses.replace(known, reply=reply))
    assert [text.partition(":")[0] for text in found] == ([name] if linked else [])


def test_a_root_may_have_two_names(
    facts: Callable[..., Facts], problems: Callable[..., list[str]]
) -> None:
    known = facts("cuda-4", roots=("/usr/local/cuda", CUDA))
    assert problems("cuda-4", toolkit={"root": "/usr/local/cuda"}, given=known) == []


def test_no_cuda_code_at_all(
    facts: Callable[..., Facts], problems: Callable[..., list[str]]
) -> None:
    known = facts("cuda-4")
    targets = tuple(t for t in known.reply.targets if t.name != "ggml-cuda")
    reply = msgspec.structs.replace(known.reply, targets=targets)
    found = problems("cuda-4", given=dataclasses.replace(known, reply=reply))
    assert found == ["CUDA code: expected sm_121a, found no CUDA target below the asked ones"]


def test_cuda_in_a_cpu_build(
    facts: Callable[..., Facts], problems: Callable[..., list[str]]
) -> None:
    found = problems("cpu-4", given=facts("cuda-4"))
    assert found == ["CUDA: expected none, cpu has no CUDA, found CUDA enabled"]


@pytest.mark.parametrize("name", ["unused-4", "unused-3"])
def test_unused_options_are_fatal(
    name: str, capture: Callable[[str], str], problems: Callable[..., list[str]]
) -> None:
    found = problems("cpu-4", prose=capture(name))
    assert found == ["option LLAMA_TYPO is not used by the sources"]


def test_deprecated_options_are_fatal(
    capture: Callable[[str], str], problems: Callable[..., list[str]]
) -> None:
    found = problems("cpu-4", prose=capture("deprecated-4"))
    assert [text.partition(" is")[0] for text in found] == [
        "option LLAMA_RPC", "option LLAMA_CURL",
    ]  # fmt: skip


def test_a_misspelt_ggml_option_that_cmake_calls_used(
    facts: Callable[..., Facts], problems: Callable[..., list[str]]
) -> None:
    """ggml reads all GGML_ variables, so that CMake never reports one as unused."""
    known = facts("cpu-4")
    entry = CacheEntry(name="GGML_CUDA_GRAPSH", type="UNINITIALIZED", value="ON")
    reply = msgspec.structs.replace(
        known.reply, cache={**known.reply.cache, "GGML_CUDA_GRAPSH": entry}
    )
    found = problems(
        "cpu-4",
        cmake={**OPTIONS, "GGML_CUDA_GRAPSH": "ON"},
        given=dataclasses.replace(known, reply=reply),
    )
    assert found == [
        "option GGML_CUDA_GRAPSH is not declared by the sources; did you mean GGML_CUDA_GRAPHS?"
    ]


def test_openssl_as_the_options_say(problems: Callable[..., list[str]]) -> None:
    base = {"GGML_NATIVE": "OFF"}
    (missing,) = [
        p
        for p in problems("cpu-4", cmake={**base, "LLAMA_OPENSSL": "ON"})
        if p.startswith("OpenSSL")
    ]
    assert missing == "OpenSSL: expected a version, LLAMA_OPENSSL is ON, found none"
    (unwanted,) = problems("openssl-4", cmake={**base, "LLAMA_OPENSSL": "OFF"})
    assert unwanted == "OpenSSL: expected none, LLAMA_OPENSSL is OFF, found 3.0.19"
    (chance,) = problems("openssl-4", cmake=base)
    assert chance == "OpenSSL: expected the recipe to set LLAMA_OPENSSL, found 3.0.19 by chance"


def test_openssl_s_version_is_a_fact(
    facts: Callable[..., Facts],
    make_patchset: Callable[..., Patchset],
    make_toolkit: Callable[..., Toolkit],
) -> None:
    known = facts("openssl-4")
    entry = CacheEntry(name="LLAMA_OPENSSL", type="BOOL", value="ON")
    reply = msgspec.structs.replace(
        known.reply, cache={**known.reply.cache, "LLAMA_OPENSSL": entry}
    )
    patchset = make_patchset(LLAMA_OPENSSL="ON")
    given = dataclasses.replace(known, reply=reply)
    assert enforce(patchset, make_toolkit(), given, evidence=[Path("/log")]) == "3.0.19"
    off = make_patchset(LLAMA_OPENSSL="OFF")
    assert enforce(off, make_toolkit(), facts("cpu-4"), evidence=[Path("/log")]) == "off"


def test_a_target_that_makes_no_file(problems: Callable[..., list[str]]) -> None:
    found = problems("cpu-4", targets=("llama-ui-assets",))
    assert found == ["target llama-ui-assets makes no file, it is a UTILITY"]


def test_another_cmake_than_the_one_started(
    facts: Callable[..., Facts], problems: Callable[..., list[str]]
) -> None:
    found = problems("cpu-4", given=facts("cpu-4", cmake_version="4.2.0"))
    assert found == ["CMake: expected 4.2.0, found 4.4.5"]


def test_an_empty_reply_is_all_errors(
    facts: Callable[..., Facts], problems: Callable[..., list[str]]
) -> None:
    empty = Reply(cmake_version="4.4.5", cache={}, compilers={}, targets=())
    found = problems("cuda-4", given=facts("cuda-4", reply=empty))
    text = "\n".join(found)
    for fact in ("C compiler in the file API", "CUDA compiler in the file API", "CUDA code",
                 "CMAKE_CUDA_COMPILER in the cache", "option GGML_NATIVE in the cache",
                 "there is no target llama-server"):  # fmt: skip
        assert fact in text


def test_the_warning_about_a_missing_repository_is_expected(
    capture: Callable[[str], str],
) -> None:
    other = "CMake Warning at a.cmake:1 (message):\n  something else\n\n"
    prose = parse_output(capture("cpu-4") + "\n" + other)
    assert remaining_warnings(prose) == ("a.cmake:1: something else",)
