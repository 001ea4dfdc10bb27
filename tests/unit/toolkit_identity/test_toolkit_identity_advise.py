"""Advisories meet the parts that have the defect, and no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.toolkit.advisories import Advisory, KnownBad
from sparkbuild.toolkit.identity.advise import matching, undecided
from sparkbuild.toolkit.model import UNSTATED, Part

from .conftest import R1321, World, write


def advisory(
    part: str, *versions: str, architectures: tuple[str, ...] = (), **more: str
) -> Advisory:
    return Advisory(
        id=more.get("id", f"{part.lower()}-defect"), part=part, versions=versions, effect="wrong",
        evidence=("seen",), source=("here",), architectures=architectures,
        action="warn" if more.get("action") == "warn" else "refuse",
    )  # fmt: skip


def bad(*advisories: Advisory) -> KnownBad:
    return KnownBad(schema=1, advisory=advisories)


def part(name: str, version: str) -> Part:
    return Part(name=name, version=version, read_from="", path="", sha256="")


CICC = bad(advisory("cicc", "13.2.51", "13.2.78", architectures=("120a", "121a")))


@pytest.mark.parametrize("target", ["121", "121a", "121f", "sm_121a", "121a-real", "120f"])
def test_all_names_of_a_struck_chip(target: str) -> None:
    parts = [part("cicc", "13.2.78")]
    assert [one.id for one in matching(CICC, parts, (target,))] == ["cicc-defect"]
    assert [one.id for one in matching(CICC, parts, ("90", target))] == ["cicc-defect"]


@pytest.mark.parametrize("target", ["90", "90a", "12", "112a", "1210"])
def test_other_chips(target: str) -> None:
    assert matching(CICC, [part("cicc", "13.2.78")], (target,)) == ()


def test_no_target_means_the_default_and_no_architecture_means_every_target() -> None:
    assert matching(CICC, [part("cicc", "13.2.78")], ())
    everywhere = bad(advisory("cicc", "13.2.78"))
    assert matching(everywhere, [part("cicc", "13.2.78")], ("90",))


@given(st.sampled_from(["13.2.5", "13.2.510", "13.2.51.0", "13.2.86", "13.0.88", "1"]))
def test_versions_are_exact(version: str) -> None:
    assert matching(CICC, [part("cicc", version)], ("121a",)) == ()
    assert matching(CICC, [part("ptxas", "13.2.51")], ("121a",)) == ()


def test_a_part_without_a_version_is_of_its_groups() -> None:
    stripped = [part("nvcc", "13.2.78"), part("cicc", UNSTATED)]
    assert [one.id for one in matching(CICC, stripped, ("121a",))] == ["cicc-defect"]
    good = [part("nvcc", "13.2.86"), part("cicc", UNSTATED)]
    assert matching(CICC, good, ("121a",)) == ()
    assert undecided(CICC, good, ("121a",)) == ()


def test_a_library_that_states_13_is_as_exact_as_its_header() -> None:
    listed = bad(advisory("libcublasLt", "13.4.0.1"))
    loose = [part("cublas headers", "13.4.0.1"), part("libcublasLt", "13")]
    assert matching(listed, loose, ())
    other = [part("cublas headers", "13.4.1.3"), part("libcublasLt", "13")]
    assert matching(listed, other, ()) == ()
    # Never another group's version, nor one that contradicts the part.
    assert not matching(listed, [part("nvcc", "13.4.0.1"), part("libcublasLt", "13")], ())
    assert not matching(listed, [part("cublas headers", "13.4.0.1"), part("libcublasLt", "12")], ())


def test_what_cannot_be_ruled_out_is_said() -> None:
    listed = bad(advisory("libcublasLt", "13.4.0.1", "12.9.1.1", architectures=("121a",)))
    (note,) = undecided(listed, [part("libcublasLt", "13")], ("121a",))
    assert "libcublasLt is 13, and 13.4.0.1 has the defect" in note
    assert undecided(listed, [part("libcublasLt", UNSTATED)], ("121a",))
    assert undecided(listed, [part("libcublasLt", "13")], ("90",)) == ()
    assert undecided(listed, [part("libcublasLt", "13.4.0.1")], ("121a",)) == ()
    assert undecided(listed, [], ("121a",)) == ()


def test_a_whole_root_with_a_defect(world: World) -> None:
    def state(*architectures: str, action: str = "refuse") -> tuple[str, tuple[str, ...]]:
        listed = bad(advisory("cicc", "13.2.78", architectures=("121a",), action=action))
        book = type(world.book)(
            toolchains=world.book.toolchains, locks=world.book.locks, known_bad=listed
        )
        identity = world.identity(world.root(R1321), *architectures, book=book)
        return identity.state, identity.advisories

    assert state() == ("known bad", ("cicc-defect",))
    assert state("121f") == ("known bad", ("cicc-defect",))
    assert state("90") == ("good", ())
    assert state(action="warn") == ("good", ("cicc-defect",))


def test_a_defect_does_not_hide_what_is_wrong_beside_it(world: World) -> None:
    root = world.copy(R1321)
    write(root / "bin/ptxas", b"")
    book = type(world.book)(
        toolchains=world.book.toolchains,
        locks=world.book.locks,
        known_bad=bad(advisory("cicc", "13.2.78")),
    )
    identity = world.identity(root, book=book)
    assert (identity.state, identity.advisories) == ("incomplete", ("cicc-defect",))
