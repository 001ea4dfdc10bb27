"""CMake's file API, from trimmed replies of CMake 3.25.1 and 4.4.5 on llama.cpp b11434."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.build.reply import QUERIES, cuda_codes, read_reply, write_queries
from sparkbuild.errors import ConfigureError


@pytest.fixture
def reply_dir(data: Path, tmp_path: Path) -> Path:
    shutil.copytree(data / "reply" / "cuda-4", tmp_path / "b")
    return tmp_path / "b"


def only(directory: Path, pattern: str) -> Path:
    (found,) = (directory / ".cmake/api/v1/reply").glob(pattern)
    return found


@pytest.mark.parametrize(("name", "version"), [("cuda-3", "3.25.1"), ("cuda-4", "4.4.5")])
def test_versions_and_compilers(name: str, version: str, data: Path) -> None:
    reply = read_reply(data / "reply" / name)
    assert reply.cmake_version == version
    assert (reply.compilers["CXX"].id, reply.compilers["CXX"].version) == ("GNU", "12.2.0")
    assert reply.compilers["CUDA"].path == "/opt/cuda-13.0/bin/nvcc"
    assert reply.compilers["CUDA"].version == ""


@pytest.mark.parametrize("name", ["cuda-3", "cuda-4", "cuda-replaced-4"])
def test_the_compile_fragments_tell_the_architecture(name: str, data: Path) -> None:
    reply = read_reply(data / "reply" / name)
    assert reply.cuda_code(["llama-server"]) == {"ggml-cuda": ("sm_121a",)}


def test_the_cache_lies(data: Path) -> None:
    cache = read_reply(data / "reply" / "cuda-replaced-4").cache
    assert cache["CMAKE_CUDA_ARCHITECTURES"].value == "121-real"


def test_an_install_tree_holds_the_programs_and_every_library_below(data: Path) -> None:
    artifacts = read_reply(data / "reply" / "cuda-4").artifacts(["llama-server", "llama-quantize"])
    assert {(a.target, a.kind) for a in artifacts} == {
        ("llama-server", "EXECUTABLE"),
        ("llama-quantize", "EXECUTABLE"),
        *(
            (name, "SHARED_LIBRARY")
            for name in (
                "ggml", "ggml-base", "ggml-cpu", "ggml-cuda", "llama", "llama-common",
                "llama-quantize-impl", "llama-server-impl", "mtmd",
            )
        ),
    }  # fmt: skip
    assert all(a.path.startswith("bin/") for a in artifacts)


@pytest.mark.parametrize("name", ["cuda-3", "cuda-4"])
def test_what_is_linked(name: str, data: Path) -> None:
    linked = read_reply(data / "reply" / name).linked(["llama-server"])
    assert "/opt/cuda-13.0/lib/libcublas.so" in linked
    assert all(path.startswith("/") for path in linked)


def test_targets_that_were_not_asked_for_stay_out(data: Path) -> None:
    reply = read_reply(data / "reply" / "cpu-3")
    assert reply.named("llama-cli") is not None
    names = {artifact.target for artifact in reply.artifacts(["llama-quantize"])}
    assert names.isdisjoint({"llama-cli", "llama-server", "mtmd"})
    assert reply.artifacts(["no-such-target"]) == ()


def test_queries_come_first(tmp_path: Path) -> None:
    write_queries(tmp_path)
    assert {p.name for p in (tmp_path / ".cmake/api/v1/query").iterdir()} == set(QUERIES)


def test_no_reply_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigureError, match="file API gave no index"):
        read_reply(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("codemodel-v2-*.json", "codemodel-v2"),
        ("cache-v2-*.json", "cache-v2"),
        ("toolchains-v1-*.json", "toolchains-v1"),
        ("target-llama-server-Release-*.json", "target-llama-server"),
    ],
)
def test_a_missing_part_is_named(pattern: str, named: str, reply_dir: Path) -> None:
    only(reply_dir, pattern).unlink()
    with pytest.raises(ConfigureError, match=f"file API gave no {named}"):
        read_reply(reply_dir)


def test_a_part_that_the_index_does_not_know_is_named(reply_dir: Path) -> None:
    index = only(reply_dir, "index-*.json")
    content = json.loads(index.read_text())
    content["reply"]["cache-v2"] = {"error": "unknown request kind"}
    index.write_text(json.dumps(content))
    with pytest.raises(ConfigureError, match="no cache-v2") as refusal:
        read_reply(reply_dir)
    assert refusal.value.problems == ("unknown request kind",)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"entries": 3}', b"\xff\xfe"])
def test_a_damaged_part_is_refused(damage: bytes, reply_dir: Path) -> None:
    only(reply_dir, "cache-v2-*.json").write_bytes(damage)
    with pytest.raises(ConfigureError, match=r"cache-v2.*cannot be read"):
        read_reply(reply_dir)


def test_the_newest_index_counts(reply_dir: Path) -> None:
    old = only(reply_dir, "index-*.json")
    old.with_name("index-0000-00-00T00-00-00-0000.json").write_text("{")
    assert read_reply(reply_dir).cmake_version == "4.4.5"


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ('-O3 "--generate-code=arch=compute_121a,code=[sm_121a]"', ["sm_121a"]),
        ("-O3 --generate-code=arch=compute_121a,code=[sm_121a]", ["sm_121a"]),
        ("-gencode arch=compute_90,code=[compute_90,sm_90]", ["compute_90", "sm_90"]),
        (
            "-gencode=arch=compute_90,code=sm_90 -gencode arch=compute_120f,code=sm_120f",
            [
                "sm_90",
                "sm_120f",
            ],
        ),
        ("-gencode=arch=compute_80,code=lto_80", ["lto_80"]),
        ("-arch=sm_90", ["sm_90", "compute_90"]),
        ("--gpu-architecture sm_90a", ["sm_90a", "compute_90a"]),
        ("-arch=compute_90 -code=sm_90,sm_86", ["sm_90", "sm_86"]),
        ("-arch=native", ["native"]),
        ("-arch", [""]),
        ("-O3 -DNAME=\"a b\" -Xcompiler '-Wall -march=native'", []),
    ],
)
def test_what_nvcc_is_told(command: str, codes: list[str]) -> None:
    assert cuda_codes(command) == codes


@given(st.lists(st.sampled_from(["90", "90a", "120f", "121a"]), min_size=1, max_size=4))
def test_every_asked_code_is_seen(architectures: list[str]) -> None:
    command = " ".join(
        f'"--generate-code=arch=compute_{name},code=[sm_{name}]"' for name in architectures
    )
    assert cuda_codes(command) == [f"sm_{name}" for name in architectures]
