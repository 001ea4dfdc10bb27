"""A library whose GPU code is for another chip, or for none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparkbuild import process
from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.model import BinarySeed
from sparkbuild.faults.seeds.changes import filled
from sparkbuild.faults.seeds.ground import words
from sparkbuild.manifest import current_platform

SOURCE: Final = "gpu/scale.cu"
_LIBRARY: Final = "libggml-cuda.so"


@contextmanager
def plant_binary(seed: BinarySeed, place: Place) -> Iterator[Planted]:
    """One kernel compiled and linked into a library, looked at as a stranger's would be."""
    nvcc = place.work / "toolkits" / seed.toolkit / current_platform() / "bin" / "nvcc"
    source = place.catalogue / SOURCE
    for path in (nvcc, source):
        if not path.is_file():
            raise NotPlantedError(f"there is no {path}")
    library = place.scratch / _LIBRARY
    known = words(place)
    argv = [
        str(nvcc), "-shared", "-Xcompiler", "-fPIC", "-cudart", "shared", "-o", str(library),
        str(source), *(text for code in seed.code for text in ("-gencode", code)),
        *(filled(flag, known) for flag in seed.flags),
    ]  # fmt: skip
    done = process.run(argv, log=place.log, env=process.environment(), cwd=place.scratch)
    if done.returncode:
        raise NotPlantedError(f"it does not compile: {done.tail}")
    yield Planted(arguments=("inspect", str(library), "--json"), stage="inspect")
