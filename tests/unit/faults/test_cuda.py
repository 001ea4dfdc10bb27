"""Faults in CUDA code: their data, the build that they are planted beside, a run over them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkbuild import faults_cuda, faults_work
from sparkbuild.doctor.captured import Device, Gpu
from sparkbuild.errors import HostError, ManifestError
from sparkbuild.faults.catalogue import PATCHES, Faults, load_faults, on_gpu
from sparkbuild.faults.kept import Kept
from sparkbuild.faults.model import Found, SourceSeed
from sparkbuild.faults_cuda import architecture, find_cuda, make_arguments
from sparkbuild.faults_one import Task, not_run
from sparkbuild.faults_work import Order, run_faults
from sparkbuild.report.model import StageReport
from sparkbuild.workspace import Workspace

CHECKOUT = Path(__file__).parents[3] / "tests" / "faults"
FAULT = """
[[fault]]
id = "{id}"
kind = "{kind}"
summary = "s"
imitates = "i"
reach = "everything"
subtle = false
latest = "smoke"
says = ["NMSE"]
needs = {needs}
seed = {{ how = "source", patch = "one.patch"{more} }}
"""
ON_GPU = ', backend = "cuda", units = ["one.cu"]'


def catalogue(folder: Path, **tables: str) -> Faults:
    (folder / PATCHES).mkdir(parents=True, exist_ok=True)
    (folder / PATCHES / "one.patch").write_text("a patch")
    for name, text in tables.items():
        (folder / f"{name}.toml").write_text(f"schema = 1\n{text}")
    return load_faults(folder)


def fault(name: str, kind: str = "source", needs: str = '["gpu"]', more: str = ON_GPU) -> str:
    return FAULT.format(id=name, kind=kind, needs=needs, more=more)


def test_cuda_toml_holds_faults_of_more_than_one_kind(tmp_path: Path) -> None:
    text = fault("one") + fault("two", "vision")
    every = catalogue(tmp_path, cuda=text, source=fault("three", needs="[]", more="")).every
    assert [one.id for one in every] == ["three", "one", "two"]
    assert [one.id for one in every if on_gpu(one)] == ["one", "two"]
    assert every[1].seed == SourceSeed(patch="one.patch", backend="cuda", units=("one.cu",))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cuda", fault("one", needs="[]")),
        ("cuda", fault("one", more="")),
        ("source", fault("one")),
        ("cuda", fault("one", "toolkit")),
    ],
)
def test_a_fault_in_the_wrong_file_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ManifestError) as caught:
        catalogue(tmp_path, **{name: text})
    told = "\n".join([caught.value.message, *caught.value.problems])
    assert "cuda.toml is for" in told or "its kind is 'toolkit'" in told


def test_the_checkout_has_the_classes_that_the_issue_names() -> None:
    every = [one for one in load_faults(CHECKOUT).every if on_gpu(one)]
    assert len(every) >= 24
    assert {one.kind for one in every} == {"source", "vision"}
    assert {one.reach for one in every} == {
        "everything", "one type", "beyond some tokens", "pictures", "concurrency",
    }  # fmt: skip
    for one in every:
        assert one.id.startswith("cuda-")
        assert isinstance(one.seed, SourceSeed)
        text = (CHECKOUT / PATCHES / one.seed.patch).read_text()
        changed = [line for line in text.splitlines() if line.startswith("+++ b/")]
        assert all(line.startswith("+++ b/ggml/src/ggml-cuda/") for line in changed), one.id
        assert bool(one.seed.units) == any(line.endswith(".cuh") for line in changed), one.id


def built(work: Workspace, name: str, *, cuda: str = "ON", arch: str = "90") -> Path:
    """What is looked at of a finished build."""
    binary = work.root / "builds" / name / "cmake"
    (binary / "bin").mkdir(parents=True)
    (binary / "bin" / "llama-server").write_text("a program")
    (binary / "CMakeCache.txt").write_text(
        f"CMAKE_HOME_DIRECTORY:INTERNAL=/a/source\nGGML_CUDA:BOOL={cuda}\n"
        f"CMAKE_CUDA_ARCHITECTURES:STRING={arch}\n"
    )
    return binary


def test_a_finished_build_for_this_gpu_is_found(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    assert find_cuda(work, None, "90") is None
    built(work, "vision-cpu-1", cuda="OFF")
    built(work, "vision-cuda-13.0-2", arch="121a")
    half = built(work, "vision-cuda-13.0-3")
    (half / "bin" / "llama-server").unlink()
    assert find_cuda(work, None, "90") is None
    fits = built(work, "vision-mtp-cuda-13.0-4", arch="80;90")
    assert find_cuda(work, None, "90") == fits
    assert find_cuda(work, "13.0", "90") == fits
    assert find_cuda(work, "13.3", "90") is None
    assert find_cuda(work, None, None) in {fits, fits.parents[1] / "vision-cuda-13.0-2" / "cmake"}


@pytest.mark.parametrize(
    ("capability", "arch"), [((9, 0), "90"), ((12, 1), "121a"), ((8, 9), "89"), (None, None)]
)
def test_the_architecture_is_that_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None, arch: str | None
) -> None:
    device = Device(name="a GPU", capability=capability)
    monkeypatch.setattr(faults_cuda, "read_gpu", lambda _: Gpu(driver="1", devices=(device,)))
    assert architecture() == arch


def test_a_build_is_made_for_it_with_the_newest_good_toolkit_or_the_one_named() -> None:
    assert make_arguments(None, "90") == ("--arch", "90")
    assert make_arguments("13.0", "121a") == ("--toolkit", "13.0", "--arch", "121a")
    with pytest.raises(HostError, match="no GPU of this machine says what it is"):
        make_arguments(None, None)


class Screen:
    """An observer that looks away."""

    def started(self, stage: str) -> None: ...

    def progress(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finished(self, report: StageReport) -> None: ...


def test_a_run_makes_one_build_and_no_lane_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Workspace(tmp_path / "work")
    made: list[tuple[str, ...]] = []
    asked: list[tuple[str, Path | None]] = []

    def make(order: Order, folder: Path, name: str, live: object, how: tuple[str, ...]) -> None:
        made.append(how)
        built(work, "vision-cuda-13.0-1")

    def run(task: Task) -> Found:
        asked.append((task.fault.id, task.place.cuda))
        return not_run(task.fault, "only told")

    monkeypatch.setattr(faults_work, "_has", lambda *_: True)
    monkeypatch.setattr(faults_work, "architecture", lambda: "90")
    monkeypatch.setattr(faults_cuda, "architecture", lambda: "90")
    monkeypatch.setattr(faults_work, "_make", make)
    monkeypatch.setattr(faults_work, "run_fault", run)
    faults = catalogue(tmp_path, cuda=fault("one") + fault("two", "vision"))
    order = Order(faults=faults, chosen=faults.every, workspace=work, lanes=1, toolkit="13.0")
    run_faults(order, Screen())
    binary = work.root / "builds" / "vision-cuda-13.0-1" / "cmake"
    assert made == [("--toolkit", "13.0", "--arch", "90")]
    assert asked == [("one", binary), ("two", binary)]
    assert not (order.root / "lane-1").exists()
    run_faults(order, Screen())
    assert len(made) == 1  # the build that is here is taken


def test_what_is_kept_holds_for_the_build_that_it_was_found_beside(tmp_path: Path) -> None:
    faults = catalogue(tmp_path, cuda=fault("one"), source=fault("two", needs="[]", more=""))
    kept = Kept(folder=tmp_path / "results", catalogue=tmp_path, around={"a": "b"}, cuda="first")
    other = replace(kept, cuda="second")
    two, one = faults.every
    assert kept.key(one) != other.key(one)
    assert kept.key(two) == other.key(two)
