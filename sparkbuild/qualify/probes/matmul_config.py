"""Which instances of ``mul_mat_vec_q`` are probed, and how the source has them launched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from sparkbuild.qualify.probes.entries import Enum, template_entry
from sparkbuild.qualify.probes.vec_dot import rule_of, types_of
from sparkbuild.qualify.probes.vec_dot_sums import Rule
from sparkbuild.qualify.reference.source import SourceFacts, TensorType

SOURCE: Final = "ggml-cuda/mmvq.cu"
UNIT: Final = "matmul_vec"
WARP: Final = 32

PARAMETERS: Final = (
    "vx_ptr", "vy_ptr", "ids_ptr", "fusion", "dst_ptr", "ncols_x", "nchannels_y", "stride_row_x",
    "stride_col_y", "stride_col_dst", "channel_ratio", "stride_channel_x", "stride_channel_y",
    "stride_channel_dst", "sample_ratio", "stride_sample_x", "stride_sample_y",
    "stride_sample_dst", "ids_stride",
)  # fmt: skip
EXPERT_PARAMETERS: Final = (
    "vx_ptr", "vy_ptr", "ids_ptr", "fusion", "dst_ptr", "ncols_x", "nchannels_y", "nrows_x",
    "stride_row_x", "stride_col_y", "stride_col_dst", "stride_channel_x", "stride_channel_y",
    "stride_channel_dst", "ncols_dst", "ids_stride",
)  # fmt: skip
"""What the launches fill, in this order."""

_SEVERAL: Final = 4
"""Columns of the instances with more than one."""
_SEVERAL_TYPES: Final = ("q8_0", "q4_K", "iq3_s")
_FUSED_TYPES: Final = ("q8_0", "q4_K", "iq2_s")
_EXPERT_TYPES: Final = ("q8_0", "q2_K", "iq1_s")
"""Which types the further instances are made for: they all call what the first one calls."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance: ``warps`` and ``rows`` (of x) that a CUDA block has, ``columns`` of y."""

    kind: TensorType
    rule: Rule
    columns: int
    warps: int
    rows: int
    fused: bool = False
    experts: bool = False
    may_fuse: bool = True
    """Whether the kernel has a parameter for what is fused with it."""

    @property
    def per(self) -> int:
        """Values of iqs in a block of x."""
        return self.kind.ints // self.rule.step

    @property
    def stride(self) -> int:
        """Blocks of x that one round of the loop takes."""
        return self.warps * WARP // self.per

    @property
    def blocks(self) -> int:
        """Blocks in a row: two rounds, and one that not all threads take part in."""
        return 2 * self.stride + max(self.stride // 2, 1)

    @property
    def entry(self) -> str:
        """The pattern of the kernel's name."""
        number = Enum("ggml_type", self.kind.number)
        if self.experts:
            fused = (self.fused,) if self.may_fuse else ()
            return template_entry("mul_mat_vec_q_moe", number, self.rows, *fused)
        return template_entry("mul_mat_vec_q", number, self.columns, self.fused, False, False)

    @property
    def line(self) -> str:
        """The table's line."""
        flag = "true" if self.fused else "false"
        if self.experts:
            fused = f", {flag}" if self.may_fuse else ""
            return f"    EXPERTS({self.kind.enumerator}, {self.rows}{fused})"
        return f"    ONE({self.kind.enumerator}, {self.columns}, {flag}, false, false)"


def instances(facts: SourceFacts) -> tuple[Instance, ...]:
    """What is probed of a source; nothing where its kernel is another than is known here."""
    if not _is_known(facts):
        return ()
    experts = _experts(facts)
    warps = _switched(facts, "calc_nwarps")
    rows = _switched(facts, "calc_rows_per_block")
    found = []
    for kind in types_of(facts):
        rule = rule_of(facts, kind)
        if rule is None:
            continue
        found.append(Instance(kind, rule, 1, warps[1], 1))
        if kind.name in _SEVERAL_TYPES:
            found.append(Instance(kind, rule, _SEVERAL, warps[_SEVERAL], rows[_SEVERAL]))
        if kind.name in _FUSED_TYPES:
            found.append(Instance(kind, rule, 1, warps[1], 1, fused=True))
        if kind.name in _EXPERT_TYPES and experts is not None:
            found.append(Instance(kind, rule, 3, 1, 2, experts=True, may_fuse=experts))
    return tuple(found)


def unit_text(facts: SourceFacts) -> str:
    """The unit with every instance that is probed."""
    units = resources.files("sparkbuild.qualify.probes").joinpath("units")
    lines = "\n".join(instance.line for instance in instances(facts))
    return f"{units.joinpath('matmul_vec.cu').read_text()}{lines}\n}};\n"


def _is_known(facts: SourceFacts) -> bool:
    """Whether the kernel has the template and the parameters that the launches below fill."""
    text = " ".join(facts.text[SOURCE].split())
    template = (
        "template <ggml_type type, int ncols_dst, bool has_fusion, bool small_k = false, "
        "bool halve_iters = false>"
    )
    return template in text and facts.parameters(SOURCE, "mul_mat_vec_q") == PARAMETERS


def _experts(facts: SourceFacts) -> bool | None:
    """Whether ``mul_mat_vec_q_moe`` may fuse; None where it is another kernel than is known."""
    text = " ".join(facts.text[SOURCE].split())
    template = re.search(
        r"template <ggml_type type, int c_rows_per_block(, bool has_fusion)?", text
    )
    plain = tuple(name for name in EXPERT_PARAMETERS if name != "fusion")
    match facts.parameters(SOURCE, "mul_mat_vec_q_moe"):
        case found if found == EXPERT_PARAMETERS and template and template[1]:
            return True
        case found if found == plain and template and not template[1]:
            return False
        case _:
            return None


def _switched(facts: SourceFacts, function: str) -> dict[int, int]:
    """What a function of mmvq.cu returns for each number of columns on any NVIDIA GPU.

    ``cases`` of the first switch; ``small_k ? nwarps : 1`` is what holds without ``small_k``.
    """
    body = facts.body(SOURCE, function)
    first = body[body.find("switch (ncols_dst)") :]
    values: dict[int, int] = {}
    waiting: list[int] = []
    for case, result in re.findall(r"case (\d+):|return (?:\w+ \? \w+ : )?(\d+);", first):
        if case:
            waiting.append(int(case))
            continue
        values.update({number: int(result) for number in waiting if number not in values})
        waiting = []
    return values


def fusion_offsets(facts: SourceFacts) -> dict[str, int]:
    """Offsets of the members of the struct that says what is fused; ``size`` of all."""
    text = facts.text["ggml-cuda/common.cuh"]
    body = re.search(r"struct ggml_cuda_mm_fusion_args_device \{([^}]*)\}", text)
    offsets: dict[str, int] = {}
    offset = 0
    for star, name in re.findall(r"[\w ]+?(\*?)\s*(\w+)\s*(?:=[^;]*)?;", body[1] if body else ""):
        size = 8 if star else 4
        offset += -offset % size
        offsets[name] = offset
        offset += size
    offsets["size"] = offset + -offset % 8
    return offsets
