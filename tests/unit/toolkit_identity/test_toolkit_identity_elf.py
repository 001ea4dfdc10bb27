"""A file that was cut, anywhere, shows; a file that is whole does not."""

import subprocess  # noqa: TID251 - makes real files to read
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkbuild.manifest import current_platform
from sparkbuild.toolkit.identity.elf import (
    ReadAt,
    elf_machine,
    read_archive,
    read_bitcode,
    read_elf,
)
from sparkbuild.toolkit.identity.facts import facts_of, read_facts

from .conftest import archive, bitcode, elf

MACHINE = current_platform().removeprefix("linux-")
SOURCE = "int answer(void) { return 42; }\nint main(void) { return answer(); }\n"


def reader(data: bytes) -> ReadAt:
    return lambda at, length: data[at : at + length]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Real files of this machine's compiler, by kind."""
    folder = tmp_path_factory.mktemp("elf")
    (folder / "a.c").write_text(SOURCE)
    makes = {
        "program": ["cc", "a.c", "-o", "program"],
        "fixed": ["cc", "-no-pie", "-fno-pie", "a.c", "-o", "fixed"],
        "library": ["cc", "-shared", "-fPIC", "a.c", "-o", "library"],
        "object": ["cc", "-c", "a.c", "-o", "object"],
        "archive": ["ar", "rcs", "archive", "object"],
    }
    for argv in makes.values():
        subprocess.run(argv, cwd=folder, check=True)
    return {name: (folder / name).read_bytes() for name in makes}


def test_real_files_are_whole_and_what_they_are(compiled: dict[str, bytes]) -> None:
    found = {name: facts_of(reader(data), len(data)) for name, data in compiled.items()}
    assert {name: facts.form for name, facts in found.items()} == {
        "program": "program",
        "fixed": "program",
        "library": "library",
        "object": "other",
        "archive": "archive",
    }
    assert {facts.machine for facts in found.values()} == {MACHINE}
    assert {facts.damage for facts in found.values()} == {""}
    assert elf_machine(compiled["library"][:64]) == MACHINE
    assert elf_machine(compiled["archive"][:64]) is None


@given(st.data())
def test_a_real_file_cut_anywhere_is_damaged(
    compiled: dict[str, bytes], data: st.DataObject
) -> None:
    whole = compiled[data.draw(st.sampled_from(["program", "fixed", "library", "archive"]))]
    size = data.draw(st.integers(min_value=8, max_value=len(whole) - 1))
    assert facts_of(reader(whole[:size]), size).damage


@pytest.mark.parametrize("name", ["library", "archive"])
def test_each_of_the_last_bytes_counts(compiled: dict[str, bytes], name: str) -> None:
    whole = compiled[name]
    for size in range(len(whole) - 200, len(whole)):
        assert "cut off" in facts_of(reader(whole[:size]), size).damage


@given(st.data())
def test_a_download_that_left_a_hole_at_the_end(
    compiled: dict[str, bytes], data: st.DataObject
) -> None:
    """A file of full size whose tail was never written reads as zeros."""
    whole = compiled["library"]
    size = data.draw(st.integers(min_value=8, max_value=len(whole) - 256))
    hollow = whole[:size].ljust(len(whole), b"\0")
    facts = facts_of(reader(hollow), len(hollow))
    assert facts.damage or facts.form == "other"


@given(st.binary(max_size=400))
@example(b"")
@example(b"\x7fELF")
@example(elf(b"")[:64] + b"\xff" * 100)
def test_no_bytes_upset_the_readers(tail: bytes) -> None:
    for head in (b"\x7fELF\x02\x01", b"!<arch>\n", b"BC\xc0\xde", b"#!", b""):
        data = head + tail
        facts_of(reader(data), len(data))
        read_elf(reader(data), len(data))
        read_archive(reader(data), len(data))
        read_bitcode(reader(data), len(data))


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), st.data())
def test_bitcode_is_its_blocks(blocks: list[bytes], data: st.DataObject) -> None:
    whole = bitcode(*blocks)
    assert read_bitcode(reader(whole), len(whole)).damage == ""
    ends = {len(bitcode(*blocks[:count])) for count in range(1, len(blocks))}
    size = data.draw(st.integers(4, len(whole) - 1).filter(lambda size: size not in ends))
    assert read_bitcode(reader(whole[:size]), size).damage


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5), st.data())
def test_an_archive_cut_between_members_shows_too(bodies: list[bytes], data: st.DataObject) -> None:
    whole = archive({f"m{number}.o/": body for number, body in enumerate(bodies)})
    assert read_archive(reader(whole), len(whole)).damage == ""
    size = data.draw(st.integers(8, len(whole) - 1))
    assert read_archive(reader(whole[:size]), size).damage


def test_machines_and_strange_elf_files() -> None:
    def machine(data: bytes) -> str:
        return read_elf(reader(data), len(data)).machine

    assert machine(elf(b"x")) == "x86_64"
    assert machine(elf(b"x", machine=183)) == "aarch64"
    assert machine(elf(b"x", machine=21)) == "machine 21"
    other = bytearray(elf(b"x"))
    other[4] = 1
    assert "no 64-bit" in read_elf(reader(bytes(other)), len(other)).damage
    nothing = bytearray(elf(b"x"))
    nothing[56:58] = b"\0\0"
    assert "nothing to load" in read_elf(reader(bytes(nothing)), len(nothing)).damage
    mixed = archive({"a.o/": elf(b"x"), "b.o/": elf(b"x", machine=183)})
    assert read_archive(reader(mixed), len(mixed)).machine == "aarch64, x86_64"


def test_what_is_no_binary(tmp_path: Path) -> None:
    def form(data: bytes) -> str:
        (tmp_path / "file").write_bytes(data)
        return read_facts(tmp_path / "file").form

    assert form(b"") == "empty"
    assert form(b"#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n") == "script"
    assert form(b"#define CUDART_VERSION 13000\n") == "text"
    assert form(b"\0" * 100) == "other"
    assert form("Größe\n".encode("latin-1")) == "text"
