"""A static index: right pages, all or nothing, never another file under a published name."""

from __future__ import annotations

import datetime as dt
import html.parser
import json
import os
import shutil
import stat
import subprocess  # noqa: TID251 - publishers that die are programs of their own
import sys
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from pypi_simple import ProjectPage

from sparkbuild.errors import BusyError, PackageError, TrustError, UnknownNameError, UsageError
from sparkbuild.files import exclusive
from sparkbuild.package import index
from sparkbuild.package.check import verify_wheel
from sparkbuild.package.index_incoming import Incoming, Verify, read_incoming
from sparkbuild.package.signed import sign_wheel

from .conftest import NOW, Signed, refusal, sha
from .plain import plain_wheel

BASE = "http://localhost/team/simple/tiny-tool/"


def add(place: Path, *wheels: Path) -> index.Published:
    return index.add(place, wheels, now=NOW)


def as_json(place: Path, project: str = "tiny-tool") -> ProjectPage:
    document = json.loads((place / f"simple/{project}/index.json").read_bytes())
    return ProjectPage.from_json_data(document, base_url=BASE)


def as_html(place: Path, project: str = "tiny-tool") -> ProjectPage:
    text = (place / f"simple/{project}/index.html").read_text()
    return ProjectPage.from_html(project, text, base_url=BASE)


def tree(place: Path) -> dict[str, bytes]:
    """Everything that a reader can have."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for folder in ("simple/", "files/", "evidence/")
        for path in sorted((place / folder).rglob("*"))
        if path.is_file()
    }


def test_both_pages_say_the_same_of_a_wheel(tmp_path: Path) -> None:
    wheel = plain_wheel(tmp_path, "1.0+cpu.text", requires_python=">=3.9,<4")
    add(tmp_path / "index", wheel)
    metadata = (tmp_path / f"index/files/{wheel.name}.metadata").read_bytes()
    for page in (as_json(tmp_path / "index"), as_html(tmp_path / "index")):
        assert page.project == "tiny-tool"
        (one,) = page.packages
        assert (one.filename, one.version) == (wheel.name, "1.0+cpu.text")
        assert one.digests == {"sha256": sha(wheel.read_bytes())}
        assert one.requires_python == ">=3.9,<4"
        assert one.has_metadata is True
        assert one.metadata_digests == {"sha256": sha(metadata)}
        assert not one.is_yanked
        assert "+" not in one.url
        assert unquote(urlsplit(one.url).path) == f"/team/files/{wheel.name}"
    (one,) = as_json(tmp_path / "index").packages
    assert one.size == wheel.stat().st_size
    assert one.upload_time == NOW
    assert as_json(tmp_path / "index").versions == ["1.0+cpu.text"]


def test_addresses_lead_to_the_files_from_any_place(tmp_path: Path) -> None:
    add(tmp_path / "index", plain_wheel(tmp_path))
    shutil.copytree(tmp_path / "index", tmp_path / "moved/here", symlinks=True)
    shutil.rmtree(tmp_path / "index")
    page = tmp_path / "moved/here/simple/tiny-tool/index.html"
    (one,) = ProjectPage.from_html("tiny-tool", page.read_text(), base_url="").packages
    target = Path(unquote(urlsplit(urljoin(page.as_uri(), one.url)).path))
    assert sha(target.read_bytes()) == one.digests["sha256"]
    assert (target.parent / f"{target.name}.metadata").is_file()


def test_an_index_without_links_of_the_file_system_works_too(tmp_path: Path) -> None:
    """Copied by a tool that follows links, to a server that has none."""
    add(tmp_path / "index", plain_wheel(tmp_path))
    shutil.copytree(tmp_path / "index", tmp_path / "flat", symlinks=False)
    assert not (tmp_path / "flat/simple").is_symlink()
    assert len(as_html(tmp_path / "flat").packages) == 1


def test_versions_and_projects_are_in_order(tmp_path: Path) -> None:
    place = tmp_path / "index"
    for version in ("10.0", "9.0", "9.0.dev1"):
        add(place, plain_wheel(tmp_path, version))
    add(place, plain_wheel(tmp_path, name="another"))
    assert as_json(place).versions == ["9.0.dev1", "9.0", "10.0"]
    assert [one.version for one in as_html(place).packages] == ["9.0.dev1", "9.0", "10.0"]
    root = json.loads((place / "simple/index.json").read_bytes())
    assert [one["name"] for one in root["projects"]] == ["another", "tiny-tool"]
    assert '<a href="another/">another</a>' in (place / "simple/index.html").read_text()


def test_names_are_normalised(tmp_path: Path) -> None:
    add(tmp_path / "index", plain_wheel(tmp_path, name="Tiny.Tool"))
    assert (tmp_path / "index/simple/tiny-tool/index.html").is_file()


def test_the_same_wheel_again_changes_nothing(tmp_path: Path) -> None:
    wheel = plain_wheel(tmp_path)
    add(tmp_path / "index", wheel)
    before = tree(tmp_path / "index")
    later = index.add(tmp_path / "index", [wheel, wheel], now=NOW + dt.timedelta(days=1))
    assert (later.added, later.unchanged) == ((), (wheel.name,))
    assert tree(tmp_path / "index") == before


def test_another_file_of_a_published_name_is_refused(tmp_path: Path) -> None:
    add(tmp_path / "index", plain_wheel(tmp_path))
    before = tree(tmp_path / "index")
    other, fine = plain_wheel(tmp_path, body="# changed"), plain_wheel(tmp_path, "2.0")
    with refusal("tiny_tool-1.0-py3-none-any.whl: published with sha256", PackageError):
        add(tmp_path / "index", fine, other)
    assert tree(tmp_path / "index") == before


def test_also_where_the_name_is_taken_by_a_file_that_is_on_no_page(tmp_path: Path) -> None:
    add(tmp_path / "index", plain_wheel(tmp_path))
    stray = tmp_path / "index/files/tiny_tool-2.0-py3-none-any.whl"
    stray.write_bytes(b"left by somebody")
    with refusal("there is another tiny_tool-2.0", PackageError):
        add(tmp_path / "index", plain_wheel(tmp_path, "2.0"))
    assert stray.read_bytes() == b"left by somebody"
    assert [one.version for one in as_json(tmp_path / "index").packages] == ["1.0"]
    assert index.look_after(tmp_path / "index").notes == (
        "tiny_tool-2.0-py3-none-any.whl lies in files/ and is on no page",
    )


def test_two_files_of_one_name_in_one_call_are_refused(tmp_path: Path) -> None:
    one, two = plain_wheel(tmp_path / "a"), plain_wheel(tmp_path / "b", body="# other")
    with refusal("named twice, with different bytes", PackageError):
        add(tmp_path / "index", one, two)
    assert not (tmp_path / "index/simple").exists()


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ("Name: tiny-tool\nVersion: 9\n", "its METADATA tiny-tool 9"),
        ("Name: other\nVersion: 1.0\n", "its METADATA other 1.0"),
        ("Name: tiny-tool\nVersion: new\n", "its METADATA tiny-tool new"),
        ("\n", "its METADATA nothing"),
    ],
)
def test_a_wheel_that_is_another_than_its_name_says_is_refused(
    metadata: str, words: str, tmp_path: Path
) -> None:
    with refusal(words, PackageError):
        add(tmp_path / "index", plain_wheel(tmp_path, metadata=metadata))


def test_damaged_wheels_are_refused_and_none_of_the_call_is_published(tmp_path: Path) -> None:
    fine, bad = plain_wheel(tmp_path, "1.0"), plain_wheel(tmp_path, "2.0")
    data = bad.read_bytes()
    bad.write_bytes(data.replace(b"VERSION", b"VERSIOM"))
    with refusal("cannot be read", PackageError):
        add(tmp_path / "index", fine, bad)
    bad.write_bytes(data[:100])
    with refusal("cannot be read", PackageError):
        add(tmp_path / "index", fine, bad)
    named = bad.rename(tmp_path / "tiny_tool.whl")
    named.write_bytes(data)
    with refusal("no installer accepts this file name", PackageError):
        add(tmp_path / "index", fine, named)
    assert not (tmp_path / "index/simple").exists()
    assert list((tmp_path / "index/files").iterdir()) == []


def test_a_wheel_that_changes_after_it_was_verified_is_refused(tmp_path: Path) -> None:
    wheel = plain_wheel(tmp_path)
    with refusal("it changed after it was verified", PackageError):
        index.add(tmp_path / "index", [wheel], now=NOW, verify=lambda _: "0" * 64)


def test_a_wheel_that_changes_while_it_is_copied_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = plain_wheel(tmp_path)

    def read(path: Path, now: dt.datetime, verify: Verify | None) -> Incoming:
        found = read_incoming(path, now, verify)
        wheel.write_bytes(wheel.read_bytes() + b"x")
        return found

    monkeypatch.setattr(index, "read_incoming", read)
    with refusal("changed while it was published", PackageError):
        add(tmp_path / "index", wheel)
    assert [path.name for path in (tmp_path / "index/files").iterdir()] == [
        f"{wheel.name}.metadata"
    ]
    assert not (tmp_path / "index/simple").exists()


def test_what_lies_beside_a_wheel_is_published_with_it(signed: Signed, tmp_path: Path) -> None:
    place = tmp_path / "index"
    found = add(place, signed.wheel)
    assert found.notes == (
        f"{signed.wheel.name} was published with its provenance unverified: no key was named",
    )
    page = json.loads((place / "simple/sparkbuild-llama-cpp/index.json").read_bytes())
    (entry,) = page["files"]
    got = tmp_path / "got"
    got.mkdir()
    start = (place / "simple/sparkbuild-llama-cpp/index.json").as_uri()
    for proof in entry["_sparkbuild"].values():
        path = Path(unquote(urlsplit(urljoin(start, proof["url"])).path))
        assert sha(path.read_bytes()) == proof["sha256"]
        shutil.copy(path, got)
    wheel = place / "files" / signed.wheel.name
    verify_wheel(wheel, [signed.public], now=NOW, folder=got)
    text = (place / "simple/sparkbuild-llama-cpp/index.html").read_text()
    assert f'data-sparkbuild-provenance="{entry["_sparkbuild"]["provenance"]["url"]}"' in text


def test_signing_again_adds_evidence_and_replaces_none(signed: Signed, tmp_path: Path) -> None:
    place = tmp_path / "index"
    add(place, signed.wheel)
    before = tree(place)
    sign_wheel(signed.wheel, signed.report, [signed.key], now=NOW + dt.timedelta(days=1))
    found = index.add(place, [signed.wheel], now=NOW + dt.timedelta(days=1))
    assert found.unchanged == (signed.wheel.name,)
    after = tree(place)
    kept = {name: data for name, data in before.items() if not name.startswith("simple/")}
    assert kept.items() <= after.items()
    assert len([name for name in after if name.endswith("provenance.json")]) == 2
    (old,), (new,) = (
        json.loads(one["simple/sparkbuild-llama-cpp/index.json"])["files"]
        for one in (before, after)
    )
    assert new.pop("_sparkbuild") != old.pop("_sparkbuild")
    assert new == old


def test_a_part_of_what_lies_beside_is_refused(signed: Signed, tmp_path: Path) -> None:
    signed.beside[1].unlink()
    with refusal("lies a part of what belongs to it", PackageError):
        add(tmp_path / "index", signed.wheel)


def test_what_is_not_trusted_is_not_published(signed: Signed, tmp_path: Path) -> None:
    def verify(path: Path) -> str:
        return verify_wheel(path, [signed.public], now=NOW).sha256

    plain = plain_wheel(tmp_path)
    with pytest.raises(TrustError):
        index.add(tmp_path / "index", [signed.wheel, plain], now=NOW, verify=verify)
    assert not (tmp_path / "index/simple").exists()
    assert index.add(tmp_path / "index", [signed.wheel], now=NOW, verify=verify).notes == ()


def test_a_wheel_without_provenance_is_noted(tmp_path: Path) -> None:
    wheel = plain_wheel(tmp_path)
    assert add(tmp_path / "index", wheel).notes == (f"{wheel.name} has no provenance beside it",)


REASON = 'wrong <output> with "long" prompts & pictures'


def test_withdrawing_and_putting_back(tmp_path: Path) -> None:
    place = tmp_path / "index"
    one, two = plain_wheel(tmp_path, "1.0"), plain_wheel(tmp_path, "2.0")
    add(place, one, two)
    before = tree(place)
    found = index.yank(place, two.name, REASON)
    assert found.yanked == {two.name: REASON}
    for page in (as_json(place), as_html(place)):
        states = {each.filename: (each.is_yanked, each.yanked_reason) for each in page.packages}
        assert states == {one.name: (False, None), two.name: (True, REASON)}
    text = (place / "simple/tiny-tool/index.html").read_text()
    assert "<output>" not in text
    html.parser.HTMLParser().feed(text)
    assert add(place, two).yanked == {two.name: REASON}
    index.yank(place, two.name, None)
    assert tree(place) == before


def test_withdrawing_what_is_not_there_is_refused(tmp_path: Path) -> None:
    add(tmp_path / "index", plain_wheel(tmp_path))
    with pytest.raises(UnknownNameError) as caught:
        index.yank(tmp_path / "index", "tiny_tool-1.1-py3-none-any.whl", "why")
    assert caught.value.next_step == "did you mean tiny_tool-1.0-py3-none-any.whl?"
    with pytest.raises(UnknownNameError):
        index.yank(tmp_path / "empty", "tiny_tool-1.1-py3-none-any.whl", None)


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "\x1b[31mred"])
def test_a_reason_is_one_line(reason: str, tmp_path: Path) -> None:
    wheel = plain_wheel(tmp_path)
    add(tmp_path / "index", wheel)
    with pytest.raises(UsageError):
        index.yank(tmp_path / "index", wheel.name, reason)


def test_looking_after_makes_an_empty_index(tmp_path: Path) -> None:
    assert index.look_after(tmp_path / "index").projects == {}
    assert (tmp_path / "index/simple/index.html").is_file()
    assert json.loads((tmp_path / "index/simple/index.json").read_bytes())["projects"] == []


@pytest.mark.parametrize("which", ["wheel", "metadata", "provenance", "sbom", "report"])
def test_looking_after_finds_each_damaged_file(which: str, signed: Signed, tmp_path: Path) -> None:
    place = tmp_path / "index"
    add(place, signed.wheel)
    index.look_after(place)
    ending = {"wheel": ".whl", "metadata": ".metadata"}.get(which, f".{which}.json")
    (path,) = [one for one in place.rglob("*") if one.name.endswith(ending)]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"~")
    with refusal("expected sha256", PackageError):
        index.look_after(place)
    path.unlink()
    with refusal("found nothing", PackageError):
        index.look_after(place)
    path.write_bytes(data)
    index.look_after(place)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "index"
    (place / "simple/other").mkdir(parents=True)
    (place / "simple/other/index.html").write_text("precious")
    before = tree(place)
    words = "sparkbuild did not make it"
    with refusal(words, PackageError):
        add(place, plain_wheel(tmp_path))
    with refusal(words, PackageError):
        index.look_after(place)
    with refusal(words, PackageError):
        index.yank(place, "x.whl", "why")
    assert tree(place) == before


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b'{"meta": {"api-version": "1.9"}}'])
def test_a_page_that_is_none_of_ours_is_refused(text: bytes, tmp_path: Path) -> None:
    place = tmp_path / "index"
    add(place, plain_wheel(tmp_path))
    (place / "simple/tiny-tool/index.json").write_bytes(text)
    with refusal("is no page that sparkbuild wrote", PackageError):
        add(place, plain_wheel(tmp_path, "2.0"))


def test_a_servers_user_can_read_whatever_the_publishers_umask(tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        add(tmp_path / "index", plain_wheel(tmp_path))
    finally:
        os.umask(previous)
    for path in (tmp_path / "index").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.name != ".lock":
            assert mode == (0o755 if path.is_dir() else 0o644), path


def test_old_pages_stay_for_slow_readers_and_then_go(tmp_path: Path) -> None:
    place = tmp_path / "index"
    for version in ("1.0", "2.0", "3.0", "4.0"):
        add(place, plain_wheel(tmp_path, version))
    kept = sorted(path.name for path in (place / ".generations").iterdir())
    assert kept == ["00000003", "00000004"]
    assert (place / "simple").readlink() == Path(".generations/00000004")


def test_a_publisher_waits_and_then_says_who_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkbuild.package.index_store._PATIENCE", 0.2)
    place = tmp_path / "index"
    place.mkdir()
    with exclusive(place / ".lock", what="test"), refusal(str(os.getpid()), BusyError):
        add(place, plain_wheel(tmp_path))


def test_a_publisher_that_dies_at_any_step_leaves_the_old_index_or_the_new(tmp_path: Path) -> None:
    old, new = plain_wheel(tmp_path, "1.0"), plain_wheel(tmp_path, "2.0")
    program = Path(__file__).with_name("dying.py")
    argv = [sys.executable, str(program), str(tmp_path), str(old), str(new)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    deaths = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(deaths) > 40
    both = [old.name, new.name]
    assert {tuple(one["found"]) for one in deaths} == {(old.name,), tuple(both)}
    found = [len(one["found"]) for one in deaths]
    assert found == sorted(found), "the new page comes once, and stays"
    for one in deaths:
        assert one["complaint"] == "", one
        assert one["left"] == [], one
        assert one["again"] == both, one
