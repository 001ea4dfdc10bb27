"""Benchmarks of qualification: how soon a bad compiler is told, and what a whole verdict costs."""

from __future__ import annotations

import json
import statistics
import subprocess  # noqa: TID251 - measures the product from outside
import sys
import time
from pathlib import Path
from typing import Any, Final

ROUNDS: Final = 3
SPARKBUILD: Final = str(Path(sys.executable).parent / "sparkbuild")
VARIANT: Final = "vision"
WRONG: Final = 10
"""Exit status of a compiler that emits wrong code."""


def bench_qualify(work: Path, root: Path, bad: Path | None) -> dict[str, Any]:
    """A good root judged whole, again from what is known, and a bad one up to its first mistake."""
    _run(["source", "fetch", "--variant", VARIANT, "--work", str(work)])
    base = ["toolkit", "qualify", str(root), "--variant", VARIANT, "--work", str(work), "--json"]
    fresh = [_run([*base, "--fresh"]) for _ in range(ROUNDS)]
    known = [_run(base) for _ in range(5 * ROUNDS)]
    start = [_run(["--version"]) for _ in range(5 * ROUNDS)]
    (found,) = json.loads(fresh[-1][1])["qualifications"]
    steps = sum(probe["lane_steps"] for probe in found["probes"])
    spent = sum(probe["seconds"] for probe in found["probes"])
    figures: dict[str, Any] = {
        "whole_seconds": statistics.median(run[0] for run in fresh),
        "whole_target": "30 s",
        "compile_seconds": sum(unit["seconds"] for unit in found["units"]),
        "probes": len(found["probes"]),
        "verdict": found["verdict"],
        "instruction_lanes_per_second": steps / spent,
        "known_seconds": statistics.median(run[0] for run in known),
        "start_seconds": statistics.median(run[0] for run in start),
        "known_target": "20 ms more than the start of the program",
        "rounds": ROUNDS,
    }
    if bad:
        argv = ["toolkit", "qualify", str(bad), "--variant", VARIANT, "--work", str(work),
                "--first", "--fresh", "--json"]  # fmt: skip
        first = [_run(argv, expected=WRONG) for _ in range(ROUNDS)]
        figures["first_wrong_seconds"] = statistics.median(run[0] for run in first)
        figures["first_wrong_target"] = "3 s"
    return figures


def _run(arguments: list[str], *, expected: int = 0) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(
        [SPARKBUILD, *arguments], check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    spent = time.perf_counter() - began
    if done.returncode != expected:
        raise SystemExit(f"{arguments}: status {done.returncode}, expected {expected}")
    return spent, done.stdout.decode()
