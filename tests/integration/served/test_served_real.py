"""Canaries in the place of a real model, on the real build: healthy, and damaged in many ways."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import gguf
import pytest
from junitparser import JUnitXml

from sparkbuild.canary.catalogue import DATA as CANARIES
from sparkbuild.canary.gguf.rewrite import widen
from sparkbuild.canary.gguf.spoil import Spoil, spoilt
from sparkbuild.files import sha256_file

pytestmark = pytest.mark.real

SUITES = Path(__file__).parents[2] / "data/served"
MODEL = CANARIES / "qwen35/qwen35-q8_0.gguf"
TOWER = CANARIES / "qwen35/mmproj-f16.gguf"
LLAMA = CANARIES / "llama/llama-q8_0.gguf"


class Build(Protocol):
    """What the fixture ``real_build`` gives."""

    @property
    def bin(self) -> Path: ...


Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def ask(real_build: Build, tmp_path: Path, run_sparkbuild: Any) -> Ask:
    """The function ``ask(model, suite, *more)``: exit code and what was said."""

    def asked(model: Path, suite: Path, *more: str) -> tuple[int, dict[str, Any]]:
        argv = ("--model", str(model), "--suite", str(suite), "--work", str(tmp_path / "work"))
        done = run_sparkbuild("smoke", str(real_build.bin), *argv, "--json", *more)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return asked


def failed(said: dict[str, Any]) -> set[str]:
    return {one["name"] for one in said["checks"] if one["state"] == "failed"}


def changed(tmp_path: Path, name: str, *pairs: tuple[str, str]) -> Path:
    """A copy of a suite with other text in places, each of which must be there."""
    text = (SUITES / f"{name}.toml").read_text()
    for pattern, new in pairs:
        text, count = re.subn(pattern, new, text, count=1, flags=re.DOTALL)
        assert count == 1, pattern
    path = tmp_path / f"{name}.toml"
    path.write_text(text)
    return path


def damaged(tmp_path: Path, target: str, kind: Any) -> Path:
    """The canary in float32 with one tensor that is wrong."""
    widen(MODEL, tmp_path / "wide.gguf")
    copy = tmp_path / "copy.gguf"
    with spoilt(tmp_path / "wide.gguf", Spoil(target=target, kind=kind, detail="")):
        shutil.copyfile(tmp_path / "wide.gguf", copy)
    return copy


def test_a_healthy_build_passes_with_pictures_and_drafts(ask: Ask, tmp_path: Path) -> None:
    junit = tmp_path / "served.xml"
    more = ("--mmproj", str(TOWER), "--junit", str(junit))
    code, said = ask(MODEL, SUITES / "qwen35.toml", *more)
    assert code == 0, [one for one in said["checks"] if one["state"] == "failed"]
    assert said["looked"] > 80
    assert {one["way"] for one in said["checks"]} == {
        "KV f16", "flash attention off", "KV q8_0", "drafts, depth 1", "drafts, depth 3",
        "drafts and pictures, depth 3",
    }  # fmt: skip
    figures = {k: v for one in said["checks"] for k, v in one["figures"].items()}
    assert figures["accepted after pictures"] > 0.4
    assert "speed ratio" in figures
    folder = Path(said["folder"])
    kept = {one["file"]: one["sha256"] for one in said["kept"]}
    assert {file: sha256_file(folder / file) for file in kept} == kept
    assert sum(file.startswith("pictures/") for file in kept) == 10
    suites = JUnitXml.fromfile(str(junit))
    assert (suites.tests, suites.failures) == (len(said["checks"]) + 1, 0)


def test_swapped_channels_fail_the_colours_alone(ask: Ask, tmp_path: Path) -> None:
    tower = Path(shutil.copyfile(TOWER, tmp_path / "mmproj.gguf"))
    reader = gguf.GGUFReader(tower, "r+")
    for tensor in reader.tensors:
        if tensor.name.startswith("v.patch_embd.weight"):
            values = tensor.data.reshape(tuple(reversed(tensor.shape.tolist())))
            values[:] = values[:, ::-1].copy()  # red for blue and blue for red
    del reader
    suite = changed(tmp_path, "qwen35", (r"\[drafts\].*", ""))
    code, said = ask(MODEL, suite, "--mmproj", str(tower))
    assert (code, failed(said)) == (14, {"red", "blue"})
    assert said["likely"][1].startswith("what is done to a picture")


def test_wrong_weights_fail_the_answers(ask: Ask, tmp_path: Path) -> None:
    code, said = ask(damaged(tmp_path, "blk.0.ffn_down.weight", "negated"), SUITES / "qwen35.toml")
    assert code == 14
    assert {"capital", "sum", "needle at 12%"} <= failed(said)
    ways = {one["way"] for one in said["checks"] if one["state"] == "failed"}
    assert {"KV f16", "KV q8_0", "drafts, depth 1"} <= ways


def test_a_blind_draft_head_fails_its_bands_and_no_text(ask: Ask, tmp_path: Path) -> None:
    model = damaged(tmp_path, "blk.4.nextn.eh_proj.weight", "rolled")
    code, said = ask(model, SUITES / "qwen35.toml", "--mmproj", str(TOWER))
    assert code == 14
    assert failed(said) == {
        "prose, depth 1", "code, depth 1", "prose, depth 3", "code, depth 3", "accepted",
    }  # fmt: skip


def test_a_way_that_computes_other_numbers_fails_though_it_says_the_same(
    ask: Ask, tmp_path: Path
) -> None:
    suite = changed(
        tmp_path,
        "llama",
        ("flash_attention = false", 'flags = ["--rope-freq-base", "9900"]'),
        ('name = "flash attention off"', 'name = "another rope"'),
    )
    widen(LLAMA, tmp_path / "llama.gguf")
    code, said = ask(tmp_path / "llama.gguf", suite)
    assert (code, failed(said)) == (14, {"agreement"})
    (one,) = (one for one in said["checks"] if one["state"] == "failed")
    assert one["way"] == "another rope"
    assert one["figures"]["NMSE"] > 2e-5
    assert one["figures"]["agreement"] == 1
    code, said = ask(tmp_path / "llama.gguf", SUITES / "llama.toml")
    assert (code, failed(said)) == (0, set())


def test_a_speed_above_what_memory_gives_fails(ask: Ask, tmp_path: Path) -> None:
    suite = changed(tmp_path, "llama", ("limit = 1e12", "limit = 1e6"))
    code, said = ask(LLAMA, suite, "--threads", "1")
    assert "fastest answer" in failed(said)
    assert code == 14


def test_a_model_without_a_draft_block_is_told_and_does_not_fail(ask: Ask, tmp_path: Path) -> None:
    text = (SUITES / "qwen35.toml").read_text()
    drafts = text[text.index("[drafts]") :].split("[drafts.among]")[0]
    suite = tmp_path / "llama.toml"
    bound = ("nmse = { limit = 2e-5", "nmse = { limit = 1e-2")  # for the form that ships
    suite.write_text((SUITES / "llama.toml").read_text().replace(*bound) + drafts)
    code, said = ask(LLAMA, suite)
    assert (code, failed(said)) == (0, set())
    told = [one for one in said["checks"] if one["state"] == "unsupported"]
    assert [one["way"] for one in told] == ["drafts, depth 1", "drafts, depth 3"]
    assert "has no NextN block" in told[0]["found"]


def test_a_context_that_memory_does_not_allow_starts_nothing(ask: Ask, tmp_path: Path) -> None:
    suite = changed(tmp_path, "llama", ("most = { limit = 32768", "most = { limit = 1e12"))
    code, said = ask(LLAMA, suite, "--ctx-size", str(1 << 32))
    assert (code, said["checks"]) == (20, [])
    assert "memory" in {one["name"] for one in said["findings"] if one["state"] == "fault"}
    assert not (Path(said["folder"]) / "logs").exists()
    code, said = ask(LLAMA, SUITES / "llama.toml", "--ctx-size", "4096")
    assert said["context"] == 4096
