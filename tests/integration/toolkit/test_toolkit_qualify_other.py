"""A real compiler's code of what is no dot product: right as it is, and wrong where a line is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkbuild.manifest import current_platform
from sparkbuild.qualify.compile import Nvcc, compile_unit
from sparkbuild.qualify.flags import foretold
from sparkbuild.qualify.judge import entry_of, judge
from sparkbuild.qualify.probes.other import other_probes, other_units
from sparkbuild.qualify.ptx.read import read_module
from sparkbuild.toolkit.host import find_host_compiler

pytestmark = [
    pytest.mark.network,
    pytest.mark.cuda_toolkit,
    pytest.mark.skipif(current_platform() != "linux-x86_64", reason="roots for x86-64"),
]
PROBES = {probe.name: probe for probe in other_probes()}


@pytest.fixture(scope="module")
def texts(
    cuda_root: Path, real_source: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The PTX of every unit."""
    nvcc = Nvcc(
        root=str(cuda_root),
        host=find_host_compiler().cxx,
        source=str(real_source),
        architecture="121a",
        flags=foretold({}),
        folder=str(tmp_path_factory.mktemp("units")),
    )
    made = [compile_unit(nvcc, name, text) for name, text in other_units().items()]
    assert {unit.name: unit.error for unit in made if not unit.compiled} == {}
    return {unit.name: Path(unit.ptx).read_text() for unit in made}


@pytest.mark.parametrize("name", PROBES)
def test_the_compilers_code_is_right(texts: dict[str, str], name: str) -> None:
    found = judge(PROBES[name], read_module(texts[PROBES[name].unit])).probed
    assert (found.outcome, found.mistake, found.reason) == ("right", None, "")
    assert found.compared > 0
    assert found.lane_steps < 30e6


EDITS = {
    "norm_f32 block of 1024": (r"bar\.sync", "// bar.sync"),
    "rms_norm_f32 times, plus": (r"rsqrt\.approx\.ftz", "sqrt.approx.ftz"),
    "soft_max_f32 any width, slopes and mask": (r", 16, 31, -1;", ", 8, 31, -1;"),
    "rope_norm": (r"sin\.approx", "cos.approx"),
    "rope_multi": (r"ex2\.approx\.ftz\.f32\s+(\S+), \S+;", r"mov.f32 \1, 0f3F800000;"),
    "swiglu_clamp f": (r"min\.ftz\.f32", "max.ftz.f32"),
    "op_silu gated half": (r"cvt\.rn\.f16", "cvt.rz.f16"),
    "op_div": (r"div\.approx\.ftz\.f32\s+(\S+), (\S+), (\S+);", r"div.approx.ftz.f32 \1, \3, \2;"),
    "k_set_rows f16": (r"cvt\.rn\.f16\.f32", "cvt.rz.f16.f32"),
    "k_set_rows_quant q4_0": (r"(shl\.b\d+\s.*), 4;", r"\1, 3;"),
    "k_set_rows_quant q8_0": (r"max\.ftz\.f32", "min.ftz.f32"),
    "gated_delta_net KDA 128": (r"sub\.ftz\.f32", "add.ftz.f32"),
    "lightning_indexer vec 32 heads f32": (r"max\.ftz\.f32", "min.ftz.f32"),
    "dsv4_hc_post": (r"fma\.rn", "fma.rz"),
    "topk_moe 288 experts": (r"setp\.gt\.ftz", "setp.lt.ftz"),
    "flash_attn_ext_f16 dense, 64": (r"\.x4\.trans", ".x4"),
    "flash_attn_ext_vec f16": (r"ex2\.approx\.ftz\.f32", "mov.f32"),
    "ssm_conv_f32": (r"(ld\.global\.f32\s.*)\+4\]", r"\1+8]"),
    "solve_tri_f32_fast": (r"bar\.warp\.sync|bar\.sync", "// "),
    "mul_mat_f bf16": (r"\.bf16\.bf16", ".f16.f16"),
}


@pytest.mark.parametrize("name", EDITS)
def test_one_line_made_wrong_is_noticed(texts: dict[str, str], name: str) -> None:
    probe = PROBES[name]
    text = texts[probe.unit]
    module = read_module(text)
    body = module.functions[entry_of(module, probe.entry)].body
    lines, (pattern, instead) = text.split("\n"), EDITS[name]
    executed = sorted(judge(probe, module).executed)
    places = [n for n in (body[i].line - 1 for i in executed) if re.search(pattern, lines[n])]
    assert places
    place = places[len(places) // 2]
    lines[place] = re.sub(pattern, instead, lines[place], count=1)
    found = judge(probe, read_module("\n".join(lines))).probed
    assert found.outcome == "wrong"
    assert found.mistake is not None
    assert found.mistake.text
