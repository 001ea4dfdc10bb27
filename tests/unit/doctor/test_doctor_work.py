"""What the doctor gathers beside the live reading: compilers and their trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.doctor_work import is_the_drivers, other_compilers
from sparkbuild.errors import HostError
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.model import Trial
from sparkbuild.toolkit.trial.trial import _check_driver


def trial(*, cudart: int, driver: int) -> Trial:
    return Trial(
        nvcc="13.0.88", nvcc_build=None, cudacc="13.0.88", cudart=cudart, cublas="13.1.0.3",
        codes=(), object_targets=(), host_compiler="GNU 12.2.0", glibc="2.39", runtime=cudart,
        driver=driver, folder="/none",
    )  # fmt: skip


def test_a_driver_that_is_too_old_is_no_fault_of_the_compiler() -> None:
    with pytest.raises(HostError) as refused:
        _check_driver(trial(cudart=13000, driver=12080))
    assert is_the_drivers(refused.value)
    assert not is_the_drivers(HostError("GNU 16 does not go", problems=["first error: driver"]))


def test_other_compilers_newest_first_and_what_they_say_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links to the one that is here, under names of releases; a pair is needed, and an answer."""
    host = find_host_compiler()
    if not host.identification.startswith("GNU"):
        pytest.skip("the host compiler here is not GCC")
    for release in (9, 13):
        (tmp_path / f"g++-{release}").symlink_to(host.cxx)
        (tmp_path / f"gcc-{release}").symlink_to(host.c)
    (tmp_path / "g++-14").symlink_to(host.cxx)  # without its gcc-14
    for name in ("g++-15", "gcc-15"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
    (tmp_path / "g++-x").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}")
    found = list(other_compilers())
    assert [Path(one.cxx).name for one in found] == ["g++-13", "g++-9"]
    assert {one.identification for one in found} == {host.identification}
    assert {Path(one.c).name for one in found} == {"gcc-13", "gcc-9"}
