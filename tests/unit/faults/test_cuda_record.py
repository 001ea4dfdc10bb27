"""What a real GPU made of faults in CUDA code: the smoke stage refused each that was planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.errors import SmokeError
from sparkbuild.faults.catalogue import load_faults, on_gpu

_TESTS = Path(__file__).parents[2]
RECORD: dict[str, Any] = json.loads((_TESTS / "data/runs/faults-cuda-sm90.json").read_text())
FAULTS = {fault.id: fault for fault in load_faults(_TESTS / "faults").every if on_gpu(fault)}


def test_every_fault_in_cuda_code_was_planted_or_is_said_not_to_have_been() -> None:
    planted = [one["id"] for one in RECORD["planted"]]
    assert sorted([*planted, *RECORD["not_run"]]) == sorted(FAULTS)
    assert len(planted) >= 20


@pytest.mark.parametrize("one", RECORD["planted"], ids=lambda one: one["id"])
def test_what_was_planted_was_refused_in_the_words_that_the_catalogue_wants(
    one: dict[str, Any],
) -> None:
    assert (one["stage"], one["exit_code"]) == ("smoke", SmokeError.exit_code)
    for word in FAULTS[one["id"]].says:
        assert word in one["message"]
