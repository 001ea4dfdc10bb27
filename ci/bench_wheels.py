"""Benchmarks of wheels: packing and verifying against plain zip of the same bytes."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import statistics
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sparkbuild.build.model import Binaries, Binary, BinaryFacts
from sparkbuild.files import sha256_file
from sparkbuild.manifest import BuildSection, Patchset, PathOrigin, SmokeSection, SourcePin
from sparkbuild.package import identity
from sparkbuild.package.check import verify_wheel
from sparkbuild.package.info import as_json, build_info
from sparkbuild.package.keys import make_key, read_private, read_public
from sparkbuild.package.make import package
from sparkbuild.package.model import Made, Wheel
from sparkbuild.package.provenance import provenance_members
from sparkbuild.package.signed import sign_wheel
from sparkbuild.qualify.model import Qualification
from sparkbuild.smoke.model import Check, SmokeReport
from sparkbuild.source.model import PatchedTree, SourceTree
from sparkbuild.toolkit.model import HostCompiler, Toolkit

ROUNDS: Final = 5
_SBOM: Final = b'{"bomFormat": "CycloneDX", "specVersion": "1.6"}\n'


def bench_wheel(work: Path, wheel: Path | None) -> dict[str, Any]:
    """The binaries of a real wheel packed again, then verified, each beside plain zip."""
    if wheel is None:
        raise SystemExit("--wheel FILE: name a wheel that `sparkbuild make` made")
    folder = work / "bench-wheels"
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder / "tree")
    made, binaries, facts = _build(folder / "tree", wheel)
    packed: list[Wheel] = []

    def pack() -> None:
        packed.append(_pack(made, binaries, facts, folder))

    pairs = [(_seconds(pack), _seconds(lambda: _plain(folder))) for _ in range(ROUNDS)]
    verify = _signed(made, facts, Path(packed[-1].path), folder)
    read = Path(packed[-1].path)
    checks = [(_seconds(verify), _seconds(lambda: _test(read))) for _ in range(ROUNDS)]
    return {
        "bytes": sum(one.size for one in facts.binaries),
        "pack": _figures(pairs, "python's zipfile packing the same files once"),
        "verify": _figures(checks, "python's zipfile reading the same wheel (testzip)"),
        "target": "1.5 times plain zip",
        "rounds": ROUNDS,
    }


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _figures(pairs: list[tuple[float, float]], baseline: str) -> dict[str, Any]:
    first = statistics.median(pair[0] for pair in pairs)
    second = statistics.median(pair[1] for pair in pairs)
    ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
    return {"seconds": first, "baseline": second, "ratio": ratio, "baseline_is": baseline}


def _build(tree: Path, wheel: Path) -> tuple[Made, Binaries, BinaryFacts]:
    """The wheel's binaries as a build's result; what they were made of matters to no figure."""
    place = tree / identity.BIN
    info = json.loads((tree / identity.INFO_FILE).read_bytes())
    names = sorted(path.name for path in place.iterdir())
    machine = "EM_AARCH64" if "aarch64" in wheel.name else "EM_X86_64"
    facts = BinaryFacts(
        binaries=tuple(
            Binary(name=name, sha256=sha256_file(place / name), size=(place / name).stat().st_size,
                   soname=None, needed=(), runpath=(), build_id="", machine=machine)
            for name in names
        ),
        system_libraries=(),
        version_line=info["version_line"],
    )  # fmt: skip
    programs = tuple(name for name in names if ".so" not in name)
    binaries = Binaries(
        directory=str(place),
        executables=programs,
        libraries=tuple(name for name in names if name not in programs),
        edges=0,
    )
    (tree / "LICENSE").write_text("MIT")
    host = HostCompiler(c="cc", cxx="c++", identification="x", target="x", sha256="0" * 64)
    pin = SourcePin(paths=("x",), origins=(PathOrigin(path="x"),), digest="0" * 64)
    made = Made(
        patchset=Patchset(
            schema=1, name="bench", summary="x", source=pin, build=BuildSection(targets=programs),
            smoke=SmokeSection(suite="canary"),
        ),
        source=SourceTree(digest="0" * 64, commit="0" * 40, tree="0" * 40, build=1, origin="x"),
        tree=PatchedTree(source_digest="0" * 64, commit="0" * 40, tree="0" * 40, build=1,
                         patches=(), directory=str(tree)),
        toolkit=Toolkit(toolchain="cpu", label="cpu", kind="cpu", host=host),
        arguments=(),
        qualification=Qualification(verdict="not applicable", reason="x"),
        smoke=SmokeReport(suite="canary", model_sha256="0" * 64, checks=(
            Check(name="x", passed=True, seconds=0.0, expected="x", found="x"),
        )),
    )  # fmt: skip
    return made, binaries, facts


def _pack(made: Made, binaries: Binaries, facts: BinaryFacts, folder: Path) -> Wheel:
    """What the package stage does before it installs the wheel."""
    version = identity.wheel_version(
        build=1, label="cpu", variant=made.patchset.name, tree=made.tree.tree
    )
    dist_info = identity.dist_info(version)
    return package(
        binaries=binaries,
        facts=facts,
        tree=made.tree,
        toolkit=made.toolkit,
        variant=made.patchset.name,
        source_dir=Path(made.tree.directory),
        workdir=folder / "packed",
        log=folder / "pack.log",
        extra=lambda known: provenance_members(known, made, dist_info=dist_info, sbom=_SBOM),
    )


def _plain(folder: Path) -> None:
    """The same files into a zip archive, compressed as wheels are."""
    tree = folder / "tree"
    with zipfile.ZipFile(folder / "plain.zip", "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(tree.rglob("*")):
            if path.is_file():
                out.write(path, path.relative_to(tree))


def _test(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        if opened.testzip() is not None:
            raise SystemExit(f"{wheel} is damaged")


def _signed(made: Made, facts: BinaryFacts, wheel: Path, folder: Path) -> Callable[[], object]:
    """Sign the wheel with a key of its own; gives the verification."""
    now = dt.datetime.now(dt.UTC)
    private, public, _ = make_key("bench", folder / "keys", now=now)
    report = folder / "report.json"
    report.write_text(json.dumps({
        "schema": 1, "sparkbuild": _sparkbuild(made, facts), "variant": "bench",
        "toolchain": "cpu", "started": now.isoformat(), "seconds": 1.0, "result": "passed",
        "stages": [{"name": "smoke", "state": "done", "inputs": {"suite": "canary"}}],
        "smoke_checks": [{"name": "x", "passed": True}],
        "wheel": {"sha256": sha256_file(wheel)},
    }))  # fmt: skip
    sign_wheel(wheel, report, [read_private(private, now=now)], now=now)
    keys = [read_public(public)]
    return lambda: verify_wheel(wheel, keys, now=now)


def _sparkbuild(made: Made, facts: BinaryFacts) -> str:
    info = build_info(version="1", variant="bench", tree=made.tree, toolkit=made.toolkit,
                      facts=facts)  # fmt: skip
    return str(json.loads(as_json(info))["sparkbuild"])
