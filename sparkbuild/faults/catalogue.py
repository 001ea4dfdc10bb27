"""The faults as data: ``tests/faults/*.toml``, one file for each kind, and patches beside them.

Faults in CUDA code have a file of their own, ``cuda.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

import sparkbuild
from sparkbuild.errors import ManifestError, UnknownNameError
from sparkbuild.faults.model import Fault, Kind, SourceSeed
from sparkbuild.files import digest_of, files_below, sha256_file
from sparkbuild.manifest import Table, load, unknown_name

PATCHES: Final = "patches"
"""The folder of the patches, beside the files of the kinds."""
_PLACE: Final = Path("tests") / "faults"
_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_KINDS: Final[tuple[Kind, ...]] = Kind.__args__  # type: ignore[attr-defined]
_CUDA: Final = "cuda"
"""The file of the faults in CUDA code, of whatever kind: they need a GPU and a build for it."""
_CUDA_KINDS: Final[tuple[Kind, ...]] = ("source", "speculation", "vision")


class _File(Table, frozen=True, kw_only=True):
    """``<kind>.toml``, or ``cuda.toml``."""

    schema: Literal[1]
    fault: Annotated[tuple[Fault, ...], msgspec.Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Faults:
    """All faults of a folder, kind by kind."""

    folder: Path
    every: tuple[Fault, ...]

    @property
    def digest(self) -> str:
        """Of the data and of the patches that it names."""
        return digest_of({fault.id: described(self.folder, fault) for fault in self.every})

    def chosen(
        self, *, only: Sequence[str] = (), kinds: Sequence[str] = (), fast: bool = False
    ) -> tuple[Fault, ...]:
        """Those that are asked for, in order. Raises UnknownNameError for an id that is none."""
        known = [fault.id for fault in self.every]
        for name in only:
            if name not in known:
                raise unknown_name("fault", name, known, self.folder)
        return tuple(
            fault
            for fault in self.every
            if (not only or fault.id in only)
            and (not kinds or fault.kind in kinds)
            and (fault.fast or not fast)
        )


def on_gpu(fault: Fault) -> bool:
    """Whether a fault lies in code that a GPU runs: it is compiled beside a CUDA build."""
    return isinstance(fault.seed, SourceSeed) and fault.seed.backend == "cuda"


def described(folder: Path, fault: Fault) -> dict[str, object]:
    """A fault's data, and digests of all that planting reads."""
    return {"fault": msgspec.to_builtins(fault), **planted_from(folder, fault)}


def planted_from(folder: Path, fault: Fault) -> dict[str, object]:
    """A fault's seed with digests of the bytes that planting reads: not what is expected of it.

    Of other seeds than patches any file beside the data may be one.
    """
    if isinstance(fault.seed, SourceSeed):
        read = [folder / PATCHES / fault.seed.patch]
    else:
        read = sorted(file for file in files_below(folder) if file.is_file())
        read = [file for file in read if file.suffix not in {".patch", ".pyc"}]
        read = [file for file in read if file.parent != folder]  # not the data of other faults
    digests = {str(file.relative_to(folder)): sha256_file(file) for file in read}
    return {"seed": msgspec.to_builtins(fault.seed), "files": digests}


def find_catalogue(folder: Path | None) -> Path:
    """``folder``, or ``tests/faults`` of the checkout that sparkbuild or the user is in.

    Raises UnknownNameError where there is none: an installed sparkbuild does not bring it along.
    """
    starts = [Path(sparkbuild.__file__).parent.parent, Path.cwd(), *Path.cwd().parents]
    for place in [folder] if folder else [start / _PLACE for start in starts]:
        if any(place.glob("*.toml")):
            return place.absolute()
    raise UnknownNameError(
        f"no catalogue of faults in {folder}" if folder else "no catalogue of faults is here",
        problems=[f"expected files such as source.toml, with [[fault]] tables, in {_PLACE}"],
        next_step="name the folder tests/faults of a checkout of sparkbuild: --catalogue DIR",
    )


def load_faults(folder: Path) -> Faults:
    """Every fault of the folder. Raises ManifestError naming all that is wrong in a file."""
    every: list[Fault] = []
    for file in sorted(folder.glob("*.toml"), key=_order):
        found = load(file, _File).fault
        problems = list(_problems(file, found, {fault.id for fault in every}))
        if problems:
            raise ManifestError(
                f"{file}: {problems[0]}",
                problems=problems[1:],
                evidence=[file],
                next_step=f"correct {file}",
            )
        every += found
    return Faults(folder=folder, every=tuple(every))


def _order(file: Path) -> tuple[int, str]:
    return _KINDS.index(file.stem) if file.stem in _KINDS else len(_KINDS), file.name


def _allowed(stem: str) -> tuple[Kind, ...]:
    """The kinds that a file of this name may hold."""
    if stem == _CUDA:
        return _CUDA_KINDS
    return tuple(kind for kind in _KINDS if kind == stem)


def _problems(file: Path, faults: Sequence[Fault], before: set[str]) -> Iterator[str]:
    """What the types do not say: ids, words, files that are named."""
    seen = set(before)
    kinds = _allowed(file.stem)
    if not kinds:
        yield f"{file.stem!r} is no kind: expected one of {', '.join((*_KINDS, _CUDA))}"
    for fault in faults:
        if not _ID.fullmatch(fault.id):
            yield f"{fault.id!r} is no id: expected lower-case words joined by -"
        if fault.id in seen:
            yield f"two faults are named {fault.id!r}"
        seen.add(fault.id)
        if fault.kind not in kinds:
            yield f"{fault.id}: its kind is {fault.kind!r}, its place says {file.stem!r}"
        if on_gpu(fault) != (file.stem == _CUDA) or (on_gpu(fault) and "gpu" not in fault.needs):
            yield f"{fault.id}: {_CUDA}.toml is for faults in CUDA code alone, which need a gpu"
        if not fault.says or not all(word.strip() for word in fault.says):
            yield f"{fault.id}: `says` has to hold the words that a refusal must have"
        for key in ("summary", "imitates"):
            if not getattr(fault, key).strip():
                yield f"{fault.id}: `{key}` is empty"
        if isinstance(fault.seed, SourceSeed):
            yield from _patch_problems(file.parent, fault.id, fault.seed.patch)


def _patch_problems(folder: Path, name: str, patch: str) -> Iterator[str]:
    if Path(patch).name != patch or not patch.endswith(".patch"):
        yield f"{name}: {patch!r} is no file's name, expected NAME.patch"
    elif not (folder / PATCHES / patch).is_file():
        yield f"{name}: there is no {PATCHES}/{patch}"
