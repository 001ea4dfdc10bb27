"""The one form a wheel may have, and RECORD's text."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.package import archive

RECORD = "p-1.dist-info/RECORD"
MEMBERS = {
    "p/bin/tool": (b"\x7fELF" + bytes(range(256)) * 40, 0o755),
    "p/__init__.py": (b"", 0o644),
    "p-1.dist-info/METADATA": (b"Name: p\n", 0o644),
    "p-1.dist-info/licenses/LICENSE": (b"MIT", 0o644),
    "p-1.dist-info/licenses/sub/LICENSE-x": (b"MIT too", 0o644),
}


def write(path: Path, order: list[str], *, date: tuple[int, int, int], umask: int) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        for name in order:
            data, mode = MEMBERS[name]
            info = zipfile.ZipInfo(name, date_time=(*date, 1, 2, 4))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | (mode & ~umask)) << 16
            out.writestr(info, data)
        out.writestr(zipfile.ZipInfo(RECORD), "to be written again")
    return path


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(list(MEMBERS)), year=st.integers(1980, 2107), umask=st.integers(0, 63))
def test_any_order_date_and_umask_give_the_same_bytes(
    order: list[str], year: int, umask: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("w")
    plain = write(place / "plain.whl", list(MEMBERS), date=(1999, 1, 1), umask=0)
    other = write(place / "other.whl", order, date=(year, 12, 31), umask=umask)
    for path in (plain, other):
        archive.rewrite(path, path.with_suffix(".out"), RECORD)
    assert plain.with_suffix(".out").read_bytes() == other.with_suffix(".out").read_bytes()


def test_rewriting_changes_nothing_in_a_canonical_wheel(tmp_path: Path) -> None:
    wheel = write(tmp_path / "a.whl", list(MEMBERS), date=(1999, 1, 1), umask=0)
    first, second = tmp_path / "first", tmp_path / "second"
    archive.rewrite(wheel, first, RECORD)
    archive.rewrite(first, second, RECORD)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(first) as new:
        assert not archive.is_canonical(old.infolist(), RECORD)
        assert archive.is_canonical(new.infolist(), RECORD)
        assert new.namelist()[-1] == RECORD
        assert new.testzip() is None


def test_the_new_record_is_right(tmp_path: Path) -> None:
    wheel = write(tmp_path / "a.whl", list(MEMBERS), date=(1999, 1, 1), umask=0)
    archive.rewrite(wheel, tmp_path / "new.whl", RECORD)
    with zipfile.ZipFile(tmp_path / "new.whl") as opened:
        rows = archive.parse_record(opened.read(RECORD).decode())
    assert rows[-1] == (RECORD, "", "")
    assert {name: (digest, size) for name, digest, size in rows[:-1]} == {
        name: (archive.record_digest(data), str(len(data))) for name, (data, _) in MEMBERS.items()
    }


def test_record_digest_is_the_form_of_the_wheel_specification() -> None:
    # SHA-256 of no bytes, as `openssl dgst -sha256 -binary | basenc --base64url` prints it.
    assert archive.record_digest(b"") == "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


_FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(_FIELD, _FIELD, _FIELD)))
def test_record_survives_writing_and_reading(rows: list[tuple[str, str, str]]) -> None:
    assert archive.parse_record(archive.record_text(rows)) == rows


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_any_text_is_rows_or_a_clear_error(text: str) -> None:
    try:
        rows = archive.parse_record(text)
    except ValueError as error:
        said = str(error)
    else:
        said = "RECORD" if all(len(row) == 3 for row in rows) else "other rows"
    assert "RECORD" in said
