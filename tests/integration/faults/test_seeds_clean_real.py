"""What faults are planted in is healthy: without one, the same questions find nothing wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import pytest

from sparkbuild.faults.contract import Place
from sparkbuild.faults.model import ServerSeed
from sparkbuild.faults.seeds.model import CANARIES
from sparkbuild.faults.seeds.server import plant_server

pytestmark = pytest.mark.real

CATALOGUE = Path(__file__).parents[2] / "faults"
SUITES = {
    "llama": ("llama/llama-q8_0.gguf", ""),
    "qwen35": ("qwen35/qwen35-q8_0.gguf", "qwen35/mmproj-f16.gguf"),
    "qwen35-drafts": ("qwen35/qwen35-q8_0.gguf", ""),
    "glm47-flash": ("glm47-flash/glm47-flash-q8_0.gguf", ""),
}


class Build(Protocol):
    """What the fixture ``real_build`` gives."""

    @property
    def bin(self) -> Path: ...

    @property
    def work(self) -> Path: ...


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_passes_on_the_model_that_is_whole(
    name: str, real_build: Build, run_sparkbuild: Any, tmp_path: Path
) -> None:
    model, tower = SUITES[name]
    more = ("--mmproj", str(CANARIES / tower)) if tower else ()
    done = run_sparkbuild(
        "smoke", str(real_build.bin), "--model", str(CANARIES / model), *more,
        "--suite", str(CATALOGUE / "suites" / f"{name}.toml"), "--work", str(tmp_path), "--json",
    )  # fmt: skip
    said = json.loads(done.stdout)
    wrong = [one for one in said["checks"] if one["state"] != "passed"]
    assert (done.returncode, wrong) == (0, [])
    assert len(said["checks"]) >= 12


def test_a_program_in_between_that_breaks_nothing_is_not_noticed(
    real_build: Build, run_sparkbuild: Any, tmp_path: Path
) -> None:
    place = Place(
        scratch=tmp_path,
        catalogue=CATALOGUE,
        work=real_build.work,
        lane=tmp_path,
        log=tmp_path / "log",
    )
    seed = ServerSeed(breaks="nothing", arguments=("--suite", "{catalogue}/suites/one-canary.toml"))
    with plant_server(seed, place) as planted:
        done = run_sparkbuild(*planted.arguments)
    assert done.returncode == 0, done.stdout + done.stderr
