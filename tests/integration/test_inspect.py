"""``sparkbuild inspect`` as a user runs it: what it says, how it ends, never a traceback."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.canary.catalogue import DATA
from sparkbuild.llama.server import Limits, running
from sparkbuild.model.build import read_build

GLM = DATA / "glm5-next" / "glm5-next-q8_0.gguf"
TOWER = DATA / "glm5-next" / "mmproj-f16.gguf"
ROOM = ("--available", "64G")
FAULT = 20


def inspected(run: Any, code: int, *arguments: str | Path, **environment: str) -> str:
    """The standard output of a run that ends with this code, and holds no traceback."""
    done = run("inspect", *map(str, arguments), **environment)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return str(done.stdout or done.stderr)


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """A model whose download broke off."""
    path = tmp_path / "short.gguf"
    shutil.copyfile(GLM, path)
    os.truncate(path, GLM.stat().st_size - 1_000_000)
    return path


def test_a_good_model_is_shown(run_sparkbuild: Any) -> None:
    text = inspected(run_sparkbuild, 0, GLM, "--mmproj", TOWER, *ROOM, COLUMNS="80")
    assert text.startswith(
        f"  model         27.24 MiB   {GLM}\n  mmproj        3.64 MiB    {TOWER}\n"
    )
    assert "architecture, tensor types, tensor names, projector: not tried: no --build" in text
    assert text.rstrip().endswith("no fault, no warnings")


@pytest.mark.parametrize("canary", ["glm5-next", "qwen35", "glm47-flash", "llama"])
def test_a_good_model_is_one_json_document(canary: str, run_sparkbuild: Any) -> None:
    path = DATA / canary / f"{canary}-q8_0.gguf"
    done = run_sparkbuild("inspect", str(path), "--json", *ROOM)
    told = json.loads(done.stdout)
    assert (done.returncode, told["exit_code"], told["result"]) == (0, 0, "passed")
    assert told["schema"] == 1
    assert done.stderr == ""
    assert told["facts"]["files"] == [{"path": str(path), "bytes": path.stat().st_size}]
    assert sum(role["bytes"] for role in told["facts"]["roles"]) == told["facts"]["total"]["bytes"]
    assert told["memory"]["available"] == 64 << 30


def test_memory_of_this_machine_is_asked(run_sparkbuild: Any) -> None:
    done = run_sparkbuild("inspect", str(GLM), "--json", "--ctx", "256")
    assert json.loads(done.stdout)["memory"]["available"] > 1 << 20


def test_a_fault_is_shown_with_all_the_rest(short: Path, run_sparkbuild: Any) -> None:
    text = inspected(run_sparkbuild, FAULT, short, *ROOM, COLUMNS="160")
    assert "1,000,000 of 28,562,208 lack" in text
    assert "next step: download what is missing or short again" in text
    assert "largest context that fits: 16,384 tokens" in text
    assert text.rstrip().endswith("1 fault: file sizes; no warnings; exit code 20")


def test_a_fault_is_in_json_with_all_the_rest(short: Path, run_sparkbuild: Any) -> None:
    told = json.loads(inspected(run_sparkbuild, FAULT, short, "--json", *ROOM))
    assert (told["exit_code"], told["result"]) == (FAULT, "failed")
    assert [f["name"] for f in told["findings"] if f["state"] == "fault"] == ["file sizes"]
    assert told["facts"]["architecture"] == "glm5-next"
    assert told["memory"]["largest_context"] == 16384


def test_memory_that_lacks_is_a_fault(run_sparkbuild: Any) -> None:
    text = inspected(run_sparkbuild, FAULT, GLM, "--available", "1GiB", COLUMNS="160")
    assert "lacking" in text
    assert text.rstrip().endswith("1 fault: memory; no warnings; exit code 20")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<!DOCTYPE html>", "found a web page"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 64, "number of tensors: expected at most"),
        (b"", "magic: expected 4 bytes"),
        (None, "No such file or directory"),
    ],
)
@pytest.mark.parametrize("place", ["model", "mmproj"])
def test_a_file_that_cannot_be_read_is_refused(
    data: bytes | None, said: str, place: str, tmp_path: Path, run_sparkbuild: Any
) -> None:
    path = tmp_path / "odd\x1b[31m\nname.gguf"
    if data is not None:
        path.write_bytes(data)
    named = [path] if place == "model" else [GLM, "--mmproj", path]
    text = inspected(run_sparkbuild, FAULT, *named)
    assert said in text
    assert "refused, model: " in text
    assert "\x1b" not in text
    told = json.loads(inspected(run_sparkbuild, FAULT, *named, "--json"))
    assert (told["exit_code"], told["result"]) == (FAULT, "failed")
    assert said in told["failure"]["problems"][0]


@pytest.mark.parametrize(
    "arguments",
    [
        (GLM, "--build", "/nowhere"),
        (GLM, "--available", "much"),
        (GLM, "--kv", "q9_9"),
        (GLM, "--drafts", "draft-simple"),
        (GLM, "--slots", "0"),
        (),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(arguments: Any, run_sparkbuild: Any) -> None:
    inspected(run_sparkbuild, 2, *arguments)


def test_help_names_the_command_and_its_exit_code(run_sparkbuild: Any) -> None:
    text = run_sparkbuild("--help").stdout
    assert "inspect" in text
    assert "20 model" in " ".join(text.split())


@pytest.mark.real
def test_drafts_that_a_build_cannot_make_are_a_fault(run_sparkbuild: Any, real_build: Any) -> None:
    asked = (GLM, "--build", real_build.bin, "--drafts", "draft-mtp", *ROOM)
    refuses = any("NextN graph" in text for text in read_build(real_build.bin).llama.texts)
    told = json.loads(inspected(run_sparkbuild, FAULT if refuses else 0, *asked, "--json"))
    states = {finding["name"]: finding["state"] for finding in told["findings"]}
    assert states.pop("MTP graph") == ("fault" if refuses else "ok")
    assert set(states.values()) == {"ok"}
    text = inspected(run_sparkbuild, told["exit_code"], *asked, COLUMNS="80")
    assert ("1 fault: MTP graph" in text) == refuses


@pytest.mark.real
@pytest.mark.parametrize("canary", ["glm5-next", "qwen35", "glm47-flash", "llama"])
def test_a_canary_fits_a_real_build(canary: str, run_sparkbuild: Any, real_build: Any) -> None:
    path = DATA / canary / f"{canary}-q8_0.gguf"
    text = inspected(run_sparkbuild, 0, path, "--build", real_build.bin, *ROOM)
    assert "not tried" not in text
    assert text.rstrip().endswith("no fault, no warnings")


def test_the_line_that_serves_is_printed_with_reasons(run_sparkbuild: Any) -> None:
    text = inspected(run_sparkbuild, 0, GLM, "--mmproj", TOWER, "--serve", *ROOM, COLUMNS="120")
    flat = " ".join(text.split())
    assert f"llama-server \\ --model {GLM} \\ --mmproj {TOWER} \\ --ctx-size 16384 \\" in flat
    assert "--parallel: slots" in text
    assert "left out: drafts: whether a build has the graph" in text
    told = json.loads(inspected(run_sparkbuild, 0, GLM, "--serve", "--json", *ROOM))
    assert told["serve"]["argv"][:3] == ["llama-server", "--model", str(GLM)]
    assert all(flag["reason"] for flag in told["serve"]["flags"])
    asked = ("--serve", "--ctx", "512", "--kv", "q8_0", "--json", *ROOM)
    argv = json.loads(inspected(run_sparkbuild, 0, GLM, *asked))["serve"]["argv"]
    assert argv[argv.index("--ctx-size") + 1] == "512"
    assert argv[argv.index("--cache-type-k") + 1] == "q8_0"
    assert json.loads(inspected(run_sparkbuild, 0, GLM, "--json", *ROOM))["serve"] is None


@pytest.mark.real
@pytest.mark.parametrize("canary", ["glm5-next", "qwen35", "glm47-flash", "llama"])
def test_the_line_serves(canary: str, run_sparkbuild: Any, real_build: Any, tmp_path: Path) -> None:
    path, vision = DATA / canary / f"{canary}-q8_0.gguf", DATA / canary / "mmproj-f16.gguf"
    more = ("--mmproj", vision) if vision.exists() else ()
    asked = (path, *more, "--build", real_build.bin, "--serve", "--json", *ROOM)
    argv = json.loads(inspected(run_sparkbuild, 0, *asked))["serve"]["argv"]
    program, _, model, *flags = argv
    limits = Limits(start=120, request=60, stop=10, memory=0, missing=1 << 40)
    with running(
        Path(program), [*flags, "--threads", "2"], model=Path(model), scratch=tmp_path / "home",
        log=tmp_path / "server.log", limits=limits,
    ) as server:  # fmt: skip
        body = {"prompt": "The lamp", "n_predict": 8}
        assert server.client.post("/completion", json=body).status_code == 200
