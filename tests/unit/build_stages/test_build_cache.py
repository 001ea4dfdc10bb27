"""The compile cache: what is asked of CMake, what names its folder, what is read of its answers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild import process
from sparkbuild.build.arguments import build_key, configure_arguments, places
from sparkbuild.build.cache import CacheUse, CompileCache, compile_cache, parse_use, serving, use
from sparkbuild.build.tools import find_tools, with_cache
from sparkbuild.errors import HostError
from sparkbuild.manifest import Patchset
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Toolkit

CACHE = CompileCache(program=Path("/opt/sccache"), folder=Path("/cache/one"))


def test_compilers_are_started_through_the_cache_and_the_key_says_so_without_places(
    make_patchset: Callable[..., Patchset],
    make_toolkit: Callable[..., Toolkit],
    tree: PatchedTree,
) -> None:
    patchset, toolkit = make_patchset(), make_toolkit(root="/opt/cuda")
    where = places(toolkit, source="/s", binary="/b", ninja="/n", cache=CACHE)
    arguments = configure_arguments(patchset, toolkit, where)
    for language in ("C", "CXX", "CUDA"):
        assert f"-DCMAKE_{language}_COMPILER_LAUNCHER=/opt/sccache" in arguments
    plain = find_tools()
    moved = dataclasses.replace(CACHE, program=Path("/else/sccache"), folder=Path("/else/two"))
    partial = dataclasses.replace(CACHE, languages=("C", "CXX"))
    keys = [
        build_key(patchset, toolkit, tree, tools=dataclasses.replace(plain, cache=cache))
        for cache in (None, CACHE, moved, partial)
    ]
    assert keys[1] == keys[2]
    assert len(set(keys)) == 3


def test_every_part_of_the_toolkit_names_the_folder(
    tmp_path: Path, make_toolkit: Callable[..., Toolkit]
) -> None:
    toolkit = make_toolkit()
    cache = compile_cache(tmp_path, toolkit)
    assert cache.languages == ("C", "CXX")
    assert cache.folder.parent == tmp_path
    host = msgspec.structs.replace(toolkit.host, sha256="f" * 64)
    assert compile_cache(tmp_path, msgspec.structs.replace(toolkit, host=host)) != cache
    assert with_cache(find_tools(), None, toolkit).cache is None


def test_a_server_is_reached_through_a_socket_of_its_own_and_ends_with_the_block(
    tmp_path: Path, make_toolkit: Callable[..., Toolkit]
) -> None:
    cache = compile_cache(tmp_path / "cache", make_toolkit())
    source = tmp_path / "one.c"
    source.write_text("int f(void) { return 1; }\n")
    argv = [str(cache.program), "cc", "-c", str(source), "-o", str(tmp_path / "one.o")]
    found = []
    for _ in range(2):
        with serving(cache, process.environment(), log=tmp_path / "log") as env:
            socket = Path(env["SCCACHE_SERVER_UDS"])
            assert socket.is_socket()
            assert socket.parent.stat().st_mode & 0o077 == 0
            assert process.capture(argv, env=env).returncode == 0
            found.append(use(cache, env))
        assert not socket.exists()
    assert found == [CacheUse(hits=0, misses=1), CacheUse(hits=1, misses=0)]


def test_a_server_that_ends_at_once_is_a_refusal(tmp_path: Path) -> None:
    cache = CompileCache(program=Path("/bin/false"), folder=tmp_path / "cache")
    with (
        pytest.raises(HostError, match="does not start"),
        serving(cache, process.environment(), log=tmp_path / "log"),
    ):
        pass


def test_hits_and_misses_of_all_languages_are_added() -> None:
    counts = {"cache_hits": {"counts": {"PTX": 2, "CUBIN": 1}},
              "cache_misses": {"counts": {"C/C++": 4}}}  # fmt: skip
    assert parse_use(json.dumps({"stats": counts})) == CacheUse(hits=3, misses=4)


@given(st.text() | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps))
def test_any_other_answer_counts_nothing(text: str) -> None:
    assert parse_use(text) == CacheUse()
