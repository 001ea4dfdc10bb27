"""Real pip and real uv install from the index: over HTTP, from files, as HTML and as JSON."""

from __future__ import annotations

import datetime as dt
import functools
import http.server
import json
import os
import re
import shutil
import subprocess  # noqa: TID251 - installers and publishers are programs of their own
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from sparkbuild.package import index
from sparkbuild.package.keys import make_key

from .conftest import NOW, build_wheel, made, sha
from .plain import plain_wheel

UV = Path(sys.executable).parent / "uv"
SPARKBUILD = [sys.executable, "-m", "sparkbuild"]
JSON_TYPE = "application/vnd.pypi.simple.v1+json"


@dataclass
class Served:
    """A folder behind a static server on a random port, and what was asked of it."""

    url: str
    asked: list[str] = field(default_factory=list)
    json_too: bool = False
    """Whether it answers with JSON where a client prefers that, as PEP 691 describes."""


class _Handler(http.server.SimpleHTTPRequestHandler):
    served: Served

    def do_GET(self) -> None:
        self.served.asked.append(self.path)
        if self.served.json_too and self.path.endswith("/"):
            assert JSON_TYPE in self.headers.get("Accept", "")
            self.path += "index.json"
        super().do_GET()

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        return JSON_TYPE if str(path).endswith("index.json") else super().guess_type(path)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def served(place: Path) -> Iterator[Served]:
    place.mkdir()
    handler = type("Handler", (_Handler,), {})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(place))
    )
    found = Served(url=f"http://127.0.0.1:{server.server_port}/simple/")
    handler.served = found  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass(frozen=True)
class Installer:
    """``pip install`` or ``uv pip install`` into a folder."""

    name: str
    argv: tuple[str, ...]

    def run(self, url: str, target: Path, *wanted: str) -> subprocess.CompletedProcess[str]:
        argv = [*self.argv, "--index-url", url, "--target", str(target), *wanted]
        home = target.parent / "home"
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "PIP_CONFIG_FILE": os.devnull,
               "UV_NO_CONFIG": "1", "NO_COLOR": "1"}  # fmt: skip
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=env)

    def install(self, url: str, target: Path, *wanted: str) -> str:
        """The installed version of tiny_tool, and what the installer said, on one text."""
        done = self.run(url, target, *wanted)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


PIP = Installer("pip", (sys.executable, "-I", "-m", "pip", "install", "--no-cache-dir",
                        "--disable-pip-version-check", "--no-input"))  # fmt: skip
UV_PIP = Installer("uv", (str(UV), "pip", "install", "--no-cache", "--python", sys.executable))


@pytest.fixture(params=[PIP, UV_PIP], ids=["pip", "uv"])
def installer(request: pytest.FixtureRequest) -> Installer:
    chosen: Installer = request.param
    if chosen is UV_PIP and not UV.is_file():
        pytest.skip("uv is not installed: pip install 'sparkbuild[test]'")
    return chosen


def version(target: Path) -> str:
    match = re.search(r"VERSION = '(.+)'", (target / "tiny_tool.py").read_text())
    assert match
    return match[1]


@pytest.fixture(params=["http", "http-json", "file"])
def url(request: pytest.FixtureRequest, served: Served, place: Path) -> str:
    served.json_too = request.param == "http-json"
    return (place / "simple").as_uri() + "/" if request.param == "file" else served.url


def test_the_newest_is_installed(
    url: str, installer: Installer, place: Path, tmp_path: Path
) -> None:
    wheels = [plain_wheel(tmp_path, one) for one in ("1.0", "2.0", "10.0+cpu.text")]
    index.add(place, wheels, now=NOW)
    installer.install(url, tmp_path / "got", "tiny-tool")
    assert version(tmp_path / "got") == "10.0+cpu.text"
    installer.install(url, tmp_path / "older", "tiny-tool<10")
    assert version(tmp_path / "older") == "2.0"


def test_a_local_version_is_found_by_its_whole_name(
    served: Served, installer: Installer, place: Path, tmp_path: Path
) -> None:
    wheels = [plain_wheel(tmp_path, one) for one in ("7.0+cpu.text", "7.0+cu130.text")]
    index.add(place, wheels, now=NOW)
    installer.install(served.url, tmp_path / "got", "tiny-tool==7.0+cpu.text")
    assert version(tmp_path / "got") == "7.0+cpu.text"


def test_another_python_is_not_served(
    served: Served, installer: Installer, place: Path, tmp_path: Path
) -> None:
    one = plain_wheel(tmp_path, "1.0")
    two = plain_wheel(tmp_path, "2.0", requires_python=">=9")
    index.add(place, [one, two], now=NOW)
    installer.install(served.url, tmp_path / "got", "tiny-tool")
    assert version(tmp_path / "got") == "1.0"


def test_a_withdrawn_wheel_is_taken_only_where_it_is_named(
    url: str, installer: Installer, place: Path, tmp_path: Path
) -> None:
    one, two = plain_wheel(tmp_path, "1.0"), plain_wheel(tmp_path, "2.0")
    index.add(place, [one, two], now=NOW)
    index.yank(place, two.name, "wrong output & more")
    installer.install(url, tmp_path / "got", "tiny-tool")
    assert version(tmp_path / "got") == "1.0"
    said = installer.install(url, tmp_path / "named", "tiny-tool==2.0")
    assert version(tmp_path / "named") == "2.0"
    assert "wrong output & more" in said
    index.yank(place, two.name, None)
    installer.install(url, tmp_path / "again", "tiny-tool")
    assert version(tmp_path / "again") == "2.0"


def test_only_the_metadata_is_fetched_to_choose(
    served: Served, installer: Installer, place: Path, tmp_path: Path
) -> None:
    """PEP 658: a resolver reads what a wheel needs without the wheel."""
    needy = plain_wheel(tmp_path, "2.0", metadata="Metadata-Version: 2.1\nName: tiny-tool\n"
                        "Version: 2.0\nRequires-Dist: not-there==1\n")  # fmt: skip
    index.add(place, [plain_wheel(tmp_path, "1.0"), needy], now=NOW)
    installer.install(served.url, tmp_path / "got", "tiny-tool<2")
    fetched = [path for path in served.asked if "/files/" in path]
    assert fetched == [
        "/files/tiny_tool-1.0-py3-none-any.whl.metadata",
        "/files/tiny_tool-1.0-py3-none-any.whl",
    ]
    assert installer.run(served.url, tmp_path / "no", "tiny-tool==2.0").returncode != 0
    assert "/files/tiny_tool-2.0-py3-none-any.whl" not in served.asked


def test_a_wheel_that_changed_on_the_server_is_refused_by_pip(
    url: str, place: Path, tmp_path: Path
) -> None:
    wheel = plain_wheel(tmp_path)
    index.add(place, [wheel], now=NOW)
    other = plain_wheel(tmp_path / "other", body="# evil")
    shutil.copy(other, place / "files" / wheel.name)
    done = PIP.run(url, tmp_path / "got", "tiny-tool")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stdout + done.stderr


def test_hashes_that_a_user_pins_are_those_of_the_index(
    url: str, installer: Installer, place: Path, tmp_path: Path
) -> None:
    wheel = plain_wheel(tmp_path)
    index.add(place, [wheel], now=NOW)
    pins = tmp_path / "pins.txt"
    pins.write_text(f"tiny-tool==1.0 --hash=sha256:{sha(wheel.read_bytes())}\n")
    installer.install(url, tmp_path / "got", "--require-hashes", "-r", str(pins))
    assert version(tmp_path / "got") == "1.0"
    pins.write_text(f"tiny-tool==1.0 --hash=sha256:{'0' * 64}\n")
    done = installer.run(url, tmp_path / "no", "--require-hashes", "-r", str(pins))
    assert done.returncode != 0


def test_uv_knows_when_a_wheel_was_published(served: Served, place: Path, tmp_path: Path) -> None:
    if not UV.is_file():
        pytest.skip("uv is not installed: pip install 'sparkbuild[test]'")
    served.json_too = True
    index.add(place, [plain_wheel(tmp_path, "1.0")], now=NOW)
    index.add(place, [plain_wheel(tmp_path, "2.0")], now=NOW + dt.timedelta(days=2))
    until = f"{NOW + dt.timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    UV_PIP.install(served.url, tmp_path / "got", "--exclude-newer", until, "tiny-tool")
    assert version(tmp_path / "got") == "1.0"


def test_a_wheel_of_sparkbuild_is_installed_with_its_provenance_inside(
    served: Served, installer: Installer, place: Path, tmp_path: Path
) -> None:
    wheel = build_wheel(tmp_path, made(tmp_path))
    index.add(place, [wheel], now=NOW)
    extra = ["--platform", "linux_x86_64", "--only-binary", ":all:"]
    if installer is UV_PIP:
        extra = ["--python-platform", "x86_64-unknown-linux-gnu"]
    done = installer.run(served.url, tmp_path / "got", *extra, "sparkbuild-llama-cpp")
    if installer is UV_PIP and done.returncode != 0:
        pytest.skip("this uv takes manylinux for the platform linux, the wheel is linux_x86_64")
    assert done.returncode == 0, done.stderr
    (sbom,) = (tmp_path / "got").glob("*.dist-info/sboms/*.cdx.json")
    assert json.loads(sbom.read_text())["bomFormat"] == "CycloneDX"
    assert (tmp_path / "got/sparkbuild_llama_cpp/bin/llama-server").stat().st_mode & 0o111


def publish(place: Path, wheel: Path) -> subprocess.Popen[bytes]:
    argv = [*SPARKBUILD, "wheel", "index", str(place), "--add", str(wheel)]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def page(served: Served) -> dict[str, Any]:
    with urllib.request.urlopen(f"{served.url}tiny-tool/index.json") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_publishers_at_once_and_killed_ones_never_show_a_reader_half_an_index(
    served: Served, place: Path, tmp_path: Path
) -> None:
    """Six publish at the same time, three are killed on the way, and a reader looks on."""
    index.add(place, [plain_wheel(tmp_path, "0.0")], now=NOW)
    wheels = [plain_wheel(tmp_path, f"{n}.0", body="# x" * 300_000) for n in range(1, 7)]
    running = [publish(place, wheel) for wheel in wheels]
    seen: set[str] = set()
    started = time.monotonic()
    killed = 0
    while any(one.poll() is None for one in running):
        found = page(served)
        names = {one["filename"] for one in found["files"]}
        assert seen <= names
        for one in found["files"]:
            if one["filename"] not in seen:
                address = urljoin(f"{served.url}tiny-tool/", one["url"])
                with urllib.request.urlopen(address) as answer:
                    assert sha(answer.read()) == one["hashes"]["sha256"]
        seen = names
        if killed < 3 and time.monotonic() - started > 0.5 + 0.2 * killed:
            running[killed].kill()
            killed += 1
    for one in running:
        one.communicate()
    survivors = {wheel.name for wheel in wheels[3:]}
    assert [one.returncode for one in running[3:]] == [0, 0, 0]
    index.add(place, wheels, now=NOW)
    assert index.look_after(place).notes == ()
    names = {one["filename"] for one in page(served)["files"]}
    assert survivors <= names
    assert names == {wheel.name for wheel in wheels} | {"tiny_tool-0.0-py3-none-any.whl"}


def test_no_key_is_needed_to_serve_and_one_guards_the_door(place: Path, tmp_path: Path) -> None:
    make_key("team", tmp_path / "keys", now=NOW)
    wheel = plain_wheel(tmp_path)
    argv = [*SPARKBUILD, "wheel", "index", str(place), "--add", str(wheel), "--json"]
    key = ["--key", str(tmp_path / "keys/team.pub")]
    done = subprocess.run([*argv, *key], capture_output=True, text=True, check=False)
    assert done.returncode == 22
    assert json.loads(done.stdout)["failure"]["title"] == "not trusted"
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["added"] == [wheel.name]
