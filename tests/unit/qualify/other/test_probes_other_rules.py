"""The probes' rules against what ggml's CPU side computed of the same inputs."""

from pathlib import Path

import numpy as np
import pytest

from .operations import OPERATIONS, Arrays

RECORDED = Path(__file__).parents[3] / "data/qualify/operations-b11434-cpu.npz"


def recorded(name: str) -> Arrays:
    with np.load(RECORDED) as kept:
        return {key.partition("|")[2]: kept[key] for key in kept if key.split("|")[0] == name}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_rule_gives_what_the_cpu_side_gave(name: str) -> None:
    operation, given = OPERATIONS[name], recorded(name)
    found, right = operation.rule(given), given[""].astype(np.float64)
    value, error = found.value.ravel(), found.error.ravel()
    infinite = np.isinf(right)
    assert (value[infinite] == right[infinite]).all()
    off, size = np.abs(value[~infinite] - right[~infinite]), np.abs(right[~infinite]).max()
    assert (off <= operation.near * size).all(), off.max() / size
    judged = np.isfinite(error)
    assert judged.mean() > 0.9
    assert np.median(error[judged & ~infinite]) < 1e-3 * size
