"""The operator suite: what is asked of which model, what is read, how a crash is split off."""

import io
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import JUnitXml
from rich.console import Console

from sparkbuild.canary.catalogue import DATA, load_catalogue
from sparkbuild.errors import ManifestError
from sparkbuild.model.header import Header, Tensor
from sparkbuild.model.read import Model, Shard
from sparkbuild.report.ops import OpsReport, ops_junit, ops_view
from sparkbuild.smoke.ops.ask import Answers, Asked, arguments, ask, ask_again, batches, resolve
from sparkbuild.smoke.ops.console import Case, Reader
from sparkbuild.smoke.ops.need import Need, need_of, together
from sparkbuild.smoke.ops.session import Crash, Ran
from sparkbuild.smoke.ops.suite import SUITE, Question, Role, Suite, load_suite
from sparkbuild.smoke_ops import Listing, _check, need_of_canaries, ops_answer
from sparkbuild.smoke_ops_tally import crash_of, groups_of

CAPTURES = Path(__file__).parent.parent / "data/smoke/ops"
SHIPPED = load_suite()


def read(name: str) -> tuple[Reader, list[Case]]:
    return feed((CAPTURES / name).read_text(errors="replace"))


def feed(text: str) -> tuple[Reader, list[Case]]:
    reader = Reader()
    found = [reader.feed(line) for line in text.split("\n")]
    return reader, [case for case in found if case]


def model(architecture: str, tensors: dict[str, tuple[str, tuple[int, ...]]], **keys: int) -> Model:
    values = {"general.architecture": architecture}
    values |= {f"{architecture}.{name.replace('__', '.')}": n for name, n in keys.items()}  # type: ignore[misc]
    header = Header(
        version=3,
        alignment=32,
        values=dict(values),
        tensors=tuple(
            Tensor(name=name, shape=shape, type=kind, offset=0, bytes=0)
            for name, (kind, shape) in tensors.items()
        ),
        data=0,
    )
    return Model(shards=(Shard(path=Path("m.gguf"), size=0, header=header),))


# What a model asks for


def test_types_are_taken_by_what_a_tensor_is_for() -> None:
    found = need_of(
        model(
            "glm5-next",
            {
                "token_embd.weight": ("q5_K", (64, 100)),
                "output.weight": ("q6_K", (64, 100)),
                "blk.0.attn_q.weight": ("q4_K", (64, 64)),
                "blk.0.attn_norm.weight": ("f32", (64,)),
                "blk.0.ffn_gate_inp.weight": ("bf16", (64, 4)),
                "blk.0.ffn_up_exps.weight": ("iq2_xxs", (64, 64, 4)),
                "blk.0.ffn_up_exps.bias": ("f16", (64, 4)),
                "blk.0.ssm_conv1d_q.weight": ("f16", (4, 1, 64)),
                "blk.0.indexer.kpool_ape.weight": ("f16", (64, 4)),
            },
            attention__key_length=512,
            attention__value_length=512,
        )
    )
    assert found.of("embeddings") == ("q5_K",)
    assert found.of("experts") == ("iq2_xxs",)
    assert found.of("matrices") == ("bf16", "q4_K", "q6_K")
    assert found.heads == {(512, 512)}


def test_without_a_head_of_its_own_the_embedding_is_multiplied_too() -> None:
    tied = need_of(model("llama", {"token_embd.weight": ("q6_K", (64, 100))}))
    assert tied.of("matrices") == tied.of("embeddings") == ("q6_K",)


def test_heads_without_a_length_of_their_own_share_the_width() -> None:
    plain = model("llama", {}, embedding_length=256, attention__head_count=4)
    assert need_of(plain).heads == {(64, 64)}
    tower = model("clip", {})
    tower.values.update(
        {"clip.vision.embedding_length": 144, "clip.vision.attention.head_count": 2}
    )
    assert need_of(tower).heads == {(72, 72)}


def test_the_canaries_together_ask_for_every_quantised_type() -> None:
    files = [DATA / entry.model for entry in load_catalogue().canaries]
    if not all(file.is_file() for file in files):
        pytest.skip("the canaries' model files are not in this checkout")
    need, paths = need_of_canaries(DATA, load_catalogue())
    mixed = re.findall(r'= "(i?q\w+)"', (DATA.parent / "gguf/mix.toml").read_text())
    roles: tuple[Role, ...] = ("matrices", "experts")
    for role in roles:
        assert {kind.lower() for kind in need.of(role)} >= {*mixed, "f16", "bf16"}, role
    assert "glm5-next" in need.architectures
    assert set(files) <= set(paths)


# The suite as data


def test_what_ships_is_whole_and_every_entry_has_a_reason() -> None:
    known = set(SHIPPED.architectures)
    for architecture in known:
        asked = {one.op for one in SHIPPED.asked({architecture}, "cuda")}
        assert {"MUL_MAT", "GET_ROWS", "FLASH_ATTN_EXT", "SET_ROWS", "CPY"} <= asked
    flash = {one.op for one in SHIPPED.asked({"glm5-next"}, "cuda")}
    assert {"GATED_DELTA_NET", "SSM_CONV", "TOP_K", "ARGSORT", "LIGHTNING_INDEXER"} <= flash
    assert {"DSV4_HC_PRE", "DSV4_HC_COMB", "DSV4_HC_POST", "SWIGLU_CLAMP", "NORM"} <= flash
    assert "ROPE" not in flash
    assert "DSV4_HC_PRE" not in {one.op for one in SHIPPED.asked({"llama"}, "cuda")}
    assert all(one.reason for one in SHIPPED.questions)
    assert SHIPPED.likely_wrong(["MUL_MAT iq3_s", "MUL_MAT_ID iq1_s"])[0].startswith("nvcc 13.2.51")
    assert "FP4" in SHIPPED.likely_wrong(["MUL_MAT nvfp4"])[0]
    assert "qualify" in SHIPPED.likely_wrong(["MUL_MAT iq3_s", "ADD"])[0]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('op = "ADD"\n', 'op = "ADD"\narchitectures = ["gemma9"]\n', "gemma9"),
        ("'^type_a={types},type_b=\\w+,m='", "'type_a={types},'", "must begin with"),
        ("'^type_a={types},type_b=\\w+,m='", "'^type_a=({types},'", "no regular expression"),
        ('op = "ADD"\n', 'op = "MUL"\n', "MUL is asked twice"),
        ('key = "type_a"\n', "", "needs `role`, `key`"),
        ('op = "ADD"\n', 'op = "ADD"\nwhy = "x"\n', "why"),
    ],
)
def test_a_suite_that_is_wrong_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = SUITE.read_text()
    assert old in text
    file = tmp_path / "ops.toml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(ManifestError) as refused:
        load_suite(file)
    assert told in "\n".join((refused.value.message, *refused.value.problems))


def test_an_operator_that_the_build_does_not_have_is_refused_with_those_it_has() -> None:
    listing = Listing(names=frozenset({"MUL_MAT", "SOFT_MAX"}), order=())
    typed = Question(op="SOFTMAX", reason="a typing error")
    with pytest.raises(ManifestError) as refused:
        _check(
            [typed, Question(op="TOPK_MOE", fused=True, reason="listed nowhere")], listing, SUITE
        )
    assert refused.value.problems == (
        "SOFTMAX: no such operator; near: SOFT_MAX", "this build has MUL_MAT, SOFT_MAX",
    )  # fmt: skip


# What the program prints


def test_a_healthy_run_is_read_with_what_was_really_compared() -> None:
    reader, cases = read("healthy-cpu.log")
    assert reader.ended
    assert reader.devices == ["CPU"]
    assert {case.state for case in cases} == {"ok"}
    assert [case.same for case in cases].count(True) >= 3
    assert [case.same for case in cases].count(False) == 3
    assert cases[0].name.startswith("MUL_MAT(type_a=f32,type_b=f32,m=16,n=1,k=256,bs=[1,1]")


def test_a_wrong_number_is_read_with_its_error_and_upstreams_bound() -> None:
    reader, cases = read("wrong-cpu.log")
    (wrong,) = [case for case in cases if case.state == "fail"]
    assert wrong.op == "FLASH_ATTN_EXT"
    assert "type_K=f16" in wrong.parameters
    assert wrong.bound == 0.0005
    assert wrong.error is not None
    assert wrong.error > wrong.bound
    assert wrong.told.startswith("[FLASH_ATTN_EXT] ERR = ")
    assert reader.failing == [wrong.name]


def test_what_is_not_supported_is_neither_well_nor_wrong() -> None:
    _, cases = read("not-supported-cpu.log")
    assert {case.state for case in cases} == {"not supported"}
    listed = read("support-cpu.log")[1]
    assert {case.state for case in listed} == {"supported", "not supported"}


def test_upstreams_ok_for_a_device_that_is_not_there_is_seen_through() -> None:
    reader, cases = read("no-device.log")
    assert reader.ended
    assert (reader.devices, cases) == ([], [])


@pytest.mark.parametrize(
    ("name", "running", "told"),
    [
        ("crash-signal.log", "GET_ROWS q5_K i32", ""),
        ("crash-assert.log", "ARGSORT f32", "GGML_ASSERT(dst->ne[0] != 4"),
    ],
)
def test_a_process_that_died_leaves_what_it_ran(name: str, running: str, told: str) -> None:
    reader, _ = read(name)
    assert not reader.ended
    assert reader.running == running
    assert told in "\n".join(reader.since)


@pytest.mark.parametrize(
    ("before", "error"),
    [
        ("[MUL_MAT] NaN at index 3 (CUDA0=nan CPU=0.5) ", math.nan),
        ("[X] inf mismatch: CUDA0=inf CPU=1.000000 ", math.nan),
        ("[A] ERR = 0.000600000 > 0.000500000 [B] ERR = 4.0 > 0.000500000 ", 4.0),
        ("[A] ERR = nan > 0.000500000 ", math.nan),
        ("sentinel mismatch: sent_2 ", None),
    ],
)
def test_every_kind_of_wrong_is_told(before: str, error: float | None) -> None:
    _, (case,) = feed(f"{before}  MUL_MAT(type_a=q4_K,n=[1,1]): \x1b[1;31mFAIL\x1b[0m")
    assert (case.op, case.parameters, case.state) == ("MUL_MAT", "type_a=q4_K,n=[1,1]", "fail")
    if error is not None and math.isnan(error):
        assert case.error is not None
        assert math.isnan(case.error)
    else:
        assert case.error == error
    assert case.told == before.strip()


def test_a_case_without_memory_is_not_taken_for_the_next_one() -> None:
    text = (
        "failed to allocate tensors [CUDA0]   ADD(type=f32): \x1b[1;32mOK\x1b[0m\n"
        "  1/2 tests passed\n\nFailing tests:\n  MUL(type=f32)\n  Backend CUDA0: FAIL\n"
        "0/1 backends passed"
    )
    reader, (case,) = feed(text)
    assert (case.op, case.state) == ("ADD", "ok")
    assert reader.failing == ["MUL(type=f32)"]


@given(st.lists(st.text(max_size=80), max_size=20))
def test_no_output_makes_the_reader_stumble(lines: list[str]) -> None:
    reader = Reader()
    for line in lines:
        reader.feed(line)


# Crashes


CASES = {
    "MUL_MAT": [f"type_a={kind},type_b=f32,m={n}" for kind in ("q4_K", "q8_0") for n in (1, 2, 3)],
    "ADD": ["ne=1", "ne=2"],
    "SUB": ["ne=1", "ne=2"],
}
ORDER = [(op, parameters) for op, those in CASES.items() for parameters in those]
MUL_MAT = Question(
    op="MUL_MAT", role="matrices", key="type_a", pattern="^type_a={types},type_b=", reason="x"
)
NEED = Need(architectures=frozenset({"llama"}), types={"matrices": frozenset({"q4_K", "q8_0"})})


class Program:
    """Runs cases in upstream's order, as its filters say, and dies at some."""

    def __init__(self, dies: Callable[[str], bool], *, only_after_others: bool = False) -> None:
        self.dies = dies
        self.only_after_others = only_after_others
        self.runs: list[tuple[str, ...]] = []

    def __call__(self, argv: tuple[str, ...]) -> Ran:
        self.runs.append(argv)
        names = re.split(r",(?![^(]*\))", argv[argv.index("-o") + 1])
        pattern = re.compile(argv[argv.index("-p") + 1] if "-p" in argv else "")
        cases: list[Case] = []
        for op, parameters in ORDER:
            name = f"{op}({parameters})"
            if not (name in names or (op in names and pattern.search(parameters))):
                continue
            if self.dies(name) and (cases or not self.only_after_others):
                return self._ran(cases, Crash(kind="SIGSEGV", message="", running=op, printed=()))
            cases.append(Case(op=op, parameters=parameters, state="ok"))
        return self._ran(cases, None)

    def _ran(self, cases: Sequence[Case], crash: Crash | None) -> Ran:
        return Ran(devices=("CPU",), cases=tuple(cases), unallocated=(), crash=crash, seconds=0.0)


def asked_all(program: Program, *, crashes: int = 8) -> Answers:
    questions = [MUL_MAT, *(Question(op=op, reason="x") for op in ("ADD", "SUB"))]
    answers = Answers()
    for batch in batches(resolve(questions, NEED, CASES, "cuda")).values():
        if not answers.stopped:
            ask(batch, "CPU", program, crashes=crashes, answers=answers, order=ORDER)
    return answers


def test_without_a_crash_each_batch_is_one_run() -> None:
    program = Program(lambda name: False)
    assert set(asked_all(program).cases) == {f"{op}({p})" for op, p in ORDER}
    assert len(program.runs) == 2


@given(st.sets(st.sampled_from([f"{op}({p})" for op, p in ORDER])))
def test_crashes_hide_nothing_but_their_own_kind(guilty: set[str]) -> None:
    answers = asked_all(Program(lambda name: name in guilty), crashes=99)
    types = {name.partition(",")[0] for name in guilty if name.startswith("MUL_MAT")}
    for op, parameters in ORDER:
        name = f"{op}({parameters})"
        if name not in guilty and not (op == "MUL_MAT" and name.partition(",")[0] in types):
            assert name in answers.cases, name
    assert {found.case for found in answers.crashes} <= guilty
    blamed = {(found.op, found.type) for found in answers.crashes}
    assert {(name.partition("(")[0]) for name in guilty} == {op for op, _ in blamed}
    assert all(found.alone for found in answers.crashes)


def test_a_crash_that_does_not_come_back_alone_is_told_as_such() -> None:
    program = Program(lambda name: name == "ADD(ne=2)", only_after_others=True)
    (found,) = asked_all(program).crashes
    assert (found.case, found.alone) == ("ADD(ne=2)", False)


def test_another_operators_case_with_the_same_parameters_is_still_asked() -> None:
    answers = asked_all(Program(lambda name: name == "ADD(ne=1)"))
    assert {"ADD(ne=2)", "SUB(ne=1)", "SUB(ne=2)"} <= set(answers.cases)


def test_too_many_crashes_end_it_and_the_rest_is_not_reached() -> None:
    answers = asked_all(Program(lambda name: True), crashes=2)
    assert answers.stopped == "2 crashes"
    assert len(answers.crashes) == 2


def test_a_filter_has_the_models_types_and_upstreams_heads() -> None:
    question = next(one for one in SHIPPED.questions if one.op == "FLASH_ATTN_EXT")
    text = "hsk={0},hsv={0},nh=4,type_K={1},type_V={1},x"
    listing = {"FLASH_ATTN_EXT": [text.format(h, k) for h in (64, 128) for k in ("f16", "q4_0")]}
    need = together([NEED], cache=["f16"])
    need = Need(architectures=need.architectures, types=need.types, heads=frozenset({(128, 128)}))
    (here,) = resolve([question], need, listing, "cuda")
    assert here.planned == (text.format(128, "f16"),)
    strange = Need(architectures=need.architectures, types=need.types, heads=frozenset({(7, 7)}))
    (here,) = resolve([question], strange, listing, "cuda")
    assert here.planned == (text.format(64, "f16"), text.format(128, "f16"))
    assert arguments("CUDA0", [here])[:4] == ("-b", "CUDA0", "-o", "FLASH_ATTN_EXT")


def test_what_is_wrong_by_little_is_asked_again() -> None:
    far = Case(op="ADD", parameters="ne=2", state="fail", error=0.1, bound=0.0005)
    near = Case(op="ADD", parameters="ne=1", state="fail", error=0.0006, bound=0.0005)
    nan = Case(op="SUB", parameters="ne=1", state="fail", error=math.nan, bound=0.0005)
    program = Program(lambda name: False)
    answers = Answers(cases={case.name: case for case in (far, near, nan)})
    ask_again("CPU", program, near=2, answers=answers)
    assert len(program.runs) == 2
    assert answers.near == {near.name: near}
    assert {name: case.state for name, case in answers.cases.items()} == {
        far.name: "fail", near.name: "ok", nan.name: "fail",
    }  # fmt: skip


def test_what_is_wrong_in_one_more_draw_stays_wrong() -> None:
    near = Case(op="ADD", parameters="ne=1", state="fail", error=0.0006, bound=0.0005)
    draws = iter([(Case(op="ADD", parameters="ne=1", state="ok"),), (near,)])

    def run(argv: tuple[str, ...]) -> Ran:
        assert argv == ("-b", "CPU", "-o", "ADD(ne=1)")
        return Ran(devices=(), cases=next(draws), unallocated=(), crash=None, seconds=0.0)

    answers = Answers(cases={near.name: near})
    ask_again("CPU", run, near=2, answers=answers)
    assert (answers.near, answers.cases) == ({}, {near.name: near})


# What is told


def report(cases: Iterable[Case], *, cpu: bool, **more: object) -> OpsReport:
    answers = Answers(cases={case.name: case for case in cases}, **more)  # type: ignore[arg-type]
    asked = resolve([MUL_MAT, Question(op="ADD", reason="x")], NEED, CASES, "cuda")
    groups = tuple(group for one in asked for group in groups_of(one, answers, cpu=cpu))
    return OpsReport(
        suite="ops", suite_sha256="", backend="cpu" if cpu else "cuda", device="CUDA0", build="b",
        program="p", witness=True, models=(), architectures=(), unknown=("gemma9",), groups=groups,
        crashes=tuple(crash_of(one, SHIPPED) for one in answers.crashes), stopped=answers.stopped,
        likely=("a compiler",), next_step="n", logs="l", seconds=1.0,
    )  # fmt: skip


def well(*, same: bool | None = None) -> list[Case]:
    return [
        Case(op=op, parameters=parameters, state="ok", same=same)
        for op, parameters in ORDER
        if op != "SUB"
    ]


def states(found: OpsReport) -> dict[str, str]:
    return {group.name: group.state for group in found.groups}


def test_a_gpu_that_is_right_passes_whatever_the_bits() -> None:
    found = report(well(same=None), cpu=False)
    assert set(states(found).values()) == {"passed"}
    assert (found.exit_code, found.compared) == (0, 8)


@pytest.mark.parametrize("same", [True, None])
def test_a_cpu_that_was_compared_with_itself_never_passes(same: bool | None) -> None:
    found = report(well(same=same), cpu=True)
    assert set(states(found).values()) == {"nothing to compare with"}
    assert found.exit_code == 14
    assert found.result == "nothing was compared"
    cases = [case for suite in JUnitXml.fromstring(ops_junit(found).encode()) for case in suite]
    assert all(case.result for case in cases)
    assert report(well(same=False), cpu=True).exit_code == 0


def test_wrong_numbers_fail_with_the_worst_of_them() -> None:
    wrong = [
        Case(op="MUL_MAT", parameters=CASES["MUL_MAT"][0], state="fail", error=0.1, bound=0.0005),
        Case(op="MUL_MAT", parameters=CASES["MUL_MAT"][1], state="fail", error=0.7, bound=0.0005),
    ]
    found = report([*well(), *wrong], cpu=False)
    assert states(found) == {"MUL_MAT q4_K": "wrong", "MUL_MAT q8_0": "passed", "ADD": "passed"}
    (group,) = [one for one in found.groups if one.failed]
    assert (group.failed, group.error, group.bound) == (2, 0.7, 0.0005)
    assert group.wrong[0].case == wrong[1].name
    assert found.exit_code == 14
    assert found.result == "2 cases gave wrong numbers"
    assert "MUL_MAT q4_K is wrong" in shown(found)


def test_a_crash_is_told_apart_from_a_wrong_number() -> None:
    program = Program(lambda name: "q4_K" in name)
    answers = asked_all(program)
    found = report(answers.cases.values(), cpu=False, crashes=answers.crashes)
    assert states(found) == {"MUL_MAT q4_K": "crashed", "MUL_MAT q8_0": "passed", "ADD": "passed"}
    assert found.exit_code == 14
    assert found.result == "1 case ended the process"
    assert found.crashes[0].likely
    text = shown(found)
    assert "MUL_MAT q4_K ended the process: SIGSEGV" in text
    assert "wrong numbers" not in text


def test_what_was_not_reached_or_not_there_never_passes() -> None:
    found = report([case for case in well() if "q8_0" not in case.name], cpu=False, stopped="over")
    assert states(found)["MUL_MAT q8_0"] == "not reached"
    assert found.exit_code == 14
    unsupported = [
        Case(op=op, parameters=p, state="not supported" if op == "ADD" else "ok") for op, p in ORDER
    ]
    assert states(report(unsupported, cpu=False))["ADD"] == "not supported"
    nothing = Asked(question=MUL_MAT, pattern=MUL_MAT.pattern, types=("tq1_0",), planned=())
    (group,) = groups_of(nothing, Answers(), cpu=False)
    assert (group.state, group.cases) == ("not tested", 0)


def test_json_holds_no_number_that_json_does_not_have() -> None:
    wrong = Case(op="ADD", parameters="ne=1", state="fail", error=math.nan, bound=0.0005)
    text = json.dumps(ops_answer(report([*well(), wrong], cpu=False)), allow_nan=False)
    answer = json.loads(text)
    assert answer["exit_code"] == 14
    assert "no number" in shown(report([*well(), wrong], cpu=False))


@pytest.mark.parametrize(
    ("kind", "printed", "told"),
    [
        ("SIGABRT", "CUDA error: no kernel image is available for execution", "no code for this"),
        ("SIGABRT", "CUDA error: an illegal memory access was encountered", "out of bounds"),
        ("SIGABRT", "x.cpp:3: GGML_ASSERT(a == b) failed", "ended itself"),
        ("SIGILL", "", "another processor"),
        ("SIGSEGV", "", "on the CPU"),
        ("no case ended for 600 s", "", "does not end"),
        ("exit status 3 before its end", "", "last lines"),
    ],
)
def test_the_end_of_a_process_points_somewhere(kind: str, printed: str, told: str) -> None:
    assert told in SHIPPED.likely_crash(kind, printed)[0]


def shown(found: OpsReport) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(ops_view(found))
    return console.export_text()


def test_the_screen_names_what_is_not_known() -> None:
    text = shown(report(well(), cpu=False))
    assert "gemma9" in text
    assert isinstance(SHIPPED, Suite)
