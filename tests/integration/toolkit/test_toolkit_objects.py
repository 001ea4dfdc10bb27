"""Each good release, provisioned from its lock, configures b11434 and compiles real CUDA objects.

One release is tried everywhere. The others cost about 900 MB and ten minutes each on two slow
cores: SPARKBUILD_TEST_RELEASES names them ("13.1 13.5"), or says "all".
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from sparkbuild import fatbin, process
from sparkbuild.build import surroundings
from sparkbuild.build.cache import CacheUse, compile_cache, serving, use
from sparkbuild.build.configure import configure
from sparkbuild.build.elf import read_elf
from sparkbuild.build.model import Configuration
from sparkbuild.build.tools import Tools, find_tools, with_cache
from sparkbuild.files import DigestCache, sha256_file
from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.toolkit.book import Book, read_book
from sparkbuild.toolkit.choice.select import choose, settle
from sparkbuild.toolkit.model import Toolkit
from sparkbuild.toolkit.provision.provision import install
from sparkbuild.toolkit.provision.tree import default_root
from sparkbuild.toolkit.trial.trial import try_toolkit

pytestmark = [pytest.mark.network, pytest.mark.real]

GOOD = ("13.0", "13.1", "13.2.2", "13.3", "13.4", "13.5")
EVERYWHERE = "13.0"
OBJECTS = ("acc", "add-id", "clamp", "count-equal", "diag", "diagmask", "fill", "pool1d", "roll",
           "scale", "sumrows", "tsembd")  # fmt: skip
"""The cheapest of the CUDA back end's sources: each still reads its common header and CUDA's."""


def _releases() -> list[Any]:
    asked = os.environ.get("SPARKBUILD_TEST_RELEASES", "").split()
    reason = "SPARKBUILD_TEST_RELEASES does not name this release"
    return [
        pytest.param(name, marks=[pytest.mark.skip(reason=reason)])
        if name != EVERYWHERE and name not in asked and "all" not in asked
        else name
        for name in GOOD
    ]


@pytest.fixture(scope="module")
def book() -> Book:
    return read_book(find_recipes(None))


def _toolkit(release: str, book: Book, work: Path) -> Toolkit:
    """Provisioned, chosen by its release as ``make`` does it, and tried."""
    platform: Any = current_platform()
    root = default_root(work / "toolkits", f"cuda-{release}", platform)
    install(book, f"cuda-{release}", platform, root=root, downloads=work / "downloads",
            progress=lambda *_: None)  # fmt: skip
    choice = choose(find_recipes(None), str(root))
    toolkit = settle(choice, (), DigestCache(work / "digests.json"), book=book,
                     provisioned=work / "toolkits")  # fmt: skip
    try_toolkit(toolkit, folder=work / "trials")
    return toolkit


def _compile(
    configuration: Configuration, tools: Tools, names: Sequence[str], log: Path
) -> tuple[dict[str, Path], CacheUse]:
    """Compile objects of ggml-cuda as the build stage would."""
    directory = Path(configuration.binary_dir)
    own = directory / surroundings.TOOLS_DIRECTORY
    env = surroundings.build_environment(own, [c.path for c in configuration.compilers])
    objects = {name: f"ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/{name}.cu.o" for name in names}
    argv = [str(tools.ninja), "-C", str(directory), "-j", "2", *objects.values()]
    with serving(tools.cache, env, log=log.with_name("cache.log")) as reached:
        done = process.run(argv, log=log, env=reached)
        assert done.returncode == 0, done.tail
        used = use(tools.cache, reached) if tools.cache else CacheUse()
    return {name: directory / path for name, path in objects.items()}, used


@pytest.mark.parametrize("release", _releases())
def test_a_good_release_compiles_real_objects_for_gb10_through_the_cache(
    release: str, book: Book, real_work: Path, real_tree: Any, cuda_root: Path, tmp_path: Path
) -> None:
    del cuda_root  # the release that is tried everywhere is the one that other tests share
    toolkit = _toolkit(release, book, real_work)
    assert toolkit.architectures == ("121a",)
    patchset, _ = find_recipes(None).patchset("vision")
    tools = with_cache(find_tools(), tmp_path / "cache", toolkit)
    configuration = configure(
        patchset, toolkit, real_tree, tools=tools,
        binary_dir=tmp_path / "cmake", log=tmp_path / "configure.log",
    )  # fmt: skip
    assert configuration.cuda_toolkit_version == toolkit.part("nvcc").version
    assert configuration.cuda_architectures == ("121a",)

    objects, cold = _compile(configuration, tools, OBJECTS, tmp_path / "cold.log")
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
    objects, warm = _compile(configuration, tools, OBJECTS, tmp_path / "warm.log")
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
    good = _toolkit(EVERYWHERE, book, real_work)
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
