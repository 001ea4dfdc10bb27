"""Against a real build: it is read rightly, and what is called a fault its server does refuse."""

from __future__ import annotations

import os
import re
import socket
import subprocess  # noqa: TID251 - the real server, run as a user would
import time
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.canary.catalogue import DATA
from sparkbuild.model.asked import Asked
from sparkbuild.model.build import Build, plain, read_build
from sparkbuild.model.memory import budget
from sparkbuild.model.types import BY_NAME

from .conftest import CANARIES, File, canary, findings, tower, wrong
from .test_model_fit import MODEL_FAULTS, VISION_FAULTS
from .test_model_memory import PATTERNS, numbers, part

pytestmark = pytest.mark.real

SERVES = {"end outside", "adapter"}
"""Faults that a server starts with: it answers wrongly (or, here, was only called an adapter)."""
_PATIENCE = 60.0
"""Seconds for a tiny model to be served or refused on a busy machine."""


@pytest.fixture(scope="session")
def made(real_build: Any) -> Build:
    return read_build(real_build.bin)


def test_every_name_that_the_source_lists_is_known(made: Build, real_source: Path) -> None:
    listed = (real_source / "src" / "llama-arch.cpp").read_text()
    architectures = re.findall(r'\{ LLM_ARCH_\w+, +"([^"]+)"', listed)
    assert len(architectures) > 100
    assert [name for name in architectures if not made.llama.knows(name)] == []
    listed = (real_source / "tools" / "mtmd" / "clip-impl.h").read_text()
    projectors = re.findall(r'\{ PROJECTOR_TYPE_\w+, +"([^"]+)"', listed)
    assert len(projectors) > 40
    assert made.mtmd is not None
    assert [name for name in projectors if not made.mtmd.knows(name)] == []
    assert made.ggml is not None
    assert [name for name in BY_NAME if not made.ggml.knows(name)] == []
    assert not made.llama.knows("glm5next")
    assert not made.mtmd.knows("glm5next")


def test_mtp_graphs_are_those_of_the_source(made: Build, real_source: Path) -> None:
    sources = [path.read_text() for path in (real_source / "src" / "models").glob("*.cpp")]
    drawn = {name for s in sources for name in re.findall(r"llama_model_(\w+)::graph_mtp::", s)}
    assert len(drawn) > 10
    assert made.mtp_graphs == {plain(name) for name in drawn}


@pytest.mark.parametrize("name", CANARIES)
def test_a_canary_fits_the_build(name: str, made: Build) -> None:
    assert wrong(findings(canary(name), tower(name), made)) == {}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(program: Path, log: Path, *arguments: str) -> tuple[bool, list[str]]:
    """Whether a server with these arguments comes up, and its log's lines."""
    argv = [str(program), *arguments, "--parallel", "1", "--threads", "1", "-fit", "off",
            "--load-mode", "none", "--no-ui", "--no-warmup", "-lv", "5",
            "--host", "127.0.0.1", "--port", str(free_port())]  # fmt: skip
    env = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    with log.open("wb") as out:
        child = subprocess.Popen(
            argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd="/", env=env
        )
        try:
            limit = time.monotonic() + _PATIENCE
            while child.poll() is None and b"listening on" not in log.read_bytes():
                assert time.monotonic() < limit, log.read_text(errors="replace")[-2000:]
                time.sleep(0.02)
            up = child.poll() is None
        finally:
            child.terminate()
            child.wait(10)
    return up, log.read_text(errors="replace").splitlines()


@pytest.mark.parametrize("case", MODEL_FAULTS)
def test_a_server_refuses_the_models_that_do_not_fit(
    case: str, real_build: Any, made: Build, tmp_path: Path
) -> None:
    name, change, expected, _ = MODEL_FAULTS[case]
    file = File.like(canary(name))
    change(file)
    path = file.write(tmp_path / "changed.gguf")
    up, lines = serve(
        real_build.bin / "llama-server", tmp_path / "log", "-m", str(path), "-c", "4096"
    )
    fits = "fault" not in expected.values() or case in SERVES
    assert up is fits, lines[-20:]


@pytest.mark.parametrize("case", VISION_FAULTS)
def test_a_server_refuses_the_towers_that_do_not_fit(
    case: str, real_build: Any, made: Build, tmp_path: Path
) -> None:
    vision = tower("glm5-next")
    assert vision is not None
    file = File.like(vision)
    VISION_FAULTS[case][0](file)
    path = file.write(tmp_path / "changed.gguf")
    model = DATA / "glm5-next" / "glm5-next-q8_0.gguf"
    up, lines = serve(
        real_build.bin / "llama-server", tmp_path / "log",
        "-m", str(model), "--mmproj", str(path), "-c", "4096",
    )  # fmt: skip
    assert not up, lines[-20:]


@pytest.mark.parametrize("name", CANARIES)
def test_the_sum_is_what_this_build_s_server_takes(
    name: str, real_build: Any, made: Build, tmp_path: Path
) -> None:
    """With drafts where the build can: it has the longer sum."""
    asked = Asked(context=4096, speculation=("draft-mtp",))
    drafts = "fault" not in wrong(findings(canary(name), None, made, asked)).values()
    asked = asked if drafts else Asked(context=4096)
    model = DATA / name / f"{name}-q8_0.gguf"
    flags = ["--spec-type", "draft-mtp"] if drafts else []
    up, lines = serve(
        real_build.bin / "llama-server", tmp_path / "log", "-m", str(model), "-c", "4096", *flags
    )
    assert up, lines[-20:]
    found = budget(canary(name), None, asked)
    rows = sum(p.bytes for p in found.parts if "keys" in p.name or "values" in p.name)
    sizes = {key: sum(numbers(pattern, lines)) for key, pattern in PATTERNS.items()}
    exact = pytest.approx
    assert rows / (1 << 20) == exact(sizes["keys"] + sizes["values"], abs=0.05)
    assert part(found, "recurrent state") / (1 << 20) == exact(sizes["state"], abs=0.01)
    assert part(found, "weights") / (1 << 20) == exact(sizes["weights"], abs=0.01)


def test_drafts_that_the_build_cannot_make_end_the_server(
    real_build: Any, made: Build, tmp_path: Path
) -> None:
    asked = Asked(context=4096, speculation=("draft-mtp",))
    said = findings(canary("glm5-next"), None, made, asked)["MTP graph"]
    model = DATA / "glm5-next" / "glm5-next-q8_0.gguf"
    up, lines = serve(
        real_build.bin / "llama-server", tmp_path / "log",
        "-m", str(model), "-c", "4096", "--spec-type", "draft-mtp",
    )  # fmt: skip
    assert up is (said.state == "ok"), said
    if not up:
        text = said.found.partition(": ")[2]
        assert any(text in line for line in lines)
