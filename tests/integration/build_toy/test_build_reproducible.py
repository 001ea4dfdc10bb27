"""The toy built twice in different ways: the same bytes, and a source that cheats is found out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkbuild.build.compile import build
from sparkbuild.build.configure import configure
from sparkbuild.build.tools import find_tools, with_cache
from sparkbuild.files import sha256_file
from sparkbuild.package.compare import content_differences
from sparkbuild.toolkit.model import Toolkit

from .conftest import TOY, pretend_patchset, pretend_tree

TARGETS = ("llama-server", "llama-quantize")

Make = Callable[..., Path]


@pytest.fixture
def make(cpu_toolkit: Toolkit) -> Make:
    """``make(place, source, jobs=..., cache=...)``: the folder with what was built."""

    def made(place: Path, source: Path, *, jobs: int = 1, cache: Path | None = None) -> Path:
        tools = with_cache(find_tools(), cache, cpu_toolkit)
        configuration = configure(
            pretend_patchset(TARGETS, {}), cpu_toolkit, pretend_tree(source), tools=tools,
            binary_dir=place / "cmake", log=place / "configure.log",
        )  # fmt: skip
        binaries = build(configuration, TARGETS, install_dir=place / "install", jobs=jobs,
                         log=place / "build.log", tools=tools)  # fmt: skip
        return Path(binaries.directory)

    return made


def digests(directory: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in sorted(directory.iterdir())}


def backwards(source: Path, place: Path) -> Path:
    """The same files, written in the opposite order."""
    for file in sorted(source.rglob("*"), reverse=True):
        if file.is_file():
            target = place / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    return place


def test_another_place_user_time_zone_locale_umask_order_jobs_and_cache(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digests(make(tmp_path / "one", TOY))
    elsewhere = tmp_path / "far away, with = and ' in it" / "and of another length"
    for name, value in {"TZ": "Pacific/Chatham", "LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8",
                        "USER": "somebody", "HOME": str(tmp_path), "CFLAGS": "-O0 -DCHEAT",
                        "CXXFLAGS": "-O0 -DCHEAT", "LDFLAGS": "-L/nowhere", "CPATH": "/nowhere",
                        "SOURCE_DATE_EPOCH": "2000000000"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    cache = tmp_path / "cache"
    before = os.umask(0o077)
    try:
        source = backwards(TOY, elsewhere / "source")
        cold = digests(make(elsewhere / "cold", source, jobs=4, cache=cache))
        shutil.rmtree(elsewhere / "cold")
        warm = digests(make(elsewhere / "cold", source, jobs=2, cache=cache))
    finally:
        os.umask(before)
    assert first == cold
    assert first == warm


def test_a_source_that_says_when_it_was_written_is_found_out(make: Make, tmp_path: Path) -> None:
    """``__TIMESTAMP__`` is the file's own time, which no flag takes away."""
    made = []
    for name, moment in (("one", 1_700_000_000), ("two", 1_700_000_100)):
        source = backwards(TOY, tmp_path / name / "source")
        cheating = source / "engine" / "base.c"
        assert cheating.is_file()
        with cheating.open("a") as file:
            file.write("\nconst char * base_when(void) { return __TIMESTAMP__; }\n")
        os.utime(cheating, (moment, moment))
        made.append(make(tmp_path / name, source))
    one, two = map(digests, made)
    differing = [name for name in one if one[name] != two[name]]
    assert differing == ["libggml-base.so.0"]
    for name in differing:
        first, second = ((directory / name).read_bytes() for directory in made)
        found, _ = content_differences(name, first, second)
        assert ".rodata" in {d.place for d in found}
