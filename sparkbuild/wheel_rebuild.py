"""Build a wheel again where everything is different that must make no difference, and compare."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from sparkbuild import __version__, process
from sparkbuild.build.jobs import usable_cores
from sparkbuild.errors import InternalError, PackageError
from sparkbuild.files import exclusive, sha256_file
from sparkbuild.manifest import Recipes
from sparkbuild.package.compare import compare
from sparkbuild.package.differences import Comparison
from sparkbuild.package.identity import INFO_FILE
from sparkbuild.package.verify import unsafe_names
from sparkbuild.stages import Observer
from sparkbuild.wheel_remake import NOTE, PROGRESS, SCRATCH, STARTED, Order, Remade
from sparkbuild.workspace import Workspace

CARRIED: Final = ("*.dist-info/provenance.json", "*.dist-info/sboms/*")
"""Statements of the first build: they are checked by their signatures, not made again."""

UMASK: Final = 0o077

_START: Final = """\
import os, sys
os.umask(int(sys.argv[1], 8))
os.chdir("/")
from sparkbuild.wheel_remake import main
main(sys.argv[2], sys.argv[3])
"""


class _Source(msgspec.Struct, frozen=True):
    digest: str
    tree: str


class _Patch(msgspec.Struct, frozen=True):
    file: str
    sha256: str


class _Accepted(msgspec.Struct, frozen=True):
    id: str


class _Toolchain(msgspec.Struct, frozen=True):
    name: str
    identity: str
    architectures: tuple[str, ...] = ()
    accepted: tuple[_Accepted, ...] = ()


class Recorded(msgspec.Struct, frozen=True):
    """What a wheel's ``build-info.json`` says that it was made from."""

    sparkbuild: str
    variant: str
    source: _Source
    toolchain: _Toolchain
    patches: tuple[_Patch, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """A second wheel, what differs from the first, and what was different on purpose."""

    comparison: Comparison
    wheel: Path
    different: Mapping[str, str]
    carried: tuple[str, ...]
    """Members that were taken over from the first wheel."""


def rebuild_and_compare(
    wheel: Path,
    *,
    recipes: Recipes,
    workspace: Workspace,
    observer: Observer,
    toolkit: str | None = None,
    jobs: int | None = None,
    keep: bool = False,
) -> Rebuilt:
    """Make ``wheel`` again in a folder of the workspace, below ``rebuilds``, and compare the two.

    ``toolkit`` is as for ``make``; the wheel's own toolchain where none is given. With ``keep`` the
    second build's folders stay, identical or not. Other than in the
    first build are: the folders, the user's name and home, time zone, locale, umask, number of
    jobs, order of the files, variables that lead compilers astray; no compile cache is used. Raises
    PackageError where the recipes here make another wheel (other source, patches, toolkit or host
    compiler), where the wheel has no such record, or with what the second build was refused for.
    Only the main thread may call this.
    """
    recorded = read_recorded(wheel)
    _refuse_other_recipe(wheel, recorded, recipes)
    place = workspace.root / "rebuilds" / sha256_file(wheel)[:12]
    with exclusive(place.with_name(f"{place.name}.lock"), what=f"{wheel.name}, again"):
        _empty(place)
        order = Order(
            variant=recorded.variant,
            toolkit=toolkit or recorded.toolchain.name,
            architectures=recorded.toolchain.architectures,
            accept=tuple(one.id for one in recorded.toolchain.accepted),
            recipes=str(recipes.root.absolute()),
            work=str(workspace.root),
            place=str(place / "in-a-place-of-another-length"),
            jobs=jobs or int(usable_cores()) + 1,
            original=str(wheel.absolute()),
            carried=carried_members(wheel),
        )
        different = _different(place, order)
        remade = _run(order, place, different, observer)
        _refuse_other_inputs(wheel, recorded, remade)
        observer.started("compare")
        found = compare(wheel, Path(remade.wheel))
        if found.identical and not keep:
            _tidy(Path(order.place))
    return Rebuilt(
        comparison=found,
        wheel=Path(remade.wheel),
        different={**different, "umask": f"{UMASK:04o}", "jobs": str(order.jobs)},
        carried=order.carried,
    )


def read_recorded(wheel: Path) -> Recorded:
    """What a wheel was made from, by its own words. Raises PackageError where it does not say."""
    try:
        with zipfile.ZipFile(wheel) as opened:
            problems = list(unsafe_names(opened))
            data = b"" if problems else opened.read(INFO_FILE)
            if not problems:
                return msgspec.json.decode(data, type=Recorded)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        problems = [f"it cannot be read: {error}"]
    except KeyError:
        problems = [f"it has no {INFO_FILE}"]
    except msgspec.DecodeError as error:
        problems = [f"{INFO_FILE}: {error}"]
    raise PackageError(
        f"{wheel.name} does not say what it was made from",
        problems=problems,
        evidence=[wheel],
        next_step="name a wheel that sparkbuild make made",
    )


def carried_members(wheel: Path) -> tuple[str, ...]:
    """Paths of the statements in a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    return tuple(name for name in names if any(PurePosixPath(name).match(form) for form in CARRIED))


def _refuse_other_recipe(wheel: Path, recorded: Recorded, recipes: Recipes) -> None:
    """Before hours of compiling: whether the recipes here would make this wheel."""
    patchset, manifest = recipes.patchset(recorded.variant)
    pinned = [(patch.file, patch.sha256) for patch in patchset.patches]
    found = [(patch.file, patch.sha256) for patch in recorded.patches]
    problems = []
    if recorded.source.digest != patchset.source.digest:
        problems.append(
            f"source: the wheel's is {recorded.source.digest}, the recipe's "
            f"{patchset.source.digest}"
        )
    for name in sorted({name for name, _ in pinned} | {name for name, _ in found}):
        one, two = dict(found).get(name, "none"), dict(pinned).get(name, "none")
        if one != two:
            problems.append(f"patch {name}: the wheel's is {one}, the recipe's {two}")
    if recorded.sparkbuild != __version__:
        problems.append(f"sparkbuild: the wheel's is {recorded.sparkbuild}, this is {__version__}")
    if problems:
        raise PackageError(
            f"the recipes here do not make {wheel.name}",
            problems=problems,
            evidence=[wheel, manifest],
            next_step="use the sparkbuild and the recipes that it was made with (--recipes DIR)",
        )


def _refuse_other_inputs(wheel: Path, recorded: Recorded, remade: Remade) -> None:
    if remade.failure is not None:
        raise PackageError(
            f"{wheel.name} cannot be built again here: {remade.failure.message}",
            problems=remade.failure.problems,
            evidence=[Path(path) for path in remade.evidence],
            next_step=remade.failure.next_step,
            detail=remade.failure.detail,
        )
    problems = []
    if remade.toolkit != recorded.toolchain.identity:
        problems.append(
            f"toolkit and host compiler: the wheel's are {recorded.toolchain.identity}, "
            f"those here {remade.toolkit}"
        )
    if remade.tree != recorded.source.tree:
        problems.append(f"tree: the wheel's is {recorded.source.tree}, here {remade.tree}")
    if problems:
        raise PackageError(
            f"{wheel.name} was made with something else than is here",
            problems=problems,
            evidence=[wheel],
            next_step="use the same toolkit release and the same host compiler; `sparkbuild "
            "toolkit show` lists parts, build-info.json in the wheel has theirs",
        )


def _different(place: Path, order: Order) -> dict[str, str]:
    """An environment that differs from any likely one, and leads astray whatever believes it."""
    home, temporary = place / "home", place / "tmp"
    for folder in (home, temporary, Path(order.place)):
        folder.mkdir(parents=True)
    trap = str(place / "nowhere")
    return {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "USER": "rebuilder",
        "LOGNAME": "rebuilder",
        "HOSTNAME": "rebuild.invalid",
        "TZ": "Pacific/Chatham",
        "LANG": "tr_TR.UTF-8",
        "LC_ALL": "tr_TR.UTF-8",
        "PYTHONHASHSEED": "11434",
        "SOURCE_DATE_EPOCH": "2000000000",
        "CFLAGS": "-O0 -DREBUILT",
        "CXXFLAGS": "-O0 -DREBUILT",
        "CUDAFLAGS": "-O0 -DREBUILT",
        "LDFLAGS": f"-L{trap}",
        "CPATH": trap,
        "LIBRARY_PATH": trap,
    }


def _run(order: Order, place: Path, env: Mapping[str, str], observer: Observer) -> Remade:
    order_file, result_file = place / "order.json", place / "result.json"
    order_file.write_bytes(msgspec.json.encode(order))
    argv = [sys.executable, "-P", "-c", _START, f"{UMASK:o}", str(order_file), str(result_file)]
    done = process.run(
        argv,
        log=place / "rebuild.log",
        env=process.environment(network=True, extra=env),
        on_line=lambda line: _pass_on(line, observer),
    )
    try:
        return msgspec.json.decode(result_file.read_bytes(), type=Remade)
    except (OSError, msgspec.DecodeError) as error:
        raise InternalError(
            f"the second build ended with status {done.returncode} and no result: {error}",
            evidence=[place / "rebuild.log"],
            detail=done.tail,
        ) from error


_PROGRESS: Final = re.compile(rf"{PROGRESS} (\d+) (\d+) (.*)")


def _pass_on(line: str, observer: Observer) -> None:
    word, _, rest = line.partition(" ")
    if word == STARTED:
        observer.started(rest)
    elif word == NOTE:
        observer.note(rest)
    elif match := _PROGRESS.fullmatch(line):
        observer.progress(int(match[1]), int(match[2]), match[3])


def _empty(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)


def _tidy(place: Path) -> None:
    """What is of no more use where the same bytes came out: logs and the wheel stay."""
    for name in SCRATCH:
        shutil.rmtree(place / name, ignore_errors=True)
