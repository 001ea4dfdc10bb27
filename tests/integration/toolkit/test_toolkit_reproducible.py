"""Real CUDA objects of b11434 for GB10, compiled twice in different ways: the same bytes."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.build.configure import configure
from sparkbuild.build.tools import find_tools, with_cache
from sparkbuild.errors import ConfigureError
from sparkbuild.files import sha256_file
from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.book import Book, read_book

from .objects import EVERYWHERE, compile_objects, provisioned, releases

pytestmark = [pytest.mark.network, pytest.mark.real, pytest.mark.cuda_toolkit]

OBJECTS = ("acc", "top-k", "unary", "template-instances/fattn-vec-instance-f16-f16",
           "template-instances/mmq-instance-iq3_s")  # fmt: skip
"""Cheap; with CUB inside, whose anonymous namespaces bear a checksum of the source's path; with
functions as template arguments, which bear it too; flash attention; matrix products."""


@pytest.fixture(scope="module")
def book() -> Book:
    return read_book(find_recipes(None))


def moved(tree: Any, place: Path) -> Any:
    """The same tree elsewhere, its files written in another order."""
    for file in sorted(Path(tree.directory).rglob("*"), reverse=True):
        if file.is_file():
            target = place / file.relative_to(tree.directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    return msgspec.structs.replace(tree, directory=str(place))


@pytest.mark.parametrize("release", releases())
def test_two_compiles_give_the_same_bytes(
    release: str, book: Book, real_work: Path, real_tree: Any, cuda_root: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One in the plainest way; one through the compile cache, elsewhere, by another user."""
    del cuda_root
    toolkit = provisioned(release, book, real_work)
    patchset, _ = find_recipes(None).patchset("vision")

    def compiled(place: Path, tree: Any, *, cached: bool) -> dict[str, str]:
        tools = with_cache(find_tools(), place / "cache" if cached else None, toolkit)
        configuration = configure(
            patchset,
            toolkit,
            tree,
            tools=tools,
            binary_dir=place / "cmake",
            log=place / "configure.log",
        )
        made, _ = compile_objects(configuration, tools, OBJECTS, place / "build.log")
        for path in made.values():
            left = [text for text in (str(place), tree.directory, toolkit.root or "", "tmpxft")
                    if text.encode() in path.read_bytes()]  # fmt: skip
            assert not left, path
        return {name: sha256_file(path) for name, path in made.items()}

    first = compiled(tmp_path / "one", real_tree, cached=False)
    elsewhere = tmp_path / "in a much deeper place" / "of another length"
    for name, value in {"TZ": "Pacific/Chatham", "LANG": "tr_TR.UTF-8", "USER": "somebody",
                        "LOGNAME": "somebody", "HOME": str(tmp_path)}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    before = os.umask(0o077)
    try:
        second = compiled(elsewhere, moved(real_tree, elsewhere / "source"), cached=True)
    finally:
        os.umask(before)
    assert first == second
    assert len(set(first.values())) == len(OBJECTS)


def test_a_rule_that_does_not_get_through_is_refused(
    book: Book, real_work: Path, real_tree: Any, cuda_root: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A CMake that went by its own rule would give other bytes each time, and nobody would know."""
    del cuda_root
    toolkit = provisioned(EVERYWHERE, book, real_work)
    patchset, _ = find_recipes(None).patchset("vision")
    monkeypatch.setattr("sparkbuild.build.arguments.cuda_object", lambda _: "")
    with pytest.raises(ConfigureError, match="another rule") as refusal:
        configure(patchset, toolkit, real_tree, binary_dir=tmp_path / "cmake",
                  log=tmp_path / "configure.log")  # fmt: skip
    text = "\n".join(refusal.value.problems)
    assert re.search(r"rule CUDA_COMPILER__ggml-cuda\S*: --frandom-seed=\$out is missing", text)
    assert "--strip-symbol" in text
