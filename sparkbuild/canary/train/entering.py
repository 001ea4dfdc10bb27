"""A trained canary becomes one that ships: files, suites, catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from sparkbuild.canary.catalogue import Catalogue
from sparkbuild.canary.gguf.derive import Derived
from sparkbuild.canary.run import Setup
from sparkbuild.canary.train.exam import EXAMS
from sparkbuild.canary.train.making import MIX_SUITE, SUITE, enter, entry_of, forms_of, make
from sparkbuild.canary.train.mixing import PREMADE, make_premade
from sparkbuild.canary.train.oracle import Weighed, check_numbers
from sparkbuild.canary.train.recording import Bench, Recorded, record
from sparkbuild.manifest import unknown_name


@dataclass(frozen=True, kw_only=True)
class Entered:
    """What was recorded, by kind of suite, and the catalogue with it."""

    catalogue: Catalogue
    recorded: dict[str, Recorded]


def enter_canary(
    name: str,
    trained: Path,
    *,
    source: Path,
    setup: Setup,
    quantiser: Path,
    data: Path,
    workdir: Path,
    tell: Callable[[str], None],
) -> Entered:
    """Convert, quantise, try, record, check and list canary ``name`` in the folder ``data``.

    ``trained`` is what the trainer wrote, ``source`` the llama.cpp tree, ``setup`` a build's server
    (its model and tower are set here). Limits are written by hand, from measured noise: without
    them everything is recorded and the entry refused; so it is where reference numbers are not
    PyTorch's. Raises UnknownNameError, CanaryError.
    """
    if name not in EXAMS:
        raise unknown_name("canary", name, list(EXAMS), Path(__file__).with_name("exam.py"))
    exam, folder = EXAMS[name], data / name
    made = make(
        name,
        trained,
        source=source,
        quantiser=quantiser,
        folder=folder,
        workdir=workdir,
        tell=tell,
    )
    bench = Bench(
        setup=replace(setup, model=made.model, vision=made.vision, form="q8_0", cache="f16"),
        quantiser=quantiser,
        workdir=workdir,
    )
    recorded = {"master": record(name, exam, bench, folder / SUITE, tell=tell)}
    premade = None
    if "mix" in exam.forms:
        tell("the form mix")
        premade = make_premade(
            made.model, folder / PREMADE, source=source, quantiser=quantiser, workdir=workdir
        )
        recorded["mix"] = record(name, exam, bench, folder / MIX_SUITE, kind="mix", tell=tell)
    tell("catalogue")
    forms = forms_of(
        made.model, exam.forms, quantiser=quantiser, folder=workdir / "forms", premade=premade
    )
    entry = entry_of(name, exam.summary, data, drafts=exam.drafts, forms=forms)
    compared = check_numbers(
        trained,
        made.model,
        _suites(folder, forms),
        vision=made.vision,
        workdir=workdir / "pytorch",
        tell=tell,
    )
    entry = msgspec.structs.replace(entry, pytorch=compared)
    return Entered(catalogue=enter(data, entry), recorded=recorded)


def _suites(folder: Path, forms: Mapping[str, Derived]) -> list[Weighed]:
    """Every suite of a canary with the file whose numbers it has."""
    found = [Weighed(suite=folder / SUITE)]
    if "mix" in forms:
        found.append(Weighed(suite=folder / MIX_SUITE, model=forms["mix"].path))
    return found
