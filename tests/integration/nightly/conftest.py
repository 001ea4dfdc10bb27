"""A machine with nights: a local upstream, recipes of two variants, answers of real runs."""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - a repository for tests
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sparkbuild.history.store import History
from sparkbuild.nightly.plan import read_plan
from sparkbuild.nightly_order import Ended, Order
from sparkbuild.nightly_work import run_night

DATA = Path(__file__).parents[2] / "data" / "nightly"
HOUR = 3600
PLAN = """schema = 1
summary = "toy"
[upstream]
url = "{upstream}"
minimum_age_hours = 6
[[matrix]]
variant = "vision"
toolkits = ["cpu"]
[[matrix]]
variant = "vision-mtp"
toolkits = ["cpu"]
[faults]
run = false
[limits]
free_gigabytes = 0
[publish]
index = "index"
roles = ["control"]
"""
MANIFEST = """schema = 1
name = "{name}"
summary = "s"
[source]
build = 100
paths = ["a"]
digest = "{digest}"
[[source.origins]]
kind = "git"
url = "{upstream}"
tag = "b100"
{patches}
[build]
targets = ["llama-server"]
[smoke]
suite = "canary"
"""
PATCH = '[[patches]]\nfile = "0001-a.patch"\nsha256 = "' + "0" * 64 + '"\nreason = "r"'


class Quiet:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def started(self, stage: str) -> None:
        self.lines.append(stage)

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None:
        self.lines.append(text)

    def finished(self, report: object) -> None: ...


def git(at: Path, *arguments: str, when: float | None = None) -> str:
    env = {
        "PATH": os.environ["PATH"], "HOME": str(at), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.org",
    }  # fmt: skip
    if when is not None:
        env["GIT_AUTHOR_DATE"] = env["GIT_COMMITTER_DATE"] = f"{int(when)} +0000"
    done = subprocess.run(
        ["git", *arguments], cwd=at, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@dataclass
class Nights:
    root: Path
    live: Quiet = field(default_factory=Quiet)

    @property
    def upstream(self) -> Path:
        return self.root / "upstream"

    @property
    def history(self) -> Path:
        return self.root / "history"

    @property
    def calls(self) -> list[str]:
        file = self.root / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def release(self, tag: str, *, hours: float) -> str:
        (self.upstream / "a").write_text(tag)
        git(self.upstream, "add", "a")
        when = time.time() - hours * HOUR
        git(self.upstream, "commit", "--quiet", "--allow-empty", "-m", tag, when=when)
        git(self.upstream, "tag", tag)
        return git(self.upstream, "rev-parse", "HEAD")

    def scenario(self, *rules: dict[str, Any]) -> None:
        (self.root / "scenario.json").write_text(json.dumps(rules))
        for file in self.root.glob("used-*"):
            file.unlink()
        (self.root / "calls").unlink(missing_ok=True)

    def plan(self, text: str = PLAN) -> Path:
        file = self.root / "nightly.toml"
        file.write_text(text.format(upstream=self.upstream))
        return file

    def order(self, **more: Any) -> Order:
        file = self.root / "nightly.toml"
        return Order(
            **{
                "plan": read_plan(file),
                "plan_file": file,
                "root": self.history,
                "recipes": self.root / "recipes",
                "lock": self.root / "lock",
                "work": self.root / "work",
                "pause": 0.0,
                "program": (
                    sys.executable,
                    str(DATA / "product.py"),
                    str(self.root / "scenario.json"),
                ),
                **more,
            }
        )

    def run(self, **more: Any) -> Ended:
        self.live = Quiet()
        # Whoever edits sparkbuild while its tests run would begin a new night each time.
        with mock.patch("sparkbuild.nightly_work.product_digest", return_value="same"):
            return run_night(self.order(**more), self.live)

    @property
    def kept(self) -> History:
        return History(self.history)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    made = Nights(tmp_path)
    made.upstream.mkdir()
    git(made.upstream, "init", "--quiet", "--initial-branch=main")
    made.release("b100", hours=500)
    for name, patches in (("vision", ""), ("vision-mtp", PATCH)):
        folder = tmp_path / "recipes" / "patchsets" / name
        folder.mkdir(parents=True)
        text = MANIFEST.format(name=name, digest="0" * 64, upstream=made.upstream, patches=patches)
        (folder / "patchset.toml").write_text(text)
    (tmp_path / "recipes" / "toolchains").mkdir()
    made.plan()
    made.scenario()
    return made
