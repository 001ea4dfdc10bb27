"""The canaries that ship, on the real build: right answers, right numbers, and a spoilt one."""

import json
import shutil
from pathlib import Path
from typing import Any, Protocol

import pytest
from junitparser import JUnitXml

from sparkbuild.canary.catalogue import DATA, load_catalogue
from sparkbuild.canary.gguf.spoil import Spoil, spoilt
from sparkbuild.files import sha256_file

pytestmark = pytest.mark.real

ENTRIES = {entry.name: entry for entry in load_catalogue().canaries}


class Build(Protocol):
    """What the fixture ``real_build`` gives."""

    @property
    def bin(self) -> Path: ...


class Run(Protocol):
    """What the fixture ``run_sparkbuild`` gives."""

    def __call__(self, *argv: str) -> Any: ...


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canaries")


def run_json(run: Run, *argv: str) -> tuple[int, dict[str, Any]]:
    done = run("canary", *argv, "--json")
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_a_healthy_build_answers_everything_rightly(
    name: str, real_build: Build, work: Path, run_sparkbuild: Run
) -> None:
    # The exact numbers and one form each: all of them are the command's default, and minutes on a
    # slow machine.
    form = "q8_0" if name == "glm5-next" else "f16"
    places = ("--build", str(real_build.bin), "--work", str(work), "--no-drafts")
    code, said = run_json(run_sparkbuild, "run", name, "--form", "f32", "--form", form, *places)
    assert code == 0, json.dumps(said)[:4000]
    assert {entry["canary"] for entry in said["canaries"]} == {name}


def test_a_spoilt_tensor_fails_the_run(
    real_build: Build, work: Path, tmp_path: Path, run_sparkbuild: Run
) -> None:
    data = tmp_path / "data"
    shutil.copytree(DATA / "llama", data / "llama")
    master = data / "llama" / "llama-q8_0.gguf"
    text = (DATA / "catalogue.toml").read_text()
    # The digests would refuse it before a server is started: the copy's catalogue has the new one.
    with spoilt(master, Spoil(target="blk.1.ffn_norm.weight", kind="rolled", detail="")):
        known = next(f.sha256 for f in ENTRIES["llama"].files if f.file.endswith(".gguf"))
        (data / "catalogue.toml").write_text(text.replace(known, sha256_file(master)))
        argv = ("run", "llama", "--form", "q8_0", "--build", str(real_build.bin))
        code, said = run_json(
            run_sparkbuild, *argv, "--data", str(data), "--work", str(tmp_path / "work")
        )
    assert code == 14, json.dumps(said)[:4000]


PLAN = """schema = 1
name = "short"
summary = "one canary in one form"
fitting = true
basics = "tiny"
[[passes]]
canary = "llama"
forms = ["f16"]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "short.toml"
    file.write_text(PLAN)
    return file


def smoke(run: Run, place: Path, plan: Path, *more: str) -> tuple[int, dict[str, Any]]:
    done = run("smoke", str(place), "--suite", str(plan), "--json", *more)
    return done.returncode, json.loads(done.stdout)


def test_a_wheel_is_asked_everything(
    real_build: Any, work: Path, plan: Path, tmp_path: Path, run_sparkbuild: Run
) -> None:
    junit = tmp_path / "smoke.xml"
    places = ("--work", str(work), "--junit", str(junit))
    code, said = smoke(run_sparkbuild, real_build.wheel, plan, *places)
    assert code == 0, json.dumps(said)[:4000]
    assert [one["canary"] for one in said["fitting"]] == ["llama"]
    assert said["fitting"][0]["checks"] > 20
    assert len(said["basics"]["checks"]) == 15
    (part,) = said["parts"]
    groups = {group["name"] for group in part["result"]["ran"][0]["groups"]}
    assert groups >= {"references", "answers", "behaviour", "log"}
    suites = JUnitXml.fromfile(str(junit))
    assert [suite.name for suite in suites] == [
        "sparkbuild.fitting", "sparkbuild.smoke.tiny", "sparkbuild.canary.llama",
    ]  # fmt: skip
    assert suites.failures == 0


def test_programs_that_are_not_their_wheels_fail(
    real_build: Any, work: Path, plan: Path, tmp_path: Path, run_sparkbuild: Run
) -> None:
    place = tmp_path / "build"
    place.mkdir()
    (place / "bin").symlink_to(real_build.bin)
    info = {"source": {"build": 11434, "identity": "deadbeefcafe"}}
    (place / "build-info.json").write_text(json.dumps(info))
    code, said = smoke(run_sparkbuild, place, plan, "--work", str(work))
    assert code == 14
    failed = [check["name"] for check in said["basics"]["checks"] if not check["passed"]]
    assert failed == ["version printed", "version served"]
    (place / "build-info.json").write_text('{"source": []}')
    done = run_sparkbuild("smoke", str(place), "--suite", str(plan), "--work", str(work))
    assert done.returncode == 15
    assert "does not say what the programs are" in done.stderr


def test_a_model_that_the_build_does_not_know_is_named_before_the_start(
    real_build: Build, plan: Path, tmp_path: Path, run_sparkbuild: Run
) -> None:
    data = tmp_path / "data"
    shutil.copytree(DATA / "llama", data / "llama")
    master = data / "llama" / "llama-q8_0.gguf"
    known = sha256_file(master)
    content = master.read_bytes()
    word = b"general.architecture" + (8).to_bytes(4, "little") + (5).to_bytes(8, "little")
    assert word + b"llama" in content
    master.write_bytes(content.replace(word + b"llama", word + b"llamb"))
    text = (DATA / "catalogue.toml").read_text().replace(known, sha256_file(master))
    entries = text.split("[[canaries]]\n")
    kept = [entries[0], *(entry for entry in entries[1:] if 'name = "llama"' in entry)]
    (data / "catalogue.toml").write_text("[[canaries]]\n".join(kept))
    plan.write_text(PLAN.replace('"f16"', '"q8_0"'))
    places = ("--data", str(data), "--work", str(tmp_path / "work"))
    code, said = smoke(run_sparkbuild, real_build.bin, plan, *places)
    assert code == 14, json.dumps(said)[:4000]
    (fitting,) = said["fitting"]
    assert "architecture" in {one["name"] for one in fitting["findings"] if one["state"] == "fault"}
    (part,) = said["parts"]
    assert part["failed"] == ["start"]
