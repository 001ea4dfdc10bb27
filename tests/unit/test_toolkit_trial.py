"""Readers of a trial compile's leavings: real captures, hostile bytes, and what they prove."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparkbuild
from sparkbuild.errors import HostError
from sparkbuild.toolkit.model import HostCompiler, Part, Toolkit, Trial
from sparkbuild.toolkit.trial import trial
from sparkbuild.toolkit.trial.cubin import CubinNote, object_targets, read_note
from sparkbuild.toolkit.trial.dryrun import Plan, absolute_paths, foreign, read_plan
from sparkbuild.toolkit.trial.failure import first_error, is_hosts
from sparkbuild.toolkit.trial.preprocessed import FIELDS, headers, seen
from sparkbuild.toolkit.trial.ptx import PtxHeader, read_ptx
from sparkbuild.toolkit.trial.story import (
    Told,
    Witnesses,
    codes,
    differences,
    read_version,
    unfinished,
)

DATA = Path(__file__).parents[1] / "data" / "toolkit" / "trial"
VERSIONS = {"nvcc": "13.0.88", "cicc": "13.0.88", "ptxas": "13.0.88", "cudart headers": "13.0.96",
            "cublas headers": "13.1.0.3"}  # fmt: skip


def toolkit(**versions: str) -> Toolkit:
    found = {**VERSIONS, **versions}
    host = HostCompiler(
        c="/usr/bin/cc", cxx="/usr/bin/c++", identification="GNU 12.2.0", target="", sha256=""
    )
    return Toolkit(
        toolchain="cuda-13.0",
        label="cu130",
        kind="cuda",
        host=host,
        root="/opt/cuda-13.0",
        parts=tuple(
            Part(name=name, version=version, read_from="its file", path="", sha256="")
            for name, version in found.items()
        ),
        architectures=("121a",),
    )


def content(name: str) -> bytes:
    return (DATA / name).read_bytes()


# PTX


def test_ptx_headings_of_two_releases() -> None:
    assert read_ptx(content("13.0.88-sm_121a.ptx").decode()) == PtxHeader(
        version="13.0.88", build="36424714", isa="9.0", target="sm_121a"
    )
    # 13.2's cicc was built without its changelist number and says UNKNOWN.
    assert read_ptx(content("13.2.78-sm_121a.ptx").decode()) == PtxHeader(
        version="13.2.78", build=None, isa="9.2", target="sm_121a"
    )


def test_what_looks_like_a_heading_further_down_is_none() -> None:
    text = content("13.0.88-sm_121a.ptx").decode()
    body = text[text.index(".address_size") :]
    forged = body + "// Cuda compilation tools, release 13.0, V13.0.88\n.target sm_121a\n"
    assert read_ptx(forged) == PtxHeader(version=None, build=None, isa=None, target=None)


@given(st.text())
def test_any_text_is_ptx_without_a_heading(text: str) -> None:
    assert read_ptx(f"x{text}").version is None


# Cubins and objects


@pytest.mark.parametrize(
    ("name", "version", "build", "target"),
    [
        ("12.9.86-sm_121a.cubin", "12.9.86", "36037853", "sm_121a"),
        ("13.0.88-sm_121a.cubin", "13.0.88", "36424714", "sm_121a"),
        ("13.0.88-sm_90.cubin", "13.0.88", "36424714", "sm_90"),
        ("13.2.78-sm_121a.cubin", "13.2.78", "37668154", "sm_121a"),
    ],
)
def test_notes_of_three_releases(name: str, version: str, build: str, target: str) -> None:
    note = read_note(content(name))
    assert note == CubinNote(tool="ptxas", version=version, build=build, target=target)


def test_a_cubin_without_a_note() -> None:
    with pytest.raises(ValueError, match=r"it has no \.note\.nv\.tkinfo"):
        read_note(content("13.0.88-sm_90.cubin").replace(b".note.nv.tkinfo", b".note.nv.nothing"))


def test_a_note_of_another_layout_is_not_guessed_at() -> None:
    data = content("13.0.88-sm_90.cubin")
    at = data.index(b"NVIDIA Corp\0") + 12
    with pytest.raises(ValueError, match="layout 7, known are"):
        read_note(data[:at] + b"\7" + data[at + 1 :])


def test_targets_of_an_object() -> None:
    assert object_targets(content("13.0.88-two.o")) == ("sm_121a", "sm_90")
    assert object_targets(content("13.0.88-sm_90.cubin")) == ()


def damaged(name: str) -> st.SearchStrategy[bytes]:
    """The file with some bytes replaced, and perhaps cut off."""
    data = content(name)
    edits = st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=8)

    def apply(given_edits: list[tuple[int, int]], end: int) -> bytes:
        result = bytearray(data)
        for at, value in given_edits:
            result[at] = value
        return bytes(result[:end])

    return st.builds(apply, edits, st.integers(0, len(data)))


@given(damaged("13.0.88-sm_121a.cubin"))
def test_a_damaged_cubin_is_told_or_read(data: bytes) -> None:
    try:
        read_note(data)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - the other outcome is fine too


@given(damaged("13.0.88-two.o"))
def test_a_damaged_object_is_told_or_read(data: bytes) -> None:
    try:
        object_targets(data)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - the other outcome is fine too


# nvcc's plan


def real_plan(tmp_path: Path) -> tuple[Plan, Path]:
    """The captured plan, with a root on disk that has the programs it names."""
    root = tmp_path / "cuda-13.0"
    for place in ("bin/cudafe++", "bin/ptxas", "bin/fatbinary", "bin/nvlink", "nvvm/bin/cicc"):
        program = root / place
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    text = content("dryrun-13.0.88.txt").decode().replace("/opt/cuda-13.0", str(root))
    plan = read_plan(text)
    plan.settings["PATH"] = f"{root}/nvvm/bin:{root}/bin"  # whatever this machine has in /usr
    return plan, root


def judged(plan: Plan, root: Path) -> list[str]:
    return foreign(plan, root=str(root), host="/usr/bin/c++", own=["/trials"])


def test_a_plan_that_stays_in_its_root(tmp_path: Path) -> None:
    plan, root = real_plan(tmp_path)
    assert judged(plan, root) == []
    assert plan.settings["TOP"] == f"{root}/bin/.."
    names = [Path(command.program).name for command in plan.commands]
    assert names.count("c++") == 5
    assert {"cicc", "ptxas", "fatbinary", "nvlink", "cudafe++"} <= set(names)


def test_a_missing_program_is_not_taken_from_elsewhere(tmp_path: Path) -> None:
    plan, root = real_plan(tmp_path)
    (root / "bin/ptxas").unlink()
    (problem,) = judged(plan, root)
    assert problem.startswith("nvcc would run ptxas, which is neither in ")


def test_a_program_on_the_system_s_path_with_its_version(tmp_path: Path) -> None:
    plan, root = real_plan(tmp_path)
    (root / "bin/ptxas").unlink()
    other = tmp_path / "other"
    other.mkdir()
    (other / "ptxas").write_bytes(b"\0Cuda compilation tools, release 13.2, V13.2.78\0")
    (other / "ptxas").chmod(0o755)
    plan.settings["PATH"] += f":{other}"
    (problem,) = judged(plan, root)
    assert problem == f"nvcc would run {other}/ptxas (13.2.78), which is not below {root}"


def test_a_folder_of_the_root_that_leads_elsewhere(tmp_path: Path) -> None:
    plan, root = real_plan(tmp_path)
    (tmp_path / "other").mkdir()
    (root / "include").symlink_to(tmp_path / "other")
    found = judged(plan, root)
    assert len(found) == 2
    assert found[0].startswith(f"nvcc would use {tmp_path}/other (INCLUDES)")
    assert found[1].startswith(f"nvcc would use {tmp_path}/other/cccl (SYSTEM_INCLUDES)")


@pytest.mark.parametrize(
    "line",
    ['#$ INCLUDES="-I/other/include"', '#$ LD_LIBRARY_PATH=/other/lib:',
     '#$ cudafe++ -isystem "/other/include" x.cu', "#$ ptxas --options-file=/other/o x.ptx"],
)  # fmt: skip
def test_any_foreign_path_is_a_problem(line: str, tmp_path: Path) -> None:
    plan, root = real_plan(tmp_path)
    more = read_plan(line)
    both = Plan(
        settings={**more.settings, **plan.settings, **more.settings},
        commands=(*plan.commands, *more.commands),
    )
    assert len(judged(both, root)) == 1


@given(st.text())
def test_any_text_is_a_plan(text: str) -> None:
    plan = read_plan(f"#$ {text}\n{text}")
    list(plan.paths())
    for path in absolute_paths(text):
        assert path.startswith("/")


# What the preprocessor saw

VALUES = (13000, 13000, 13, 0, 88, 13, 0, 13, 1, 0, 3, 2, 36, 0, 12, 2, 0)
TABLE = """\
# 17 "trial.cu"
static const int sparkbuild_trial[] = {13000, 13000, 13, 0, 88, 13, 0, 13, 1, 0, 3,
# 17 "trial.cu" 3 4
 2
# 17 "trial.cu"
 , 36, 0, 12, 2, 0};
"""


def test_the_table_is_read_across_line_markers() -> None:
    assert seen(TABLE) == dict(zip(FIELDS, VALUES, strict=True))


@pytest.mark.parametrize("change", [("88", "__CUDACC_VER_BUILD__"), (", 3,", ","), ("};", "")])
def test_a_table_that_is_not_whole_is_none(change: tuple[str, str]) -> None:
    assert seen(TABLE.replace(*change)) is None


def test_headers_are_the_line_markers_files() -> None:
    text = b'# 0 "<built-in>"\n# 1 "/opt/a \\"b\\".h" 1 3\nint x; # 2 "/no.h"\n# 3 "/usr/c.h"\n'
    assert headers(text) == ('/opt/a "b".h', "/usr/c.h")


@given(st.binary(), st.text())
def test_any_preprocessed_text_is_read(data: bytes, text: str) -> None:
    assert isinstance(headers(data), tuple)
    assert seen(text.replace("sparkbuild_trial", "")) is None


# One story


def witnesses(**changes: object) -> Witnesses:
    ptx, note = read_ptx(content("13.0.88-sm_121a.ptx").decode()), "13.0.88-sm_121a.cubin"
    table = dict(zip(FIELDS, VALUES, strict=True))
    found = Witnesses(
        ptx={"trial.ptx": ptx},
        cubins={"trial.cubin": read_note(content(note))},
        tables={"trial.cpp4.ii": table, "trial.cpp1.ii": table},
        object_targets=("sm_121a",),
    )
    values = {name: getattr(found, name) for name in Witnesses.__dataclass_fields__}
    return Witnesses(**{**values, **changes})


TOLD = Told(version="13.0.88", build="36424714")


def test_one_story_has_no_difference() -> None:
    assert list(differences(toolkit(), TOLD, witnesses())) == []
    assert list(unfinished(toolkit(), witnesses())) == []
    (code,) = codes(witnesses())
    assert (code.architecture, code.cicc, code.ptxas, code.isa) == (
        "121a", "13.0.88", "13.0.88", "9.0",
    )  # fmt: skip


def test_another_cicc_and_another_ptxas_with_both_versions() -> None:
    other = witnesses(
        ptx={"trial.ptx": read_ptx(content("13.2.78-sm_121a.ptx").decode())},
        cubins={"trial.cubin": read_note(content("13.2.78-sm_121a.cubin"))},
    )
    assert list(differences(toolkit(), TOLD, other)) == [
        "cicc: expected 13.0.88 (cicc, its file), found 13.2.78 (the heading of trial.ptx)",
        "ptxas: expected 13.0.88 (ptxas, its file), found 13.2.78 (the note of trial.cubin)",
        "ptxas: expected build 36424714 as nvcc's, found build 37668154 (trial.cubin)",
    ]


def test_parts_that_state_no_version_must_be_of_nvccs_release() -> None:
    other = witnesses(cubins={"x": read_note(content("13.2.78-sm_121a.cubin"))})
    (version, _) = differences(toolkit(ptxas="unstated"), TOLD, other)
    assert version.startswith("ptxas: expected 13.0.88 (nvcc, its file), found 13.2.78")


@pytest.mark.parametrize(
    ("macro", "value", "problems"),
    [
        ("CUDART_VERSION", 13020, ["nvcc: expected 13.0.88", "cudart headers: expected 13.0.96"]),
        ("CUDA_VERSION", 12090, ["nvcc: expected 13.0.88"]),
        ("__CUDACC_VER_BUILD__", 48, ["nvcc: expected 13.0.88"]),
        ("__CUDA_API_VER_MINOR__", 2, ["nvcc: expected 13.0.88"]),
        ("CUBLAS_VER_PATCH", 5, ["cublas headers: expected 13.1.0.3"]),
        ("TRIAL_MAJOR", 9, ["host compiler: expected GNU 12.2.0 (/usr/bin/c++)"]),
        ("TRIAL_CLANG", 1, ["host compiler: expected GNU 12.2.0 (/usr/bin/c++)"]),
    ],
)
def test_headers_of_another_release(macro: str, value: int, problems: list[str]) -> None:
    table = {**dict(zip(FIELDS, VALUES, strict=True)), macro: value}
    found = list(differences(toolkit(), TOLD, witnesses(tables={"trial.cpp1.ii": table})))
    assert len(found) == len(problems)
    for text, start in zip(found, problems, strict=True):
        assert text.startswith(start)
        assert "trial.cpp1.ii" in text


def test_a_compile_that_leaves_less_than_it_should() -> None:
    nothing = Witnesses(ptx={}, cubins={}, tables={}, object_targets=("sm_121a", "sm_90"))
    assert list(unfinished(toolkit(), nothing)) == [
        "GPU code in PTX: expected sm_121a, found none",
        "GPU code in cubins: expected sm_121a, found none",
        "GPU code in the object: expected sm_121a, found sm_121a sm_90",
        "preprocessor runs: expected one for the host and 1 for the GPU, found 0",
    ]


def test_nvcc_s_own_answer() -> None:
    text = (
        "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n"
        "Build cuda_13.0.r13.0/compiler.36424714_0\n"
    )
    assert read_version(text) == TOLD
    assert read_version("I am nvcc 13.0.88") == Told(version=None, build=None)


# Whose fault

ROOT = "/opt/cuda-13.0"


THE_HOSTS = (
    f"{ROOT}/include/crt/host_config.h:137:2: error: #error -- unsupported GNU version! gcc",
    '/usr/include/math.h(79): error: exception specification is incompatible with that of "cospi"',
    f'{ROOT}/a.h(9): error: differs from previous "rsqrt" (declared at line 2 of /usr/math.h)',
    "nvcc fatal   : Failed to preprocess host compiler properties.",
    "nvcc fatal   : Cannot find compiler 'c++' in PATH",
    "c++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory",
    "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by bin/nvcc)",
    "/usr/include/stdlib.h:31:10: fatal error: bits/libc-header-start.h: No such file",
)
THE_TOOLKITS = (
    f"{ROOT}/include/cuda_fp16.h:99:10: fatal error: nv/target: No such file",
    "trial.cu:5:10: fatal error: cublas_v2.h: No such file or directory",
    'trial.cudafe1.stub.c:13:192: error: macro "__cudaLaunch" passed 2 arguments',
    "ptxas fatal   : Unsupported .version 9.2; current version is '9.0'",
    "/usr/bin/ld: cannot find -lcudart: No such file or directory",
    "nvcc fatal   : Unsupported gpu architecture 'compute_121a'",
)


@pytest.mark.parametrize(
    ("line", "host"),
    [*((line, True) for line in THE_HOSTS), *((line, False) for line in THE_TOOLKITS)],
)
def test_whose_fault_the_first_error_is(line: str, host: bool) -> None:
    assert is_hosts(["warning: something", line, "1 error detected"], ROOT) is host


def test_the_first_error_is_shown() -> None:
    lines = ["In file included from a.h:1", "b.h:2:3: error: this", "c.h:4:5: error: that"]
    assert first_error(lines) == "b.h:2:3: error: this"
    assert first_error(["Segmentation fault", ""]) == "Segmentation fault"
    assert first_error([]) == "no output"


# What is kept


def test_a_cpu_toolkit_has_nothing_to_try(tmp_path: Path) -> None:
    cpu = msgspec.structs.replace(toolkit(), kind="cpu", root=None)
    with pytest.raises(ValueError, match="no CUDA compiler"):
        trial.try_toolkit(cpu, folder=tmp_path)


def kept_pass(tmp_path: Path) -> tuple[Path, Trial]:
    """A pass in the folder, kept as a real one is."""
    passed = Trial(
        nvcc="13.0.88", nvcc_build=None, cudacc="13.0.88", cudart=13000, cublas="13.1.0.3",
        codes=(), object_targets=("sm_121a",), host_compiler="GNU 12.2.0", glibc="2.36",
        runtime=13000, driver=0, folder="",
    )  # fmt: skip
    header = tmp_path / "cuda_runtime.h"
    header.write_text("old")
    trial.keep(tmp_path / "pass.json", passed, [str(header)])
    return header, passed


def test_a_pass_is_known_until_a_file_changes(tmp_path: Path) -> None:
    header, passed = kept_pass(tmp_path)
    assert trial.known(tmp_path / "pass.json") == passed
    header.write_text("newer")
    assert trial.known(tmp_path / "pass.json") is None


def test_a_pass_whose_header_is_gone_is_none(tmp_path: Path) -> None:
    header, _ = kept_pass(tmp_path)
    header.unlink()
    assert trial.known(tmp_path / "pass.json") is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"files": [], "trial": {}}', b"\xff"])
def test_a_damaged_pass_is_none(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "pass.json").write_bytes(damage)
    assert trial.known(tmp_path / "pass.json") is None


def test_a_pass_of_somebody_who_left_files_out_is_none(tmp_path: Path) -> None:
    kept_pass(tmp_path)
    whole = json.loads((tmp_path / "pass.json").read_text())
    whole["files"] = []
    (tmp_path / "pass.json").write_text(json.dumps(whole))
    assert trial.known(tmp_path / "pass.json") is None


@pytest.mark.parametrize(
    ("driver", "refused"),
    [(0, False), (None, False), (12080, True), (13000, False), (14010, False)],
)
def test_the_driver_s_limit_is_asked_of_a_known_pass_too(
    driver: int | None, refused: bool, tmp_path: Path
) -> None:
    _, passed = kept_pass(tmp_path)
    cuda = toolkit()
    found = msgspec.structs.replace(passed, driver=driver)
    trial.keep(tmp_path / f"{trial.key_of(cuda)}.json", found, [])
    if not refused:
        assert trial.try_toolkit(cuda, folder=tmp_path) == found
        return
    with pytest.raises(HostError, match=r"driver is for CUDA 12\.8, the toolkit is CUDA 13\.0"):
        trial.try_toolkit(cuda, folder=tmp_path)


def test_every_part_of_the_key_counts() -> None:
    cuda = toolkit()
    others = [
        toolkit(cicc="13.2.78"),
        msgspec.structs.replace(cuda, root="/opt/other"),
        msgspec.structs.replace(cuda, architectures=("121a", "90")),
        msgspec.structs.replace(cuda, host=msgspec.structs.replace(cuda.host, cxx="/opt/c++")),
    ]
    assert len({trial.key_of(each) for each in [cuda, *others]}) == 5


def test_every_module_that_decides_is_in_the_key() -> None:
    package = Path(sparkbuild.__file__).parent
    decides = trial.deciding()
    for path in decides:
        for line in path.read_text().splitlines():
            found = re.match(r"from sparkbuild\.toolkit\.(\S+) import (.+)", line)
            if found is None or found[1] == "model":
                continue
            place = package / "toolkit" / found[1].replace(".", "/")
            if place.is_dir():
                assert {place / f"{name}.py" for name in found[2].split(", ")} <= {*decides}
            else:
                assert place.with_suffix(".py") in decides
