"""``toolkit qualify --on gpu`` on the command line, and what a person reads of it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs
from rich.console import Console

from sparkbuild.cli import cli
from sparkbuild.errors import GpuError, UsageError
from sparkbuild.qualify import verdict
from sparkbuild.qualify.bench import Gathered
from sparkbuild.qualify.gpu import cuda
from sparkbuild.qualify.kept import Subject
from sparkbuild.qualify.model import Against, Compiler, Mistake, Place, Probed
from sparkbuild.qualify_gpu_work import only_one, subject_on
from sparkbuild.report.qualification import qualification_view
from sparkbuild.toolkit.model import HostCompiler

from .fake_gpu import FakeOpener

COMPILER = Compiler(
    toolkit="cuda-13.0", cicc="13.0.88", platform="linux-x86_64", architecture="121a",
    flags=("-O3",), tree="0123456789abcdef",
)  # fmt: skip
HOST = HostCompiler(c="", cxx="", identification="", target="", sha256="")
SUBJECT = Subject(compiler=COMPILER, root="/cuda", parts={"ptxas": "b"}, host=HOST, source="/tree")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "name a RELEASE or a ROOT"),
        (["13.0"], "name a patch set with --variant"),
        (["13.0", "--variant", "v", "--device", "90a", "--assemble", "x"], "--assemble needs --on"),
        (["13.0", "--variant", "v", "--on", "gpu", "--assemble", "x"], "given together"),
        (["13.0", "--variant", "v", "--on", "gpu", "--device", "90a"], "given together"),
        (["13.0", "--variant", "v", "--on", "gpu", "--seeded", "3"], "for the executor alone"),
        (["13.0", "--on", "gpu", "--from", "."], "takes compiler and target from its folder"),
        (["--from", "."], "--from needs --on gpu"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["toolkit", "qualify", *arguments, "--work", str(tmp_path)])
    refused = done.exception
    assert isinstance(refused, UsageError), done.output
    assert any(problem in one for one in refused.problems), refused.problems


def test_without_a_driver_there_is_a_refusal_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "Cuda", lambda: FakeOpener(missing=True))
    for arguments in (["--from", str(tmp_path)], ["13.0", "--variant", "vision"]):
        done = CliRunner().invoke(
            cli, ["toolkit", "qualify", "--on", "gpu", *arguments, "--work", str(tmp_path / "w")]
        )
        assert isinstance(done.exception, GpuError), done.output
        assert done.exception.exit_code == 27


def test_a_verdict_is_kept_for_its_executor_device_and_driver() -> None:
    keys = {SUBJECT.key}
    for device in (
        FakeOpener().look(), FakeOpener(capability=(9, 0)).look(), FakeOpener(driver="2").look(),
    ):  # fmt: skip
        keys.add(subject_on(SUBJECT, device).key)
    assert len(keys) == 4
    assert subject_on(SUBJECT, FakeOpener().look()).compiler.architecture == "121a"


def test_one_compiler_for_one_target_is_carried() -> None:
    other = Subject(
        compiler=structs.replace(COMPILER, architecture="90"), root="/cuda", parts={}, host=HOST,
        source="/tree",
    )  # fmt: skip
    assert only_one([SUBJECT, SUBJECT]) is SUBJECT
    with pytest.raises(UsageError, match="and 2 are meant") as caught:
        only_one([SUBJECT, other])
    assert caught.value.problems == ("/cuda 121a", "/cuda 90")
    with pytest.raises(UsageError, match="and 0 are meant"):
        only_one([])


def test_a_person_reads_the_device_and_how_near_both_came() -> None:
    def probed(name: str, against: Against | None) -> Probed:
        return Probed(
            name=name, unit="u", kind="norm", outcome="right" if against else "unsupported",
            made="retargeted", against=against, reason="" if against else "ptxas: no such thing",
        )  # fmt: skip

    same = probed("same", Against(outcome="right", compared=1000, equal=1000))
    near = probed("near", Against(outcome="right", compared=500, equal=400, difference=0.25))
    far = probed("far", Against(outcome="wrong", compared=10, equal=8, apart=2, difference=0.5))
    mistake = Mistake(case="c", kind="value", text="o[3] is wrong", where=Place(source="a.cuh:4"))
    ended = Against(
        outcome="wrong", text="c: out of bounds: far", where=Place(source="b.cuh:12 in f")
    )
    bad = structs.replace(probed("bad", ended), outcome="wrong", mistake=mistake)
    probes = {one.name: one for one in (same, near, far, bad, probed("lost", None))}
    found = verdict.conclude(
        subject_on(SUBJECT, FakeOpener().look()).compiler, Gathered(probes=probes),
        uncovered=(), coverage=(), seconds=1.0, key="k",
    )  # fmt: skip
    assert found.same_bits == 1
    console = Console(width=120, record=True, no_color=True, file=io.StringIO())
    console.print(qualification_view(found))
    text = console.export_text()
    (row,) = [line.split() for line in text.splitlines() if line.startswith("norm ")][1:]
    assert row == ["norm", "4", "1", "1,510", "1,408", "2", "50%"]
    for words in (
        "Fake (sm_121), driver 1.2", "1 of 4 probes gave the executor's bits on the GPU",
        "far: right on the GPU; executor: wrong", "bad: o[3] is wrong",
        "executor: wrong: c: out of bounds: far",
        "executor's source: b.cuh:12 in f", "lost: unsupported: ptxas: no such thing",
        "does not tell which lines it executed",
    ):  # fmt: skip
        assert words in text, words
    on_cpu = verdict.conclude(COMPILER, Gathered(), uncovered=(), coverage=(), seconds=1.0, key="k")
    console.print(qualification_view(on_cpu))
    text = console.export_text()
    assert on_cpu.same_bits is None
    assert "GPU and executor" not in text
    assert "device" not in text
