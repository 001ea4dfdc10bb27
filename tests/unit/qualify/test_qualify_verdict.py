"""One verdict from many probes, what is said of it, and when it may be believed again."""

import io
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console

from sparkbuild.qualify import kept, verdict
from sparkbuild.qualify.bench import Gathered
from sparkbuild.qualify.coverage import DeviceFunction, covered
from sparkbuild.qualify.kept import Subject
from sparkbuild.qualify.model import (
    Compiler,
    FileCoverage,
    Mistake,
    Place,
    Probed,
    Qualification,
    Unit,
)
from sparkbuild.qualify.ptx.model import Location
from sparkbuild.report.qualification import qualification_view
from sparkbuild.toolkit.model import HostCompiler

COMPILER = Compiler(
    toolkit="cuda-13.2.0", cicc="13.2.51", platform="linux-x86_64", architecture="121a",
    flags=("-O3",), tree="7b29e0ab6fb9" + "0" * 28,
)  # fmt: skip
HOST = HostCompiler(
    c="/usr/bin/cc", cxx="/usr/bin/c++", identification="GNU 12.2.0", target="x", sha256="c"
)
RIGHT = Probed(
    name="vec_dot_q8_0", unit="vec_dot", kind="vec_dot", outcome="right", types=("q8_0",),
    cases=2, compared=4096, margin=0.25,
)  # fmt: skip
WRONG = Probed(
    name="vec_dot_iq3_s", unit="vec_dot", kind="vec_dot", outcome="wrong", types=("iq3_s",),
    cases=1, compared=2048,
    mistake=Mistake(
        case="random", kind="value", text="o[3]: expected 1.5 within 1e-06, found -7",
        where=Place(ptx_line=812, instruction="st.global.b32", source="vecdotq.cuh:1034 in f"),
        wrong=2047, compared=2048, nmse=0.59,
    ),
)  # fmt: skip
OPEN = Probed(
    name="flash", unit="attention", kind="attention", outcome="unsupported",
    reason="tcgen05.mma is not known",
)  # fmt: skip
LOST = Probed(
    name="rope", unit="rope", kind="rope", outcome="not compiled", reason="status 1: error: no"
)


def concluded(*probes: Probed, units: tuple[Unit, ...] = ()) -> Qualification:
    gathered = Gathered(
        units={unit.name: unit for unit in units}, probes={probe.name: probe for probe in probes}
    )
    return verdict.conclude(
        COMPILER, gathered, uncovered=("q9_9",), seconds=1.0, key="k",
        coverage=[FileCoverage(file="vecdotq.cuh", executed=("a", "b"), missed=("c",))],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("probes", "expected", "reason"),
    [
        ((RIGHT,), "right", "1 probes executed, 4096 values right"),
        ((RIGHT, OPEN), "incomplete", "1 of 2 probes could not be judged"),
        ((RIGHT, LOST), "incomplete", "1 of 2 probes could not be judged"),
        ((RIGHT, OPEN, WRONG), "wrong", "1 of 3 probes are wrong: iq3_s"),
        ((), "incomplete", "no probe was run"),
    ],
)
def test_what_could_not_be_judged_is_never_right(
    probes: tuple[Probed, ...], expected: str, reason: str
) -> None:
    found = concluded(*probes)
    assert (found.verdict, found.reason) == (expected, reason)


def test_units_that_did_not_compile_are_named() -> None:
    unit = Unit(name="rope", compiled=False, seconds=1.0, error="status 1: error: no")
    assert concluded(RIGHT, LOST, units=(unit,)).reason.endswith(", rope did not compile")


def test_the_refusal_says_what_where_and_what_next() -> None:
    error = verdict.refusal(concluded(RIGHT, WRONG), [Path("/record")])
    assert error.exit_code == 10
    assert error.message == "cuda-13.2.0 emits wrong code for these sources (iq3_s)"
    assert error.problems == (
        (
            "vec_dot_iq3_s: random: o[3]: expected 1.5 within 1e-06, found -7, 2047 of 2048 wrong, "
            "vecdotq.cuh:1034 in f, PTX line 812 (st.global.b32)"
        ),
    )
    assert error.evidence == (Path("/record"),)
    assert "toolkit list" in error.next_step


def test_several_targets_are_as_good_as_the_worst() -> None:
    other = structs.replace(concluded(WRONG), compiler=structs.replace(COMPILER, architecture="90"))
    both = verdict.merged([concluded(RIGHT), other])
    assert both.verdict == "wrong"
    assert [probe.name for probe in both.probes] == ["121a/vec_dot_q8_0", "90/vec_dot_iq3_s"]
    assert both.compiler
    assert both.compiler.architecture == "121a 90"
    assert both.key == "k k"
    assert verdict.merged([other]) is other


def test_a_person_reads_the_mistake_the_gaps_and_the_coverage() -> None:
    console = Console(width=120, record=True, no_color=True, file=io.StringIO())
    console.print(qualification_view(concluded(RIGHT, WRONG, OPEN, LOST)))
    text = console.export_text()
    for words in (
        "cuda-13.2.0, cicc 13.2.51, linux-x86_64", "wrong: 1 of 4 probes are wrong: iq3_s",
        "vec_dot_iq3_s (iq3_s): o[3]: expected 1.5 within 1e-06, found -7",
        "first in: random; 2047 of 2048 values wrong, NMSE 0.59", "source: vecdotq.cuh:1034 in f",
        "PTX: line 812, st.global.b32", "flash: unsupported: tcgen05.mma is not known",
        "rope: not compiled: status 1: error: no", "no probe is there for: q9_9",
        "2 of 3 device functions of these files were executed; --missed names the others",
    ):  # fmt: skip
        assert words in text, words


def test_what_was_missed_is_named_where_it_is_asked_for() -> None:
    console = Console(width=120, record=True, no_color=True, file=io.StringIO())
    console.print(qualification_view(concluded(RIGHT), missed=True))
    text = console.export_text()
    assert "vecdotq.cuh" in text
    assert text.index("not executed") < text.rindex(" c")


def subject(**changes: object) -> Subject:
    plain = Subject(
        compiler=COMPILER, root="/cuda", parts={"cicc": "a", "ptxas": "b"}, host=HOST,
        source="/tree",
    )  # fmt: skip
    from dataclasses import replace

    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_verdict_is_known_only_for_the_very_same(tmp_path: Path) -> None:
    path, key = tmp_path / "v.json", subject().key
    kept.keep(path, structs.replace(concluded(RIGHT), key=key))
    known = kept.known(path, key)
    assert known
    assert known.cached
    assert known.probes == (RIGHT,)
    assert kept.known(path, subject(parts={"cicc": "z", "ptxas": "b"}).key) is None
    path.write_bytes(path.read_bytes()[:-20])
    assert kept.known(path, key) is None, "a torn file"
    assert kept.known(tmp_path / "none", key) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": {"cicc": "a", "ptxas": "z"}},
        {"host": structs.replace(HOST, sha256="z")},
        {"compiler": structs.replace(COMPILER, architecture="120a")},
        {"compiler": structs.replace(COMPILER, flags=("-O1",))},
        {"compiler": structs.replace(COMPILER, tree="z")},
        {"compiler": structs.replace(COMPILER, platform="linux-aarch64")},
        {"compiler": structs.replace(COMPILER, executor="gpu", device="H200")},
    ],
)
def test_everything_that_decides_is_in_the_key(changes: dict[str, object]) -> None:
    assert subject(**changes).key != subject().key


def test_places_do_not_decide() -> None:
    assert subject(root="/opt/cuda", source="/moved").key == subject().key


def test_the_probes_themselves_are_in_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "b.cu").write_text("2")
    monkeypatch.setattr(kept, "_CODE", tmp_path)
    before = kept.code_digest()
    (tmp_path / "b.cu").write_text("3")
    assert kept.code_digest() != before


def test_a_function_counts_as_executed_where_a_line_of_it_was_inlined_or_not() -> None:
    functions = {
        "a.cuh": [DeviceFunction(name="one", first=1, last=9),
                  DeviceFunction(name="two", first=11, last=19)],
        "b.cu": [DeviceFunction(name="three", first=5, last=6)],
    }  # fmt: skip
    kernel = Location(file="/unit.cu", line=3)
    inside = Location(file="/src/ggml-cuda/a.cuh", line=12, function="two", inlined=kernel)
    assert covered(functions, [inside]) == (
        FileCoverage(file="a.cuh", executed=("two",), missed=("one",)),
        FileCoverage(file="b.cu", executed=(), missed=("three",)),
    )
    outer = Location(file="b.cu", line=5)
    deep = Location(file="a.cuh", line=9, inlined=outer)
    assert [one.executed for one in covered(functions, [deep])] == [("one",), ("three",)]


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN46_INTERNAL_4bffb0e9_10_vec_dot_cu_88e98d75_384618vec_dot_iq1_s_q8_1EPKvPK10block_q8_1",
         "vec_dot_iq1_s_q8_1"),
        ("_Z15mul_mat_q_fixupIL9ggml_type2EEvPKc", "mul_mat_q_fixup"),
        ("_ZNK5outer5innerILi3EE4loadEv", "inner"),
        ("plain", "plain"), ("_Z", "_Z"), ("_Z99short", "short"),
    ],
)  # fmt: skip
def test_a_mangled_name_is_told_as_its_function(mangled: str, name: str) -> None:
    from sparkbuild.qualify.judge import plain_name

    assert plain_name(mangled) == name
