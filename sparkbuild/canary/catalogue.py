"""What ships: canaries, their files with digests, and what their forms were when recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.canary.gguf.derive import FormRecord
from sparkbuild.canary.model import Backend, CacheType
from sparkbuild.errors import CanaryError
from sparkbuild.files import files_below, sha256_file
from sparkbuild.manifest import Name, RelativePath, Sha256, Table, load, unknown_name

DATA: Final = Path(__file__).parent / "data"
CATALOGUE: Final = "catalogue.toml"
MOST: Final = 64 * 1000 * 1000
"""Bytes of all that ships: the repository holds it for ever."""


class Shipped(Table, frozen=True, kw_only=True):
    """A file, relative to the catalogue."""

    file: RelativePath
    sha256: Sha256
    bytes: Annotated[int, msgspec.Meta(gt=0)]


class Audited(Table, frozen=True, kw_only=True):
    """An audit of the suite that ships: how much of what alters the model it notices."""

    backend: Backend
    cache: CacheType
    made: Annotated[int, msgspec.Meta(ge=1)]
    """Perturbations."""
    counted: Annotated[int, msgspec.Meta(ge=1)]
    """Those that alter what the model computes."""
    noticed: Annotated[int, msgspec.Meta(ge=0)]
    """Of these, by a check."""


class Compared(Table, frozen=True, kw_only=True):
    """Reference numbers against PyTorch: NMSE to what transformers' own classes compute.

    Both with the same weights, in float32 on a CPU.
    """

    compared: Annotated[int, msgspec.Meta(ge=1)]
    """References, of all the suites of the canary."""
    of: Annotated[int, msgspec.Meta(ge=1)]
    longest: Annotated[int, msgspec.Meta(ge=1)]
    """Tokens of the longest that was compared."""
    median: Annotated[float, msgspec.Meta(ge=0)]
    worst: Annotated[float, msgspec.Meta(ge=0)]
    """Of those without pictures."""
    worst_picture: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Of those with pictures, where the canary sees."""
    transformers: str
    torch: str


TEXT_BOUND: Final = 1e-8
"""NMSE that a reference may have to PyTorch's numbers. Rounding in float32 made 2e-12 in the median
and 2e-10 at most of the 78 that ship."""
PICTURE_BOUND: Final = 2e-6
"""The same of a reference with pictures. The tower is a file of float16, and with such weights
llama.cpp's CPU code rounds activations to float16 as well, which PyTorch does not: 4e-7 at most of
the 30 that ship. With a tower of float32 weights it was 1e-7, all of it from convolutions, whose
input ggml has in float16 always: where PyTorch rounded that too, 9e-11 was left."""


class Canary(Table, frozen=True, kw_only=True):
    """One model: its master (Q8_0), its vision tower, its suite's folder, its other files."""

    name: Name
    architecture: Annotated[str, msgspec.Meta(min_length=1)]
    summary: str
    model: RelativePath
    vision: RelativePath | None = None
    premade: RelativePath | None = None
    """Tensors of the form ``mix`` that take a quantiser long to make."""
    suite: RelativePath
    mix_suite: RelativePath | None = None
    """Of the form ``mix``, whose weights are others and whose numbers therefore are too."""
    drafts: bool = False
    """Whether it has a trained draft block."""
    files: Annotated[tuple[Shipped, ...], msgspec.Meta(min_length=1)]
    """All of them, those named above included."""
    audit: Audited | None = None
    """The last one of all perturbations that was kept."""
    pytorch: Compared | None = None
    """What the suites' numbers are to PyTorch's, when they were recorded."""
    forms: dict[str, FormRecord] = msgspec.field(default_factory=dict)

    def suite_of(self, form: str) -> str:
        """The folder of the suite that a form is asked."""
        return self.mix_suite if form == "mix" and self.mix_suite else self.suite


class Catalogue(Table, frozen=True, kw_only=True):
    """``catalogue.toml``."""

    schema: Literal[1]
    licence: Literal["MIT"]
    canaries: tuple[Canary, ...]

    def canary(self, name: str) -> Canary:
        """One canary. Raises UnknownNameError with the nearest names."""
        for entry in self.canaries:
            if entry.name == name:
                return entry
        raise unknown_name("canary", name, [entry.name for entry in self.canaries], DATA)


def load_catalogue(folder: Path = DATA) -> Catalogue:
    """The catalogue in a folder. Raises ManifestError."""
    return load(folder / CATALOGUE, Catalogue)


def verify(folder: Path = DATA, *, names: tuple[str, ...] = ()) -> Catalogue:
    """Check every file that ships (of some canaries) against the catalogue.

    Raises CanaryError with all that is missing, damaged, not listed, or too large together.
    """
    catalogue = load_catalogue(folder)
    chosen = [catalogue.canary(name) for name in names] or list(catalogue.canaries)
    problems = [problem for entry in chosen for problem in _problems(folder, entry)]
    if not names:
        problems += _strangers(folder, catalogue)
        total = sum(file.bytes for entry in catalogue.canaries for file in entry.files)
        if total > MOST:
            problems.append(f"{total} bytes together, expected at most {MOST}")
    if problems:
        raise CanaryError(
            "the canaries are not as their catalogue says",
            problems=problems,
            evidence=[folder / CATALOGUE],
            next_step="install sparkbuild again",
        )
    return catalogue


def shipped(folder: Path, root: Path) -> tuple[Shipped, ...]:
    """Entries for every file below ``folder``, relative to the catalogue's ``root``, by name."""
    return tuple(
        Shipped(
            file=file.relative_to(root).as_posix(),
            sha256=sha256_file(file),
            bytes=file.stat().st_size,
        )
        for file in sorted(files_below(folder))
    )


def _problems(folder: Path, entry: Canary) -> list[str]:
    problems = []
    listed = {file.file for file in entry.files}
    named = {entry.model, entry.vision, entry.premade} - {None}
    problems += [f"{entry.name}: {name} is not among its files" for name in named - listed]
    for file in entry.files:
        path = folder / file.file
        try:
            size, digest = path.stat().st_size, sha256_file(path)
        except OSError as error:
            problems.append(f"{file.file}: {error.strerror}")
            continue
        if (size, digest) != (file.bytes, file.sha256):
            problems.append(
                f"{file.file}: expected {file.bytes} bytes, sha256 {file.sha256}; "
                f"found {size}, {digest}"
            )
    return problems


def _strangers(folder: Path, catalogue: Catalogue) -> list[str]:
    listed = {file.file for entry in catalogue.canaries for file in entry.files} | {CATALOGUE}
    found = {file.relative_to(folder).as_posix() for file in files_below(folder)}
    return [f"{name}: not in the catalogue" for name in sorted(found - listed)]
