"""Source archives from an index that cuts lines, lies, forgets and changes its mind."""

from __future__ import annotations

import json
import random
import subprocess  # noqa: TID251 - drives the product from outside
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkbuild.errors import ArchiveError, SourceMismatchError, SourceUnavailableError
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.net.download import Download
from sparkbuild.net.index import endpoint

if TYPE_CHECKING:
    from source.conftest import Index, Lab

NOISE = random.Random(1).randbytes(3_000_000)  # noqa: S311 - only hard to pack
Serve = Callable[..., "Index"]
Digest = Callable[..., str]


@pytest.fixture
def sdist(lab: Lab, serve: Serve, tree: Digest, tiny: dict[str, bytes]) -> Index:
    index = serve(tiny)
    lab.write(index.origin(), digest=tree(tiny))
    return index


def _download(lab: Lab, index: Index) -> Download:
    return Download(lab.downloads, index.file, sha256=index.sha256, size=len(index.data))


def _fetch(lab: Lab, index: Index) -> Path:
    url = index.url.replace("simple/", f"files/{index.file}")
    return _download(lab, index).fetch(url, lambda *_: None, pause=lambda _: None)


def _left_over(lab: Lab) -> list[str]:
    return sorted(str(p.relative_to(lab.downloads)) for p in lab.downloads.rglob("*"))


def test_an_archive_is_downloaded_pinned_and_kept(lab: Lab, sdist: Index) -> None:
    source = lab.obtain()
    assert source.origin == "source archive tiny-1.tar.gz"
    assert (lab.downloads / sdist.sha256 / sdist.file).read_bytes() == sdist.data
    assert _left_over(lab) == [sdist.sha256, f"{sdist.sha256}/{sdist.file}"]
    size = len(sdist.data)
    assert lab.watcher.seen[-1] == (size, size, f"downloading {sdist.file}")


def test_a_kept_archive_needs_no_index(lab: Lab, sdist: Index) -> None:
    first = lab.obtain()
    lab.store.rename(lab.root / "elsewhere")
    sdist.plan += ["gone"] * 9
    assert lab.obtain().commit == first.commit
    assert sdist.ranges == [None]


def test_a_cut_line_is_gone_on_from(lab: Lab, sdist: Index) -> None:
    sdist.plan += ["cut:100", "cut:50"]
    lab.obtain()
    assert sdist.ranges == [None, "bytes=100-", "bytes=150-"]
    assert sdist.conditions == [None, '"one"', '"one"']


def test_a_part_of_an_earlier_run_is_gone_on_from(lab: Lab, sdist: Index) -> None:
    sdist.plan += ["cut:100", "busy", "busy", "busy", "busy"]
    with pytest.raises(OriginUnavailableError, match="503"):
        _fetch(lab, sdist)
    assert (lab.downloads / f"{sdist.sha256}.part").read_bytes() == sdist.data[:100]
    sdist.ranges.clear()
    assert _fetch(lab, sdist).read_bytes() == sdist.data
    assert sdist.ranges == ["bytes=100-"]


@pytest.mark.parametrize("answer", ["deaf", "changed", "off"])
def test_a_server_that_will_not_go_on_is_asked_for_the_whole(
    lab: Lab, sdist: Index, answer: str
) -> None:
    sdist.plan += ["cut:100", answer]
    assert _fetch(lab, sdist).read_bytes() == sdist.data


@pytest.mark.parametrize("answer", ["wrong", "longer"])
def test_wrong_bytes_are_refused_and_deleted(lab: Lab, sdist: Index, answer: str) -> None:
    sdist.plan += [answer] * 9
    with pytest.raises(SourceMismatchError, match="is not the file") as refusal:
        lab.obtain()
    assert sdist.sha256 in refusal.value.problems[0]
    assert refusal.value.problems[1].startswith("found sha256 ")
    assert len(sdist.ranges) == 2
    assert _left_over(lab) == []
    sdist.plan.clear()
    lab.obtain()


def test_wrong_bytes_once_are_fetched_again(lab: Lab, sdist: Index) -> None:
    sdist.plan += ["wrong"]
    lab.obtain()
    assert sdist.ranges == [None, None]


def test_a_part_with_wrong_bytes_is_thrown_away(lab: Lab, sdist: Index) -> None:
    lab.downloads.mkdir(parents=True)
    (lab.downloads / f"{sdist.sha256}.part").write_bytes(bytes(100))
    assert _fetch(lab, sdist).read_bytes() == sdist.data
    assert sdist.ranges == ["bytes=100-", None]


@pytest.mark.parametrize("size", [0, 7])
def test_a_kept_archive_that_was_damaged_is_fetched_again(
    lab: Lab, sdist: Index, size: int
) -> None:
    kept = lab.downloads / sdist.sha256 / sdist.file
    kept.parent.mkdir(parents=True)
    kept.write_bytes(sdist.data[:size])
    lab.obtain()
    assert kept.read_bytes() == sdist.data


def test_an_archive_that_is_gone_is_an_origin_that_cannot_answer(lab: Lab, sdist: Index) -> None:
    sdist.plan += ["gone"]
    with pytest.raises(SourceUnavailableError) as refusal:
        lab.obtain()
    assert "HTTP status 404" in refusal.value.problems[0]
    assert len(sdist.ranges) == 1


def test_an_index_without_the_project_or_the_file_cannot_answer(
    lab: Lab, sdist: Index, tree: Digest, tiny: dict[str, bytes]
) -> None:
    other = sdist.origin(file="tiny-2.tar.gz")
    lab.write(sdist.origin(project="nobody"), other, digest=tree(tiny))
    with pytest.raises(SourceUnavailableError) as refusal:
        lab.obtain()
    project, file = refusal.value.problems
    assert "has no project nobody" in project
    assert "does not offer tiny-2.tar.gz" in file


def test_an_index_that_offers_another_file_of_that_name_is_refused(
    lab: Lab, serve: Serve, tree: Digest, tiny: dict[str, bytes]
) -> None:
    index = serve(tiny, advertised="f" * 64)
    lab.write(index.origin(), digest=tree(tiny))
    with pytest.raises(SourceMismatchError, match="offers another file") as refusal:
        lab.obtain()
    assert refusal.value.problems == (f"expected sha256 {index.sha256}", f"found sha256 {'f' * 64}")
    assert index.ranges == []


def test_an_archive_with_other_content_than_the_pin_is_refused(
    lab: Lab, serve: Serve, tree: Digest, tiny: dict[str, bytes]
) -> None:
    """Right by its own digest, and not the source that is pinned."""
    index = serve({**tiny, "src/a.c": b"evil"})
    lab.write(index.origin(), digest=tree(tiny))
    with pytest.raises(SourceMismatchError, match=r"tiny-1\.tar\.gz is not the source"):
        lab.obtain()


def test_an_archive_that_is_no_archive_is_refused(
    lab: Lab, serve: Serve, tree: Digest, tiny: dict[str, bytes]
) -> None:
    index = serve(tiny, data=b"no archive")
    lab.write(index.origin(), digest=tree(tiny))
    with pytest.raises(ArchiveError):
        lab.obtain()
    assert not list(lab.store.glob("objects/pack/*"))


def test_the_users_index_is_asked_before_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    default = endpoint()
    assert default.startswith("https://")
    for name in reversed(names):
        monkeypatch.setenv(name, f"http://localhost/{name}")
        assert endpoint() == f"http://localhost/{name}"
    monkeypatch.setenv("PIP_INDEX_URL", " ")
    assert endpoint() == "http://localhost/UV_DEFAULT_INDEX"


def test_a_password_of_the_index_is_never_shown(
    lab: Lab, sdist: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:hunter2@127.0.0.1:9/simple")
    with pytest.raises(SourceUnavailableError) as refusal:
        lab.obtain()
    assert "127.0.0.1:9" in refusal.value.problems[0]
    assert "hunter2" not in str((refusal.value.problems, lab.watcher.notes))


def test_two_processes_fetch_once(lab: Lab, sdist: Index) -> None:
    command = lab.driver()
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    answers = [json.loads(one.communicate(timeout=120)[0]) for one in running]
    assert len({answer["commit"] for answer in answers}) == 1
    assert sorted(answer["origin"] for answer in answers)[1] == "store"
    assert len(sdist.ranges) == 1


@pytest.mark.namespace
def test_a_disk_full_while_downloading_keeps_the_part(
    lab: Lab, serve: Serve, tree: Digest, small_disk: Callable[[Path, int], list[str]]
) -> None:
    files = {"noise": NOISE}
    index = serve(files)
    lab.write(index.origin(), digest=tree(files), paths=["noise"])
    report = (
        "import atexit; atexit.register(lambda: print("
        "[f.stat().st_size for f in (work / 'downloads').glob('*.part')]))"
    )
    command = [*small_disk(lab.work, 1500), *lab.driver(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    answer, parts = map(json.loads, done.stdout.splitlines())
    assert answer["error"] == "DiskFullError"
    assert "--work DIR" in answer["next_step"]
    assert len(parts) == 1
    assert parts[0] > 500_000


@pytest.mark.namespace
@pytest.mark.parametrize(
    ("small", "size"), [("", 1500), ("", 4500), ("sources", 1500)], ids=["stream", "pack", "tree"]
)
def test_a_disk_full_while_importing_leaves_nothing_trusted(
    lab: Lab, tree: Digest, small_disk: Callable[[Path, int], list[str]], small: str, size: int
) -> None:
    """3 MB go through the stream, then into git's pack, then into the materialised tree."""
    place = lab.root / "plain"
    place.mkdir()
    (place / "noise").write_bytes(NOISE)
    lab.write({"kind": "path", "path": str(place)}, digest=tree({"noise": NOISE}), paths=["noise"])
    report = (
        "import atexit; atexit.register(lambda: print(json.dumps("
        "[str(f) for f in (work / 'sources').glob('*')])))"
    )
    command = [*small_disk(lab.work / small, size), *lab.driver(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    answer, sources = map(json.loads, done.stdout.splitlines())
    assert answer.get("error") == "DiskFullError", answer
    assert sources == []


@pytest.mark.namespace
def test_without_a_network_the_refusal_is_quick_and_names_every_origin(
    lab: Lab, offline: list[str], tree: Digest, tiny: dict[str, bytes]
) -> None:
    git = {"kind": "git", "url": "https://github.com/ggml-org/llama.cpp.git", "tag": "b11434"}
    sdist = {"kind": "sdist", "project": "tiny", "version": "1", "file": "tiny-1.tar.gz",
             "sha256": "0" * 64, "size": 1, "subdirectory": "tree"}  # fmt: skip
    lab.write(git, sdist, digest=tree(tiny))
    command = [*offline, *lab.driver()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    answer = json.loads(done.stdout)
    assert answer["error"] == "SourceUnavailableError"
    assert [problem.split(":")[0] for problem in answer["problems"]] == [
        "git https", "source archive tiny-1.tar.gz"
    ]  # fmt: skip


@pytest.mark.namespace
def test_without_a_network_a_filled_store_is_enough(
    lab: Lab, offline: list[str], sdist: Index
) -> None:
    first = lab.obtain()
    command = [*offline, *lab.driver()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    answer = json.loads(done.stdout)
    assert (answer["origin"], answer["commit"]) == ("store", first.commit)
