"""Locks and installs against an index that cuts lines, lies, hangs and goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess  # noqa: TID251 - drives the product from outside
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from sparkbuild.errors import (
    SourceMismatchError,
    SourceUnavailableError,
    ToolkitMismatchError,
)
from sparkbuild.files import sha256_bytes
from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.lock import Lock, Platform, lock_path
from sparkbuild.toolkit.provision import tree
from sparkbuild.toolkit.provision.locking import lock_text, make_lock
from sparkbuild.toolkit.provision.provision import Provisioned, install
from sparkbuild.toolkit.provision.remote_wheel import RangesIgnoredError, RemoteFile, new_client

from .index import NOISE, PARTS, Index, pack, start, write_recipes

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        current_platform() != "linux-x86_64", reason="what is installed here is for x86-64"
    ),
]

HERE: Platform = "linux-x86_64"
CUBLAS = "nvidia-cublas"


class Lab:
    """One user's machine: recipes, downloads, toolkits."""

    def __init__(self, root: Path, index: Index) -> None:
        self.index = index
        self.recipes = write_recipes(root / "recipes", one="13.0.88", two="13.0.99")
        self.downloads = root / "downloads"
        self.toolkits = root / "toolkits"
        self.seen: list[tuple[int, int, str]] = []

    def lock(self, name: str, version: str | None = None) -> Lock:
        recipes = find_recipes(self.recipes)
        lock = make_lock(recipes.toolchain(name)[0], version, lambda *now: self.seen.append(now))
        lock_path(recipes, name).write_text(lock_text(lock))
        return lock

    def root(self, name: str = "one") -> Path:
        return tree.default_root(self.toolkits, name, HERE)

    def install(self, name: str = "one", platform: Platform = HERE) -> Provisioned:
        return install(
            read_book(find_recipes(self.recipes)), name, platform,
            root=tree.default_root(self.toolkits, name, platform), downloads=self.downloads,
            progress=lambda *now: self.seen.append(now),
        )  # fmt: skip

    def driver(self) -> list[str]:
        """A command that installs in a process of its own and says what it loaded."""
        return [sys.executable, "-c", _DRIVER, str(self.recipes), str(self.root()),
                str(self.downloads)]  # fmt: skip


_DRIVER = """
import json, pathlib, sys
from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.provision.provision import install
recipes, root, downloads = map(pathlib.Path, sys.argv[1:])
made = install(read_book(find_recipes(recipes)), "one", "linux-x86_64", root=root,
               downloads=downloads, progress=lambda *_: None)
loaded = [name for name in ("httpx", "requests", "pypi_simple") if name in sys.modules]
print(json.dumps({"reused": made.reused, "downloaded": made.downloaded, "loaded": loaded}))
"""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    index = Index()
    index.add_release("13.0.1", "13.0.88")
    server = start(index)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield index
    server.shutdown()
    server.server_close()


@pytest.fixture
def lab(tmp_path: Path, index: Index) -> Lab:
    return Lab(tmp_path, index)


@pytest.fixture
def locked(lab: Lab) -> Lab:
    lab.lock("one")
    lab.index.asked.clear()
    lab.index.sent.clear()
    return lab


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with new_client() as made:
        yield made


def url_of(index: Index, project: str = CUBLAS) -> str:
    return index.url.replace("simple/", f"files/{project}/{index.wheel(project)}")


# ---- locks


def test_a_lock_is_made_without_fetching_large_wheels_and_is_the_same_again(lab: Lab) -> None:
    lock = lab.lock("one")
    assert lock.metapackage.version == "13.0.1"
    for platform, machine in (("linux-x86_64", "x86_64"), ("linux-aarch64", "aarch64")):
        part = lock.platform[platform]  # type: ignore[index]
        assert part.missing == ()
        files = {wheel.project: wheel for wheel in part.wheels}
        assert files.keys() == PARTS.keys()
        for project, wheel in files.items():
            assert wheel.file == lab.index.wheel(project, machine)
            assert wheel.size == len(lab.index.files[project][wheel.file])
    assert lab.index.sent[lab.index.wheel(CUBLAS)] < len(NOISE) / 10
    assert lab.lock("one") == lock
    lab.index.deaf = True
    assert lab.lock("one") == lock
    assert lab.seen[-1] == (12, 12, "locked")


def test_the_newest_release_that_pins_the_compiler_is_locked_unless_one_is_named(
    lab: Lab,
) -> None:
    lab.index.add_release("13.0.2", "13.0.88", changes={CUBLAS: "13.1"})
    lab.index.add_release("13.0.3rc1", "13.0.88")
    lab.index.add_release("13.0.4", "13.0.99")
    assert lab.lock("one").metapackage.version == "13.0.2"
    assert lab.lock("one", "13.0.1").metapackage.version == "13.0.1"
    assert lab.lock("two").metapackage.version == "13.0.4"
    with pytest.raises(ToolkitMismatchError, match=r"has no cuda-toolkit 13\.0\.9"):
        lab.lock("one", "13.0.9")
    with pytest.raises(ToolkitMismatchError, match=r"pins nvcc 13\.0\.88") as error:
        lab.lock("one", "13.0.4")
    assert error.value.problems == ("cuda-toolkit 13.0.4 pins nvcc ==13.0.99.*",)


def test_a_wheel_that_says_it_is_another_is_not_locked(lab: Lab) -> None:
    lab.index.files[CUBLAS][lab.index.wheel(CUBLAS)] = pack(CUBLAS, "13.0.87", PARTS[CUBLAS])
    with pytest.raises(ToolkitMismatchError, match="not what the index says") as error:
        lab.lock("one")
    assert error.value.problems == ("expected nvidia-cublas 13.0.88, found nvidia-cublas 13.0.87",)


def test_an_index_that_is_gone_is_said(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    with pytest.raises(SourceUnavailableError, match="one cannot be locked"):
        lab.lock("one")


def test_a_remote_file_reads_any_place_as_the_file_does(index: Index, client: httpx.Client) -> None:
    data = index.files[CUBLAS][index.wheel(CUBLAS)]
    index.plan[index.wheel(CUBLAS)] = ["busy", "cut:9"]
    remote = RemoteFile(url_of(index), client)
    with remote:
        assert remote.size == len(data)
        for start_at, count in ((0, 10), (5, 100), (70_000, 200_000), (len(data) - 3, 9),
                                (len(data), 4), (len(data) - 80_000, 80_000)):  # fmt: skip
            remote.seek(start_at)
            found = b""
            while len(found) < count and (more := remote.read(count - len(found))):
                found += more
            assert found == data[start_at : start_at + count]
            assert remote.tell() == min(start_at + count, len(data))
        with pytest.raises(ValueError, match="before the beginning"):
            remote.seek(-1)
    assert remote.fetched < len(data)


def test_a_remote_file_says_why_it_cannot_be_read(index: Index, client: httpx.Client) -> None:
    index.plan[index.wheel(CUBLAS)] = ["deaf"]
    with pytest.raises(RangesIgnoredError):
        RemoteFile(url_of(index), client)
    index.plan[index.wheel(CUBLAS)] = ["busy"] * 3
    with pytest.raises(OriginUnavailableError, match="HTTP status 503"):
        RemoteFile(url_of(index), client)
    with pytest.raises(OriginUnavailableError, match="HTTP status 404"):
        RemoteFile(index.url + "nothing", client)


# ---- installs


def test_a_cold_install_fetches_each_wheel_once_and_a_cut_line_goes_on(locked: Lab) -> None:
    name = locked.index.wheel(CUBLAS)
    size = len(locked.index.files[CUBLAS][name])
    locked.index.plan[name] = ["cut:700000"]
    made = locked.install()
    total = sum(len(locked.index.files[project][locked.index.wheel(project)]) for project in PARTS)
    assert (made.reused, made.downloaded, made.licence) == (False, total, "LicenseRef-Tiny")
    assert locked.index.ranges(name) == [None, "bytes=700000-"]
    assert len(locked.index.asked) == len(PARTS) + 1
    here = [now for now in locked.seen if now[2] == f"downloading {name}"]
    assert here[-1][0] - here[0][0] < size
    assert all(done <= whole for done, whole, _ in locked.seen)


def test_a_killed_download_is_gone_on_with(locked: Lab) -> None:
    name = locked.index.wheel(CUBLAS)
    locked.index.plan[name] = ["hang:500000"]
    digest = sha256_bytes(locked.index.files[CUBLAS][name])
    part = locked.downloads / f"{digest}.part"
    with subprocess.Popen(locked.driver(), stdout=subprocess.DEVNULL) as child:
        while child.poll() is None and not (part.exists() and part.stat().st_size > 400_000):
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
    locked.index.released.set()
    have = part.stat().st_size
    assert 400_000 < have <= 500_000
    assert not locked.root().exists()
    made = locked.install()
    assert locked.index.ranges(name) == [None, f"bytes={have}-"]
    total = sum(len(locked.index.files[project][locked.index.wheel(project)]) for project in PARTS)
    assert made.downloaded == total - have


def test_another_file_than_the_locked_one_is_refused_and_nothing_is_left(locked: Lab) -> None:
    name = locked.index.wheel(CUBLAS)
    locked.index.plan[name] = ["wrong", "wrong"]
    with pytest.raises(SourceMismatchError, match="not the file"):
        locked.install()
    assert not locked.root().exists()
    assert not locked.install().reused


def test_releases_share_what_they_have_in_common(locked: Lab) -> None:
    locked.install()
    versions = dict.fromkeys(PARTS, "13.0.88") | {"nvidia-cuda-nvcc": "13.0.99"}
    locked.index.add_release("13.0.4", "13.0.99", changes=versions)
    locked.lock("two")
    locked.index.asked.clear()
    made = locked.install("two")
    assert locked.index.asked == [(locked.index.wheel("nvidia-cuda-nvcc"), None)]
    assert made.downloaded < 10_000
    assert (locked.root("two") / "bin/nvcc").read_bytes() == b"nvcc of 13.0.99 x86_64"
    assert (locked.root("one") / "bin/nvcc").read_bytes() == b"nvcc of 13.0.88 x86_64"


def test_another_platform_s_toolkit_is_made_here_too(locked: Lab) -> None:
    made = locked.install("one", "linux-aarch64")
    root = Path(made.root)
    assert (root / "bin/nvcc").read_bytes() == b"nvcc of 13.0.88 aarch64"
    assert (root / "lib64/libcudart.so").resolve().name == "libcudart.so.13"
    assert tree.provisioned_roots(locked.toolkits) == (root,)


def test_what_is_here_needs_no_network(locked: Lab, offline: list[str]) -> None:
    def run() -> dict[str, object]:
        done = subprocess.run([*offline, *locked.driver()], capture_output=True, check=True)
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    locked.install()
    assert run() == {"reused": True, "downloaded": 0, "loaded": []}
    (locked.root() / "bin/nvcc").write_bytes(b"other")
    assert run() | {"loaded": []} == {"reused": False, "downloaded": 0, "loaded": []}
    assert (locked.root() / "bin/nvcc").read_bytes() == b"nvcc of 13.0.88 x86_64"


# ---- killed in the middle


def _killed_before(number: int, action: Callable[[], object]) -> bool:
    """Run in a child that is killed before its nth step; False where it has fewer steps."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFSIGNALED(status)
    try:
        left = [number]

        def counted(owner: object, name: str) -> None:
            real = getattr(owner, name)

            def step(*arguments: object, **options: object) -> object:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            setattr(owner, name, step)

        for owner, name in ((Path, "rename"), (Path, "replace"), (Path, "symlink_to"),
                            (Path, "unlink"), (os, "fchmod"), (os, "sync")):  # fmt: skip
            counted(owner, name)
        action()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it forks: 3.12 and later
def test_killed_before_every_single_step_then_a_good_run(
    locked: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root is replaced; without a compiler, whose stub would cost most of the time."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    locked.install()  # fills the downloads
    good = {path: path.lstat().st_size for path in locked.root().rglob("*")}
    number = 0
    killed = True
    while killed:
        number += 1
        (locked.root() / "bin/ptxas").write_bytes(b"touched")
        killed = _killed_before(number, locked.install)
        if locked.root().exists():
            _manifest(locked)  # never half a root
        locked.install()
        assert {path: path.lstat().st_size for path in locked.root().rglob("*")} == good
        assert list(tree.differences(locked.root(), _manifest(locked))) == []
        assert {path.name for path in locked.root().parent.iterdir()} == {
            HERE, f"{HERE}.lock", f"{HERE}.seal",
        }  # fmt: skip
    assert number > 25


def _manifest(lab: Lab) -> tree.Installed:
    found = tree.read_manifest(lab.root())
    assert found is not None
    return found
