"""Benchmarks of the canaries: start to health, and everything that one is asked."""

from __future__ import annotations

import json
import statistics
import subprocess  # noqa: TID251 - measures the product from outside
import sys
import time
from pathlib import Path
from typing import Any, Final

from sparkbuild.canary.forms import programs

SPARKBUILD: Final = str(Path(sys.executable).parent / "sparkbuild")
ROUNDS: Final = 3


def bench_canary(work: Path, build: Path | None) -> dict[str, Any]:
    """Every canary in Q8_0 on the CPU with one thread, against ``llama-server --version``."""
    if build is None:
        raise SystemExit("canary: name the folder of a build's programs with --build")
    version = [str(programs(build).server), "--version"]
    baseline = statistics.median(_seconds(version) for _ in range(ROUNDS))
    runs = [_run(work, build) for _ in range(ROUNDS)]
    figures: dict[str, Any] = {}
    for name in runs[0]:
        load = statistics.median(run[name]["load_seconds"] for run in runs)
        whole = statistics.median(run[name]["seconds"] for run in runs)
        items = len(runs[0][name]["items"])
        figures[name] = {"load": load, "pass": whole, "items": items, "ratio": load / baseline}
    return {
        "canaries": figures,
        "baseline": baseline,
        "baseline_is": "llama-server --version",
        "rounds": ROUNDS,
        "target": "load 1 s, all together 20 s",
    }


def bench_smoke(work: Path, build: Path | None) -> dict[str, Any]:
    """The whole plan with a server for each core, against one server after another.

    ``first_right`` is a canary's start to its first right answer, by canary.
    """
    if build is None:
        raise SystemExit("smoke: name the folder of a build's programs with --build")
    argv = [SPARKBUILD, "smoke", str(build), "--work", str(work), "--json"]
    _smoked(argv)  # derived forms are there from now on
    at_once, _ = _smoked(argv)
    baseline, said = _smoked([*argv, "--processes", "1"])
    first: dict[str, float] = {}
    for part in said["parts"]:
        for ran in part["result"]["ran"]:
            right = next((i["seconds"] for i in ran["items"] if i["passed"]), None)
            if right is not None and ran["form"] == "q8_0":
                first.setdefault(ran["canary"], round(ran["load_seconds"] + right, 3))
    return {
        "seconds": at_once,
        "baseline": baseline,
        "ratio": at_once / baseline,
        "baseline_is": "the same with --processes 1",
        "first_right": first,
        "rounds": 1,
        "target": "20 s on 2 cores, first right answer 1 s",
    }


def _smoked(argv: list[str]) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    said: dict[str, Any] = json.loads(done.stdout)
    return time.perf_counter() - began, said


def _run(work: Path, build: Path) -> dict[str, Any]:
    argv = [SPARKBUILD, "canary", "run", "--form", "q8_0", "--no-drafts", "--json"]
    argv += ["--build", str(build), "--work", str(work)]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    said = json.loads(done.stdout)
    return {entry["canary"]: entry["ran"][0] for entry in said["canaries"]}


def _seconds(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began
