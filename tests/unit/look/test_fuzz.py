"""Tens of thousands of damaged files: each is taken or refused, in little time and memory."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from sparkbuild.inspect_binary import see_binary, see_wheel
from sparkbuild.inspect_seen import Seen
from sparkbuild.manifest import Recipes, find_recipes
from sparkbuild.model.asked import GIB, Asked, Machine
from sparkbuild.model.inspection import document, inspect
from sparkbuild.model.read import Model, read_model
from sparkbuild.model.tower import inspect_tower, is_tower
from sparkbuild.report.models import inspection_view
from sparkbuild.report.towers import tower_view

from .elf import Elf, fatbin, kernel
from .fuzz import Campaign
from .gguf import small, small_tower
from .wheels import ours, strange

MODELS = 20_000
BINARIES = 4_000
WHEELS = 4_000
DRAWN = 200
"""One in so many is drawn on a screen as well, which takes ten times as long."""
SECONDS = 2.0
"""Of processor time for one file, and bytes of memory for all: far above what they take, far below
what a hostile file could ask for."""
MEMORY = 300 << 20
ASKED = Asked(context=4096, speculation=("draft-mtp",))
ROOM = Machine(available=64 * GIB, total=128 * GIB)


def drawn(view: object) -> None:
    """A screen of it holds nothing that steers a terminal."""
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(view, crop=False)
    assert all(line.isprintable() for line in out.getvalue().split("\n")), out.getvalue()


def check(campaign: Campaign, count: int) -> None:
    assert campaign.taken + campaign.refused == count
    assert min(campaign.taken, campaign.refused) > count // 20, campaign
    assert campaign.slowest < SECONDS, campaign
    assert campaign.grown < MEMORY, campaign


def look_at_model(path: Path, number: int) -> None:
    model = read_model(path)
    if is_tower(model):
        look_at_tower(model, number)
        return
    found = inspect(model, None, None, ASKED, ROOM)
    json.dumps(document(found)).encode()
    for one in found.findings:
        assert one.found.isprintable(), one
        assert one.expected.isprintable(), one
    if number % DRAWN == 0:
        drawn(inspection_view(found))


def look_at_tower(model: Model, number: int) -> None:
    found = inspect_tower(model, None)
    for one in found.findings:
        assert one.found.isprintable(), one
    if number % DRAWN == 3:
        drawn(tower_view(found))


def test_models() -> None:
    campaign = Campaign(seed=11434)
    campaign.run(MODELS, [small(), small(), small(), small_tower()], look_at_model)
    check(campaign, MODELS)


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    return find_recipes(None)


def shown(seen: Seen, number: int) -> None:
    json.dumps(seen.document).encode()
    if number % DRAWN == 0:
        drawn(seen.view)


def test_binaries(recipes: Recipes) -> None:
    libraries = [
        Elf(fatbin=fatbin("s121a", "b"), build=11434, commit="0f834b00eb9e").data(),
        Elf(texts=("unknown model architecture: '", "qwen35", kernel(8, 8)), rpath="/opt").data(),
        Elf(fatbin=fatbin("s121asize"), relocated=False, commit="0f83").data(),
    ]
    campaign = Campaign(seed=5)
    campaign.run(BINARIES, libraries, lambda path, n: shown(see_binary(path, recipes), n))
    check(campaign, BINARIES)


def test_wheels(recipes: Recipes) -> None:
    campaign = Campaign(seed=6)
    campaign.run(WHEELS, [ours(), strange()], lambda path, n: shown(see_wheel(path, recipes), n))
    check(campaign, WHEELS)
