"""The run time that the loader takes: real libraries, made to be right or wrong by a compiler."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild import process
from sparkbuild.build import loader, runtime
from sparkbuild.build.elf import ElfFacts, read_elf, read_soname
from sparkbuild.errors import BinaryError
from sparkbuild.files import sha256_file
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.model import Part, Toolkit

HOST = find_host_compiler()

CUDART = """
int cudaRuntimeGetVersion(int *version) {{ *version = {runtime}; return 0; }}
int cudaDriverGetVersion(int *version) {{ *version = {driver}; return 0; }}
"""
CUBLAS = """
int cublasGetProperty(int kind, int *value)
{{ int all[] = {{ {major}, 1, 0 }}; *value = all[kind]; return 0; }}
"""
LT = "unsigned long cublasLtGetVersion(void) {{ return {major} * 10000ul + 100; }}\n"


def compiled(target: Path, source: str, *flags: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    code = target.with_name(f"{target.name}.c")
    code.write_text(source)
    answer = process.capture([HOST.c, str(code), "-o", str(target), *flags])
    assert answer.returncode == 0, answer.stderr
    code.unlink()
    return target


def library(folder: Path, name: str, source: str, **values: int) -> Path:
    """``<name>.so.13`` with its link, as a toolkit has it."""
    path = folder / f"{name}.so.13"
    compiled(path, source.format(**values), "-shared", "-fPIC", f"-Wl,-soname,{path.name}")
    (folder / f"{name}.so").symlink_to(path.name)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with three libraries, and a program that needs all and looks beside itself first."""
    root = tmp_path_factory.mktemp("made")
    folder = root / "cuda" / "lib64"
    library(folder, "libcudart", CUDART, runtime=13000, driver=0)
    library(folder, "libcublas", CUBLAS, major=13)
    library(folder, "libcublasLt", LT, major=13)
    compiled(
        root / "bin" / "llama-server", "int main(void) { return 0; }",
        "-Wl,--no-as-needed", f"-L{folder}", "-lcudart", "-lcublas", "-lcublasLt",
        "-Wl,-rpath,$ORIGIN,--enable-new-dtags",
    )  # fmt: skip
    return root


@pytest.fixture
def cuda(made: Path, tmp_path: Path, make_toolkit: Callable[..., Toolkit]) -> Toolkit:
    """A toolkit of CUDA 13.0, identified."""
    root = tmp_path / "cuda"
    shutil.copytree(made / "cuda", root, symlinks=True)
    versions = {"libcudart": "13.0.96", "libcublas": "13.1.0.3", "libcublasLt": "13.1.0.3"}
    parts = []
    for name, version in versions.items():
        path = root / "lib64" / f"{name}.so.13"
        sha256 = sha256_file(path)
        parts.append(Part(name=name, version=version, read_from="", path=str(path), sha256=sha256))
    headers = Part(name="cudart headers", version="13.0.96", read_from="", path="", sha256="")
    return make_toolkit(root=str(root), parts=(headers, *parts))


@pytest.fixture
def program(made: Path, tmp_path: Path) -> Path:
    """What was built."""
    (tmp_path / "bin").mkdir()
    return Path(shutil.copy2(made / "bin" / "llama-server", tmp_path / "bin"))


def facts(program: Path) -> dict[str, ElfFacts]:
    return {program.name: read_elf(program)}


def problems(program: Path, toolkit: Toolkit, *, search: Path | None = None) -> list[str]:
    files = facts(program)
    interpreter = files[program.name].interpreter or ""
    folder = search or Path(toolkit.root or "") / "lib64"
    loaded = {program.name: loader.resolve(program, interpreter, search=[folder])}
    return list(runtime.problems(files, loaded, toolkit, digest=sha256_file))


def replaced(toolkit: Toolkit, name: str, source: str, **values: int) -> Path:
    folder = Path(toolkit.root or "") / "lib64"
    (folder / f"{name}.so").unlink()
    (folder / f"{name}.so.13").unlink()
    return library(folder, name, source, **values)


def with_digests_of_now(toolkit: Toolkit) -> Toolkit:
    """As if identity had seen these very files."""
    parts = tuple(
        msgspec.structs.replace(part, sha256=sha256_file(Path(part.path))) if part.path else part
        for part in toolkit.parts
    )
    return msgspec.structs.replace(toolkit, parts=parts)


def test_the_toolkit_s_own_run_time(cuda: Toolkit, program: Path) -> None:
    assert problems(program, cuda) == []


def test_a_cpu_build_has_none(program: Path, make_toolkit: Callable[..., Toolkit]) -> None:
    assert list(runtime.problems(facts(program), {}, make_toolkit(), digest=sha256_file)) == []


@pytest.mark.parametrize(
    ("name", "source", "values", "said"),
    [
        ("libcudart", CUDART, {"runtime": 13020, "driver": 0},
         "libcudart: expected 13.0.96 (cudart headers), at run time it says 13.2 ("),
        ("libcublas", CUBLAS, {"major": 12},
         "libcublas: expected 13.1.0.3 (libcublas), at run time it says 12.1.0 ("),
        ("libcublasLt", LT, {"major": 12},
         "libcublasLt: expected 13.1.0.3 (libcublasLt), at run time it says 12.1.0 ("),
    ],
)  # fmt: skip
def test_a_library_changed_after_identity(
    name: str, source: str, values: dict[str, int], said: str, cuda: Toolkit, program: Path
) -> None:
    path = replaced(cuda, name, source, **values)
    changed, version = problems(program, cuda)
    part = cuda.part(name)
    assert changed.startswith(
        f"llama-server: expected the {name} {part.version} of the toolkit ({part.sha256[:12]}), "
        f"the loader takes {path} ("
    )
    assert version.startswith(said)


def test_a_library_that_says_another_version_than_its_identity(
    cuda: Toolkit, program: Path
) -> None:
    replaced(cuda, "libcudart", CUDART, runtime=12090, driver=0)
    (version,) = problems(program, with_digests_of_now(cuda))
    said = "libcudart: expected 13.0.96 (cudart headers), at run time it says 12.9"
    assert version.startswith(said)


@pytest.mark.parametrize(
    ("driver", "refused"), [(0, False), (12080, True), (13000, False), (14010, False)]
)
def test_the_driver_s_limit(driver: int, refused: bool, cuda: Toolkit, program: Path) -> None:
    replaced(cuda, "libcudart", CUDART, runtime=13000, driver=driver)
    found = problems(program, with_digests_of_now(cuda))
    assert found == (["driver: expected CUDA 13.0 or newer, found CUDA 12.8"] if refused else [])


@pytest.mark.parametrize(
    "source",
    [
        "int something_else;",
        "int cudaRuntimeGetVersion(int *v) { *v = 0; return 35; }",
        "int cudaRuntimeGetVersion(int *v) { __builtin_trap(); }",
    ],
)
def test_a_library_that_cannot_be_asked(source: str, cuda: Toolkit, program: Path) -> None:
    """One without the function, one that refuses, one that crashes: each is one problem."""
    path = replaced(cuda, "libcudart", source.replace("{", "{{").replace("}", "}}"))
    (problem,) = problems(program, with_digests_of_now(cuda))
    assert str(path) in problem
    assert "asked for their versions, ended with " in problem


def test_needed_names_are_the_toolkit_s_sonames(cuda: Toolkit, tmp_path: Path) -> None:
    old = tmp_path / "old"
    source = CUDART.format(runtime=12090, driver=0)
    compiled(old / "libcudart.so", source, "-shared", "-fPIC", "-Wl,-soname,libcudart.so.12")
    (old / "libcudart.so.12").symlink_to("libcudart.so")
    flags = ["-Wl,--no-as-needed", f"-L{old}", "-lcudart"]
    program = compiled(tmp_path / "bin" / "llama-server", "int main(void) { return 0; }", *flags)
    found = problems(program, cuda, search=old)
    expected = "llama-server: needs libcudart.so.12, the toolkit's is libcudart.so.13 ("
    assert found[0].startswith(expected)
    assert found[1].startswith("llama-server: expected the libcudart 13.0.96 of the toolkit")
    assert found[2].startswith("libcudart: expected 13.0.96 (cudart headers), at run time it says")


def test_a_toolkit_without_the_library(cuda: Toolkit, program: Path) -> None:
    folder = Path(cuda.root or "") / "lib64"
    (folder / "libcublas.so").unlink()
    (folder / "libcublas.so.13").unlink()
    found = problems(program, cuda)
    assert found == [
        f"llama-server: needs libcublas.so.13, the toolkit's is missing ({folder / 'libcublas.so'})"
    ]


def notes(program: Path, toolkit: Toolkit) -> list[str]:
    """About libcudart beside the program; this machine may have libraries of its own."""
    files = facts(program)
    interpreter = files[program.name].interpreter or ""
    found = runtime.notes(program.parent, files, interpreter, toolkit, digest=sha256_file)
    return [note for note in found if f"{program.parent}/" in note]


def test_what_an_installed_file_would_take_without_a_search_path(
    cuda: Toolkit, program: Path
) -> None:
    """Another libcudart on the loader's own way is worth a word; none at all is not."""
    assert notes(program, cuda) == []
    beside = library(program.parent, "libcudart", CUDART, runtime=12090, driver=0)
    (note,) = notes(program, cuda)
    assert note.startswith(f"without a search path llama-server would load {beside}, which is not")
    assert note.endswith("the libcudart 13.0.96 of the toolkit")
    beside.write_bytes(Path(cuda.part("libcudart").path).read_bytes())
    assert notes(program, cuda) == []


def test_a_soname_is_read_without_the_rest(cuda: Toolkit, tmp_path: Path) -> None:
    path = Path(cuda.part("libcudart").path)
    assert read_soname(path) == "libcudart.so.13"
    plain = compiled(tmp_path / "plain.so", "int x;", "-shared", "-fPIC")
    assert read_soname(plain) is None
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BinaryError, match=r"libcudart\.so\.13 is no ELF file"):
        read_soname(path)


def test_a_truncated_library_of_the_toolkit_is_told(cuda: Toolkit, program: Path) -> None:
    files = facts(program)
    loaded: Any = {}
    path = Path(cuda.part("libcublas").path)
    path.write_bytes(path.read_bytes()[:200])
    (problem,) = runtime.problems(files, loaded, cuda, digest=sha256_file)
    assert problem.startswith("libcublas.so is no ELF file that can be read: ")
