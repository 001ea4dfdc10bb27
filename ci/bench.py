"""Benchmarks: ratios measured in one run, with the machine's facts, written to a file.

No bound is tested here: a busy machine must not fail a build. The targets stand beside the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess  # noqa: TID251 - measures the product from outside
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench_canaries import bench_canary, bench_smoke
from bench_package import bench_package
from bench_qualify import bench_qualify
from bench_toolkits import bench_identity, bench_install, bench_refusal
from bench_wheels import bench_wheel

from sparkbuild.build.model import Configuration
from sparkbuild.files import write_atomic
from sparkbuild.process import environment, python_program
from sparkbuild.report.machine import machine_facts
from sparkbuild.stages import read_record

ROUNDS: Final = 15
SPARKBUILD: Final = str(Path(sys.executable).parent / "sparkbuild")
MAKE: Final = (SPARKBUILD, "make", "--variant", "vision", "--toolkit", "cpu", "--json")


def seconds(argv: Sequence[str], **options: Any) -> float:
    """Wall-clock seconds of one run that must succeed."""
    began = time.perf_counter()
    subprocess.run(
        argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    return time.perf_counter() - began


def interleaved(a: Sequence[str], b: Sequence[str]) -> dict[str, float]:
    """Medians of ``a`` and ``b``, run in turn to see the same machine, and their ratio."""
    pairs = [(seconds(a), seconds(b)) for _ in range(ROUNDS)]
    first = statistics.median(pair[0] for pair in pairs)
    second = statistics.median(pair[1] for pair in pairs)
    return {"seconds": first, "baseline": second, "ratio": first / second, "rounds": ROUNDS}


def bench_help() -> dict[str, Any]:
    """``sparkbuild --help`` against the start of the interpreter."""
    figures: dict[str, Any] = interleaved([SPARKBUILD, "--help"], [sys.executable, "-c", "pass"])
    return {**figures, "target": "0.150 s", "baseline_is": "python -c pass"}


def bench_noop(work: Path, out: Path) -> dict[str, Any]:
    """A ``make`` with nothing to do against the start of the interpreter."""
    argv = [*MAKE, "--work", str(work), "--out", str(out)]
    seconds(argv)
    figures: dict[str, Any] = interleaved(argv, [sys.executable, "-c", "pass"])
    return {**figures, "target": "0.5 s", "baseline_is": "python -c pass"}


def bench_build(work: Path, out: Path) -> dict[str, Any]:
    """Configure and build inside ``make`` against bare cmake and ninja, same tree, same flags."""
    seconds([SPARKBUILD, "source", "fetch", "--variant", "vision", "--work", str(work)])
    done = subprocess.run(
        [*MAKE, "--work", str(work), "--out", str(out)], check=True, stdout=subprocess.PIPE
    )
    report = json.loads(done.stdout)
    if any(stage["state"] == "reused" for stage in report["stages"]):
        raise SystemExit(f"{work} is warm: give an empty folder")
    ours = sum(s["seconds"] for s in report["stages"] if s["name"] in {"configure", "build"})
    others = sum(
        s["seconds"] for s in report["stages"] if s["name"] in {"toolkit", "source", "patches"}
    )
    bare = _bare(next((work / "builds").glob("*/stages/configure.json")), work / "bare")
    return {
        "seconds": ours,
        "baseline": bare,
        "ratio": ours / bare,
        "own_seconds": ours - bare,
        "stages_before_configure": others,
        "target": "at most 1 % and 2 s",
        "baseline_is": "cmake and ninja with the same arguments",
    }


def _bare(record: Path, folder: Path) -> float:
    configuration = read_record(record, Configuration)
    arguments = [
        str(folder) if text == configuration.binary_dir else text
        for text in configuration.arguments
    ]
    env = environment()
    targets = [item.target for item in configuration.artifacts if item.kind == "EXECUTABLE"]
    configured = seconds([str(python_program("cmake")), *arguments], env=env)
    jobs = str(os.cpu_count())
    return configured + seconds(
        [str(python_program("ninja")), "-C", str(folder), "-j", jobs, *targets], env=env
    )


def main() -> None:
    """Run the chosen benchmarks and write ``bench-<time>.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "only",
        nargs="*",
        help="help, noop, build, install, identity, refusal, canary, smoke, qualify, "
        "wheel, package; default: all but the last five",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("bench-work"),
        help="empty for build; for package: of a finished make",
    )
    parser.add_argument(
        "--root", type=Path, help="for identity, refusal, qualify: a toolkit that is there"
    )
    parser.add_argument("--bad-root", type=Path, help="for qualify: one that miscompiles")
    parser.add_argument("--build", type=Path, help="for canary, smoke: the folder of llama-server")
    parser.add_argument("--wheel", type=Path, help="for wheel: one that make made")
    parser.add_argument("--write", type=Path, help="where the figures go")
    options = parser.parse_args()
    work = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    todo = options.only or ["help", "build", "noop", "install", "identity", "refusal"]
    benches: dict[str, Callable[[], dict[str, Any]]] = {
        "help": bench_help,
        "build": lambda: bench_build(work, work / "dist"),
        "noop": lambda: bench_noop(work, work / "dist"),
        "install": lambda: bench_install(work),
        "identity": lambda: bench_identity(work, options.root),
        "refusal": lambda: bench_refusal(work, options.root),
        "canary": lambda: bench_canary(work, options.build),
        "smoke": lambda: bench_smoke(work, options.build),
        "package": lambda: bench_package(work),
        "qualify": lambda: bench_qualify(work, options.root, options.bad_root),
        "wheel": lambda: bench_wheel(work, options.wheel),
    }
    figures = {name: benches[name]() for name in todo}
    target = options.write or Path(f"bench-{int(time.time())}.json")
    document = {"schema": 1, "machine": machine_facts(), "benchmarks": figures}
    write_atomic(target, json.dumps(document, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    print(f"written to {target}")


if __name__ == "__main__":
    main()
