"""PTX for a device: what runs where, retargeting, and kernels that a device cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.errors import UsageError
from sparkbuild.files import sha256_bytes, sha256_file
from sparkbuild.qualify.compile import Nvcc
from sparkbuild.qualify.gpu.assemble import assemble_unit, prepared, runs, without
from sparkbuild.qualify.gpu.bench import Target, target_for, target_named
from sparkbuild.qualify.gpu.driver import Device
from sparkbuild.qualify.model import Unit

TEXT = """.version 9.0
.target sm_121a
.address_size 64

.visible .entry one(
\t.param .u64 p
)
{
\tnew.thing;
\t{
\tret;
\t}
}
\t// .globl two
.entry two(.param .u64 p)
{
\tret;
}
.entry three()
{
\tnew.thing;
\tnewer.thing;
}
"""
NVCC = """#!/bin/sh
# An nvcc that refuses what is new for every target but 121a, and two things for all.
printf '%s\\n' "$*" >> "{log}"
for last; do :; done
case " $* " in *" -o "*) out=$(printf '%s' "$*" | sed 's/.* -o \\([^ ]*\\) .*/\\1/');; esac
case "$*" in *sm_121a*) known=new ;; *) known=none ;; esac
grep -n 'new' "$last" | grep -v "$known" | while IFS=: read -r number text; do
  echo "ptxas $last, line $number; error   : Instruction '$text' not supported" >&2
done
if grep -q 'new' "$last" && [ $known = none ]; then
  echo "ptxas fatal   : Ptx assembly aborted due to errors" >&2; exit 255; fi
if grep -q broken "$last"; then echo "ptxas fatal   : broken beyond words" >&2; exit 255; fi
if grep -q silent "$last"; then exit 1; fi
grep -c . "$last" > "$out"
"""


@pytest.mark.parametrize(
    ("architecture", "capability", "whether"),
    [
        ("121a", (12, 1), True), ("121", (12, 1), True), ("120", (12, 1), True),
        ("120f", (12, 1), True), ("120a", (12, 1), False), ("121a", (9, 0), False),
        ("121a", (12, 0), False), ("121", (12, 0), False), ("86", (8, 9), True),
        ("86", (9, 0), False), ("90", (9, 0), True), ("90a", (9, 0), True),
        ("100", (12, 1), False), ("native", (9, 0), False),
    ],
)  # fmt: skip
def test_which_code_runs_on_which_device(
    architecture: str, capability: tuple[int, int], whether: bool
) -> None:
    assert runs(architecture, capability) is whether


def test_a_device_gets_its_own_code_or_that_of_its_target() -> None:
    spark = Device(name="", capability=(12, 1), driver="")
    hopper = Device(name="", capability=(9, 0), driver="")
    assert target_for("121a", spark) == Target(architecture="121a", made="native")
    assert target_for("120a", spark) == Target(architecture="121a", made="retargeted")
    assert target_for("121a", hopper) == Target(architecture="90a", made="retargeted")
    assert target_named("121a", "90") == Target(architecture="90", made="retargeted")
    assert target_named("90", "90a") == Target(architecture="90", made="native")
    for name in ("", "a", "sm_90", "9", "900000"):
        with pytest.raises(UsageError, match="--device"):
            target_named("121a", name)


def test_the_target_alone_is_replaced_and_every_kernel_can_be_found() -> None:
    found = prepared(TEXT, "90a").split("\n")
    before = TEXT.split("\n")
    changed = {number: line for number, line in enumerate(found) if line != before[number]}
    assert changed == {
        1: ".target sm_90a",
        14: ".visible .entry two(.param .u64 p)",
        18: ".visible .entry three()",
    }
    assert ".target sm_121a\n" in prepared(TEXT, "")


def test_kernels_are_left_out_whole_and_lines_keep_their_numbers() -> None:
    found = without(TEXT, {"one": "", "two": ""}).split("\n")
    before = TEXT.split("\n")
    assert len(found) == len(before)
    assert [number for number, line in enumerate(found) if line != before[number]] == [
        *range(4, 13), 14, 15, 16, 17,
    ]  # fmt: skip


def made(folder: Path, text: str) -> tuple[Nvcc, Unit]:
    root = folder / "root/bin"
    root.mkdir(parents=True)
    (root / "nvcc").write_text(NVCC.replace("{log}", str(folder / "log")))
    (root / "nvcc").chmod(0o755)
    (folder / "unit.ptx").write_text(text)
    nvcc = Nvcc(
        root=str(folder / "root"), host="/usr/bin/c++", source="", architecture="121a",
        flags=("-O3", "-Xptxas", "-O1"), folder=str(folder),
    )  # fmt: skip
    unit = Unit(
        name="unit", compiled=True, seconds=0.0, ptx=str(folder / "unit.ptx"),
        ptx_sha256=sha256_bytes(text.encode()),
    )  # fmt: skip
    return nvcc, unit


def test_what_the_device_lacks_is_left_out_with_its_words(tmp_path: Path) -> None:
    nvcc, unit = made(tmp_path, TEXT)
    found = assemble_unit(nvcc, unit, "90a", "retargeted")
    said = "ptxas: Instruction '\tnew.thing;' not supported"
    assert found.left_out == {"one": said, "three": said}
    assert (found.error, found.made, found.target) == ("", "retargeted", "90a")
    assert found.cubin == str(tmp_path / "unit.cubin")
    assert found.cubin_sha256 == sha256_file(tmp_path / "unit.cubin")
    assert Path(found.ptx).read_text() == TEXT, "the PTX that is judged is the compiler's"
    commands = (tmp_path / "log").read_text().splitlines()
    assert len(commands) == 2
    assert all("-O3 -Xptxas -O1 -arch=sm_90a -cubin" in command for command in commands)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "log", "root", "unit.cubin", "unit.ptx",
    ]  # fmt: skip


def test_native_code_is_assembled_whole_or_not_at_all(tmp_path: Path) -> None:
    nvcc, unit = made(tmp_path, TEXT)
    assert assemble_unit(nvcc, unit, "121a", "native").left_out == {}
    refused = assemble_unit(nvcc, unit, "121", "native")
    assert (refused.left_out, refused.cubin) == ({}, "")
    assert "line 9; error" in refused.error


@pytest.mark.parametrize(
    ("word", "error"), [("broken", "ptxas fatal   : broken beyond words"), ("silent", "status 1")]
)
def test_an_error_at_no_kernels_line_is_the_units(tmp_path: Path, word: str, error: str) -> None:
    nvcc, unit = made(tmp_path, TEXT.replace("new", word).replace("er.thing", "thing"))
    found = assemble_unit(nvcc, unit, "90a", "retargeted")
    assert (found.error, found.cubin, found.cubin_sha256) == (error, "", "")
