"""A whole llama.cpp built a second time, where all is different that must make no difference."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.manifest import find_recipes
from sparkbuild.wheel_rebuild import read_recorded, rebuild_and_compare
from sparkbuild.workspace import Workspace

pytestmark = [pytest.mark.real, pytest.mark.network]


class Log:
    """An observer that keeps the names of stages."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def started(self, stage: str) -> None:
        self.stages.append(stage)

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finished(self, report: Any) -> None: ...


def test_two_whole_builds_give_the_same_wheel_byte_for_byte(real_make: Any) -> None:
    """The first was killed twenty times and went on where it was; the second is made in one go."""
    log = Log()
    found = rebuild_and_compare(
        real_make.wheel,
        recipes=find_recipes(None),
        workspace=Workspace(real_make.work),
        observer=log,
    )
    assert log.stages[-5:] == ["configure", "build", "inspect", "package", "compare"]
    assert [f"{d.member} {d.place}: {d.what}" for d in found.comparison.differences] == []
    assert found.comparison.identical
    assert found.wheel.read_bytes() == real_make.wheel.read_bytes()
    assert found.wheel.name == real_make.wheel.name
    with zipfile.ZipFile(found.wheel) as opened:
        built = [name for name in opened.namelist() if "/bin/" in name]
        assert len(built) >= 10
        # What was taken over from the first wheel is nothing that was compiled.
        assert not [name for name in found.carried if name in built]
        info = json.loads(opened.read("sparkbuild_llama_cpp/build-info.json"))
    assert info["source"]["identity"] == real_make.identity


def test_nothing_of_this_machine_is_in_the_wheel(real_make: Any) -> None:
    """Neither in texts nor in programs: the work folder, the user's home, this installation."""
    places = {str(real_make.work), str(real_make.out), str(Path(__file__).parents[2])}
    with zipfile.ZipFile(real_make.wheel) as opened:
        for name in opened.namelist():
            data = opened.read(name)
            assert not [place for place in places if place.encode() in data], name
    assert read_recorded(real_make.wheel).variant == "vision"
