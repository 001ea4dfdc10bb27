"""CMake's prose, from captures of CMake 3.25.1 and 4.4.5 on llama.cpp b11434."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.build.output import Prose, deprecated_names, parse_output

Capture = Callable[[str], str]


@pytest.mark.parametrize("cmake", ["3", "4"])
def test_cpu(cmake: str, capture: Capture) -> None:
    prose = parse_output(capture(f"cpu-{cmake}"))
    found = {c.language: c.identification for c in prose.compilers}
    assert found == {"C": "GNU 12.2.0", "CXX": "GNU 12.2.0", "ASM": "GNU"}
    assert prose.toolkit_version is None
    assert prose.architectures is None
    assert prose.openssl is None
    assert not prose.openssl_missing
    assert (prose.errors, prose.unused, prose.deprecated) == ((), (), ())
    assert [w.place for w in prose.warnings] == ["common/CMakeLists.txt:33"]
    assert prose.warnings[0].summary.endswith("and the project is a Git repository.")


@pytest.mark.parametrize(
    ("name", "include", "host"),
    [
        ("cuda-3", ("/opt/cuda-13.0/include",), None),
        ("cuda-4", ("/opt/cuda-13.0/include", "/opt/cuda-13.0/include/cccl"), "GNU 12.2.0"),
    ],
)
def test_cuda(name: str, include: tuple[str, ...], host: str | None, capture: Capture) -> None:
    prose = parse_output(capture(name))
    compiler = prose.compiler("CUDA")
    assert compiler is not None
    assert compiler.identification == "NVIDIA 13.0.88"
    assert compiler.host == host
    assert prose.toolkit_version == "13.0.88"
    assert prose.toolkit_include == include
    assert prose.architectures == ("121a-real",)
    assert prose.replaced == ()


def test_the_two_lines_as_a_spark_prints_them() -> None:
    prose = parse_output(
        "-- The CUDA compiler identification is NVIDIA 13.0.88\n"
        "-- Found CUDAToolkit: /usr/local/cuda-13.0/targets/sbsa-linux/include "
        '(found suitable version "13.0.88", minimum required is "12")\n'
    )
    assert prose.toolkit_version == "13.0.88"
    assert prose.toolkit_include == ("/usr/local/cuda-13.0/targets/sbsa-linux/include",)


@pytest.mark.parametrize("cmake", ["3", "4"])
def test_a_rewritten_architecture(cmake: str, capture: Capture) -> None:
    prose = parse_output(capture(f"cuda-replaced-{cmake}"))
    assert prose.replaced == (("121-real", "121a-real"),)
    assert prose.architectures == ("121a-real",)


def test_the_machine_s_own_gpu_is_no_fact_of_the_build() -> None:
    line = "-- Replacing 121-real in CMAKE_CUDA_ARCHITECTURES_NATIVE with 121a-real"
    assert parse_output(line).replaced == ()


def test_mixed_toolkits_differ_in_prose(capture: Capture) -> None:
    prose = parse_output(capture("mixed-3"))
    compiler = prose.compiler("CUDA")
    assert compiler is not None
    assert (compiler.identification, prose.toolkit_version) == ("NVIDIA 13.2.78", "13.0.88")


@pytest.mark.parametrize("name", ["unused-3", "unused-4", "colour-4"])
def test_unused_variables(name: str, capture: Capture) -> None:
    prose = parse_output(capture(name))
    assert prose.unused == ("LLAMA_TYPO",)
    assert [w.place for w in prose.warnings] == ["common/CMakeLists.txt:33"]


def test_several_unused_variables() -> None:
    text = (
        "CMake Warning:\n  Manually-specified variables were not used by the project:\n\n"
        "    A_ONE\n    B_TWO\n\n\n-- Build files have been written to: /b\n"
    )
    assert parse_output(text).unused == ("A_ONE", "B_TWO")


@pytest.mark.parametrize("cmake", ["3", "4"])
def test_deprecated_options(cmake: str, capture: Capture) -> None:
    prose = parse_output(capture(f"deprecated-{cmake}"))
    names = [name for message in prose.deprecated for name in deprecated_names(message)]
    assert names == ["LLAMA_RPC", "LLAMA_CURL"]
    assert prose.deprecated[1].summary == (
        "CMakeLists.txt:181: LLAMA_CURL is deprecated and will be ignored"
    )
    assert not any("deprecated" in warning.text for warning in prose.warnings)


def test_an_option_deprecated_by_message_deprecation_over_two_lines() -> None:
    text = (
        "CMake Deprecation Warning at tools/ui/CMakeLists.txt:9 (message):\n"
        "  LLAMA_BUILD_WEBUI\n  is deprecated, use LLAMA_BUILD_UI instead\n\n\n"
    )
    (message,) = parse_output(text).deprecated
    assert deprecated_names(message) == ("LLAMA_BUILD_WEBUI",)


def test_cmake_s_own_deprecations_are_warnings() -> None:
    text = (
        "CMake Deprecation Warning at CMakeLists.txt:1 (cmake_minimum_required):\n"
        "  Compatibility with CMake < 3.10 will be removed from a future version of\n  CMake.\n\n"
    )
    prose = parse_output(text)
    assert prose.deprecated == ()
    assert [warning.place for warning in prose.warnings] == ["CMakeLists.txt:1"]


@pytest.mark.parametrize("name", ["error-3", "error-4", "colour-error-4"])
def test_the_first_error_has_its_place(name: str, capture: Capture) -> None:
    prose = parse_output(capture(name))
    assert prose.errors[0].place == "CMakeLists.txt:178"
    assert prose.errors[0].text == "LLAMA_CUBLAS is deprecated, use GGML_CUDA instead"
    assert prose.deprecated == ()


def test_errors_without_a_line() -> None:
    text = (
        'CMake Error: The source directory "/x" does not exist.\n'
        "CMake Error in tools/CMakeLists.txt:\n  Imported target includes a bad path\n\n"
    )
    first, second = parse_output(text).errors
    assert (first.place, first.text) == ("", 'The source directory "/x" does not exist.')
    assert (second.place, second.text) == (
        "tools/CMakeLists.txt", "Imported target includes a bad path",
    )  # fmt: skip


@pytest.mark.parametrize("cmake", ["3", "4"])
def test_openssl_found(cmake: str, capture: Capture) -> None:
    prose = parse_output(capture(f"openssl-{cmake}"))
    assert prose.openssl == "3.0.19"
    assert not prose.openssl_missing


def test_openssl_missing() -> None:
    text = (
        "-- Could NOT find OpenSSL, try to set the path to OpenSSL root folder in the system "
        "variable OPENSSL_ROOT_DIR (missing: OPENSSL_CRYPTO_LIBRARY)\n"
        "CMake Warning at vendor/cpp-httplib/CMakeLists.txt:154 (message):\n"
        "  OpenSSL not found, HTTPS support disabled\n\n"
    )
    prose = parse_output(text)
    assert prose.openssl is None
    assert prose.openssl_missing


@pytest.mark.parametrize("name", ["cuda-3", "cuda-4", "unused-4", "deprecated-3", "error-4"])
def test_carriage_returns_and_colours_change_nothing(name: str, capture: Capture) -> None:
    plain = parse_output(capture(name))
    lines = capture(name).splitlines()
    assert parse_output("\r\n".join(lines)) == plain
    assert parse_output("\n".join(f"\x1b[0;33m{line}\x1b[0m" for line in lines)) == plain


@given(st.text(alphabet=st.sampled_from('CMake ErorWnig:()-\n\r\x1b[0m";=1.5/_A'), max_size=400))
def test_any_text_gives_facts(text: str) -> None:
    assert isinstance(parse_output(text), Prose)


@given(st.data())
def test_a_cut_capture_invents_no_fact(data: st.DataObject) -> None:
    """A log that ends anywhere gives a part of the facts of the whole one."""
    text = (
        "-- The CUDA compiler identification is NVIDIA 13.0.88 with host compiler GNU 12.2.0\n"
        '-- Found CUDAToolkit: /a;/b (found version "13.0.88")\n'
        "-- Replacing 121 in CMAKE_CUDA_ARCHITECTURES with 121a\n"
    )
    cut = parse_output(text[: data.draw(st.integers(0, len(text)))])
    whole = parse_output(text)
    assert cut.toolkit_version in {None, whole.toolkit_version}
    assert cut.toolkit_include in {(), whole.toolkit_include}
