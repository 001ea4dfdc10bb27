"""The pinned source's probes made for a GPU by a real toolkit, and run where there is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.errors import GpuError
from sparkbuild.manifest import current_platform
from sparkbuild.qualify.compile import Nvcc, compile_unit
from sparkbuild.qualify.flags import foretold
from sparkbuild.qualify.gpu.assemble import assemble_unit
from sparkbuild.qualify.gpu.carried import Carried
from sparkbuild.qualify.gpu.cuda import Cuda
from sparkbuild.qualify.model import Unit
from sparkbuild.qualify.probes.other import other_units
from sparkbuild.qualify.ptx.read import read_module
from sparkbuild.toolkit.host import find_host_compiler

pytestmark = [
    pytest.mark.network,
    pytest.mark.cuda_toolkit,
    pytest.mark.skipif(current_platform() != "linux-x86_64", reason="roots for x86-64"),
]
Run = Callable[..., Any]
FP4 = {"mxfp4", "nvfp4"}
"""Types whose kernels for a GB10 use conversions and products that no Hopper has."""


@pytest.fixture(scope="module")
def nvcc(cuda_root: Path, real_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Nvcc:
    return Nvcc(
        root=str(cuda_root), host=find_host_compiler().cxx, source=str(real_source),
        architecture="121a", flags=foretold({}), folder=str(tmp_path_factory.mktemp("units")),
    )  # fmt: skip


@pytest.fixture(scope="module")
def unit(nvcc: Nvcc) -> Unit:
    made = compile_unit(nvcc, "norms", other_units()["norms"])
    assert not made.error
    return made


@pytest.mark.parametrize(("target", "made"), [("121a", "native"), ("90a", "retargeted")])
def test_real_ptx_becomes_a_cubin_whose_kernels_can_be_found(
    nvcc: Nvcc, unit: Unit, target: str, made: Any
) -> None:
    found = assemble_unit(nvcc, unit, target, made)
    assert (found.error, found.left_out) == ("", {})
    cubin = Path(found.cubin).read_bytes()
    assert cubin.startswith(b"\x7fELF")
    for name in read_module(Path(unit.ptx).read_text()).functions:
        assert b".text." + name.encode() in cubin


def test_an_instruction_that_the_device_lacks_costs_its_kernel_alone(
    nvcc: Nvcc, unit: Unit, tmp_path: Path
) -> None:
    text = Path(unit.ptx).read_text()
    first, second = list(read_module(text).functions)[:2]
    head, _, rest = text.partition(f".entry {first}(")
    opened = rest.index("\n{") + 2
    lacking = "\n.reg .b16 %x; .reg .b32 %y; .reg .b8 %z;\nmov.b32 %y, 0;\n"
    lacking += "cvt.rn.satfinite.e2m1x2.f32 %z, 0f00000000, 0f00000000;"
    edited = f"{head}.entry {first}({rest[:opened]}{lacking}{rest[opened:]}"
    (tmp_path / "norms.ptx").write_text(edited)
    other = msgspec.structs.replace(unit, ptx=str(tmp_path / "norms.ptx"))
    assert assemble_unit(nvcc, other, "121a", "native").error == ""
    found = assemble_unit(nvcc, other, "90a", "retargeted")
    assert found.error == ""
    assert list(found.left_out) == [first]
    assert "e2m1x2" in found.left_out[first]
    cubin = Path(found.cubin).read_bytes()
    assert b".text." + second.encode() in cubin
    assert b".text." + first.encode() + b"\0" not in cubin


@pytest.mark.usefixtures("cuda_root")
def test_probes_are_assembled_here_for_a_gpu_that_is_elsewhere(
    run_sparkbuild: Run, real_work: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run_sparkbuild(
        "toolkit", "qualify", "13.0", "--variant", "vision", "--arch", "121a", "--on", "gpu",
        "--device", "90a", "--assemble", str(out), "--work", str(real_work), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["architecture"], facts["assembled for"]) == ("121a", "sm_90a")
    assert facts["units without code"] == []
    made = msgspec.json.decode((out / "qualify.json").read_bytes(), type=Carried)
    reasons = {why for one in made.units for why in one.left_out.values()}
    assert reasons
    assert all("sm_90a" in why or "sm_100" in why for why in reasons), reasons
    kernels = sum(Path(out / one.ptx).read_text().count(".entry ") for one in made.units)
    assert sum(len(one.left_out) for one in made.units) < kernels / 10


def test_the_whole_on_the_gpu_of_this_machine(run_sparkbuild: Run, real_work: Path) -> None:
    try:
        device = Cuda().look()
    except GpuError as error:
        pytest.skip(f"no GPU: {error}")
    done = run_sparkbuild(
        "toolkit", "qualify", "13.0", "--variant", "vision", "--arch", "121a", "--on", "gpu",
        "--fresh", "--work", str(real_work), "--json",
    )  # fmt: skip
    (found,) = json.loads(done.stdout)["qualifications"]
    assert found["compiler"]["device"] == str(device)
    wrong = [one["name"] for one in found["probes"] if one["outcome"] == "wrong"]
    assert wrong == []
    lacking = {
        name for one in found["probes"] if one["outcome"] != "right" for name in one["types"]
    }
    assert lacking <= FP4
    for one in found["probes"]:
        if one["outcome"] == "right":
            assert one["against"]["outcome"] == "right", one["name"]
