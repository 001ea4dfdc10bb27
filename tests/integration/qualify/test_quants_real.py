"""Quantised types of the pinned source: references, rules and units, and real compilers' code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkbuild.manifest import current_platform, find_recipes
from sparkbuild.qualify.compile import Nvcc, compile_unit
from sparkbuild.qualify.flags import foretold
from sparkbuild.qualify.judge import judge
from sparkbuild.qualify.probes import quants, vec_dot
from sparkbuild.qualify.probes.inputs import Partner, random_blocks, random_partner
from sparkbuild.qualify.probes.tiles import configs
from sparkbuild.qualify.probes.vec_dot_sums import HEADER, RULES, make_sums
from sparkbuild.qualify.ptx.read import read_module
from sparkbuild.qualify.reference.library import Library, build_library
from sparkbuild.qualify.reference.numpy_quants import disagreements
from sparkbuild.qualify.reference.references import References
from sparkbuild.qualify.reference.source import SourceFacts, read_source
from sparkbuild.toolkit.book import Book, read_book
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.provision.provision import install

SLOW_TO_QUANTIZE = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s"})
"""Seconds each: their quantisers first work out a grid, and no kernel here writes them."""
ARCHS = ("121a", "90")
BROKEN = frozenset({"iq1_s", "iq2_s", "iq3_s"})


@pytest.fixture(scope="session")
def source(real_source: Path) -> SourceFacts:
    return read_source(real_source)


@pytest.fixture(scope="session")
def library(real_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build_library(real_source, tmp_path_factory.mktemp("ref"), find_host_compiler())


@pytest.fixture(scope="session")
def references(library: Library) -> References:
    return References(lambda: library)


def test_library_is_built_once_and_nothing_else_is_left(
    real_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = find_host_compiler()
    first = build_library(real_source, tmp_path, host)
    assert sorted(path.name for path in tmp_path.iterdir()) == [first.path.name, "reference.lock"]

    def never(*arguments: object, **more: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr("sparkbuild.qualify.reference.library.capture", never)
    assert build_library(real_source, tmp_path, host).path == first.path


def test_references_agree_bit_for_bit(library: Library) -> None:
    assert not disagreements(library, library.types)


def test_library_knows_the_types_that_the_headers_have(
    library: Library, source: SourceFacts
) -> None:
    for kind in source.types.values():
        assert library.types[kind.name].number == kind.number
        assert library.types[kind.name].size == kind.size
        if kind.elements:
            assert library.types[kind.name].elements == kind.elements


def test_quantised_rows_come_back_and_meet_their_partners(library: Library) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 1024)).astype(np.float32)
    for kind in library.types.values():
        if kind.partner < 0 or kind.name in SLOW_TO_QUANTIZE:
            continue
        blocks = library.quantize(kind.name, x[None])[0]
        back = library.dequantize(kind.name, blocks.reshape(-1, kind.size)).ravel()
        assert np.corrcoef(back, x)[0, 1] > 0.5  # of the coarsest, one bit and three values
        found = library.vec_dot(kind.name, blocks, library.quantize_partner(kind.name, y))
        assert abs(found - float(back @ y)) < 0.02 * np.linalg.norm(back) * np.linalg.norm(y) ** 0.5


def test_every_dot_product_of_the_source_has_a_rule(source: SourceFacts) -> None:
    kinds = vec_dot.types_of(source)
    assert len(kinds) == source.text[HEADER].count("_q8_1(\n    const void * __restrict__ vbq") + 1
    assert [kind.name for kind in kinds if vec_dot.rule_of(source, kind) is None] == []


def test_rules_add_up_to_what_both_references_say(
    source: SourceFacts, references: References
) -> None:
    for kind in vec_dot.types_of(source):
        rule = RULES[kind.name]
        rng = np.random.default_rng(2)
        blocks, some = random_blocks(kind, 64, rng, wild=False), random_partner(kind, 64, rng)
        sums = some.d * some.q.reshape(64, -1, 32).sum(-1)
        elements = rule.elements(kind.ints // rule.step)
        partner = Partner(some.d, sums, some.q)
        found = rule.combine(make_sums(source, references, blocks, partner, elements))
        values = references.library.dequantize(kind.name, blocks.data)
        terms = values * np.repeat(some.d, 32, 1) * some.q
        off = np.abs(found.value.sum(1) - terms.sum(1))
        # What iq2 and iq3 cut off in whole numbers, and q4_1 and q5_1 in f16, is the source's loss.
        lossy = {"iq2": 0.02, "iq3": 0.02, "q4_1": 1e-3, "q5_1": 1e-3}
        cut = next((loss for mark, loss in lossy.items() if kind.name.startswith(mark)), 1e-6)
        assert (off <= cut * np.abs(terms).sum(1)).all(), kind.name


@pytest.mark.parametrize("arch", ARCHS)
def test_everything_is_covered(source: SourceFacts, references: References, arch: str) -> None:
    assert quants.not_covered(source, references, arch) == ()
    units = quants.quant_units(source, arch)
    probes = quants.quant_probes(source, references, arch)
    assert {probe.unit for probe in probes} == set(units)
    assert len({probe.name for probe in probes}) == len(probes)
    four = [config.kind.name for config in configs(source, arch) if config.fp4]
    assert four == (["mxfp4", "nvfp4"] if arch == "121a" else [])
    assert {kind for probe in probes if probe.urgent for kind in probe.types} == BROKEN


Judge = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="session")
def judged(
    real_source: Path, source: SourceFacts, references: References, real_work: Path, book: Book
) -> Judge:
    """A function: every probe of a release's code for an arch, by its name."""

    def run(release: str, arch: str) -> dict[str, Any]:
        platform: Any = current_platform()
        root = real_work / "toolkits" / f"cuda-{release}.compilers" / platform
        install(book, f"cuda-{release}", platform, root=root, downloads=real_work / "downloads",
                progress=lambda *_: None, compilers=True)  # fmt: skip
        nvcc = Nvcc(
            root=str(root), host=find_host_compiler().cxx, source=str(real_source),
            architecture=arch, flags=foretold({}),
            folder=str(real_work / f"probes-{release}-{arch}"),
        )  # fmt: skip
        modules = {}
        for name, text in quants.quant_units(source, arch).items():
            unit = compile_unit(nvcc, name, text)
            assert unit.compiled, unit.error
            modules[name] = read_module(Path(unit.ptx).read_text())
        probes = quants.quant_probes(source, references, arch)
        return {probe.name: judge(probe, modules[probe.unit]).probed for probe in probes}

    return run


@pytest.fixture(scope="session")
def book() -> Book:
    return read_book(find_recipes(None))


def _asked(release: str) -> None:
    asked = os.environ.get("SPARKBUILD_TEST_RELEASES", "").split()
    if release not in asked and "all" not in asked:
        pytest.skip("SPARKBUILD_TEST_RELEASES does not name this release")


@pytest.mark.cuda_toolkit
@pytest.mark.parametrize("arch", ARCHS)
def test_a_right_compiler_is_right(judged: Judge, arch: str) -> None:
    found = judged("13.0", arch)
    assert {name: one for name, one in found.items() if one.outcome != "right"} == {}


@pytest.mark.cuda_toolkit
def test_13_2_51_breaks_three_types_and_nothing_else(judged: Judge) -> None:
    _asked("13.2.0")
    found = judged("13.2.0", "121a")
    wrong = {name: one for name, one in found.items() if one.outcome != "right"}
    assert {kind for one in wrong.values() for kind in one.types} == BROKEN
    for kind in BROKEN:
        assert {f"vec_dot {kind}", f"mul_mat_q {kind}", f"mul_mat_vec_q {kind}"} <= set(wrong)
    assert {one.mistake.kind for one in wrong.values()} == {"out of bounds"}
