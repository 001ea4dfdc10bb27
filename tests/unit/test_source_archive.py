"""Reading archives of any origin: what is hostile or damaged never gets through."""

from __future__ import annotations

import gzip
import io
import posixpath
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkbuild.errors import ArchiveError
from sparkbuild.source.archive import read_archive
from sparkbuild.source.entries import path_problem

NOISE = random.Random(1).randbytes(40_000)  # noqa: S311 - only hard to pack
_SETTINGS = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def _tar(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape"
    ) as out:
        for member, data in members:
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _read(path: Path, data: bytes, *, root: str = "top", **limits: int) -> dict[str, bytes]:
    path.write_bytes(data)
    found = {}
    for entry in read_archive(path, root, lambda _: True, **limits):
        found[entry.path] = b"".join(entry.chunks)
        assert len(found[entry.path]) == entry.size
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "x-1.tar.gz"


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_files_of_the_sub_folder_come_with_bytes_and_mode(archive: Path, form: int) -> None:
    script = _member("x-1/top/run.sh")
    script.mode = 0o775
    data = _tar(
        (_member("x-1", tarfile.DIRTYPE), b""),
        (_member("x-1/PKG-INFO"), b"no"),
        (_member("x-1/top", tarfile.DIRTYPE), b""),
        (_member("x-1/top/src/a.txt"), b"a" * 70_000),
        (script, b"#!"),
        (_member("x-1/top/link", tarfile.SYMTYPE, "src/a.txt"), b""),
        (_member("x-1/topless/b"), b"no"),
        form=form,
    )
    archive.write_bytes(gzip.compress(data))
    found = {
        entry.path: (entry.mode, b"".join(entry.chunks))
        for entry in read_archive(archive, "x-1/top", lambda path: path != "unwanted")
    }
    assert found == {
        "src/a.txt": ("100644", b"a" * 70_000),
        "run.sh": ("100755", b"#!"),
        "link": ("120000", b"src/a.txt"),
    }


def test_a_file_that_is_not_asked_for_is_passed_over(archive: Path) -> None:
    archive.write_bytes(gzip.compress(_tar((_member("t/a"), b"1"), (_member("t/b"), b"2"))))
    assert [entry.path for entry in read_archive(archive, "t", lambda path: path == "b")] == ["b"]


HOSTILE: list[tuple[str, tarfile.TarInfo, str]] = [
    ("absolute", _member("/etc/passwd"), "absolute"),
    ("climbing", _member("top/../../x"), "climbs out"),
    ("dots", _member(".."), "climbs out"),
    ("dot", _member("./top/x"), "not a plain"),
    ("double slash", _member("top//x"), "not a plain"),
    ("backslash", _member("top\\..\\x"), "backslash"),
    ("newline", _member("top/a\nb"), "control"),
    ("not UTF-8", _member("top/\udcff"), "UTF-8"),
    ("git folder", _member("top/.git/config"), ".git"),
    ("absolute link", _member("top/l", tarfile.SYMTYPE, "/etc/passwd"), "absolute"),
    ("climbing link", _member("top/l", tarfile.SYMTYPE, "../../x"), "out of the tree"),
    ("winding link", _member("top/l", tarfile.SYMTYPE, "a/../../.."), "down and up"),
    ("hard link", _member("top/l", tarfile.LNKTYPE, "top/a"), "a hard link"),
    ("outside hard link", _member("top/l", tarfile.LNKTYPE, "/etc/passwd"), "a hard link"),
    ("character device", _member("top/d", tarfile.CHRTYPE), "a device"),
    ("block device", _member("top/d", tarfile.BLKTYPE), "a device"),
    ("pipe", _member("top/p", tarfile.FIFOTYPE), "a pipe"),
    ("unknown type", _member("top/p", b"Z"), "unknown type"),
]


@pytest.mark.parametrize(
    ("member", "reason"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE]
)
@pytest.mark.parametrize("place", ["first", "outside the sub-folder, last"])
def test_a_hostile_member_is_refused_by_name(
    archive: Path, member: tarfile.TarInfo, reason: str, place: str
) -> None:
    good = (_member("top/good"), b"good")
    members = [(member, b""), good] if place == "first" else [good, (member, b"")]
    root = "top" if place == "first" else "elsewhere"
    with pytest.raises(ArchiveError, match="holds what no source may") as refusal:
        _read(archive, gzip.compress(_tar(*members)), root=root)
    assert reason in refusal.value.problems[0]
    assert repr(member.name) in refusal.value.problems[0]
    assert refusal.value.evidence == (archive,)


def test_the_same_name_twice_is_refused(archive: Path) -> None:
    data = _tar((_member("top/a"), b"1"), (_member("top/b"), b""), (_member("top/a"), b"2"))
    with pytest.raises(ArchiveError) as refusal:
        _read(archive, gzip.compress(data))
    assert refusal.value.problems == ("'top/a': the same name twice",)


@pytest.mark.parametrize("first", [tarfile.REGTYPE, tarfile.SYMTYPE])
def test_a_file_or_link_that_is_also_a_folder_is_refused(archive: Path, first: bytes) -> None:
    data = _tar((_member("top/a", first, "b"), b""), (_member("top/a/x"), b""))
    with pytest.raises(ArchiveError) as refusal:
        _read(archive, gzip.compress(data))
    assert refusal.value.problems == ("'top/a': both a file and a folder",)


def test_a_sparse_member_is_refused(archive: Path) -> None:
    member = _member("top/s")
    member.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0",
                          "GNU.sparse.size": "9999999999"}  # fmt: skip
    with pytest.raises(ArchiveError) as refusal:
        _read(archive, gzip.compress(_tar((member, b""))))
    assert "a sparse file" in refusal.value.problems[0]


def test_a_bomb_is_refused_before_it_is_unpacked(archive: Path) -> None:
    data = _tar((_member("top/zeros"), bytes(3_000_000)))
    with pytest.raises(ArchiveError, match="unpacks to more than 1000000 bytes"):
        _read(archive, gzip.compress(data), max_bytes=1_000_000)


def test_too_many_members_are_refused(archive: Path) -> None:
    data = _tar(*((_member(f"top/{number}"), b"") for number in range(11)))
    with pytest.raises(ArchiveError) as refusal:
        _read(archive, gzip.compress(data), max_members=10)
    assert "too many members" in refusal.value.problems[0]


def test_a_header_too_large_for_memory_is_refused(archive: Path) -> None:
    member = _member("top/a")
    member.pax_headers = {"comment": "x" * 2_000_000}
    with pytest.raises(ArchiveError) as refusal:
        _read(archive, gzip.compress(_tar((member, b""))))
    assert "an extended header of 2" in refusal.value.problems[0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:5],
        lambda data: b"",
        lambda data: b"not an archive at all",
        gzip.decompress,
        lambda data: gzip.compress(b"a text, no tar file\n" * 100),
        lambda data: gzip.compress(gzip.decompress(data)[:30_000]),
        lambda data: data[:2000] + b"\0\0\0\0" + data[2004:],
    ],
    ids=["last byte", "half", "head", "empty", "text", "not packed", "not a tar", "short", "hole"],
)
def test_a_damaged_archive_is_a_refusal_not_a_traceback(
    archive: Path, spoil: Callable[[bytes], bytes]
) -> None:
    whole = gzip.compress(_tar((_member("top/a"), NOISE), (_member("top/b"), b"b")))
    assert set(_read(archive, whole)) == {"a", "b"}
    with pytest.raises(ArchiveError, match="damaged or cut off"):
        _read(archive, spoil(whole))


_PIECES = st.sampled_from(
    ["top", "a", "..", ".", "", "/", "//", "\\", "C:", ".git", "~", "\n", "\udcff", "ü", "x" * 120]
)
_ANY_NAME = st.one_of(
    st.lists(_PIECES, min_size=1, max_size=6).map("/".join),
    st.lists(_PIECES, min_size=1, max_size=4).map(lambda parts: "top/" + "/".join(parts)),
    st.text(min_size=1, max_size=20),
)
_ANY_MEMBER = st.tuples(
    _ANY_NAME,
    st.sampled_from([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE]),
    _ANY_NAME,
)


@_SETTINGS
@given(members=st.lists(_ANY_MEMBER, min_size=1, max_size=4))
def test_no_generated_name_ever_yields_a_path_outside(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    try:
        data = _tar(*((_member(name, kind, link), b"") for name, kind, link in members))
    except (ValueError, UnicodeError):
        return  # tarfile itself cannot write such a name
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(data, 1))
    seen = set()
    try:
        for entry in read_archive(path, "top", lambda _: True):
            assert path_problem(entry.path) is None
            target = b"".join(entry.chunks).decode() if entry.mode == "120000" else ""
            base = posixpath.dirname(posixpath.join("/root/top", entry.path))
            end = posixpath.normpath(posixpath.join(base, target))
            assert end == "/root" or end.startswith("/root/")
            assert entry.path not in seen
            seen.add(entry.path)
    except ArchiveError:
        pass


@_SETTINGS
@given(where=st.integers(0, 5119), value=st.integers(0, 255), packed=st.booleans())
def test_one_changed_byte_is_a_refusal_or_harmless(
    tmp_path: Path, where: int, value: int, packed: bool
) -> None:
    long_name = "top/" + "deep/" * 30 + "file"
    plain = _tar((_member(long_name), b"x" * 900), (_member("top/b"), b"b"))
    data = bytearray(gzip.compress(plain, mtime=0) if packed else plain)
    data[where % len(data)] = value
    path = tmp_path / "x.tar.gz"
    path.write_bytes(bytes(data) if packed else gzip.compress(bytes(data), 1))
    try:
        for entry in read_archive(path, "top", lambda _: True):
            assert path_problem(entry.path) is None
            assert sum(map(len, entry.chunks)) == entry.size
    except ArchiveError:
        pass
