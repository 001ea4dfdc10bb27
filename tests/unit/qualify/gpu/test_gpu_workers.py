"""Processes that hold a device: what one kernel spoils does not reach the next probe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.errors import GpuError, InternalError
from sparkbuild.qualify.bench import Order
from sparkbuild.qualify.catalogue import Given
from sparkbuild.qualify.compile import Nvcc
from sparkbuild.qualify.gpu.assemble import Assembled
from sparkbuild.qualify.gpu.workers import Workers
from sparkbuild.qualify.model import Probed
from sparkbuild.toolkit.model import HostCompiler


@pytest.fixture
def fake() -> Iterator[Any]:
    """``fake_gpu`` under a name that other processes import it by: they get this one's path."""
    sys.path.insert(0, str(Path(__file__).parent))
    import fake_gpu  # type: ignore[import-not-found]

    yield fake_gpu
    sys.path.remove(str(Path(__file__).parent))


def order_of(fake: Any, folder: Path) -> Order:
    nvcc = Nvcc(root="", host="", source="", architecture="121a", flags=(), folder=str(folder))
    host = HostCompiler(c="", cxx="", identification="", target="", sha256="")
    made: Order = fake.FakeOrder(nvcc=nvcc, given=Given(host=host, folder=""))
    return made


def unit_of(fake: Any, folder: Path) -> Assembled:
    ptx = folder / "unit.ptx"
    ptx.write_text(fake.TEXT)
    return Assembled(
        name="unit", ptx=str(ptx), ptx_sha256="1", target="121a", made="native", cubin=str(ptx)
    )


def judged(fake: Any, folder: Path, *names: str, at_once: int = 1, **how: Any) -> list[Probed]:
    workers = Workers(
        order=order_of(fake, folder), opener=fake.FakeOpener(), at_once=at_once, **how
    )
    unit = unit_of(fake, folder)
    return list(workers.judged([(fake.probe(name), unit) for name in names]))


def test_after_a_fault_a_hang_and_a_death_the_next_probes_are_still_judged(
    fake: Any, tmp_path: Path
) -> None:
    names = ["right", "wild", "plus_two", "dies", "right", "hangs", "spills", "right"]
    found = judged(fake, tmp_path, *names, limit=2.0)
    assert [one.name for one in found] == names
    assert [one.outcome for one in found] == [
        "right", "wrong", "wrong", "unsupported", "right", "wrong", "wrong", "right",
    ]  # fmt: skip
    dies, hangs = found[3], found[5]
    assert dies.reason == "only: the process that held the GPU ended with status 9"
    assert hangs.mistake is not None
    assert (hangs.mistake.kind, hangs.mistake.case) == ("endless", "only")
    assert hangs.mistake.text == "no end within 2 seconds on the GPU"


def test_several_processes_share_the_work(fake: Any, tmp_path: Path) -> None:
    names = ["right", "wild", "right", "plus_two", "right"]
    found = judged(fake, tmp_path, *names, at_once=3)
    assert sorted(one.name for one in found) == sorted(names)
    assert {one.name: one.outcome for one in found} == {
        "right": "right", "wild": "wrong", "plus_two": "wrong",
    }  # fmt: skip


def test_no_device_is_a_refusal_and_a_defect_is_told_as_one(fake: Any, tmp_path: Path) -> None:
    unit = unit_of(fake, tmp_path)
    job = (fake.probe("right"), unit)
    none = Workers(order=order_of(fake, tmp_path), opener=fake.FakeOpener(missing=True), at_once=1)
    with pytest.raises(GpuError, match="cannot be worked with") as caught:
        list(none.judged([job]))
    assert "there is none" in caught.value.problems[0]
    Path(unit.ptx).unlink()
    broken = Workers(order=order_of(fake, tmp_path), opener=fake.FakeOpener(), at_once=1)
    with pytest.raises(InternalError) as failed:
        list(broken.judged([job]))
    assert "FileNotFoundError" in failed.value.detail


def test_whoever_stops_early_leaves_no_process(fake: Any, tmp_path: Path) -> None:
    import multiprocessing

    workers = Workers(order=order_of(fake, tmp_path), opener=fake.FakeOpener(), at_once=2)
    unit = unit_of(fake, tmp_path)
    stream = workers.judged([(fake.probe(name), unit) for name in ("right", "hangs", "right")])
    assert next(stream).name == "right"
    stream.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()
