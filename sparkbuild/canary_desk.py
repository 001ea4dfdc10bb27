"""What all work on canaries has in hand, and the ways that it starts a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparkbuild.canary import forms
from sparkbuild.canary.catalogue import Canary
from sparkbuild.canary.forms import Files, Place, Programs
from sparkbuild.canary.gguf.derive import Form
from sparkbuild.canary.model import Backend, CacheType
from sparkbuild.canary.run import SLOTS, Setup
from sparkbuild.files import disk_full_refused, exclusive
from sparkbuild.manifest import Ability
from sparkbuild.stages import Observer

SERVED: Final[CacheType] = "f16"
"""llama-server's own type of cache; drafts are asked with it, whatever the form is."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What all work on canaries has in hand."""

    data: Path
    programs: Programs
    root: Path
    """Below it one folder for each canary."""
    live: Observer
    backend: Backend = "cpu"
    cache: CacheType | None = None
    """For every form; by default each has its own."""
    threads: int = 1
    flags: tuple[str, ...] = ()
    """Of llama-server's, in every start, after all others."""
    environment: Mapping[str, str] = field(default_factory=dict)
    slots: int = SLOTS
    abilities: frozenset[Ability] = frozenset()
    """What the build promises to do that its base cannot."""
    label: str = ""
    """What is said of all that is done, beside the canary and the form."""
    first: bool = False
    """Whether the first thing that is wrong ends the work on a canary."""
    held: bool = False
    """Whether the right to write is held already, by who started this process or this work."""

    def named(self, entry: Canary, what: str) -> str:
        """A piece of work, for a person."""
        return ", ".join(filter(None, (f"{entry.name} {what}", self.label)))

    @property
    def exact(self) -> bool:
        """Whether the form in float32 gives what was recorded here, but for the order of sums."""
        return self.backend == "cpu" and self.cache_of(forms.EXACT) == "f32" and not self.flags

    def cache_of(self, form: Form) -> CacheType:
        """The cache's type for a form: of float32 weights float32, of others what is served."""
        return self.cache or ("f32" if form == forms.EXACT else SERVED)

    def place(self, entry: Canary) -> Place:
        """Where a canary's things lie."""
        return Place(root=self.root / entry.name)

    @contextmanager
    def holding(self, entry: Canary) -> Iterator[Place]:
        """The only right to write there. Raises BusyError, DiskFullError."""
        place = self.place(entry)
        with disk_full_refused(self.root):
            place.root.mkdir(parents=True, exist_ok=True)
            if self.held:
                yield place
                return
            with exclusive(place.lock, what=f"the canary {entry.name}"):
                place.clear()
                yield place


def files_of(desk: Desk, entry: Canary, form: Form, place: Place) -> Files:
    """A canary's files in a form, made where they are not there."""
    log = place.log("form", form)
    return forms.files(desk.data, entry, form, programs=desk.programs, place=place, log=log)


def setup_of(
    desk: Desk,
    place: Place,
    files: Files,
    form: Form,
    flags: tuple[str, ...],
    log: Path,
    *,
    cache: CacheType,
    model: Path | None = None,
) -> Setup:
    """One start of llama-server; ``model`` where it is not the form's own file."""
    return Setup(
        executable=desk.programs.server,
        model=model or files.model.path,
        vision=files.vision,
        form=form,
        backend=desk.backend,
        cache=cache,
        scratch=place.scratch,
        log=log,
        flags=(*flags, *desk.flags),
        environment=desk.environment,
        threads=desk.threads,
        slots=desk.slots,
    )
