"""Publish again and again, dying at each step once: a program of its own, for ``test_index``.

Usage: dying.py FOLDER OLD_WHEEL NEW_WHEEL. Every run starts from an index with OLD_WHEEL and adds
NEW_WHEEL; the n-th run is killed by the kernel at its n-th call that touches the file system. What
readers and the next publisher find then is written as one JSON line: the files on the page, whether
``look_after`` had a complaint, and the files after adding NEW_WHEEL again.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from sparkbuild.errors import SparkbuildError
from sparkbuild.package import index
from sparkbuild.package.index_pages import read_project

NOW = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)
TOUCHING = ("open", "os.", "shutil.", "tempfile.")

left = 0


def hook(event: str, _: object) -> None:
    global left  # noqa: PLW0603 - an audit hook has no other memory
    if left and event.startswith(TOUCHING):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)


def died(place: Path, new: Path, step: int) -> bool:
    """Add ``new`` in a child that is killed at its step; False where it ended before that."""
    global left  # noqa: PLW0603 - an audit hook has no other memory
    child = os.fork()
    if child == 0:
        sys.addaudithook(hook)
        left = step
        index.add(place, [new], now=NOW)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def files(place: Path) -> list[str]:
    page = read_project(place / "simple/tiny-tool/index.json")
    html = (place / "simple/tiny-tool/index.html").read_text()
    assert all(f">{one.filename}</a>" in html for one in page.files)
    return [one.filename for one in page.files]


def main(folder: Path, old: Path, new: Path) -> None:
    base, place = folder / "base", folder / "index"
    index.add(base, [old], now=NOW)
    index.add(folder / "warm", [old, new], now=NOW)  # every import is done
    step = 0
    while True:
        step += 1
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(base, place, symlinks=True)
        if not died(place, new, step):
            return
        found = files(place)
        complaint = ""
        try:
            index.look_after(place)
        except SparkbuildError as error:
            complaint = str(error)
        swept = [path.name for path in place.rglob(".part-*")]
        again = index.add(place, [new], now=NOW)
        line = {"step": step, "found": found, "complaint": complaint, "left": swept,
                "again": list(again.projects["tiny-tool"])}  # fmt: skip
        print(json.dumps(line), flush=True)  # noqa: T201 - this is the answer


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
