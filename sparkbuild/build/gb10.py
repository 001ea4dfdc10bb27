"""Whether GPU code runs on GB10 (compute capability 12.1), and how: NVIDIA's rules for targets.

Machine code of ``sm_XY`` runs on every chip of the same X with a Y at least as high; ``a`` on that
chip alone; ``f`` on the family, as ``sm_XY`` but with the family's own instructions. PTX is
compiled by the driver when a program starts, ``compute_XYa`` for that chip alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from sparkbuild.build.model import GpuTarget
from sparkbuild.model.finding import Finding, State, listed

How = Literal["made for it", "without FP4", "compiled at start", "no"]
"""The best way in which a piece of GPU code runs there."""
WAYS: Final[tuple[How, ...]] = ("made for it", "without FP4", "compiled at start", "no")

_GB10: Final = (12, 1)
_TARGET: Final = re.compile(r"(?P<kind>sm|compute|lto)_(?P<number>\d+)(?P<suffix>[af]?)")
_KINDS: Final[dict[str, Literal["SASS", "PTX", "LTO"]]] = {
    "sm": "SASS", "compute": "PTX", "lto": "LTO",
}  # fmt: skip
_EXPECTED: Final = "machine code for sm_121a in every fat binary"
_RUNS: Final = "machine code that GB10 runs"
_STEP: Final = "build with --arch 121a (sparkbuild make does), nvcc 12.9 or newer"
_REASONS: Final[dict[How, str]] = {
    "made for it": "",
    "without FP4": "it runs on GB10 without the instructions that only 121a and 120f have, so "
    "MXFP4 and NVFP4 take slower ways",
    "compiled at start": "on GB10 the driver compiles PTX when the program first starts, for "
    "minutes, while the host's code chooses kernels for what the file was built for: servers were "
    "seen that answer nothing but `?`",
    "no": "on GB10 these kernels end with `no kernel image is available`, or an older one is taken "
    "silently",
}
_SHARES: Final[dict[How, str]] = {
    "made for it": "made for GB10",
    "without FP4": "without FP4",
    "compiled at start": "compiled at start",
    "no": "for other GPUs alone",
}
_ACCELERATED: Final = " (code for 120a runs on compute capability 12.0 alone)"


def way(target: str) -> How:
    """How code of one target, such as ``sm_120a``, runs on GB10."""
    match = _TARGET.fullmatch(target)
    if match is None or match["kind"] == "lto":
        return "no"
    chip = divmod(int(match["number"]), 10)
    kind, suffix = match["kind"], match["suffix"]
    family = chip[0] == _GB10[0] and chip <= _GB10
    if suffix == "a":
        runs = chip == _GB10
    else:
        runs = family or (kind == "compute" and not suffix and chip <= _GB10)
    if not runs:
        return "no"
    if kind == "compute":
        return "compiled at start"
    return "made for it" if suffix else "without FP4"


def targets(containers: Sequence[Sequence[str]]) -> tuple[GpuTarget, ...]:
    """What a file holds by target: in how many fat binaries, and how it runs on GB10."""
    held = Counter(name for images in containers for name in set(images))
    return tuple(
        GpuTarget(
            target=name,
            kind=_KINDS[name.partition("_")[0]],
            fat_binaries=count,
            gb10=way(name),
        )
        for name, count in sorted(held.items())
    )


def verdict(containers: Sequence[Sequence[str]], *, uniform: bool) -> Finding:
    """Whether all of it runs on GB10; each container is one source file's code.

    ``uniform``: every source file was compiled for the same targets, as ggml's are. Other
    libraries, such as cuBLAS, have files of their own for each chip.
    """
    filled = [images for images in containers if images]
    if not filled:
        return Finding(
            name="GPU code",
            state="note",
            expected=_EXPECTED,
            found="none in this file",
            reason="llama.cpp's GPU code is in libggml-cuda, or in a program that it was linked "
            "into; without it everything is computed on the CPU",
        )
    best = [min((way(name) for name in images), key=WAYS.index) for images in filled]
    worst = max(best, key=WAYS.index) if uniform else min(best, key=WAYS.index)
    names = sorted({name for images in filled for name in images})
    counts = Counter(best)
    share = f", {counts[worst]} of them {_SHARES[worst]}"
    some = "" if counts[worst] == len(filled) else share
    more = _ACCELERATED if worst == "no" and "sm_120a" in names else ""
    # What instructions a library of NVIDIA's own takes is its maker's choice.
    right = worst == "made for it" or (worst == "without FP4" and not uniform)
    return Finding(
        name="GPU code",
        state="ok" if right else _state(worst, everywhere=counts[worst] == len(filled)),
        expected=_EXPECTED if uniform else _RUNS,
        found=f"{listed(names, most=12)} in {len(filled)} fat binaries{some}",
        reason="" if right else _REASONS[worst] + more,
        next_step="" if right else _STEP,
    )


def _state(worst: How, *, everywhere: bool) -> State:
    """PTX alone is a fault: nothing was tested of what the driver will make of it."""
    return "fault" if worst in {"no", "compiled at start"} and everywhere else "warning"
