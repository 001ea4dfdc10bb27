"""All that the doctor looks at, gathered: the live reading, toolkits, what the recipes name."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import __version__
from sparkbuild.doctor.captured import CMake, Machine, Reach, Root, Toolkits, Tried
from sparkbuild.doctor.read.apt import read_apt
from sparkbuild.doctor.read.disk import read_disks
from sparkbuild.doctor.read.gpu import read_gpu
from sparkbuild.doctor.read.loader import read_libraries
from sparkbuild.doctor.read.memory import read_memory
from sparkbuild.doctor.read.network import read_network
from sparkbuild.doctor.read.reader import Reader
from sparkbuild.doctor.read.system import read_system
from sparkbuild.errors import SparkbuildError
from sparkbuild.files import DigestCache, digest_of, sha256_file
from sparkbuild.manifest import GitOrigin, Recipes, SdistOrigin, current_platform
from sparkbuild.net.address import shown
from sparkbuild.net.index import endpoint
from sparkbuild.process import capture
from sparkbuild.toolkit.book import Book, read_book
from sparkbuild.toolkit.choice.cmake_view import cmake_choice
from sparkbuild.toolkit.choice.discover import Found, discover
from sparkbuild.toolkit.choice.places import root_of
from sparkbuild.toolkit.host import find_host_compiler, identification
from sparkbuild.toolkit.model import HostCompiler, Toolkit
from sparkbuild.toolkit.trial.trial import try_toolkit
from sparkbuild.workspace import Workspace

_INDEX: Final = "package index"
"""How the user's own index is called: its address may be a secret."""
_PROJECT: Final = "cuda-toolkit"
"""The project whose page is asked for there: every toolkit is found through it."""
_SECONDS: Final = 10.0
"""For a compiler to say what it is."""
_TRIALS_SECONDS: Final = 60.0
"""After that no further toolkit is tried. One trial takes some 4 s on two busy cores."""

Tell = Callable[[str], None]
"""Takes what is looked at now."""


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """Where digests and trials are kept: the work folder if it is there, or a passing one."""

    digests: DigestCache
    trials: Path
    toolkits: Path


def examine(recipes: Recipes, workspace: Workspace, *, offline: bool, tell: Tell) -> Machine:
    """Read this machine. Only a work folder that exists is written to, and only what it keeps.

    ``offline``: no place on the network is asked. Raises nothing for what cannot be read: that is
    in ``Machine.unread``.
    """
    reader = Reader()
    tell("system, GPU, memory")
    system, gpu, memory = read_system(reader), read_gpu(reader), read_memory(reader)
    apt = read_apt(reader)
    tell("disks")
    folders = (Path.home(), Path("/tmp"), Path("/"))  # noqa: S108 - looked at, not written to
    disks = read_disks(reader, folders, work=workspace.root)
    with _bench(workspace) as bench:
        toolkits = _toolkits(reader, recipes, bench, system.architecture, tell)
    tell("network")
    return Machine(
        origin="read",
        sparkbuild=__version__,
        system=system,
        gpu=gpu,
        memory=memory,
        disks=disks,
        apt=apt,
        toolkits=toolkits,
        network=_network(reader, recipes, offline=offline),
        unread=reader.unread,
    )


@contextmanager
def _bench(workspace: Workspace) -> Iterator[_Bench]:
    with tempfile.TemporaryDirectory(prefix="sparkbuild-doctor-") as scratch:
        there = workspace.root.is_dir() and os.access(workspace.root, os.W_OK)
        kept = workspace if there else Workspace(Path(scratch))
        yield _Bench(
            digests=DigestCache(kept.digests), trials=kept.trials, toolkits=workspace.toolkits
        )


def _toolkits(
    reader: Reader, recipes: Recipes, bench: _Bench, architecture: str, tell: Tell
) -> Toolkits:
    tell("toolkits")
    roots, host = None, None
    try:
        host = find_host_compiler()
    except SparkbuildError as error:
        reader.lack("toolkits.tried", error)
    try:
        book = read_book(recipes)
        found = discover(book, bench.digests, provisioned=bench.toolkits)
        roots = tuple(_roots(reader, found, book, host, bench, tell))
    except (SparkbuildError, OSError) as error:
        reader.lack("toolkits.roots", error)
    tell("cmake's choice")
    return Toolkits(
        roots=roots,
        cmake=_cmake(reader),
        shell=_shell(),
        libraries=read_libraries(reader, architecture),
        compiler=f"{host.identification} ({host.cxx})" if host else None,
    )


def _roots(
    reader: Reader,
    found: Sequence[Found],
    book: Book,
    host: HostCompiler | None,
    bench: _Bench,
    tell: Tell,
) -> Iterator[Root]:
    """Every root; those that are whole are tried, one after another, while there is time."""
    end = time.monotonic() + _TRIALS_SECONDS
    for one in found:
        identity, nvcc = one.identity, one.identity.part("nvcc")
        whole = identity.state in {"good", "known bad"}
        tried, goes_with = None, None
        if whole and host and identity.platform == current_platform():
            if time.monotonic() < end:
                tell(f"trying {one.root}")
                tried = _tried(one, book, host, bench)
            else:
                reader.lack("toolkits.tried", f"{_TRIALS_SECONDS:g} s were over")
        if tried is not None and not tried.good:
            others = (other for other in other_compilers() if time.monotonic() < end)
            good = (other for other in others if (_tried(one, book, other, bench) or tried).good)
            goes_with = next((other.cxx for other in good), None)
        yield Root(
            root=str(one.root),
            platform=identity.platform,
            toolchain=identity.toolchain,
            nvcc=nvcc.version if nvcc else None,
            state=identity.state,
            where=one.where,
            problems=tuple(problem.text for problem in identity.problems),
            tried=tried,
            goes_with=goes_with,
        )


def other_compilers() -> Iterator[HostCompiler]:
    """Those with a release in their name that are on PATH as a pair, the newest first."""
    found: dict[int, tuple[Path, Path]] = {}
    for folder in map(Path, os.environ.get("PATH", "").split(os.pathsep)):
        for cxx in folder.glob("g++-*"):
            release, c = cxx.name.removeprefix("g++-"), cxx.with_name(f"gcc-{cxx.name[4:]}")
            if release.isdigit() and c.is_file():
                found.setdefault(int(release), (c, cxx))
    for _, (c, cxx) in sorted(found.items(), reverse=True):
        macros = capture([str(cxx), "-dM", "-E", "-x", "c++", "/dev/null"], timeout=_SECONDS)
        known = identification(macros.stdout)
        if macros.returncode == 0 and known is not None:
            files = {"c": sha256_file(c.resolve()), "cxx": sha256_file(cxx.resolve())}
            yield HostCompiler(
                c=str(c), cxx=str(cxx), identification=known, target="", sha256=digest_of(files)
            )


def _tried(found: Found, book: Book, host: HostCompiler, bench: _Bench) -> Tried | None:
    """A program compiled, linked and run, whatever is known of the code that the toolkit makes."""
    chain = book.toolchains.get(found.identity.toolchain or "")
    if chain is None or chain.cuda is None:
        return None
    toolkit = Toolkit(
        toolchain=chain.name,
        label=chain.label,
        kind="cuda",
        host=host,
        root=str(found.root),
        parts=found.identity.parts,
        architectures=chain.cuda.architectures,
    )
    compiler = f"{host.identification} ({host.cxx})"
    try:
        try_toolkit(toolkit, folder=bench.trials)
    except SparkbuildError as error:
        if is_the_drivers(error):
            return Tried(good=True, compiler=compiler)
        why = "; ".join(error.problems) or error.message
        return Tried(good=False, compiler=compiler, error=why)
    return Tried(good=True, compiler=compiler)


def is_the_drivers(error: SparkbuildError) -> bool:
    """Whether a trial was refused for the driver alone, after everything had compiled."""
    return any(problem.startswith("driver: ") for problem in error.problems)


def _cmake(reader: Reader) -> tuple[CMake, ...] | None:
    try:
        choices = cmake_choice()
    except SparkbuildError as error:
        reader.lack("toolkits.cmake", error)
        return None
    return tuple(
        CMake(
            version=one.version,
            toolkit=str(one.toolkit) if one.toolkit else None,
            toolkit_version=one.toolkit_version,
            compiler=str(one.compiler) if one.compiler else None,
            agrees=one.agrees,
        )
        for one in choices
    )


def _shell() -> str | None:
    """The nvcc that a shell starts, wrappers seen through."""
    program = shutil.which("nvcc")
    if program is None:
        return None
    root, runs = root_of(Path(program))
    return str(runs or os.path.realpath(root / "bin/nvcc"))


def _network(reader: Reader, recipes: Recipes, *, offline: bool) -> tuple[Reach, ...] | None:
    if offline:
        reader.lack("network", "--offline")
        return None
    try:
        places = named_places(recipes)
    except SparkbuildError as error:
        reader.lack("network", error)
        return None
    return read_network(places)


def named_places(recipes: Recipes) -> dict[str, str]:
    """What to call each place that the recipes fetch from, and the address to ask.

    Folders are left out: they stand for what a user may have. Raises ManifestError.
    """
    page = f"{endpoint().rstrip('/')}/{_PROJECT}/"
    places = {_INDEX: page}
    for name in recipes.patchset_names():
        patchset, _ = recipes.patchset(name)
        for origin in patchset.source.origins:
            if isinstance(origin, GitOrigin):
                places[shown(origin.url)] = f"git+{origin.url}"
            elif isinstance(origin, SdistOrigin):
                places[_INDEX] = page
        for patch in patchset.patches:
            if patch.remote is not None:
                places[shown(patch.remote.url)] = f"git+{patch.remote.url}"
    return places
