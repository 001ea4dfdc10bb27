"""Packing and installing, for real, with a small program and library made by the C compiler."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess  # noqa: TID251 - these tests are the wheel's user
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from sparkbuild.build.model import Binaries, Binary, BinaryFacts
from sparkbuild.errors import PackageError
from sparkbuild.package import make
from sparkbuild.package.install import install_and_run
from sparkbuild.package.make import package
from sparkbuild.package.model import Wheel
from sparkbuild.package.project import Plan, write_project
from sparkbuild.source.model import AppliedPatch, PatchedTree
from sparkbuild.toolkit.model import HostCompiler, Part, Toolkit

EXECUTABLES = ("llama-mtmd-cli", "llama-quantize", "llama-server")
LIBRARY = "libtiny.so.0"
VERSION_LINE = "version: 7 (0123456789ab)"

LIBRARY_C = 'const char *version(void) { return "version: 7 (0123456789ab)"; }\n'
PROGRAM_C = r"""
#include <signal.h>
#include <stdio.h>
#include <string.h>
const char *version(void);
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--version")) { puts("noise"); puts(version()); return 0; }
    if (argc > 1 && !strcmp(argv[1], "--wait")) {
        puts("waiting"); fflush(stdout);
        for (;;) { if (getchar() == EOF) for (;;) ; }
    }
    if (argc > 1 && !strcmp(argv[1], "--signals")) {
        struct sigaction pipe, size;
        sigaction(SIGPIPE, NULL, &pipe); sigaction(SIGXFSZ, NULL, &size);
        return pipe.sa_handler == SIG_DFL && size.sa_handler == SIG_DFL ? 0 : 1;
    }
    for (int i = 1; i < argc; i++) printf("<%s>", argv[i]);
    char line[64];
    if (fgets(line, sizeof line, stdin)) printf("stdin:%s", line);
    fflush(stdout);
    return 42;
}
"""


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """An install tree like llama.cpp's, and what the earlier stages would say about it."""

    binaries: Binaries
    facts: BinaryFacts
    tree: PatchedTree
    toolkit: Toolkit
    source_dir: Path

    def package(self, workdir: Path, **changed: object) -> Wheel:
        given: dict[str, object] = {
            "binaries": self.binaries,
            "facts": self.facts,
            "tree": self.tree,
            "toolkit": self.toolkit,
            "variant": "vision-fork",
            "source_dir": self.source_dir,
            "workdir": workdir,
            "log": workdir / "package.log",
        }
        return package(**{**given, **changed})  # type: ignore[arg-type]


def compile_tree(directory: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) on this machine")
    source = directory.parent / "source"
    source.mkdir(parents=True)
    directory.mkdir()
    (source / "tiny.c").write_text(LIBRARY_C)
    (source / "main.c").write_text(PROGRAM_C)
    library = directory / LIBRARY
    commands: tuple[list[str | Path], ...] = (
        [compiler, "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-o", library, source / "tiny.c"],
        [compiler, "-o", directory / EXECUTABLES[0], source / "main.c", library,
         "-Wl,-rpath,$ORIGIN,--enable-new-dtags"],
    )  # fmt: skip
    for argv in commands:
        subprocess.run(argv, check=True)
    for name in EXECUTABLES[1:]:
        shutil.copy2(directory / EXECUTABLES[0], directory / name)


def facts_of(directory: Path) -> BinaryFacts:
    machine = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[platform.machine()]
    return BinaryFacts(
        binaries=tuple(
            Binary(
                name=path.name,
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
                size=path.stat().st_size,
                soname=None,
                needed=(),
                runpath=("$ORIGIN",),
                build_id="ab",
                machine=machine,
            )
            for path in sorted(directory.iterdir())
        ),
        system_libraries=("libc.so.6",),
        version_line=VERSION_LINE,
    )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    # A semicolon separates in CMake, blanks in shells, and not everything is ASCII.
    root = tmp_path_factory.mktemp("install tree; größe")
    directory = root / "bin"
    compile_tree(directory)
    source = root / "llama.cpp"
    (source / "licenses").mkdir(parents=True)
    (source / "LICENSE").write_text("MIT, for a test\n")
    (source / "licenses" / "LICENSE-jsonhpp").write_text("MIT, of json\n")
    (source / "licenses" / "LICENSE-another").write_text("MIT, of another\n")
    return Tiny(
        binaries=Binaries(
            directory=str(directory), executables=EXECUTABLES, libraries=(LIBRARY,), edges=3
        ),
        facts=facts_of(directory),
        tree=PatchedTree(
            source_digest="5" * 64,
            commit="c" * 40,
            tree="0123456789ab" + "f" * 28,
            build=11434,
            patches=(AppliedPatch(file="a.patch", sha256="a" * 64, reason="why", touched=("b",)),),
            directory=str(root / "patched"),
        ),
        toolkit=Toolkit(
            toolchain="13.0",
            label="cu130",
            kind="cuda",
            host=HostCompiler(
                c="/opt/secret/cc",
                cxx="/opt/secret/c++",
                identification="GNU 12.2.0",
                target="x86_64-linux-gnu",
                sha256="d" * 64,
            ),
            root="/opt/secret",
            parts=(
                Part(
                    name="nvcc",
                    version="13.0.88",
                    read_from="/opt/secret/nvcc --version",
                    path="/opt/secret/bin/nvcc",
                    sha256="e" * 64,
                ),
            ),
            architectures=("121a",),
        ),
        source_dir=source,
    )


@pytest.fixture(scope="module")
def wheel(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return tiny.package(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def venv(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("environment") / "venv"
    run = subprocess.run
    run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    run(
        [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "--isolated",
         "--disable-pip-version-check", "install", "--no-index", "--no-deps", wheel.path],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return place


def test_the_wheel_says_what_it_is(wheel: Wheel) -> None:
    assert wheel.version == "11434.0.0+cu130.vision.fork.g0123456789ab"
    assert re.fullmatch(rf"py3-none-manylinux_2_\d+_{platform.machine()}", wheel.tag)
    assert Path(wheel.path).name == f"sparkbuild_llama_cpp-{wheel.version}-{wheel.tag}.whl"
    assert wheel.scripts == EXECUTABLES
    assert wheel.sha256 == hashlib.sha256(Path(wheel.path).read_bytes()).hexdigest()
    assert wheel.size == Path(wheel.path).stat().st_size


def test_it_holds_the_tested_bytes_and_nothing_else_to_run(wheel: Wheel, tiny: Tiny) -> None:
    with zipfile.ZipFile(wheel.path) as opened:
        modes = {member.filename: member.external_attr >> 16 for member in opened.infolist()}
        for binary in tiny.facts.binaries:
            data = opened.read(f"sparkbuild_llama_cpp/bin/{binary.name}")
            assert hashlib.sha256(data).hexdigest() == binary.sha256
    executable = {name for name, mode in modes.items() if mode & 0o111}
    assert executable == {f"sparkbuild_llama_cpp/bin/{name}" for name in EXECUTABLES}
    assert {mode & 0o777 for mode in modes.values()} == {0o755, 0o644}


def test_only_the_wheel_and_the_log_stay_in_the_work_directory(wheel: Wheel) -> None:
    here = sorted(path.name for path in Path(wheel.path).parent.iterdir())
    assert here == ["package-again.log", "package.log", Path(wheel.path).name]


def test_same_bytes_whatever_the_user_has_set(
    wheel: Wheel, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "hôme; with blanks"
    home.mkdir()
    for name, value in {
        "HOME": str(home),
        "TZ": "Asia/Kathmandu",
        "LC_ALL": "tr_TR.UTF-8",
        "SOURCE_DATE_EPOCH": "1234567890",
        "CMAKE_ARGS": "-DCMAKE_INSTALL_PREFIX=/nonexistent",
        "SKBUILD_WHEEL_BUILD_TAG": "9",
        "CMAKE_GENERATOR": "Unix Makefiles",
        "PYTHONPATH": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    mask = os.umask(0o077)
    try:
        time.tzset()
        again = tiny.package(tmp_path / "ein anderer; Ort")
    finally:
        os.umask(mask)
        monkeypatch.undo()
        time.tzset()
    assert Path(again.path).read_bytes() == Path(wheel.path).read_bytes()


def test_nothing_of_this_machine_is_inside(wheel: Wheel, tiny: Tiny) -> None:
    with zipfile.ZipFile(wheel.path) as opened:
        texts = {
            name: opened.read(name).decode() for name in opened.namelist() if "/bin/" not in name
        }
    places = ("/opt/secret", tiny.binaries.directory, str(Path(wheel.path).parent))
    assert not [name for name, text in texts.items() if any(place in text for place in places)]
    info = json.loads(texts["sparkbuild_llama_cpp/build-info.json"])
    assert info["toolchain"]["parts"] == {"nvcc": {"version": "13.0.88", "sha256": "e" * 64}}
    assert info["toolchain"]["architectures"] == ["121a"]
    assert info["source"]["tree"] == tiny.tree.tree
    assert info["patches"] == [{"file": "a.patch", "sha256": "a" * 64, "reason": "why"}]


def test_a_fork_without_a_number_is_build_0(tiny: Tiny) -> None:
    plan = make.plan_wheel(
        binaries=tiny.binaries,
        facts=tiny.facts,
        tree=msgspec.structs.replace(tiny.tree, build=None),
        toolkit=tiny.toolkit,
        variant="text",
        source_dir=tiny.source_dir,
    )
    assert plan.version == "0.0.0+cu130.text.g0123456789ab"


def test_a_file_changed_after_inspection_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    tree = shutil.copytree(tiny.binaries.directory, tmp_path / "bin")
    with (tree / LIBRARY).open("ab") as file:
        file.write(b"one more byte")
    changed = msgspec.structs.replace(tiny.binaries, directory=str(tree))
    work = tmp_path / "work"
    with pytest.raises(PackageError) as refused:
        tiny.package(work, binaries=changed)
    assert any(
        LIBRARY in problem and "not the file" in problem for problem in refused.value.problems
    )
    assert {path.suffix for path in work.iterdir()} == {".log"}


def test_what_was_never_inspected_is_not_packed(tiny: Tiny, tmp_path: Path) -> None:
    fewer = msgspec.structs.replace(tiny.facts, binaries=tiny.facts.binaries[1:])
    with pytest.raises(PackageError) as refused:
        tiny.package(tmp_path, facts=fewer)
    assert refused.value.problems == (f"{LIBRARY} was built and never inspected",)
    fewer_built = msgspec.structs.replace(tiny.binaries, executables=EXECUTABLES[1:])
    with pytest.raises(PackageError) as refused:
        tiny.package(tmp_path, binaries=fewer_built)
    assert refused.value.problems == (f"{EXECUTABLES[0]} was inspected and is not to be packed",)


def test_a_tree_whose_files_are_gone_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    gone = msgspec.structs.replace(tiny.binaries, directory=str(empty))
    with pytest.raises(PackageError, match="cannot be read") as refused:
        tiny.package(tmp_path / "work", binaries=gone)
    assert refused.value.evidence == (empty,)


def test_a_failing_packer_is_shown_with_its_last_words(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "_HOOK", "raise SystemExit('no llama-mtmd-cli today')")
    with pytest.raises(PackageError) as refused:
        tiny.package(tmp_path / "work")
    assert "llama-mtmd-cli" in refused.value.detail
    assert refused.value.evidence == (tmp_path / "work" / "package.log",)
    assert "found nothing" in refused.value.problems


def test_without_a_licence_text_nothing_is_packed(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="no licence text"):
        tiny.package(tmp_path, source_dir=tmp_path)


def test_a_tree_with_one_licence_text_is_enough(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("MIT, alone\n")
    wheel = tiny.package(tmp_path / "work", source_dir=tmp_path)
    with zipfile.ZipFile(wheel.path) as opened:
        licences = [name for name in opened.namelist() if "/licenses/" in name]
    assert licences == [f"sparkbuild_llama_cpp-{wheel.version}.dist-info/licenses/LICENSE"]


def test_leftovers_of_killed_runs_go_away(tiny: Tiny, tmp_path: Path) -> None:
    left = tmp_path / ".packing-killed" / "first" / "out"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"PK")
    with make._scratch(tmp_path) as scratch:
        assert list(tmp_path.iterdir()) == [scratch]
    assert not list(tmp_path.iterdir())


def test_packing_that_differs_is_refused(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def write(plan: Plan, root: Path) -> None:
        written.append(root)
        write_project(dataclasses.replace(plan, info=f'{{"packed": {len(written)}}}'), root)

    # Both wheels are wrong by themselves, so that check must not be the one that refuses.
    monkeypatch.setattr(make, "write_project", write)
    monkeypatch.setattr(make, "mismatches", lambda wheel, plan: [])
    with pytest.raises(PackageError, match="two different wheels") as refused:
        tiny.package(tmp_path)
    assert "sparkbuild_llama_cpp/build-info.json differs" in refused.value.problems
    assert not list(tmp_path.glob("*.whl"))


def test_install_and_run_accepts_the_wheel(wheel: Wheel, tiny: Tiny, tmp_path: Path) -> None:
    log = tmp_path / "install.log"
    assert install_and_run(wheel, facts=tiny.facts, workdir=tmp_path, log=log) == VERSION_LINE
    assert [path.name for path in tmp_path.iterdir()] == ["install.log"]
    assert log.read_text().count("--version") >= 2


def test_install_and_run_compares_with_what_inspection_read(
    wheel: Wheel, tiny: Tiny, tmp_path: Path
) -> None:
    other = msgspec.structs.replace(tiny.facts, version_line="version: 8 (0123456789ab)")
    with pytest.raises(PackageError) as refused:
        install_and_run(wheel, facts=other, workdir=tmp_path, log=tmp_path / "log")
    problems = refused.value.problems
    assert len(problems) == 2
    assert all("version: 8" in line and "version: 7" in line for line in problems)


def test_a_wheel_that_cannot_be_installed_is_refused(
    tiny: Tiny, wheel: Wheel, tmp_path: Path
) -> None:
    broken = tmp_path / Path(wheel.path).name
    broken.write_bytes(b"no archive")
    bad = msgspec.structs.replace(wheel, path=str(broken))
    with pytest.raises(PackageError, match="cannot install") as refused:
        install_and_run(bad, facts=tiny.facts, workdir=tmp_path / "w", log=tmp_path / "log")
    assert refused.value.detail


def test_scripts_pass_arguments_stdin_and_status(venv: Path) -> None:
    done = subprocess.run(
        [venv / "bin" / "llama-quantize", "a b", "", "--x=*"],
        input="typed\n", capture_output=True, text=True, cwd="/", env={}, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("<a b><><--x=*>stdin:typed\n", "", 42)


def test_scripts_are_the_binary_for_signals(venv: Path) -> None:
    child = subprocess.Popen(
        [venv / "bin" / "llama-server", "--wait"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", env={},
    )  # fmt: skip
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        assert Path(f"/proc/{child.pid}/exe").resolve().name == "llama-server"
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == -signal.SIGINT
    clean = subprocess.run([venv / "bin" / "llama-server", "--signals"], check=False, env={})
    assert clean.returncode == 0, "Python's ignored signals reached the binary"


def test_a_binary_that_cannot_start_is_named(venv: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(venv, tmp_path / "venv", symlinks=True)
    (path,) = copy.glob("lib/python*/site-packages/sparkbuild_llama_cpp")
    (path / "bin" / "llama-server").chmod(0o644)
    code = (
        "from sparkbuild_llama_cpp._scripts import llama_server; raise SystemExit(llama_server())"
    )
    done = subprocess.run(
        [copy / "bin" / "python", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 126
    assert done.stderr.startswith("llama-server: cannot start /")


def test_python_interface(venv: Path, wheel: Wheel) -> None:
    code = """
import sparkbuild_llama_cpp as package
print(package.path_of("llama-server"))
print(package.build_info()["version"])
try:
    package.path_of("llama-cli")
except KeyError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [venv / "bin" / "python", "-I", "-c", code],
        capture_output=True, text=True, cwd="/", env={}, check=True,
    )  # fmt: skip
    path, version, error = done.stdout.splitlines()
    assert os.access(path, os.X_OK)
    assert Path(path).is_relative_to(venv.resolve())
    assert version == wheel.version
    assert error.startswith("UnknownBinaryError no binary 'llama-cli'")
    assert all(name in error for name in (*EXECUTABLES, LIBRARY))
