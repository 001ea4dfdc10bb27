"""A model file that is not what it should be, as if it were a user's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sparkbuild
from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.model import ModelSeed
from sparkbuild.faults.seeds.changes import filled
from sparkbuild.faults.seeds.ground import own_work, programs_of, words

CANARIES: Final = Path(sparkbuild.__file__).parent / "canary" / "data"
"""Where the shipped models are; they are read as any user's file would be."""
SUITES: Final = "suites"


@contextmanager
def plant_model(seed: ModelSeed, place: Place) -> Iterator[Planted]:
    """A changed copy of a canary's files, to be looked at, or served and asked by a suite."""
    model, mmproj = CANARIES / seed.file, CANARIES / seed.mmproj if seed.mmproj else None
    changed = mmproj if seed.of == "mmproj" else model
    if changed is None or not changed.is_file():
        raise NotPlantedError(f"there is no {changed or 'mmproj'}")
    new = _made(changed, seed, place.scratch)
    if seed.of == "mmproj":
        mmproj = new
    else:
        model = new
    tower = ("--mmproj", str(mmproj)) if mmproj else ()
    build, known = programs_of(place.work), words(place)
    more = tuple(filled(text, known) for text in seed.arguments)
    if seed.ask == "inspect":
        arguments = ("inspect", str(model), *tower, "--build", str(build), *more, "--json")
        yield Planted(arguments=arguments, stage="model")
        return
    suite = place.catalogue / SUITES / seed.suite
    if not suite.is_file():
        raise NotPlantedError(f"there is no {suite}")
    asked = ("--model", str(model), *tower, "--suite", str(suite), *more)
    yield Planted(
        arguments=("smoke", str(build), *asked, "--work", str(own_work(place)), "--json"),
        stage="smoke",
    )


def _made(source: Path, seed: ModelSeed, scratch: Path) -> Path:
    """The changed file, or the first of its shards."""
    target = scratch / source.name
    if seed.text:
        target.write_text(seed.text, encoding="utf-8")
        return target
    if seed.edits or seed.shards > 1:
        # Half a second of imports, for these seeds alone.
        from sparkbuild.faults.seeds.gguf_file import edited, read, write  # noqa: PLC0415

        files = write(edited(read(source), seed.edits), target, shards=seed.shards)
    else:
        shutil.copyfile(source, target)
        files = (target,)
    if seed.keep < 1:
        last = files[-1]
        data = last.read_bytes()
        last.write_bytes(data[: int(len(data) * seed.keep)])
    if seed.without:
        if not 1 < seed.without <= len(files):
            raise NotPlantedError(f"{len(files)} shards were made, none is number {seed.without}")
        files[seed.without - 1].unlink()
    return files[0]
