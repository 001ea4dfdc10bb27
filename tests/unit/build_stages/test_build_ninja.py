"""Ninja's status lines and failures, from captures of real failing builds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.build.ninja import (
    ERROR_LINES,
    Failure,
    Status,
    disk_is_full,
    parse_failure,
    parse_status,
    subject,
)

Fail = Callable[[str], Failure]


@pytest.fixture
def failure(data: Path) -> Fail:
    def parse(name: str) -> Failure:
        found = parse_failure((data / "ninja" / f"{name}.txt").read_text().splitlines())
        assert found is not None
        return found

    return parse


def test_status() -> None:
    line = "[12/366] Building CUDA object ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/mmq.cu.o"
    status = parse_status(line)
    assert status == Status(finished=12, total=366, description=line.partition("] ")[2])


@pytest.mark.parametrize(
    "line",
    [
        "", "[1/2]", "[a/b] Building", "[1/2] ", " [1/2] x", "ninja: no work to do.",
        "[-- / --] x", f"[{'9' * 5000}/1] x",
    ],
)  # fmt: skip
def test_other_lines_are_no_status(line: str) -> None:
    found = parse_status(line)
    assert found is None or found.description == ""


@pytest.mark.parametrize(
    ("description", "text"),
    [
        ("Building CXX object common/CMakeFiles/llama-common.dir/arg.cpp.o", "common/arg.cpp"),
        (
            "Building CUDA object a/ggml-cuda/CMakeFiles/ggml-cuda.dir/template-instances/mmq.cu.o",
            "a/ggml-cuda/template-instances/mmq.cu",
        ),
        ("Linking CXX executable bin/llama-server", "bin/llama-server"),
        ("Provisioning UI assets", "Provisioning UI assets"),
        ("Generating", "Generating"),
        ("", ""),
    ],
)
def test_a_person_reads_the_file(description: str, text: str) -> None:
    assert subject(description) == text


def test_the_first_failure_not_the_last_page(failure: Fail) -> None:
    """Two steps failed in one run: the second was running when the first ended."""
    found = failure("include")
    assert found.outputs == "server/CMakeFiles/llama-quantize.dir/quantize.cpp.o"
    assert found.code == 1
    assert found.command.startswith("/usr/bin/c++ -DTOY_BROKEN_INCLUDE")
    assert found.command.endswith("-c /source/server/quantize.cpp")
    assert found.headline == (
        "/source/server/quantize.cpp:2:10: fatal error: no-such-header.h: No such file or directory"
    )
    assert "server.cpp" not in found.excerpt
    assert not found.out_of_memory


def test_a_linker_error_keeps_the_line_that_says_where(failure: Fail) -> None:
    found = failure("link")
    assert found.headline == (
        "quantize.cpp:(.text+0x1): undefined reference to `defined_nowhere()'"
    )
    assert found.excerpt.splitlines()[0].endswith("in function `broken()':")


def test_errors_of_nvcc_and_ptxas(failure: Fail) -> None:
    assert failure("nvcc").headline == 'bad.cu(1): error: identifier "nowhere" is undefined'
    assert failure("nvcc").code == 2
    assert failure("ptxas").headline.endswith("Unknown modifier '.op'")
    assert failure("ptxas").code == 255


@pytest.mark.parametrize(
    "line",
    [
        "c++: fatal error: Killed signal terminated program cc1plus",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "cc1plus: out of memory allocating 65536 bytes after a total of 1048576 bytes",
        "virtual memory exhausted: Cannot allocate memory",
        "Killed",
    ],
)
def test_out_of_memory_is_told(line: str) -> None:
    found = parse_failure(["[1/2] x", "FAILED: [code=1] x.o ", "c++ x", line, "", "ninja: stop"])
    assert found is not None
    assert found.out_of_memory
    assert found.headline == line


def test_an_older_ninja_tells_no_code() -> None:
    found = parse_failure(["FAILED: a.o b.o ", "c++ a", "a.c:1:1: error: x"])
    assert found is not None
    assert (found.outputs, found.code, found.headline) == ("a.o b.o", None, "a.c:1:1: error: x")


def test_ninja_s_own_error() -> None:
    found = parse_failure(["ninja: error: unknown target 'llama-servr', did you mean 'x'?"])
    assert found is not None
    assert found.headline == "unknown target 'llama-servr', did you mean 'x'?"


def test_output_that_names_no_error_begins_at_its_beginning() -> None:
    output = [f"line {number}" for number in range(20)]
    found = parse_failure(["FAILED: x", "cmd", *output, "[2/3] next"])
    assert found is not None
    assert found.excerpt.splitlines() == output[:ERROR_LINES]


def test_no_failure() -> None:
    assert parse_failure(["[1/1] Building", "warning: FAILED: not at the start"]) is None


def test_a_full_disk_is_told_apart() -> None:
    full = "fatal error: error writing to /tmp/x.s: No space left on device"
    assert disk_is_full(["[1/2] x", full])
    assert not disk_is_full(["[1/2] x", "error: no space in the name"])


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["FAILED: [code=1] x", "FAILED: ", "[1/2] x", "ninja: error: e", "a: error:"]
        ),
        st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=30),
    ),
    max_size=12,
)


@given(LINES)
def test_any_output_is_read(lines: list[str]) -> None:
    found = parse_failure(lines)
    if found is not None and found.outputs:
        assert found.command == "" or found.command in lines
        assert all(line in lines for line in found.excerpt.split("\n") if line)


@given(st.text(max_size=60))
def test_any_line_is_a_status_or_none(line: str) -> None:
    status = parse_status(line)
    if status is not None:
        assert line.startswith("[")
        assert subject(status.description) is not None
