"""Benchmarks of toolkits: provisioning, identity, and how fast a mismatch is refused."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess  # noqa: TID251 - measures the product from outside
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.net.download import Download
from sparkbuild.net.index import find_file
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.provision.unpack import unpack

ROUNDS: Final = 7
RELEASE: Final = "13.0"
OTHER: Final = "13.2.1"
SPARKBUILD: Final = str(Path(sys.executable).parent / "sparkbuild")

_IDENTITY: Final = """
import sys, time
from pathlib import Path
from sparkbuild.files import DigestCache
from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.book import read_book
from sparkbuild.toolkit.identity.identify import identity_of
root, cache = map(Path, sys.argv[1:])
book = read_book(find_recipes(None))
for attempt in range(2):
    digests = DigestCache(cache)
    began = time.perf_counter()
    found = identity_of(root, book, digests)
    print(time.perf_counter() - began)
    assert found.state == "good", found.problems
    print(*(part.path for part in found.parts if Path(part.path).is_file()), sep=chr(31))
"""

_HASH: Final = """
import hashlib, sys, time
began = time.perf_counter()
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        hashlib.file_digest(file, "sha256")
print(time.perf_counter() - began)
"""

_UNPACK: Final = """
import sys, time, zipfile
from pathlib import Path
began = time.perf_counter()
for name in sys.argv[2:]:
    zipfile.ZipFile(name).extractall(sys.argv[1])
print(time.perf_counter() - began)
"""


def bench_install(work: Path) -> dict[str, Any]:
    """A release from nothing, then again from its kept wheels, against a bare unzip of them."""
    shutil.rmtree(work / "bench-toolkits", ignore_errors=True)
    folder = work / "bench-toolkits"
    argv = [SPARKBUILD, "toolkit", "install", RELEASE, "--work", str(folder), "--json"]
    cold = _seconds(argv)
    shutil.rmtree(folder / "toolkits")
    warm = _seconds(argv)
    present = _seconds(argv)
    wheels = sorted(str(path) for path in (folder / "downloads").glob("*/*.whl"))
    bare = float(_output([sys.executable, "-c", _UNPACK, str(folder / "bare"), *wheels])[0])
    shutil.rmtree(folder / "bare")
    return {
        "cold": cold,
        "warm": warm,
        "present": present,
        "baseline": bare,
        "ratio": warm / bare,
        "baseline_is": "python's zipfile unpacking the same wheels, checking nothing",
        "rounds": 1,
    }


def bench_identity(work: Path, given: Path | None) -> dict[str, Any]:
    """Every part of a root, cold and warm, against hashing the same files one after another."""
    root = given or _root(work)
    cold, warm, bare = [], [], []
    cache = work / "digests-bench.json"
    for _ in range(ROUNDS):
        cache.unlink(missing_ok=True)
        lines = _output([sys.executable, "-c", _IDENTITY, str(root), str(cache)])
        cold.append(float(lines[0]))
        warm.append(float(lines[2]))
        bare.append(float(_output([sys.executable, "-c", _HASH, *lines[1].split(chr(31))])[0]))
    first, second, base = map(statistics.median, (cold, warm, bare))
    return {
        "cold": first,
        "warm": second,
        "baseline": base,
        "ratio": first / base,
        "baseline_is": "sha256 of the same large files on one thread, page cache warm",
        "target": "1 s cold, 0.050 s warm",
        "rounds": ROUNDS,
    }


def bench_refusal(work: Path, given: Path | None) -> dict[str, Any]:
    """``make`` with a root that holds another release's headers, from the command line."""
    root = given or _root(work)
    folder = work / "bench-toolkits"
    folder.mkdir(parents=True, exist_ok=True)
    mixed = folder / "mixed"
    shutil.rmtree(mixed, ignore_errors=True)
    shutil.copytree(root, mixed, copy_function=os.link, symlinks=True)
    _mix(mixed, folder)
    argv = [SPARKBUILD, "make", "--variant", "vision", "--toolkit", str(mixed),
            "--work", str(folder), "--out", str(folder / "dist")]  # fmt: skip
    first = _refused(argv, folder)
    times = [_refused(argv, folder) for _ in range(ROUNDS)]
    start = [_seconds([sys.executable, "-c", "pass"]) for _ in range(ROUNDS)]
    shutil.rmtree(mixed)
    return {
        "first": first,
        "seconds": statistics.median(times),
        "baseline": statistics.median(start),
        "ratio": statistics.median(times) / statistics.median(start),
        "baseline_is": "python -c pass",
        "target": "5 s",
        "rounds": ROUNDS,
    }


def _root(work: Path) -> Path:
    folder = work / "bench-toolkits"
    argv = [SPARKBUILD, "toolkit", "install", RELEASE, "--work", str(folder), "--json"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return next((folder / "toolkits").glob(f"cuda-{RELEASE}-*/bin")).parent


def _mix(root: Path, folder: Path) -> None:
    """Put the crt headers of another release in: the smallest wheel that makes a mismatch."""
    book = read_book(find_recipes(None))
    locked = book.locked(f"cuda-{OTHER}", current_platform())  # type: ignore[arg-type]
    if locked is None:
        raise SystemExit(f"no lock of {OTHER} for this platform")
    wheel = next(wheel for wheel in locked.wheels if wheel.project == "nvidia-cuda-crt")
    download = Download(folder / "downloads", wheel.file, sha256=wheel.sha256, size=wheel.size)
    if not download.finished():
        url = find_file(wheel.project, wheel.file, sha256=wheel.sha256)
        download.fetch(url, lambda *_: None)
    place = folder / "other"
    shutil.rmtree(place, ignore_errors=True)
    unpack([download.file], place)
    headers = root / "include/crt"
    for header in [*headers.glob("*.h"), *headers.glob("*.hpp")]:
        header.unlink()  # the file may have a second name in the good root
    shutil.copytree(place / "include/crt", headers, dirs_exist_ok=True)


def _refused(argv: Sequence[str], cwd: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    taken = time.perf_counter() - began
    if done.returncode != 9:
        raise SystemExit(f"expected exit code 9, found {done.returncode}: {done.stdout}")
    return taken


def _output(argv: Sequence[str]) -> list[str]:
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def _seconds(argv: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began
