"""What the catalogue says of the canaries that ship."""

from __future__ import annotations

import pytest

from sparkbuild.canary.catalogue import (
    DATA,
    PICTURE_BOUND,
    TEXT_BOUND,
    Canary,
    load_catalogue,
)
from sparkbuild.canary.suite import load_suite

SHIPPED = load_catalogue().canaries


@pytest.mark.parametrize("entry", SHIPPED, ids=[entry.name for entry in SHIPPED])
def test_every_reference_was_compared_with_pytorch_and_is_within_its_bound(entry: Canary) -> None:
    names = [name for name in (entry.suite, entry.mix_suite) if name is not None]
    suites = [load_suite(DATA / name)[0] for name in names]
    found = entry.pytorch
    assert found is not None
    assert found.compared == found.of == sum(len(suite.references) for suite in suites)
    assert found.worst <= TEXT_BOUND
    assert (found.worst_picture is None) == (entry.vision is None)
    assert (found.worst_picture or 0) <= PICTURE_BOUND
