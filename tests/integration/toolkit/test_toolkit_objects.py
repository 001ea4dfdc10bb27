"""Each good release, provisioned from its lock, configures b11434 and compiles real CUDA objects.

One release is tried everywhere. The others cost about 900 MB and ten minutes each on two slow
cores: SPARKBUILD_TEST_RELEASES names them ("13.1 13.5"), or says "all".
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from sparkbuild import fatbin, process
from sparkbuild.build.cache import CacheUse, compile_cache, serving, use
from sparkbuild.build.configure import configure
from sparkbuild.build.elf import read_elf
from sparkbuild.build.tools import find_tools, with_cache
from sparkbuild.files import sha256_file
from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.book import Book, read_book

from .objects import EVERYWHERE, compile_objects, provisioned, releases

pytestmark = [pytest.mark.network, pytest.mark.real]

OBJECTS = ("acc", "add-id", "clamp", "count-equal", "diag", "diagmask", "fill", "pool1d", "roll",
           "scale", "sumrows", "tsembd")  # fmt: skip
"""The cheapest of the CUDA back end's sources: each still reads its common header and CUDA's."""


@pytest.fixture(scope="module")
def book() -> Book:
    return read_book(find_recipes(None))


@pytest.mark.parametrize("release", releases())
def test_a_good_release_compiles_real_objects_for_gb10_through_the_cache(
    release: str, book: Book, real_work: Path, real_tree: Any, cuda_root: Path, tmp_path: Path
) -> None:
    del cuda_root  # the release that is tried everywhere is the one that other tests share
    toolkit = provisioned(release, book, real_work)
    assert toolkit.architectures == ("121a",)
    patchset, _ = find_recipes(None).patchset("vision")
    tools = with_cache(find_tools(), tmp_path / "cache", toolkit)
    configuration = configure(
        patchset, toolkit, real_tree, tools=tools,
        binary_dir=tmp_path / "cmake", log=tmp_path / "configure.log",
    )  # fmt: skip
    assert configuration.cuda_toolkit_version == toolkit.part("nvcc").version
    assert configuration.cuda_architectures == ("121a",)

    objects, cold = compile_objects(configuration, tools, OBJECTS, tmp_path / "cold.log")
    assert len(objects) >= 10
    assert cold.hits == 0
    assert tools.cache is not None
    cached = "CUDA" in tools.cache.languages
    assert cached == (not configuration.warnings), configuration.warnings
    if cached:
        assert cold.misses >= len(objects)
    else:  # a cache that cannot drive this nvcc is said to, and left out
        nvcc = toolkit.part("nvcc").version
        assert any(f"cannot drive nvcc {nvcc}" in text for text in configuration.warnings)
    for name, path in objects.items():
        sections = read_elf(path).fatbins
        targets = [images for data in sections for images in fatbin.fatbin_targets(data)]
        assert fatbin.wrong_targets(targets, ["sm_121a"]) == [], name
        assert targets, name

    before = {name: path.read_bytes() for name, path in objects.items()}
    for path in objects.values():
        path.unlink()
    objects, warm = compile_objects(configuration, tools, OBJECTS, tmp_path / "warm.log")
    if not cached:
        return
    assert (warm.hits > 0, warm.misses) == (True, 0)
    assert {name: path.read_bytes() for name, path in objects.items()} == before


def _altered(root: Path, copy: Path, part: str) -> Path:
    """A copy of the root's compiler, where one program has one more byte at its end."""
    shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns("libcublas*"))
    with (copy / part).open("ab") as program:
        program.write(b"\0")
    return copy


def test_a_changed_cicc_or_ptxas_finds_nothing_of_the_old_one_in_the_cache(
    cuda_root: Path, book: Book, real_work: Path, tmp_path: Path
) -> None:
    source = tmp_path / "one.cu"
    source.write_text("__global__ void f(float * x) { x[threadIdx.x] += 3.0f; }\n")
    good = provisioned(EVERYWHERE, book, real_work)
    first = compile_cache(tmp_path / "cache", good)

    def one(root: Path, folder: Path) -> CacheUse:
        cache = replace(first, folder=folder)
        env = process.environment()
        with serving(cache, env, log=tmp_path / "cache.log") as reached:
            argv = [str(cache.program), str(root / "bin/nvcc"), "-ccbin", good.host.cxx,
                    "-gencode", "arch=compute_121a,code=sm_121a", "-c", str(source),
                    "-o", str(tmp_path / "one.o")]  # fmt: skip
            assert process.run(argv, log=tmp_path / "one.log", env=reached).returncode == 0
            return use(cache, reached)

    assert one(cuda_root, first.folder).hits == 0
    again = one(cuda_root, first.folder)
    assert (again.hits > 0, again.misses) == (True, 0)
    for part in ("nvvm/bin/cicc", "bin/ptxas"):
        name = Path(part).name
        root = _altered(cuda_root, tmp_path / name, part)
        digest = sha256_file(root / part)
        parts = tuple(
            structs.replace(one, sha256=digest) if one.name == name else one for one in good.parts
        )
        changed = structs.replace(good, root=str(root), parts=parts)
        assert compile_cache(tmp_path / "cache", changed).folder != first.folder
        # And sccache's own key counts the part, were the two ever to share a folder.
        assert one(root, first.folder).misses > 0, part
