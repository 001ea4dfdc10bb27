"""One canary in one form, ready for a build's server: its files, and where all of it is kept."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.canary.catalogue import Canary
from sparkbuild.canary.gguf.derive import FORMS, Derived, Form, derive
from sparkbuild.canary.model import Backend
from sparkbuild.errors import HostError, UsageError
from sparkbuild.files import exclusive

_SERVER: Final = "llama-server"
_QUANTISER: Final = "llama-quantize"
_SCRATCH: Final = "server-"
_WAIT: Final = 600.0
"""Seconds for another process of the same run to make a form."""
_DEVICE: Final = "CUDA0:"
"""How ``llama-server --list-devices`` begins the line of the first GPU."""
_ON: Final[dict[Backend, tuple[str, ...]]] = {
    # A CUDA build computes long batches and pictures on the GPU even with no layer there.
    "cpu": ("--device", "none", "--no-mmproj-offload"),
    "cuda": (),
}


@dataclass(frozen=True, kw_only=True)
class Programs:
    """What of a build canaries need."""

    server: Path
    quantiser: Path


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where things of one canary lie below the work folder."""

    root: Path

    @property
    def forms(self) -> Path:
        """Derived files, by what they were made of."""
        return self.root / "forms"

    @property
    def audit(self) -> Path:
        """An audit's journal and its workers' copies."""
        return self.root / "audit"

    @property
    def scratch(self) -> Path:
        """The home folder of this process's server while it runs."""
        return self.root / f"{_SCRATCH}{os.getpid()}"

    def clear(self) -> None:
        """Remove what processes that were killed have left; for who holds the lock."""
        for folder in self.root.glob(f"{_SCRATCH}*"):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def lock(self) -> Path:
        """Held by the one sparkbuild that writes here."""
        return self.root.with_name(f"{self.root.name}.lock")

    def form_lock(self, form: str) -> Path:
        """Held by the process that makes a form."""
        return self.forms / f"{form}.lock"

    def log(self, *names: str) -> Path:
        """A log."""
        return self.root / "logs" / f"{'-'.join(names)}.log"


@dataclass(frozen=True, kw_only=True)
class Files:
    """What a server loads: a model in a form, and the vision tower that goes with it."""

    model: Derived
    vision: Path | None


def programs(build: Path) -> Programs:
    """The programs in a folder, or in its ``bin``. Raises UsageError where they are in neither."""
    for folder in (build, build / "bin"):
        found = Programs(server=folder / _SERVER, quantiser=folder / _QUANTISER)
        if found.server.is_file() and found.quantiser.is_file():
            return Programs(server=found.server.absolute(), quantiser=found.quantiser.absolute())
    raise UsageError(
        f"{build} holds no build of llama.cpp",
        problems=[
            f"{folder / name} is missing"
            for folder in (build, build / "bin")
            for name in (_SERVER, _QUANTISER)
            if not (folder / name).is_file()
        ],
        next_step="--build DIR: a folder with llama-server and llama-quantize, or with bin/",
    )


def backend_flags(server: Path, backend: Backend) -> tuple[str, ...]:
    """llama-server's arguments that keep everything on a back end.

    Raises HostError where ``cuda`` is asked for and the server sees no CUDA device: it would
    compute on the CPU without a word.
    """
    if backend == "cuda":
        argv = [str(server), "--list-devices"]
        done = process.capture(argv, env=process.environment(), cwd=Path("/"))
        if done.returncode or _DEVICE not in done.stdout:
            raise HostError(
                f"{server} sees no CUDA device",
                problems=[f"{server} --list-devices: expected a line with {_DEVICE}, found none"],
                next_step="run on a machine with a GPU and with a CUDA build, or --backend cpu",
                detail=done.stdout + done.stderr,
            )
    return _ON[backend]


def possible(entry: Canary) -> tuple[Form, ...]:
    """The forms that a canary has: of ``mix`` only some canaries have a map of types."""
    mixed = "mix" in entry.forms or entry.premade is not None
    return tuple(form for form in FORMS if form != "mix" or mixed)


EXACT: Final[Form] = "f32"
"""The form whose numbers are the recorded ones but for the order of sums, on a CPU with a cache of
that type. Nobody serves it: it is there because nothing is lost in its noise."""


def usual(entry: Canary, *, exact: bool = False) -> tuple[Form, ...]:
    """The forms that are taken where none is named: the one that ships, and those recorded.

    ``exact`` adds the one in float32.
    """
    return tuple(
        form for form in FORMS if form == "q8_0" or form in entry.forms or (exact and form == EXACT)
    )


def files(
    data: Path, entry: Canary, form: Form, *, programs: Programs, place: Place, log: Path
) -> Files:
    """A canary's files in a form, made where the place does not have them yet.

    The tower stays as it ships but for ``f32``, in which nothing may be rounded. Raises CanaryError
    as ``derive`` does.
    """
    model = derived(data, entry, form, programs=programs, place=place, log=log)
    vision = data / entry.vision if entry.vision else None
    if vision and form == "f32":
        with exclusive(place.form_lock(f"{form}-vision"), what=f"{vision.name} {form}", wait=_WAIT):
            wide = derive(
                vision, form, quantiser=programs.quantiser, folder=place.forms, record=None, log=log
            )
        vision = wide.path
    return Files(model=model, vision=vision)


def derived(
    data: Path, entry: Canary, form: Form, *, programs: Programs, place: Place, log: Path
) -> Derived:
    """A canary's model in a form, judged by what the catalogue has recorded of it."""
    with exclusive(place.form_lock(form), what=f"{entry.name} {form}", wait=_WAIT):
        return derive(
            data / entry.model,
            form,
            quantiser=programs.quantiser,
            folder=place.forms,
            record=entry.forms.get(form),
            log=log,
            premade=data / entry.premade if entry.premade else None,
        )
