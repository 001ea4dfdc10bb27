"""A server that is healthy but for one thing: a program of ours between it and who asks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.model import ServerSeed
from sparkbuild.faults.seeds.changes import filled
from sparkbuild.faults.seeds.farm import copied
from sparkbuild.faults.seeds.ground import own_work, programs_of, words
from sparkbuild.files import write_atomic

PROGRAM: Final = "servers/between.py"
_SERVER: Final = "llama-server"
_REAL: Final = "llama-server.real"
_SETTING: Final = "between.json"
_SHARED: Final = Path("/dev/shm")  # noqa: S108 - memory that belongs to no process


@contextmanager
def plant_server(seed: ServerSeed, place: Place) -> Iterator[Planted]:
    """A copy of the clean programs, whose llama-server is asked through ``servers/between.py``.

    The kernel starts it by its first line, so that process id and port are those of one program.
    """
    program = place.catalogue / PROGRAM
    if not program.is_file():
        raise NotPlantedError(f"there is no {program}")
    folder = copied(programs_of(place.work), place.scratch / "build")
    (folder / _SERVER).rename(folder / _REAL)
    text = f"#!{sys.executable}\n{program.read_text(encoding='utf-8')}"
    write_atomic(folder / _SERVER, text, mode=0o755)
    left = _SHARED / f"{place.scratch.name}-{os.getpid()}"
    setting = {"breaks": seed.breaks, "setting": seed.setting, "left": str(left)}
    write_atomic(folder / _SETTING, json.dumps(setting))
    work = own_work(place)
    known = words(place)
    more = tuple(filled(text, known) for text in seed.arguments)
    try:
        yield Planted(
            arguments=("smoke", str(folder), *more, "--work", str(work), "--json"),
            stage="smoke",
        )
    finally:
        left.unlink(missing_ok=True)
