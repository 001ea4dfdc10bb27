"""Every place where a toolkit may lie is looked at, and nothing is taken at its word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.files import DigestCache
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.choice.discover import discover
from sparkbuild.toolkit.choice.places import Place, System, dryrun_top, places, root_of
from sparkbuild.toolkit.provision.tree import MANIFEST

from .conftest import Roots

Env = dict[str, str]


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def look(tmp_path: Path, env: Env, system: System) -> Callable[[], dict[Path, tuple[str, ...]]]:
    """What ``places`` finds on the small machine: root to names, in order."""

    def found() -> dict[Path, tuple[str, ...]]:
        there = places(provisioned=tmp_path / "toolkits", env=env, system=system)
        assert len({place.root for place in there}) == len(there)
        return {place.root: place.where for place in there}

    return found


Look = Callable[[], dict[Path, tuple[str, ...]]]


def test_an_empty_machine_has_none(look: Look, env: Env, system: System) -> None:
    (system.local / "cuda-13.0").mkdir()
    (system.local / "cuda-12").write_text("a file")
    env["CUDA_HOME"] = "/nonexistent"
    env["CUDACXX"] = "no-such-program"
    assert look() == {}


def test_each_root_comes_once_with_all_its_names(
    look: Look, env: Env, system: System, roots: Roots, tmp_path: Path
) -> None:
    newer, older = system.local / "cuda-13.2", system.local / "cuda-13.0"
    for root, version in ((newer, "13.2.86"), (older, "13.0.88")):
        roots.programs(root, version)
    (system.local / "cuda").symlink_to(newer)
    (system.local / "cuda-13").symlink_to(newer)
    (tmp_path / "path/nvcc").symlink_to(older / "bin/nvcc")
    env["CUDA_PATH"] = str(older)
    found = look()
    assert list(found) == [older, newer]
    assert found[older] == (f"CUDA_PATH={older}", str(older), f"PATH: {tmp_path}/path/nvcc")
    links = [f"{system.local}/{name} -> {newer}" for name in ("cuda", "cuda-13")]
    assert found[newer] == (str(newer), *links)


def test_the_order_of_preference(
    look: Look, env: Env, system: System, roots: Roots, tmp_path: Path
) -> None:
    wanted = [
        tmp_path / "given", tmp_path / "compiler", system.local / "cuda-13.0",
        system.local / "cuda", system.opt / "cuda", system.opt / "nvidia/cuda-12.9",
        system.opt / "nvidia/hpc_sdk/Linux_x86_64/25.9/cuda/13.0", tmp_path / "searched",
        tmp_path / "conda", tmp_path / "other conda", tmp_path / "toolkits/cuda-13.0/linux-x86_64",
        system.python / "lib/python3.12/site-packages/nvidia/cu13",
    ]  # fmt: skip
    for root in reversed(wanted):
        roots.programs(root, "13.0.88")
    (wanted[10] / MANIFEST).write_text("{}")
    env |= {
        "CUDA_HOME": str(wanted[0]),
        "CUDACXX": str(wanted[1] / "bin/nvcc"),
        "PATH": f"{wanted[7]}/bin:{wanted[7]}/bin:relative:",
        "CONDA_PREFIX": str(wanted[8]),
    }
    listed = Path(env["HOME"]) / ".conda/environments.txt"
    listed.parent.mkdir()
    listed.write_bytes(f"{wanted[9]}\n\n../relative\n/no/such\n".encode() + b"/\xff\xfe\0\n")
    assert list(look()) == wanted
    assert look()[wanted[11]] == (f"Python: {wanted[11]}",)


@pytest.mark.parametrize(
    "text",
    ['exec {root}/bin/nvcc "$@"', 'export A=1\n{root}/bin/nvcc "$@"\nexit $?'],
    ids=["one exec, which is read", "more, which is asked"],
)
def test_a_wrapper_is_seen_through(
    text: str, look: Look, env: Env, system: System, roots: Roots
) -> None:
    root = system.opt / "somewhere/else"
    roots.programs(root, "13.0.88")
    wrapper = script(Path(env["PATH"]) / "nvcc", text.format(root=root))
    assert look() == {root: (f"PATH: {wrapper} runs {root}/bin/nvcc",)}
    assert root_of(wrapper) == (root, root / "bin/nvcc")


def test_a_masquerade_is_asked_too(env: Env, system: System, roots: Roots, look: Look) -> None:
    root = system.opt / "cuda"
    roots.programs(root, "13.0.88")
    cache = script(system.opt / "bin/ccache", f'exec {root}/bin/nvcc "$@"')
    (Path(env["PATH"]) / "nvcc").symlink_to(cache)
    assert list(look()) == [root]
    assert len(look()[root]) == 2


@pytest.mark.parametrize(
    "text",
    [
        "echo 'Cuda compilation tools, release 13.0, V13.0.88'",
        "echo '#$ TOP=/nonexistent/toolkit/bin/..' >&2",
        "exit 3",
    ],
)
def test_a_script_that_leads_nowhere_is_shown_as_what_it_is(
    text: str, env: Env, look: Look
) -> None:
    place = Path(env["PATH"]).parent / "lies"
    wrapper = script(place / "bin/nvcc", text)
    env["PATH"] = str(place / "bin")
    assert look() == {place: (f"PATH: {wrapper}",)}


def test_only_finished_roots_of_ours_count(look: Look, roots: Roots, tmp_path: Path) -> None:
    """A killed installation leaves a root without its list of files, or beside its place."""
    finished = tmp_path / "toolkits/cuda-13.0/linux-x86_64"
    for root in (finished, finished.with_name("linux-aarch64"), finished.with_suffix(".part")):
        roots.programs(root, "13.0.88")
    (finished / MANIFEST).write_text("{}")
    (finished.with_suffix(".part") / MANIFEST).write_text("{}")
    assert look() == {finished: ("sparkbuild toolkit install: cuda-13.0/linux-x86_64",)}


def test_python_environments_are_read_and_never_started(
    look: Look, env: Env, roots: Roots, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    base, venv, active = tmp_path / "base", tmp_path / "venv", tmp_path / "active"
    shims, version = tmp_path / "pyenv/shims", tmp_path / "pyenv/versions/3.13.0"
    packages = {
        base: "lib/python3.11/site-packages/nvidia/cuda_nvcc",
        venv: "lib/python3.11/site-packages/nvidia/cu13",
        active: "lib64/python3.12/site-packages/nvidia/cu14",
        version: "lib/python3.13/site-packages/nvidia/cu13",
        Path(env["HOME"]) / ".local": "lib/python3.12/site-packages/nvidia/cu13",
    }
    for prefix, name in packages.items():
        roots.programs(prefix / name, "13.0.88")
    # What torch brings beside it is no root.
    roots.programs(venv / "lib/python3.11/site-packages/nvidia/cudnn", "13.0.88")
    script(base / "bin/python3", f"touch {started}")
    (venv / "bin").mkdir()
    (venv / "bin/python3").symlink_to(base / "bin/python3")
    script(shims / "python", f"touch {started}")
    env |= {"PATH": f"{venv}/bin:{shims}", "VIRTUAL_ENV": str(active)}
    assert set(look()) == {prefix / name for prefix, name in packages.items()}
    assert not started.exists()


def test_links_in_circles_and_into_nothing(look: Look, env: Env, system: System) -> None:
    (system.local / "cuda").symlink_to(system.local / "cuda-13")
    (system.local / "cuda-13").symlink_to(system.local / "cuda")
    (system.local / "cuda-12").symlink_to("/nonexistent")
    (Path(env["PATH"]) / "nvcc").symlink_to(Path(env["PATH"]) / "nvcc")
    env |= {"CUDA_HOME": str(system.local / "cuda"), "CUDA_PATH": "x" * 5000}
    assert look() == {}


def test_a_root_that_turns_to_another_is_one_root(
    look: Look, system: System, roots: Roots, book: Book, digests: DigestCache, env: Env
) -> None:
    """``/usr/local/cuda`` pointing elsewhere: the name says nothing, the root's bytes do."""
    root = roots.make(system.opt / "cuda-13.2.86", "13.2.86")
    (system.local / "cuda-13.0").symlink_to(root)
    found = discover(book, digests, provisioned=system.opt / "none", env=env, system=system)
    assert [(one.root, one.where) for one in found] == [
        (root, (f"{system.local}/cuda-13.0 -> {root}", str(root)))
    ]
    assert found[0].identity.toolchain == "cuda-13.2.2"


def test_what_is_incomplete_is_listed_with_its_state(
    system: System, roots: Roots, book: Book, digests: DigestCache, env: Env
) -> None:
    roots.make(system.local / "cuda-13.0")
    roots.programs(system.local / "cuda-13.2", "13.2.86")
    found = discover(book, digests, provisioned=system.opt, env=env, system=system)
    assert [one.identity.state for one in found] == ["good", "incomplete"]


@given(st.text())
def test_any_dry_run_is_read(text: str) -> None:
    assert dryrun_top(text) is None or text.count("#$ TOP=/")


def test_a_dry_run_states_the_folder_above() -> None:
    text = "#$ _HERE_=/a/bin\n#$ TOP=/nonexistent/a/bin/..\n#$ X=1"
    assert dryrun_top(text) == Path("/nonexistent/a")
    assert dryrun_top("#$ TOP=relative") is None


@pytest.mark.cuda_toolkit
def test_this_machines_own_toolkits(tmp_path: Path, digests: DigestCache) -> None:
    import shutil

    from sparkbuild.manifest import find_recipes
    from sparkbuild.toolkit.book import read_book

    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH")
    real = read_book(find_recipes(None))
    found = discover(real, digests, provisioned=tmp_path)
    root = root_of(Path(nvcc))[0]
    mine = next(one for one in found if one.root == root.resolve())
    part = mine.identity.part("nvcc")
    assert part is not None
    assert part.version.count(".") == 2
    assert Place(root=mine.root, where=mine.where) in places(provisioned=tmp_path)
