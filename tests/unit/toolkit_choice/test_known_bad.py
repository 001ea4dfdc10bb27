"""The known-bad list that comes with sparkbuild: valid, sourced, and striking whom it should."""

from __future__ import annotations

import re

import pytest

from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.advisories import Advisory
from sparkbuild.toolkit.book import Book, cuda, read_book
from sparkbuild.toolkit.choice.releases import (
    nearest_good,
    refused,
    release_advisories,
    short_name,
)
from sparkbuild.toolkit.parts import SPECS

BLACKWELL = ("100a", "103a", "110a", "120a", "121a")


@pytest.fixture(scope="module")
def real() -> Book:
    return read_book(find_recipes(None))


def ids(advisories: tuple[Advisory, ...]) -> set[str]:
    return {advisory.id for advisory in advisories}


def test_every_entry_is_one_of_its_own_and_has_a_source(real: Book) -> None:
    entries = real.known_bad.advisory
    assert entries
    assert len(ids(entries)) == len(entries)
    parts = {spec.name for spec in SPECS}
    for entry in entries:
        assert entry.part in parts, entry.id
        assert entry.source, entry.id
        assert all(source.startswith("https://") for source in entry.source), entry.id
        assert entry.evidence, entry.id
        assert entry.effect[0].islower(), f"{entry.id}: the effect follows a colon"
        assert entry.versions, entry.id
        for version in entry.versions:
            assert re.fullmatch(r"\d+\.\d+\.\d+(\.\d+)?", version), (entry.id, version)
        for name in entry.architectures:
            assert re.fullmatch(r"\d{2,3}[af]?", name), (entry.id, name)
        for name in entry.tensor_types:
            assert re.fullmatch(r"[a-z0-9_]+", name), (entry.id, name)


@pytest.mark.parametrize("target", BLACKWELL)
def test_two_releases_are_refused_for_every_blackwell_target(real: Book, target: str) -> None:
    bad = {name for name, chain in real.toolchains.items() if refused(real, chain, (target,))}
    assert bad == {"cuda-13.2.0", "cuda-13.2.1"}


@pytest.mark.parametrize("target", ["75", "86", "89", "90", "90a"])
def test_none_is_refused_for_older_targets(real: Book, target: str) -> None:
    assert not [c.name for c in real.toolchains.values() if refused(real, c, (target,))]


def test_the_byte_mask_names_the_tensor_types(real: Book) -> None:
    entry = next(e for e in real.known_bad.advisory if e.id == "cicc-13.2-byte-mask")
    assert entry.tensor_types == ("iq1_s", "iq2_s", "iq3_s")
    assert entry.part == "cicc"


@pytest.mark.parametrize(
    ("release", "target", "warned"),
    [
        ("12.9", "121a", {"nvcc-12.8-nested-divergence"}),
        ("13.0", "121a", {"nvcc-12.8-nested-divergence"}),
        ("13.0", "120a", {"nvcc-12.8-nested-divergence", "ptxas-12.8-register-pressure"}),
        ("13.1", "120a", {"nvcc-12.8-nested-divergence"}),
        ("13.2.2", "120a", set()),
        ("13.5", "121a", set()),
    ],
)
def test_warnings_strike_their_versions_only(
    real: Book, release: str, target: str, warned: set[str]
) -> None:
    chain = real.toolchains[f"cuda-{release}"]
    assert ids(release_advisories(real, chain, (target,))) == warned


def test_the_scale_of_nvfp4_is_that_of_one_cublas(real: Book) -> None:
    entry = next(e for e in real.known_bad.advisory if e.tensor_types == ("nvfp4",))
    assert (entry.part, entry.versions, entry.action) == ("libcublasLt", ("13.4.0.1",), "warn")
    locked = {
        name: parts.parts["libcublasLt"].version
        for name, lock in real.locks.items()
        for parts in lock.platform.values()
    }
    if not locked:
        pytest.skip("no locks in these recipes")
    assert {name for name, version in locked.items() if version in entry.versions} == {
        "cuda-13.2.1"
    }


@pytest.mark.parametrize(
    ("release", "better"), [("13.2.0", "13.2.2"), ("13.2.1", "13.2.2"), ("13.2.2", "13.3")]
)
def test_the_nearest_good_release(real: Book, release: str, better: str) -> None:
    found = nearest_good(real, real.toolchains[f"cuda-{release}"])
    assert found is not None
    assert short_name(found) == better


def test_the_nearest_is_a_good_one_for_these_targets(book: Book) -> None:
    """Without locks: 13.2.0 and 13.2.1 are good for an H100, and then the nearest."""
    middle = book.toolchains["cuda-13.2.1"]
    assert nearest_good(book, middle, ("90",)) == "cuda-13.2.2"
    alone = Book(toolchains={middle.name: middle}, locks={}, known_bad=book.known_bad)
    assert nearest_good(alone, middle) is None
    first = book.toolchains["cuda-13.2.0"]
    two = Book(
        toolchains={first.name: first, middle.name: middle}, locks={}, known_bad=book.known_bad
    )
    assert nearest_good(two, middle) is None
    assert nearest_good(two, middle, ("90",)) == first.name
    assert cuda(first).nvcc == "13.2.51"
