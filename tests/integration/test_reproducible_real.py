"""A whole llama.cpp built a second time, where all is different that must make no difference."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.wheel_rebuild import read_recorded

pytestmark = [pytest.mark.real, pytest.mark.network]


def test_two_whole_builds_give_the_same_wheel_byte_for_byte(
    real_make: Any, real_again: Any
) -> None:
    """The first was killed twenty times and went on where it was; the second is made in one go."""
    found = real_again.rebuilt
    assert real_again.stages[-5:] == ("configure", "build", "inspect", "package", "compare")
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
