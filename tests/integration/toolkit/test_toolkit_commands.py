"""``sparkbuild toolkit`` and ``make --toolkit`` from the command line, on a real root."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def mixed(cuda_root: Path, other_parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 13.0 root with the crt headers of another release; big files are shared, none changed."""
    root = tmp_path_factory.mktemp("mixed") / "cuda"
    shutil.copytree(cuda_root, root, symlinks=True, copy_function=_cheap)
    shutil.rmtree(root / "include/crt")
    shutil.copytree(other_parts / "include/crt", root / "include/crt")
    (root / "sparkbuild-toolkit.json").unlink()
    return root


def _cheap(source: str, target: str) -> None:
    """Link to the very file: a hard link would change its times, and with them what is known."""
    if Path(source).stat().st_size > 10_000_000:
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    else:
        shutil.copy2(source, target)


def test_show_lists_every_part_with_its_digest_and_where_it_was_read(
    cuda_root: Path, real_work: Path, run_sparkbuild: Any
) -> None:
    done = run_sparkbuild("toolkit", "show", str(cuda_root), "--json", "--work", str(real_work))
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["toolkits"]
    assert (found["state"], found["toolchain"], found["problems"]) == ("good", "cuda-13.0", [])
    versions = {part["name"]: part["version"] for part in found["parts"]}
    assert {name: versions[name] for name in ("nvcc", "cicc", "ptxas", "libcudart", "libcublasLt",
                                              "CCCL", "crt headers")} == {
        "nvcc": "13.0.88", "cicc": "13.0.88", "ptxas": "13.0.88", "libcudart": "13.0.96",
        "libcublasLt": "13.1.0.3", "CCCL": "13.0.85", "crt headers": "13.0.88",
    }  # fmt: skip
    assert len(versions) == 16
    assert all(len(part["sha256"]) == 64 and part["read_from"] for part in found["parts"])


def test_a_release_is_shown_wherever_it_is(
    cuda_root: Path, real_work: Path, run_sparkbuild: Any
) -> None:
    done = run_sparkbuild("toolkit", "show", "13.0", "--json", "--work", str(real_work))
    assert done.returncode == 0, done.stderr
    assert str(cuda_root) in [root["root"] for root in json.loads(done.stdout)["toolkits"]]


def test_the_list_has_the_provisioned_root_and_says_what_cmake_would_take(
    cuda_root: Path, real_work: Path, run_sparkbuild: Any
) -> None:
    done = run_sparkbuild("toolkit", "list", "--json", "--work", str(real_work))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    found = {root["root"]: root for root in answer["toolkits"]}
    assert found[str(cuda_root)]["state"] == "good"
    assert any("sparkbuild toolkit install" in text for text in found[str(cuda_root)]["found_as"])
    assert [choice["program"] for choice in answer["cmake"]]
    done = run_sparkbuild("toolkit", "list", "--work", str(real_work))
    assert "would take by itself" in done.stdout.replace("\n", " ")


def test_an_install_that_is_there_fetches_nothing_and_names_the_licence(
    cuda_root: Path, real_work: Path, run_sparkbuild: Any
) -> None:
    done = run_sparkbuild("toolkit", "install", "13.0", "--json", "--work", str(real_work))
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["root"], made["state"], made["downloaded"]) == (str(cuda_root), "good", 0)
    assert made["reused"] is True
    assert "NVIDIA" in made["licence"]
    assert any(Path(made["licence_texts"]).iterdir())


def test_a_release_that_wheels_cannot_make_is_refused_before_anything_is_fetched(
    tmp_path: Path, run_sparkbuild: Any
) -> None:
    done = run_sparkbuild("toolkit", "install", "12.9", "--work", str(tmp_path), timeout=60)
    assert done.returncode == 9
    assert "cicc" in done.stderr
    assert (
        not any((tmp_path / "downloads").glob("*")) if (tmp_path / "downloads").exists() else True
    )


def test_a_mixed_root_is_shown_with_both_versions_and_refused_by_make(
    mixed: Path, real_work: Path, tmp_path: Path, run_sparkbuild: Any
) -> None:
    done = run_sparkbuild("toolkit", "show", str(mixed), "--json", "--work", str(real_work))
    assert done.returncode == 9
    (found,) = json.loads(done.stdout)["toolkits"]
    assert found["state"] == "mixed"
    texts = [problem["text"] for problem in found["problems"]]
    assert any("crt headers" in text and "13.2.51" in text and "13.0.88" in text for text in texts)
    builds = real_work / "builds"
    before = sorted(builds.iterdir()) if builds.exists() else []
    done = run_sparkbuild("make", "--variant", "vision", "--toolkit", str(mixed), "--json",
                          "--work", str(real_work), "--out", str(tmp_path))  # fmt: skip
    assert done.returncode == 9, done.stdout
    report = json.loads(done.stdout)
    states = {stage["name"]: stage["state"] for stage in report["stages"]}
    assert (states["toolkit"], states["configure"], states["build"]) == (
        "failed", "not reached", "not reached",
    )  # fmt: skip
    assert (sorted(builds.iterdir()) if builds.exists() else []) == before


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("show", "13.7"), 3, "13.7"),
        (("show", "13.2"), 2, "13.2.2"),
        (("show", "/nonexistent/cuda"), 9, "/nonexistent/cuda"),
        (("install", "cpu"), 2, "no CUDA toolkit"),
        (("install", "13.9"), 3, "13.9"),
    ],
)
def test_what_cannot_be_has_its_own_exit_code(
    arguments: tuple[str, ...], code: int, text: str, tmp_path: Path, run_sparkbuild: Any
) -> None:
    done = run_sparkbuild("toolkit", *arguments, "--work", str(tmp_path))
    assert done.returncode == code, done.stdout + done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr
