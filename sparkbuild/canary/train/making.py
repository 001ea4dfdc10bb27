"""From a trained folder to what ships: master, tower, suite, catalogue entry."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import tomli_w

from sparkbuild import process
from sparkbuild.canary.audit.summary import Summary
from sparkbuild.canary.catalogue import (
    CATALOGUE,
    Audited,
    Canary,
    Catalogue,
    load_catalogue,
    shipped,
)
from sparkbuild.canary.gguf.convert import convert
from sparkbuild.canary.gguf.derive import Derived, FormRecord, derive
from sparkbuild.canary.gguf.layout import layout
from sparkbuild.canary.model import Backend, CacheType
from sparkbuild.canary.suite import LIMITS
from sparkbuild.canary.train.card import CARD, with_audit
from sparkbuild.canary.train.mixing import PREMADE
from sparkbuild.errors import CanaryError
from sparkbuild.files import write_atomic

VISION: Final = "mmproj-f16.gguf"
SUITE: Final = "suite"
MIX_SUITE: Final = "suite-mix"
_HEAD: Final = """# What ships: the canaries' files with their digests, and what a build's own
# llama-quantize made of them when they were recorded. Written by `sparkbuild canary record`.
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """The files of a canary in its folder."""

    model: Path
    vision: Path | None


def make(
    name: str,
    trained: Path,
    *,
    source: Path,
    quantiser: Path,
    folder: Path,
    workdir: Path,
    tell: Callable[[str], None],
) -> Made:
    """Convert ``trained/text`` and ``trained/vision`` into ``folder``: a Q8_0 master and a tower.

    ``source`` is the pinned llama.cpp tree. Raises CanaryError.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    tell("conversion")
    half = convert(
        trained / "text",
        source,
        workdir / f"{name}-f16.gguf",
        kind="text",
        outtype="f16",
        log=workdir / "convert-text.log",
    )
    model = folder / f"{name}-q8_0.gguf"
    _quantise(quantiser, half, model, log=workdir / "quantise.log")
    vision = None
    if (trained / "vision").is_dir():
        vision = convert(
            trained / "vision",
            source,
            folder / VISION,
            kind="mmproj",
            outtype="f16",
            log=workdir / "convert-vision.log",
        )
    for card in trained.glob("card.*"):
        shutil.copyfile(card, folder / card.name)
    return Made(model=model, vision=vision)


def _quantise(quantiser: Path, source: Path, out: Path, *, log: Path) -> None:
    part = out.with_suffix(".part")
    done = process.run(
        [str(quantiser), str(source), str(part), "Q8_0"],
        log=log,
        env=process.environment(),
        cwd=out.parent,
    )
    if done.returncode or not part.is_file():
        raise CanaryError(
            f"llama-quantize did not make {out.name}",
            problems=[f"exit status {done.returncode}"],
            evidence=[log],
            next_step=f"read {log}",
            detail=done.tail,
        )
    part.replace(out)


def forms_of(
    master: Path,
    forms: tuple[str, ...],
    *,
    quantiser: Path,
    folder: Path,
    premade: Path | None = None,
) -> dict[str, Derived]:
    """Forms as this build makes them, compared with nothing."""
    return {
        form: derive(
            master,
            form,  # type: ignore[arg-type]
            quantiser=quantiser,
            folder=folder,
            record=None,
            log=folder / f"{form}.log",
            premade=premade,
        )
        for form in forms
    }


def enter(data: Path, entry: Canary) -> Catalogue:
    """Put a canary into the catalogue in ``data``, in place of an earlier one of its name.

    Digests of forms that were known for the very same master stay known.
    """
    others: tuple[Canary, ...] = ()
    if (data / CATALOGUE).is_file():
        known = load_catalogue(data).canaries
        others = tuple(canary for canary in known if canary.name != entry.name)
    found = Catalogue(schema=1, licence="MIT", canaries=tuple(sorted((*others, entry), key=_name)))
    text = _HEAD + tomli_w.dumps(_plain(msgspec.to_builtins(found)))
    write_atomic(data / CATALOGUE, text.encode())
    return found


def keep_audit(
    data: Path, entry: Canary, summary: Summary, *, backend: Backend, cache: CacheType
) -> Catalogue:
    """Put what a whole audit found into the catalogue in ``data``, and into the model card.

    ``entry`` is what was audited; what else of it was written meanwhile stays.
    """
    entry = load_catalogue(data).canary(entry.name)
    folder = (data / entry.model).parent
    if (folder / CARD).is_file():
        with_audit(folder, summary)
    total = summary.total
    audited = Audited(
        backend=backend, cache=cache, made=total.made, counted=total.counted, noticed=total.noticed
    )
    changes = {"audit": audited, "files": shipped(folder, data)}
    return enter(data, msgspec.structs.replace(entry, **changes))


def entry_of(
    name: str, summary: str, data: Path, *, drafts: bool, forms: Mapping[str, Derived]
) -> Canary:
    """A catalogue entry from what lies in ``data/name``. Raises CanaryError without limits."""
    folder = data / name
    suites = [folder / SUITE, *(place for place in [folder / MIX_SUITE] if place.is_dir())]
    unlimited = [place / LIMITS for place in suites if not (place / LIMITS).is_file()]
    if unlimited:
        raise CanaryError(
            f"{name} has no limits yet",
            evidence=unlimited,
            next_step="measure healthy builds and write the bounds, then record again",
        )
    model = folder / f"{name}-q8_0.gguf"
    vision, premade = folder / VISION, folder / PREMADE
    return Canary(
        name=name,
        architecture=layout(model).architecture,
        summary=summary,
        model=model.relative_to(data).as_posix(),
        vision=vision.relative_to(data).as_posix() if vision.is_file() else None,
        premade=premade.relative_to(data).as_posix() if premade.is_file() else None,
        suite=(folder / SUITE).relative_to(data).as_posix(),
        mix_suite=(folder / MIX_SUITE).relative_to(data).as_posix()
        if (folder / MIX_SUITE).is_dir()
        else None,
        drafts=drafts,
        files=shipped(folder, data),
        forms={
            form: FormRecord(digests=(made.sha256,), errors=made.content.errors)
            for form, made in forms.items()
            if form not in {"f32", "q8_0"}
        },
    )


def _name(entry: Canary) -> str:
    return entry.name


def _plain(value: Any) -> Any:
    """Without what TOML has no word for."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
