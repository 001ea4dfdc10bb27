"""The faults of toolkits, files, servers and the pipeline as they are in the catalogue."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from sparkbuild.faults.catalogue import load_faults
from sparkbuild.faults.edit import Take
from sparkbuild.faults.model import (
    BinarySeed,
    Fault,
    Kind,
    ModelSeed,
    RecipesSeed,
    ServerSeed,
    ToolkitSeed,
)
from sparkbuild.faults.planters import PLANTERS
from sparkbuild.faults.seeds.model import CANARIES
from sparkbuild.manifest import find_recipes

CATALOGUE = Path(__file__).parents[2] / "faults"
KINDS: tuple[Kind, ...] = ("toolkit", "file", "server", "pipeline")
FAULTS = [fault for fault in load_faults(CATALOGUE).every if fault.kind in KINDS]
EMPTY = {"failed", "error", "wrong", "expected", "found", "fault", "refused", "not", "the", "is"}
"""Words that any refusal holds."""


def of(kind: type) -> list[Fault]:
    return [fault for fault in FAULTS if isinstance(fault.seed, kind)]


def test_there_are_enough_of_every_kind_and_quick_ones_of_each() -> None:
    counted = Counter(fault.kind for fault in FAULTS)
    assert sum(counted.values()) >= 90
    assert min(counted[kind] for kind in KINDS) >= 12
    fast = Counter(fault.kind for fault in FAULTS if fault.fast)
    assert min(fast[kind] for kind in KINDS) >= 4
    assert {fault.reach for fault in FAULTS} >= {
        "everything", "one type", "second request", "drafts", "pictures", "concurrency",
    }  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_its_words_tell_what_is_wrong(fault: Fault) -> None:
    said = {word for text in fault.says for word in re.findall(r"\w+", text.casefold())}
    assert said - EMPTY, fault.says
    assert all(len(text) >= 3 or text.isdigit() for text in fault.says)
    assert not fault.report or fault.report.startswith("https://")
    assert len(fault.summary) < 160
    assert fault.seed.__class__ in PLANTERS


@pytest.mark.parametrize("fault", of(ServerSeed), ids=lambda fault: fault.id)
def test_what_breaks_is_known_to_the_program(fault: Fault) -> None:
    assert isinstance(fault.seed, ServerSeed)
    text = (CATALOGUE / "servers" / "between.py").read_text()
    named = set(re.findall(r'BREAKS [!=]= "(\w+)"', text))
    named |= set(re.findall(r"^def (\w+)\(path: str, status", text, re.MULTILINE))
    assert fault.seed.breaks in named


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_every_file_that_it_names_is_there(fault: Fault) -> None:
    seed = fault.seed
    texts = [str(seed)] if not isinstance(seed, (ModelSeed, RecipesSeed)) else []
    if isinstance(seed, ModelSeed):
        files = [CANARIES / seed.file, CANARIES / seed.mmproj, CATALOGUE / "suites" / seed.suite]
        assert all(file.exists() for file in files)
    if isinstance(seed, RecipesSeed):
        assert seed.variant in find_recipes(None).patchset_names()
        texts += [edit.source for edit in seed.edits if isinstance(edit, Take)]
    for name in re.findall(r"\{catalogue\}/([\w./-]+)", " ".join(texts)):
        assert (CATALOGUE / name).is_file(), name


@pytest.mark.parametrize("fault", of(ToolkitSeed), ids=lambda fault: fault.id)
def test_a_toolkit_fault_needs_the_roots_that_it_takes_parts_of(fault: Fault) -> None:
    assert isinstance(fault.seed, ToolkitSeed)
    taken = set(re.findall(r"\{toolkits\}/([\w.-]+)/", str(fault.seed)))
    assert set(fault.needs) == taken | ({fault.seed.root} - {""})


@pytest.mark.parametrize("fault", of(BinarySeed), ids=lambda fault: fault.id)
def test_a_binary_fault_needs_its_compiler(fault: Fault) -> None:
    assert isinstance(fault.seed, BinarySeed)
    assert fault.needs == (fault.seed.toolkit,)
