"""How many compilers may run, and how long the rest takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.build.jobs import (
    CPP_BYTES,
    CUDA_BYTES,
    GIB,
    RESERVED_BYTES,
    available_memory,
    job_count,
    usable_cores,
)
from sparkbuild.build.progress import minutes, remaining_seconds


@pytest.mark.parametrize(
    ("cores", "gib", "cuda", "jobs"),
    [
        (20, 118, True, 20),  # a Spark at rest
        (20, 40, True, 7),
        (20, 40, False, 20),
        (16, 14, False, 8),
        (1.5, 64, False, 2),
        (8, 3, True, 1),
        (8, 0, False, 1),
    ],
)
def test_cores_and_memory_decide(cores: float, gib: float, cuda: bool, jobs: int) -> None:
    assert job_count(cores, int(gib * GIB), cuda=cuda) == jobs


@given(st.floats(0.1, 512), st.integers(0, 1 << 45), st.booleans())
def test_jobs_never_ask_for_more_than_there_is(cores: float, available: int, cuda: bool) -> None:
    jobs = job_count(cores, available, cuda=cuda)
    share = CUDA_BYTES if cuda else CPP_BYTES
    assert 1 <= jobs <= cores + 1
    assert jobs == 1 or jobs * share + RESERVED_BYTES <= available


def test_cgroup_limits_count(tmp_path: Path) -> None:
    """The root group's files stand for those of any group above the process."""
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB}\n")
    assert usable_cores(tmp_path) == 0.5
    assert available_memory(tmp_path) <= 2 * GIB


def test_a_full_cgroup_has_nothing_left(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("100")
    (tmp_path / "memory.current").write_text("200")
    assert available_memory(tmp_path) == 0


@pytest.mark.parametrize("text", ["max 100000", "", "1", "x y", "100000 0", "\N{SNOWMAN}"])
def test_no_limit_or_no_sense_is_no_limit(text: str, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text, encoding="utf-8")
    (tmp_path / "memory.max").write_text("max")
    (tmp_path / "memory.current").write_text("1")
    assert usable_cores(tmp_path) == usable_cores(tmp_path / "none")
    assert available_memory(tmp_path) > 0


@given(
    st.one_of(st.none(), st.floats(0, 1e6)), st.integers(0, 400), st.integers(0, 400),
    st.floats(0, 1e6), st.floats(0, 1e6),
)  # fmt: skip
def test_an_estimate_is_never_negative(
    previous: float | None, finished: int, total: int, seconds: float, since: float
) -> None:
    left = remaining_seconds(previous, finished=finished, total=total, seconds=seconds, since=since)
    assert left is None or left >= 0
    assert (left is None) == (finished == 0)
    if finished and finished >= total:
        assert left == 0


def test_a_steady_build_is_estimated_exactly() -> None:
    left: float | None = None
    for finished in range(1, 101):
        left = remaining_seconds(left, finished=finished, total=100, seconds=2 * finished, since=2)
        assert left == pytest.approx(2 * (100 - finished))


def test_one_slow_step_does_not_make_the_estimate_jump() -> None:
    before = remaining_seconds(None, finished=50, total=100, seconds=50, since=1)
    after = remaining_seconds(before, finished=51, total=100, seconds=110, since=60)
    assert before == 50
    assert after is not None
    assert after < 15


def test_minutes() -> None:
    assert [minutes(s) for s in (0, 65, 3599.6)] == ["0:00", "1:05", "60:00"]
