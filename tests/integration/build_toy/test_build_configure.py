"""Configure for real: hermetic, in a fresh directory, refusing what was not asked for."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkbuild import process
from sparkbuild.build.model import Binaries, Configuration
from sparkbuild.errors import ConfigureError
from sparkbuild.manifest import find_recipes
from sparkbuild.toolkit.model import Toolkit

from .conftest import Workshop

HOSTILE = {
    "CC": "/bin/false", "CXX": "/bin/false", "CFLAGS": "-DHOSTILE -O0", "CXXFLAGS": "-std=c++03",
    "CPPFLAGS": "-DHOSTILE", "LDFLAGS": "-Wl,-rpath,/hostile", "CPATH": "/hostile/include",
    "LIBRARY_PATH": "/hostile/lib", "LD_LIBRARY_PATH": "/hostile/lib", "CMAKE_GENERATOR": "Xcode",
    "CMAKE_PREFIX_PATH": "/hostile", "CMAKE_BUILD_TYPE": "Debug", "CMAKE_TOOLCHAIN_FILE": "/no",
    "CMAKE_C_COMPILER_LAUNCHER": "/bin/false", "CUDA_PATH": "/hostile", "CUDACXX": "/bin/false",
    "CUDA_HOME": "/hostile", "CUDAARCHS": "50", "GIT_DIR": "/hostile", "NINJAFLAGS": "--hostile",
    "NINJA_STATUS": "%e ", "CLICOLOR_FORCE": "1", "LD_PRELOAD_32": "/hostile",
}  # fmt: skip

CONFIGURE = """
import json, sys
from pathlib import Path
import msgspec
from sparkbuild.build.configure import configure
from sparkbuild.manifest import Patchset
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Toolkit
given = json.load(open(sys.argv[1]))
found = configure(
    msgspec.convert(given["patchset"], Patchset),
    msgspec.convert(given["toolkit"], Toolkit),
    msgspec.convert(given["tree"], PatchedTree),
    binary_dir=Path(given["folder"]) / "cmake",
    log=Path(given["folder"]) / "configure.log",
)
print(msgspec.json.encode(found).decode())
"""


def test_facts_of_a_right_configuration(built: tuple[Workshop, Configuration, Binaries]) -> None:
    shop, configuration, _ = built
    host = shop.toolkit.host
    assert {c.language: (c.path, c.identification) for c in configuration.compilers} == {
        "C": (host.c, host.identification),
        "CXX": (host.cxx, host.identification),
    }
    assert configuration.openssl == "off"
    assert configuration.cuda_architectures == ()
    assert [artifact.target for artifact in configuration.artifacts[:2]] == [
        "llama-server", "llama-quantize",
    ]  # fmt: skip
    assert {a.target for a in configuration.artifacts[2:]} == {"llama", "ggml-base"}
    assert configuration.warnings == ()


def test_the_user_s_shell_changes_no_fact(
    built: tuple[Workshop, Configuration, Binaries],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Same folder, same recipe, a shell full of traps: same configuration, same bytes."""
    shop, configuration, binaries = built
    before = {p.name: p.read_bytes() for p in Path(binaries.directory).iterdir()}
    (tmp_path / "git").write_text("#!/bin/sh\necho deadbeef\n")
    (tmp_path / "ld").write_text("#!/bin/sh\nexit 1\n")
    for name in ("git", "ld"):
        (tmp_path / name).chmod(0o755)
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    again = shop.configure()
    assert again == configuration
    rebuilt = shop.build(again)
    assert {p.name: p.read_bytes() for p in Path(rebuilt.directory).iterdir()} == before


def test_what_an_interrupted_configure_left_is_not_used(workshop: Workshop) -> None:
    """A cache with another generator would stop CMake; another compiler would stay in it."""
    directory = workshop.folder / "cmake"
    (directory / ".sparkbuild").mkdir(parents=True)
    (directory / "CMakeCache.txt").write_text("CMAKE_GENERATOR:INTERNAL=Unix Makefiles\n")
    (directory / "CMakeFiles").mkdir()
    assert workshop.configure().artifacts


def test_a_folder_that_is_not_ours_is_not_emptied(workshop: Workshop) -> None:
    directory = workshop.folder / "cmake"
    directory.mkdir()
    (directory / "thesis.tex").touch()
    with pytest.raises(ConfigureError, match="did not make"):
        workshop.configure()
    assert (directory / "thesis.tex").exists()


def test_the_first_cmake_error_is_the_reason(workshop: Workshop) -> None:
    with pytest.raises(ConfigureError) as refusal:
        workshop.configure(TOY_BROKEN_CONFIGURE="ON")
    (reason,) = refusal.value.problems
    assert reason.startswith("CMakeLists.txt:")
    assert reason.endswith("This option asks for a failure, and here it is.")
    assert refusal.value.evidence == (workshop.log("configure"),)
    assert "Configuring incomplete" in refusal.value.detail
    assert "# exit status 1" in workshop.log("configure").read_text()


def test_every_wrong_option_and_target_at_once(workshop: Workshop) -> None:
    shop = Workshop(
        folder=workshop.folder, toolkit=workshop.toolkit, targets=("llama-servr", "llama-server")
    )
    with pytest.raises(ConfigureError) as refusal:
        shop.configure(GGML_TYPO="1", LLAMA_CURL="ON")
    assert [problem.partition(":")[0] for problem in refusal.value.problems] == [
        "option GGML_TYPO is not used by the sources",
        "option LLAMA_CURL is deprecated",
        "there is no target llama-servr; did you mean llama-server?",
    ]


def in_namespace(*, folder: Path, given: dict[str, object]) -> Configuration:
    """Configure in a network namespace that has no route, not even to itself."""
    import msgspec

    unshare = shutil.which("unshare")
    if unshare is None or process.capture([unshare, "-rn", "true"]).returncode != 0:
        pytest.skip("unshare -rn is not allowed on this machine")
    request = folder / "given.json"
    request.write_bytes(msgspec.json.encode({**given, "folder": str(folder)}))
    answer = process.capture(
        [unshare, "-rn", sys.executable, "-c", CONFIGURE, str(request)], timeout=600
    )
    assert answer.returncode == 0, answer.stderr
    return msgspec.convert(json.loads(answer.stdout), Configuration)


@pytest.mark.namespace
@pytest.mark.real
def test_the_real_sources_configure_without_a_network(
    tmp_path: Path, cpu_toolkit: Toolkit, real_source: Path
) -> None:
    import msgspec

    from .conftest import pretend_tree

    recipes = find_recipes(None)
    patchset, _ = recipes.patchset("vision")
    toolchain, _ = recipes.toolchain("cpu")
    toolkit = msgspec.structs.replace(cpu_toolkit, options=toolchain.options())
    tree = pretend_tree(real_source)
    given: dict[str, object] = {"patchset": patchset, "toolkit": toolkit, "tree": tree}
    found = in_namespace(folder=tmp_path, given=given)
    programs = [a.target for a in found.artifacts if a.kind == "EXECUTABLE"]
    assert programs == list(patchset.build.targets)
    assert {"ggml", "ggml-base", "ggml-cpu", "llama", "mtmd"} <= {a.target for a in found.artifacts}
    assert found.warnings == ()
    log = (tmp_path / "configure.log").read_text()
    assert f"-- ggml commit:  {tree.identity}\n" in log
    info = (tmp_path / "cmake" / "common" / "build-info.cpp").read_text()
    assert "LLAMA_BUILD_NUMBER = 11434;" in info
    assert f'LLAMA_COMMIT = "{tree.identity}";' in info


@pytest.mark.cuda_toolkit
def test_an_architecture_that_the_sources_rewrite(
    tmp_path: Path, make_cuda_toolkit: Callable[..., Toolkit]
) -> None:
    shop = Workshop(folder=tmp_path, toolkit=make_cuda_toolkit("121"))
    with pytest.raises(ConfigureError) as refusal:
        shop.configure()
    assert "GPU code of ggml-cuda: expected sm_121, found sm_121a" in refusal.value.problems
