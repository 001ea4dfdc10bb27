"""A CUDA wheel finds its libraries in NVIDIA's own wheels, and nowhere else needs to be looked."""

from __future__ import annotations

import shutil
import subprocess  # noqa: TID251 - compiles what is packed, and is the wheel's user
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.build import loader, policy
from sparkbuild.build.elf import read_elf
from sparkbuild.build.model import Binaries, Binary, BinaryFacts
from sparkbuild.errors import PackageError
from sparkbuild.files import sha256_file
from sparkbuild.manifest import find_recipes
from sparkbuild.package.install import install_and_run
from sparkbuild.package.make import package
from sparkbuild.package.model import Wheel
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.book import Book, read_book
from sparkbuild.toolkit.model import Toolkit
from sparkbuild.toolkit.wheels import libraries, requirements
from sparkbuild.workspace import Workspace

from .objects import EVERYWHERE, provisioned

pytestmark = [pytest.mark.network, pytest.mark.real, pytest.mark.cuda_toolkit]

LINE = "version: 7 (0123456789ab)"
SERVER = f"""
#include <stdio.h>
#include <cuda_runtime_api.h>
#ifdef WITH_CUBLAS
#include <cublas_v2.h>
#endif
int main(void) {{
    int version = 0;
    if (cudaRuntimeGetVersion(&version)) return 1;
#ifdef WITH_CUBLAS
    int major = 0;
    if (cublasGetProperty(MAJOR_VERSION, &major)) return 2;
#endif
    puts("{LINE}");
    printf("runtime %d\\n", version);
    return 0;
}}
"""


@pytest.fixture(scope="module")
def book() -> Book:
    return read_book(find_recipes(None))


@pytest.fixture(scope="module")
def toolkit(book: Book, real_work: Path, cuda_root: Path) -> Toolkit:
    del cuda_root
    return provisioned(EVERYWHERE, book, real_work)


def packed(toolkit: Toolkit, place: Path, requires: tuple[str, ...], *, cublas: bool) -> Any:
    """A wheel with one program that is linked as the build links: its facts too."""
    directory = place / "install" / "bin"
    directory.mkdir(parents=True)
    (place / "server.c").write_text(SERVER)
    (place / "LICENSE").write_text("MIT\n")
    rpath = ":".join(policy.runpath(toolkit))
    argv: list[str | Path] = [toolkit.host.c, "-o", directory / "llama-server", place / "server.c",
            f"-I{toolkit.root}/include", f"-L{toolkit.root}/lib64", "-lcudart",
            f"-Wl,-rpath,{rpath},--enable-new-dtags"]  # fmt: skip
    more = ["-DWITH_CUBLAS", "-lcublas"] if cublas else []
    subprocess.run([*argv, *more], check=True)
    server = directory / "llama-server"
    elf = read_elf(server)
    facts = BinaryFacts(
        binaries=(
            Binary(
                name=server.name,
                sha256=sha256_file(server),
                size=server.stat().st_size,
                soname=None,
                needed=elf.needed,
                runpath=elf.runpath,
                build_id="ab",
                machine=elf.machine,
            ),
        ),
        system_libraries=("libc.so.6",),
        version_line=LINE,
    )
    wheel = package(
        binaries=Binaries(
            directory=str(directory), executables=(server.name,), libraries=(), edges=1
        ),
        facts=facts,
        tree=PatchedTree(
            source_digest="5" * 64, commit="c" * 40, tree="0123456789ab" + "f" * 28, build=7,
            patches=(), directory=str(place),
        ),
        toolkit=toolkit,
        variant="text",
        source_dir=place,
        workdir=place / "package",
        log=place / "package.log",
        requires=requires,
    )  # fmt: skip
    return wheel, facts


def test_requirements_are_the_libraries_that_it_was_tested_with(
    toolkit: Toolkit, book: Book
) -> None:
    cudart, cublas = toolkit.part("libcudart").version, toolkit.part("libcublas").version
    assert requirements(toolkit, book) == (
        f"nvidia-cublas=={cublas}", f"nvidia-cuda-runtime=={cudart}",
    )  # fmt: skip
    locked = book.locked("cuda-13.0", "linux-x86_64")
    assert locked is not None
    bought = {f"{wheel.project}=={wheel.version}" for wheel in locked.wheels}
    assert set(requirements(toolkit, book)) <= bought


def test_the_packed_program_starts_where_nvidia_s_wheels_are_beside_it(
    toolkit: Toolkit, book: Book, tmp_path: Path
) -> None:
    wheel, facts = packed(toolkit, tmp_path, requirements(toolkit, book), cublas=True)
    log = tmp_path / "install.log"
    beside = libraries(toolkit)
    assert {path.name for path in beside} == {
        "libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13"
    }  # fmt: skip
    said = install_and_run(wheel, facts=facts, workdir=tmp_path / "i", log=log, beside=beside)
    assert said == LINE
    # Without them it does not start: no other place of this machine helped.
    with pytest.raises(PackageError, match="installed, is not what was tested"):
        install_and_run(wheel, facts=facts, workdir=tmp_path / "i", log=log)


def test_pip_alone_makes_it_run(
    toolkit: Toolkit, book: Book, real_work: Path, tmp_path: Path
) -> None:
    """pip fetches what the wheel declares, here from a folder; nothing else is on this machine."""
    requires = tuple(one for one in requirements(toolkit, book) if "cuda-runtime" in one)
    wheel, _ = packed(toolkit, tmp_path, requires, cublas=False)
    shop = tmp_path / "shop"
    shop.mkdir()
    locked = read_book(find_recipes(None)).locked("cuda-13.0", "linux-x86_64")
    assert locked
    (name,) = (wheel.file for wheel in locked.wheels if wheel.project == "nvidia-cuda-runtime")
    (nvidia,) = Workspace(real_work).downloads.glob(f"*/{name}")
    shutil.copyfile(nvidia, shop / nvidia.name)
    venv = installed(wheel, shop, tmp_path / "venv")
    done = subprocess.run([venv / "bin" / "llama-server"], cwd="/", env={}, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{LINE}\nruntime 13000\n"), done.stderr
    (site,) = venv.glob("lib/python*/site-packages")
    program = site / "sparkbuild_llama_cpp" / "bin" / "llama-server"
    interpreter = read_elf(program).interpreter
    assert interpreter
    found = {one.name: one.place for one in loader.resolve(program, interpreter)}
    place = found["libcudart.so.13"]
    assert place is not None
    assert Path(place).resolve() == site / "nvidia" / "cu13" / "lib" / "libcudart.so.13"
    # An environment that was moved still has it: the path is relative.
    moved = tmp_path / "elsewhere" / "venv"
    moved.parent.mkdir()
    venv.rename(moved)
    again = next(moved.glob(f"lib/*/site-packages/{program.relative_to(site)}"))
    assert (
        subprocess.run([again], cwd="/", env={}, capture_output=True, check=False).returncode == 0
    )


def test_pip_refuses_where_the_declared_wheel_is_not_to_be_had(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    wheel, _ = packed(toolkit, tmp_path, ("nvidia-cuda-runtime==13.0.0.1",), cublas=False)
    (tmp_path / "shop").mkdir()
    with pytest.raises(subprocess.CalledProcessError) as failure:
        installed(wheel, tmp_path / "shop", tmp_path / "venv")
    assert "nvidia-cuda-runtime==13.0.0.1" in failure.value.stderr


def installed(wheel: Wheel, shop: Path, venv: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run(
        [venv / "bin" / "python", "-m", "pip", "--isolated", "--disable-pip-version-check",
         "install", "--no-index", "--find-links", shop, wheel.path],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return venv
