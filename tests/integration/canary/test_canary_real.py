"""The canaries that ship, on the real build: right answers, right numbers, and a spoilt one."""

import json
import shutil
from pathlib import Path
from typing import Any, Protocol

import pytest

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
