"""A folder that goes to another machine: whole there, or refused; and what is judged from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild import qualify_gpu_work
from sparkbuild.errors import ArchiveError, GpuError, UsageError
from sparkbuild.files import sha256_bytes
from sparkbuild.qualify.catalogue import Given
from sparkbuild.qualify.compile import Nvcc
from sparkbuild.qualify.gpu.assemble import Assembled
from sparkbuild.qualify.gpu.carried import MANIFEST, carry, unpacked
from sparkbuild.qualify.model import Compiler, Unit
from sparkbuild.toolkit.model import HostCompiler

HOST = HostCompiler(c="", cxx="", identification="", target="", sha256="")
COMPILER = Compiler(
    toolkit="cuda-1.0", cicc="1.0.1", platform="linux-x86_64", architecture="121a",
    flags=("-O3",), tree="0123",
)  # fmt: skip
HEADER = "ggml/src/ggml-common.h"


class Quiet:
    """Nothing is shown."""

    def started(self, stage: str) -> None: ...
    def progress(self, done: int, total: int, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def finished(self, report: object) -> None: ...


@pytest.fixture
def fake() -> Iterator[Any]:
    sys.path.insert(0, str(Path(__file__).parent))
    import fake_gpu  # type: ignore[import-not-found]

    yield fake_gpu
    sys.path.remove(str(Path(__file__).parent))


@pytest.fixture
def folder(tmp_path: Path, fake: Any) -> Path:
    """One unit that was assembled for sm_90a, one that did not compile."""
    source, built = tmp_path / "tree", tmp_path / "built"
    (source / HEADER).parent.mkdir(parents=True)
    (source / HEADER).write_text("#pragma once\n")
    (source / "secret.txt").write_text("not read by anything")
    built.mkdir()
    (built / "unit.ptx").write_text(fake.TEXT)
    (built / "unit.cubin").write_text(fake.TEXT)
    sha = sha256_bytes(fake.TEXT.encode())
    unit = Assembled(
        name="unit", ptx=str(built / "unit.ptx"), ptx_sha256=sha, target="90a",
        made="retargeted", cubin=str(built / "unit.cubin"), cubin_sha256=sha,
        left_out={"plus_two": "ptxas: no"},
    )  # fmt: skip
    failed = Unit(name="lost", compiled=False, seconds=1.0, error="status 1")
    carry(tmp_path / "out", source, COMPILER, "90a", [unit], [failed])
    return tmp_path / "out"


def test_it_holds_what_is_needed_and_nothing_else(folder: Path) -> None:
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == [MANIFEST, f"source/{HEADER}", "unit.cubin", "unit.ptx"]
    found = unpacked(folder)
    assert (found.compiler, found.target) == (COMPILER, "90a")
    assert found.units[0].cubin == str(folder / "unit.cubin")
    assert found.units[0].left_out == {"plus_two": "ptxas: no"}
    assert str(folder.parent) not in (folder / MANIFEST).read_text(), "no path of this machine"


@pytest.mark.parametrize("name", ["unit.ptx", "unit.cubin", f"source/{HEADER}"])
def test_another_byte_or_a_lost_file_is_refused_by_name(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole + b" ")
    with pytest.raises(ArchiveError) as caught:
        unpacked(folder)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"{name}: expected {sha256_bytes(whole)}")
    (folder / name).unlink()
    with pytest.raises(ArchiveError) as caught:
        unpacked(folder)
    assert caught.value.problems == (f"{name} is missing",)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema": 2}, "schema 2"),
        ({"files": {"../tree/secret.txt": "0" * 64}}, "../tree/secret.txt is outside"),
        ({"files": {"/etc/passwd": "0" * 64}}, "/etc/passwd is outside"),
        ({"files": {}}, "unit.cubin has no digest"),
        ({"units": 7}, "Expected `array`"),
    ],
)
def test_a_manifest_that_says_otherwise_is_refused(
    folder: Path, change: dict[str, object], problem: str
) -> None:
    facts = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**facts, **change}))
    with pytest.raises(ArchiveError) as caught:
        unpacked(folder)
    assert problem in caught.value.problems[0]


def test_a_folder_of_somebody_else_is_neither_read_nor_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UsageError, match=r"has no qualify\.json"):
        unpacked(tmp_path)
    with pytest.raises(UsageError, match="no earlier --assemble"):
        carry(tmp_path, tmp_path, COMPILER, "90a", [], [])
    assert (tmp_path / "mine").read_text() == "x"


def judged(fake: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, **device: Any) -> Any:
    """Judge the folder with the fake's probes: no source that has real ones is there."""

    def order(carried: Path, there: Any, host: Any, place: Path, only: Any) -> Any:
        nvcc = Nvcc(
            root="", host="", source=str(carried), architecture="121a", flags=(),
            folder=str(carried),
        )  # fmt: skip
        return fake.FakeOrder(nvcc=nvcc, given=Given(host=host, folder=""), only=only)

    monkeypatch.setattr(qualify_gpu_work, "_order", order)
    return qualify_gpu_work.qualify_carried(
        folder, fake.FakeOpener(**device), HOST, folder=folder, live=Quiet(), at_once=1,
        only=("right", "plus_two", "spills"),
    )  # fmt: skip


def test_it_is_judged_on_the_device_and_says_so(
    fake: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(fake, folder, monkeypatch, capability=(9, 0))
    assert (found.compiler.executor, found.compiler.device) == ("gpu", "Fake (sm_90), driver 1.2")
    assert found.compiler.toolkit == "cuda-1.0"
    outcomes = {one.name: (one.outcome, one.made) for one in found.probes}
    assert outcomes == {
        "right": ("right", "retargeted"),
        "plus_two": ("unsupported", "retargeted"),
        "spills": ("wrong", "retargeted"),
    }
    assert found.verdict == "wrong"
    assert (found.coverage, found.same_bits) == ((), 1)
    assert "coverage" in found.remark
    assert [unit.name for unit in found.units] == ["unit", "lost"]
    assert found.units[0].cubin_sha256 == sha256_bytes(fake.TEXT.encode())
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


def test_code_for_another_device_and_code_that_no_driver_takes_are_refusals(
    fake: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GpuError, match="assembled for sm_90a, and this is Fake") as caught:
        judged(fake, folder, monkeypatch, capability=(12, 1))
    assert caught.value.next_step.endswith("--device 121a")
    facts = json.loads((folder / MANIFEST).read_text())
    (folder / "unit.cubin").write_text("of a newer toolkit")
    facts["files"]["unit.cubin"] = sha256_bytes(b"of a newer toolkit")
    (folder / MANIFEST).write_text(json.dumps(facts))
    with pytest.raises(GpuError, match="refuses every cubin") as refused:
        judged(fake, folder, monkeypatch, capability=(9, 0))
    assert "CUDA_ERROR_INVALID_IMAGE" in refused.value.problems[0]
