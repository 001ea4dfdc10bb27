"""Forms of a master file, made by a build's own llama-quantize and checked against numpy."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild import process
from sparkbuild.canary.gguf.content import Content, check, measure
from sparkbuild.canary.gguf.flatmatrix import write_flat
from sparkbuild.canary.gguf.layout import layout
from sparkbuild.canary.gguf.rewrite import graft, widen
from sparkbuild.canary.gguf.typemap import MIX, NEEDS_IMATRIX, TypeMap, load_map, map_digest
from sparkbuild.errors import CanaryError
from sparkbuild.files import digest_of, fingerprint, sha256_file, write_atomic
from sparkbuild.manifest import Sha256, Table

Form = Literal["f32", "f16", "bf16", "q8_0", "mix"]
FORMS: Final[tuple[Form, ...]] = ("f32", "f16", "bf16", "q8_0", "mix")
How = Literal["shipped", "widened", "same bytes", "same within rounding", "not recorded"]

_IMATRIX: Final = "flat.imatrix.gguf"
"""Relative, because the quantiser writes the name into the file."""
_TYPES: Final = "types.txt"
_MASTER: Final = "master.gguf"
_COMPLAINTS: Final = ("falling back", "not divisible", "must use F16", "required fallback")
"""What llama-quantize prints when it silently gives a tensor another type than asked for."""


class FormRecord(Table, frozen=True):
    """What a derived form was when it was recorded.

    ``digests`` are of files that quantisers are known to make of the master; ``errors`` is the
    greatest NMSE of a tensor of each type against the master.
    """

    digests: tuple[Sha256, ...] = ()
    errors: dict[str, Annotated[float, msgspec.Meta(ge=0)]] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A form: its file, how it stands to its record, what it holds."""

    form: Form
    path: Path
    sha256: str
    how: How
    content: Content


class _Kept(msgspec.Struct, frozen=True):
    """What the cache remembers beside a file."""

    sha256: str
    content: Content


def derive(
    master: Path,
    form: Form,
    *,
    quantiser: Path,
    folder: Path,
    record: FormRecord | None,
    log: Path,
    types: Path = MIX,
    premade: Path | None = None,
) -> Derived:
    """The form of a Q8_0 master, made where ``folder`` does not have it yet.

    ``quantiser`` is the build's llama-quantize; ``types`` the map for the form ``mix``, of which
    ``premade`` holds tensors that the quantiser then need not make: before its first IQ1 or IQ2
    block it makes tables, a minute on a free core and more than all else together. Without
    ``record`` nothing is compared and the answer is ``not recorded``. Raises CanaryError where the
    quantiser fails, gives a tensor another type than asked for, or its file is neither one of
    those recorded nor as close to the master as they are.
    """
    if form == "q8_0":
        content = Content(types={}, errors={})
        return Derived(
            form=form, path=master, sha256=sha256_file(master), how="shipped", content=content
        )
    job = _Job(master, form, quantiser, types, premade if form == "mix" else None, log)
    place = folder / job.key() / f"{master.stem}-{form}.gguf"
    kept = _known(place) or _make(job, place)
    how = _judged(place, form, kept, record, log)
    return Derived(form=form, path=place, sha256=kept.sha256, how=how, content=kept.content)


@dataclass(frozen=True)
class _Job:
    """Everything that a derived file depends on."""

    master: Path
    form: Form
    quantiser: Path
    types: Path
    premade: Path | None
    log: Path

    def key(self) -> str:
        """Of all that decides about the bytes; libraries by their file times."""
        mix = self.form == "mix"
        parts = {
            "master": sha256_file(self.master),
            "form": self.form,
            "types": map_digest(self.types) if mix else "",
            "premade": sha256_file(self.premade) if self.premade else "",
            "quantiser": "" if self.form == "f32" else fingerprint(_program(self.quantiser)),
        }
        return digest_of(parts)[:16]


def _program(quantiser: Path) -> list[Path]:
    """The program and the libraries that a build puts beside it or into ``../lib``."""
    folders = {quantiser.resolve().parent, quantiser.resolve().parent.parent / "lib"}
    return [quantiser, *(file for folder in folders for file in folder.glob("lib*.so*"))]


def _known(place: Path) -> _Kept | None:
    try:
        kept = msgspec.json.decode(place.with_suffix(".json").read_bytes(), type=_Kept)
        return kept if sha256_file(place) == kept.sha256 else None
    except (OSError, msgspec.DecodeError):
        return None


def _make(job: _Job, place: Path) -> _Kept:
    place.parent.mkdir(parents=True, exist_ok=True)
    types = load_map(job.types) if job.form == "mix" else None
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".making-") as name:
        part = Path(name) / place.name
        if types is not None:
            _quantise_mix(job, part, types)
        elif job.form == "f32":
            widen(job.master, part)
        else:
            _quantise(job, part, job.form, ())
        content = measure(job.master, part, form=job.form, wanted=types)
        kept = _Kept(sha256=sha256_file(part), content=content)
        part.replace(place)
    write_atomic(place.with_suffix(".json"), msgspec.json.encode(kept))
    return kept


def _quantise_mix(job: _Job, part: Path, types: TypeMap) -> None:
    found = layout(job.master)
    unknown = sorted(set(types.tensors) - set(found.tensors))
    if found.architecture != types.architecture or unknown:
        raise CanaryError(
            f"the map of types is for another model than {job.master.name}",
            problems=[
                f"architecture: expected {types.architecture}, found {found.architecture}",
                *(f"the model has no tensor {name}" for name in unknown),
            ],
            evidence=[job.master],
            next_step="correct the map, or use it with the model that it was made for",
        )
    given = set(layout(job.premade).tensors) if job.premade else set()
    made = {name: kind for name, kind in types.tensors.items() if name not in given}
    lines = [f"^{_escaped(name)}$={kind}\n" for name, kind in made.items()]
    (part.parent / _TYPES).write_text("".join(lines), encoding="utf-8")
    flags = ["--tensor-type-file", _TYPES]
    weighed = [found.tensors[name] for name, kind in made.items() if kind in NEEDS_IMATRIX]
    if weighed:  # an empty one is refused
        write_flat(part.parent / _IMATRIX, weighed)
        flags += ["--imatrix", _IMATRIX]
    _quantise(job, part, types.default, flags)
    if job.premade:
        graft(part, job.premade, part)


def _quantise(job: _Job, part: Path, kind: str, flags: Sequence[str]) -> None:
    # A copy beside the result: every name on the command line is then relative.
    shutil.copyfile(job.master, part.parent / _MASTER)
    argv = [str(job.quantiser), "--allow-requantize", *flags, _MASTER, part.name, kind.upper()]
    told: list[str] = []

    def listen(line: str) -> None:
        if any(complaint in line for complaint in _COMPLAINTS):
            told.append(line)

    env = process.environment()
    done = process.run(argv, log=job.log, env=env, cwd=part.parent, on_line=listen)
    if done.returncode or told or not part.is_file():
        raise CanaryError(
            f"llama-quantize did not make {part.name} as asked",
            problems=told or [f"exit status {done.returncode}, expected {part.name}"],
            evidence=[job.log],
            next_step=f"read {job.log}",
            detail=done.tail,
        )


def _escaped(name: str) -> str:
    """A tensor's name as a regular expression of C++."""
    return name.replace(".", r"\.")


def _judged(place: Path, form: Form, kept: _Kept, record: FormRecord | None, log: Path) -> How:
    if form == "f32":
        return "widened"
    if record is None:
        return "not recorded"
    if kept.sha256 in record.digests:
        return "same bytes"
    problems = check(kept.content, record.errors)
    if problems:
        raise CanaryError(
            f"llama-quantize made a wrong {place.name}",
            problems=[
                f"sha256: expected one of {list(record.digests)}, found {kept.sha256}",
                *problems,
            ],
            evidence=[place, log],
            next_step="do not use this build's llama-quantize",
        )
    return "same within rounding"
