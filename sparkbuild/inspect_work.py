"""``sparkbuild inspect``: each file by its kind, all of them in one answer."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkbuild.errors import HostError, SparkbuildError, UsageError
from sparkbuild.inspect_seen import Seen
from sparkbuild.model.asked import Asked, Machine
from sparkbuild.model.build import Build, read_build
from sparkbuild.model.inspection import document, inspect
from sparkbuild.model.kind import kind_of
from sparkbuild.model.miscompiled import Compiler, miscompiled
from sparkbuild.model.opening import IrregularError, opened
from sparkbuild.model.read import Model, read_model
from sparkbuild.model.rendered import rendered
from sparkbuild.model.serve import choose, line
from sparkbuild.model.tower import document as tower_document
from sparkbuild.model.tower import inspect_tower, is_tower
from sparkbuild.report.models import inspection_view
from sparkbuild.report.towers import tower_view

if TYPE_CHECKING:
    from sparkbuild.manifest import Recipes

Progress = Callable[[int, int, str], None]
_CHUNK: Final = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked of every file that is named."""

    asked: Asked
    machine: Machine
    mmproj: Path | None = None
    build: Path | None = None
    """A folder, or a wheel."""
    toolkit: str | None = None
    variant: str | None = None
    architectures: tuple[str, ...] = ()
    serve: bool = False
    given: frozenset[str] = frozenset()
    """Fields of ``asked`` that stood on the command line."""
    recipes: Path | None = None
    work: Path | None = None

    @cached_property
    def book(self) -> Recipes:
        """The recipes. Raises UnknownNameError where there are none."""
        from sparkbuild.manifest import find_recipes  # noqa: PLC0415 - models need none of it

        return find_recipes(self.recipes)

    @property
    def known(self) -> Build | None:
        """The build, read once. Raises UsageError, BinaryError, PackageError."""
        return self._built[0]

    @cached_property
    def compiler(self) -> Compiler | None:
        """What the GPU code is compiled with: as asked, or as the build says."""
        if self.toolkit is None:
            return self._built[1]
        from sparkbuild.inspect_toolkit import asked_compiler  # noqa: PLC0415 - models need none
        from sparkbuild.workspace import Workspace  # noqa: PLC0415

        return asked_compiler(
            self.toolkit,
            self.variant,
            self.architectures,
            recipes=self.book,
            workspace=Workspace(self.work),
        )

    @cached_property
    def _built(self) -> tuple[Build | None, Compiler | None]:
        """The build and its compiler, out of a folder or of a wheel."""
        if self.build is None:
            return None, None
        from sparkbuild import inspect_toolkit as told  # noqa: PLC0415 - models need none of it

        if kind_of(self.build) != "zip":
            known = read_build(self.build)
            return known, told.build_compiler(self.build, self.book, self.variant)
        from sparkbuild.package.look import look  # noqa: PLC0415 - for a wheel only
        from sparkbuild.package.unpack import unpacked  # noqa: PLC0415

        made, name = look(self.build).made, self.build.name
        with (
            tempfile.TemporaryDirectory(prefix="sparkbuild-inspect-") as folder,
            unpacked(self.build, Path(folder)) as place,
        ):
            # The program is gone with the folder: there is none to be started from here.
            known = replace(read_build(place), folder=self.build, server=None)
            if made is not None:
                return known, told.wheel_compiler(made, name, self.book)
            return known, told.build_compiler(place, self.book, self.variant)


def see(path: Path, wanted: Wanted) -> Seen:
    """Look at one file; its bytes tell its kind. Raises what tells why it cannot be looked at."""
    kind = kind_of(path)
    if kind in {"elf", "zip"}:
        from sparkbuild.inspect_binary import see_binary, see_wheel  # noqa: PLC0415

        return (see_binary if kind == "elf" else see_wheel)(path, wanted.book)
    model = read_model(path)
    return _see_tower(model, wanted) if is_tower(model) else _see_model(model, wanted)


def see_all(paths: Sequence[Path], wanted: Wanted) -> Iterator[Seen]:
    """Look at several; one that cannot be looked at does not keep the others from it."""
    for path in paths:
        try:
            yield see(path, wanted)
        except UsageError:
            raise
        except SparkbuildError as error:
            yield _refused(path, error)


def together(seen: Sequence[Seen]) -> dict[str, Any]:
    """One JSON document of several files; the exit code is the first one's that is not 0."""
    code = exit_code(seen)
    return {
        "result": "failed" if code else "passed",
        "exit_code": code,
        "files": [one.document for one in seen],
    }


def exit_code(seen: Sequence[Seen]) -> int:
    """The first that is not 0."""
    return next((one.exit_code for one in seen if one.exit_code), 0)


def digests(files: Sequence[str], progress: Progress) -> dict[str, str]:
    """SHA-256 of each file, ``progress`` told of every 8 MB: 108 GB take minutes.

    Raises HostError where a file that was there is gone, or its disk cannot be read.
    """
    done, found = 0, {}
    try:
        total = sum(Path(name).stat().st_size for name in files)
        for name in files:
            state = hashlib.sha256()
            with opened(Path(name)) as (handle, _):
                while data := os.read(handle, _CHUNK):
                    state.update(data)
                    done += len(data)
                    progress(done, total, name)
            found[name] = state.hexdigest()
    except (OSError, IrregularError) as error:
        raise HostError(
            "a file cannot be read to its end",
            problems=[str(error)],
            evidence=[Path(name) for name in files],
            next_step="run the command again; if it stays so, look at the disk: dmesg",
        ) from error
    return found


def _see_model(model: Model, wanted: Wanted) -> Seen:
    vision = read_model(wanted.mmproj) if wanted.mmproj else None
    known, asked, served = wanted.known, wanted.asked, None
    if wanted.serve:
        here = replace(asked, machine=wanted.machine)
        asked, left_out = choose(model, vision, known, here, wanted.given)
        served = line(model, vision, known, asked, left_out)
    found = inspect(model, vision, known, asked, wanted.machine)
    more = (rendered(model), miscompiled(model, vision, wanted.compiler))
    found = replace(found, findings=(*found.findings, *more), served=served)
    towers = found.facts.vision.files if found.facts.vision else ()
    return Seen(
        document={"kind": "model", **document(found)},
        view=inspection_view(found),
        exit_code=found.exit_code,
        files=tuple(file.path for file in (*found.facts.files, *towers)),
    )


def _see_tower(model: Model, wanted: Wanted) -> Seen:
    found = inspect_tower(model, wanted.known)
    compiler = miscompiled(model, None, wanted.compiler)
    found = replace(found, findings=(*found.findings, compiler))
    return Seen(
        document={"kind": "mmproj", **tower_document(found)},
        view=tower_view(found),
        exit_code=found.exit_code,
        files=tuple(file.path for file in found.files),
    )


def _refused(path: Path, error: SparkbuildError) -> Seen:
    from msgspec import to_builtins  # noqa: PLC0415 - for a refusal only

    from sparkbuild.report.terminal import refusal  # noqa: PLC0415
    from sparkbuild.stages import failure_of  # noqa: PLC0415

    return Seen(
        document={
            "kind": "refused",
            "result": "failed",
            "exit_code": error.exit_code,
            "path": str(path),
            "failure": to_builtins(failure_of(error)),
        },
        view=refusal(error),
        exit_code=error.exit_code,
        files=(),
    )
