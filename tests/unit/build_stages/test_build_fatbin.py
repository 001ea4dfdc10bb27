"""Fat binaries made by nvcc 13.0.88 (``n132`` by 13.2.78), targets as cuobjdump lists them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import BinaryError
from sparkbuild.fatbin import fatbin_targets, wrong_targets

DATA = Path(__file__).parents[2] / "data" / "build" / "fatbin"

CAPTURES = {
    "s90": [("sm_90",)],
    "s90a": [("sm_90a",)],
    "s120": [("sm_120",)],
    "s120a": [("sm_120a",)],
    "s120f": [("sm_120f",)],
    "s121a": [("sm_121a",)],
    "s121asize": [("sm_121a",)],  # -compress-mode=size, as llama.cpp has it
    "p120": [("compute_120",)],
    "p120a": [("compute_120a",)],
    "p120f": [("compute_120f",)],
    "p121a": [("compute_121a",)],
    "p121asize": [("compute_121a",)],
    "b": [("sm_90", "sm_121a", "compute_121a")],
    "n132": [("sm_121a", "sm_120f", "compute_120f")],
    "lto": [("lto_121a",)],
    "rdc": [("sm_121a",)],  # section __nv_relfatbin
    "libk": [("sm_121a",), ("sm_121a",)],  # a linked library: two containers
}


@pytest.mark.parametrize("name", CAPTURES)
def test_targets(name: str) -> None:
    assert fatbin_targets((DATA / name).read_bytes()) == CAPTURES[name]


def test_every_capture_is_tested() -> None:
    assert {path.name for path in DATA.iterdir()} == set(CAPTURES)


def test_a_library_s_section_is_many_containers_with_padding() -> None:
    """A linker puts objects' sections one after the other, each at its alignment."""
    parts = [(DATA / name).read_bytes() for name in ("s121asize", "p121a", "b")]
    assert fatbin_targets(bytes(16).join(parts)) == [
        ("sm_121a",), ("compute_121a",), ("sm_90", "sm_121a", "compute_121a"),
    ]  # fmt: skip
    assert fatbin_targets(b"") == []
    assert fatbin_targets(bytes(64)) == []


def test_one_wrong_container_among_many_is_found() -> None:
    right = ("sm_121a",)
    assert wrong_targets([right] * 143, ["sm_121a"]) == []
    containers = [right, ("sm_121",), right, ("sm_121a", "compute_121a"), ("sm_121",), ()]
    assert wrong_targets(containers, ["sm_121a"]) == [
        "expected sm_121a, found sm_121 in 2 of 6 fat binaries",
        "expected sm_121a, found compute_121a sm_121a in 1 of 6 fat binaries",
        "expected sm_121a, found none in 1 of 6 fat binaries",
    ]


def test_order_is_no_difference() -> None:
    assert wrong_targets([("sm_90", "sm_121a")], ["121a", "90"]) != []
    assert wrong_targets([("sm_90", "sm_121a")], ["sm_121a", "sm_90"]) == []


@pytest.mark.parametrize("kind", [0, 3, 64])
def test_an_unknown_kind_of_image_is_refused(kind: int) -> None:
    damaged = bytearray((DATA / "p121a").read_bytes())
    damaged[16] = kind
    with pytest.raises(BinaryError, match="layout that is not known"):
        fatbin_targets(bytes(damaged))


@given(st.binary(max_size=200))
def test_garbage_is_refused_clearly(garbage: bytes) -> None:
    try:
        targets = fatbin_targets(garbage)
    except BinaryError:
        return
    assert targets == []
    assert not any(garbage)


@given(st.data())
def test_a_damaged_capture_never_crashes(data: st.DataObject) -> None:
    content = bytearray((DATA / "b").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 200))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(BinaryError):
        targets = fatbin_targets(cut)
        assert all(image for images in targets for image in images)
