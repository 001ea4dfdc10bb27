"""From units to verdicts on a device: compiled, assembled, launched, one process after another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.errors import UsageError
from sparkbuild.qualify.bench import Gathered
from sparkbuild.qualify.catalogue import Given
from sparkbuild.qualify.compile import Nvcc
from sparkbuild.qualify.gpu.bench import gather_on
from sparkbuild.qualify.model import Probed
from sparkbuild.toolkit.model import HostCompiler

NVCC = """#!/bin/sh
# An nvcc that has the PTX ready, and whose machine code is what it was given.
for last; do :; done
out=$(printf '%s' "$*" | sed 's/.* -o \\([^ ]*\\) .*/\\1/')
case "$*" in
  *-cubin*) cp "$last" "$out" ;;
  *) [ -f "{text}" ] || { echo "error: no such unit" >&2; exit 2; }; cp "{text}" "$out" ;;
esac
"""


@pytest.fixture
def fake() -> Iterator[Any]:
    sys.path.insert(0, str(Path(__file__).parent))
    import fake_gpu  # type: ignore[import-not-found]

    yield fake_gpu
    sys.path.remove(str(Path(__file__).parent))


def gathered(
    fake: Any, folder: Path, *only: str, capability: tuple[int, int] = (12, 1), **how: Any
) -> tuple[Gathered, list[tuple[int, int, str]]]:
    (folder / "root/bin").mkdir(parents=True)
    (folder / "root/bin/nvcc").write_text(NVCC.replace("{text}", str(folder / "text")))
    (folder / "root/bin/nvcc").chmod(0o755)
    nvcc = Nvcc(
        root=str(folder / "root"), host="/usr/bin/c++", source="", architecture="121a", flags=(),
        folder=str(folder / "units"),
    )  # fmt: skip
    host = HostCompiler(c="", cxx="", identification="", target="", sha256="")
    order = fake.FakeOrder(nvcc=nvcc, given=Given(host=host, folder=""), only=only)
    opener = fake.FakeOpener(capability=capability)
    said: list[tuple[int, int, str]] = []
    found = gather_on(
        opener, opener.look(), order, at_once=1, progress=lambda *one: said.append(one), **how
    )
    return found, said


@pytest.mark.parametrize(
    ("capability", "made", "target"),
    [((12, 1), "native", ".target sm_121a"), ((9, 0), "retargeted", ".target sm_90a")],
)
def test_the_very_probes_are_compiled_assembled_and_judged(
    fake: Any, tmp_path: Path, capability: tuple[int, int], made: str, target: str
) -> None:
    (tmp_path / "text").write_text(fake.TEXT)
    heard: list[Probed] = []
    found, said = gathered(
        fake, tmp_path, "plus_two", "wild", "right", capability=capability, found=heard.append
    )
    assert {one.name: (one.outcome, one.made) for one in found.probes.values()} == {
        "right": ("right", made), "plus_two": ("wrong", made), "wild": ("wrong", made),
    }  # fmt: skip
    assert list(found.probes) == ["right", "plus_two", "wild"], "in the catalogue's order"
    assert sorted(one.name for one in heard) == ["plus_two", "right", "wild"]
    assert said[-1][:2] == (3, 3)
    assert target in (tmp_path / "units/unit.cubin").read_text()
    assert ".target sm_121a" in (tmp_path / "units/unit.ptx").read_text()
    assert found.units["unit"].cubin_sha256


def test_the_first_wrong_one_may_be_enough(fake: Any, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(fake.TEXT)
    found, _ = gathered(fake, tmp_path, "right", "plus_two", "spills", first=True)
    assert list(found.probes) == ["right", "plus_two"]


def test_a_unit_that_does_not_compile_costs_its_probes(fake: Any, tmp_path: Path) -> None:
    found, _ = gathered(fake, tmp_path, "right", "spills")
    assert {one.outcome for one in found.probes.values()} == {"not compiled"}
    assert not found.units["unit"].compiled
    assert "no such unit" in found.probes["right"].reason


def test_a_probe_that_nobody_knows_is_refused_before_anything_is_compiled(
    fake: Any, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="rihgt") as caught:
        gathered(fake, tmp_path, "rihgt")
    assert "right" in caught.value.next_step
    assert not (tmp_path / "units").exists()
