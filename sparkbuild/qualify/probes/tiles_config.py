"""How the source sets up ``mul_mat_q`` for a type, read from its tables and switches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sparkbuild.qualify.reference.source import SourceFacts, TensorType, evaluate

MMQ: Final = "ggml-cuda/mmq.cuh"
_AMPERE: Final = "ggml-cuda/mmq-config-ampere.cuh"
_BLACKWELL: Final = "ggml-cuda/mmq-config-blackwell.cuh"

BLACKWELL_FIRST: Final = 120
BLACKWELL_LAST: Final = 129
"""Compute capabilities for which common.cuh defines BLACKWELL_MMA_AVAILABLE (1200 up to Rubin)."""

_FOUR_BITS: Final = "fp4_fp4"
"""In the name of the dot product of two four-bit sides."""

PARAMETERS: Final = (
    "x", "y", "ids_dst", "expert_bounds", "dst", "tmp_fixup", "y_scale", "blocks_per_ne00",
    "nrows_x", "ncols_dst", "stride_row_x", "ncols_y", "stride_col_dst", "channel_ratio",
    "nchannels_y", "stride_channel_x", "stride_channel_y", "stride_channel_dst", "sample_ratio",
    "nsamples_y", "stride_sample_x", "stride_sample_y", "stride_sample_dst", "ntx",
)  # fmt: skip
"""What the launches fill, in this order."""

_PADDING_BLOCKS: Final = 128
"""mmq.cu allocates this many blocks of y more than there are: the widest tile's columns."""


@dataclass(frozen=True, slots=True)
class TileConfig:
    """One instance of ``mul_mat_q``.

    ``rows`` and ``columns`` of its tile (I and J), ``depth`` elements of a row at a time,
    ``stride`` in 32-bit words between rows in shared memory. ``fp4``: both sides stay four bits
    wide. ``load``, ``dot`` and ``write`` are the device functions that it is made of.
    """

    kind: TensorType
    threads: int
    rows: int
    columns: int
    depth: int
    stride: int
    fallback: bool
    fp4: bool
    load: str
    dot: str
    write: str
    layout: str
    """``D4``, ``DS4`` or ``D2S6``: what a block of y carries besides its quants."""
    chosen: bool = True
    """Whether the template says by itself that both sides stay four bits wide."""

    @property
    def shared(self) -> int:
        """Dynamic shared memory in bytes, as ``mmq_get_nbytes_shared`` has it."""
        y = 144 * self.columns
        return 4 * self.columns + 4 * self.rows * self.stride + y + -y % (4 * self.threads)

    @property
    def padding(self) -> int:
        """Bytes behind y that the kernel may read, and never uses."""
        return 144 * _PADDING_BLOCKS

    @property
    def instance(self) -> str:
        """The template's arguments in C."""
        fallback = "true" if self.fallback else "false"
        words = [self.kind.enumerator, str(self.columns), fallback]
        return ", ".join([*words, self.precision] if self.chosen else words)

    @property
    def precision(self) -> str:
        """The template's word for the width of y, where it has one."""
        return "GGML_PREC_Q4" if self.fp4 else "GGML_PREC_Q8"


def tile_config(
    facts: SourceFacts, kind: TensorType, columns: int, *, fallback: bool = False, fp4: bool = False
) -> TileConfig | None:
    """The instance of a type, or None where the source has none that this reader understands."""
    functions = _functions(facts, kind, fp4=fp4)
    flag = "true" if fallback else "false"
    line = re.search(
        rf"CASE\({kind.enumerator},\s*(\d+),\s*\d+,\s*(\d+),\s*{columns},\s*(\w+),\s*(\w+),"
        rf"\s*\w+,\s*{flag}\)",
        facts.text[_BLACKWELL if fp4 else _AMPERE],
    )
    template = _template(facts)
    if functions is None or line is None or template is None:
        return None
    threads, rows, layout, depth = line.groups()
    stride = re.search(
        rf"case {layout}:\s*return ([^;]+);", facts.body(MMQ, "ggml_cuda_mmq_get_sram_stride")
    )
    sums = _partner_layout(facts, kind)
    if stride is None or sums is None:
        return None
    return TileConfig(
        kind=kind,
        threads=int(threads),
        rows=int(rows),
        columns=columns,
        depth=facts.constant(depth),
        stride=evaluate(" ".join(stride[1].split()), facts.constant),
        fallback=fallback,
        fp4=fp4,
        load=functions[0],
        dot=functions[1],
        write=functions[2],
        layout=sums,
        chosen="prec_src1" in template,
    )


def has_fp4(arch: str) -> bool:
    """Whether code for an arch (``121a``) multiplies four-bit floats by four-bit floats."""
    number = int(re.sub(r"\D", "", arch))
    return BLACKWELL_FIRST <= number <= BLACKWELL_LAST


def always_fp4(facts: SourceFacts, kind: TensorType) -> bool:
    """Whether a type's both sides are four bits wide wherever the target can: nothing to choose."""
    template = _template(facts)
    return (
        template is not None
        and "prec_src1" not in template
        and _functions(facts, kind, fp4=True) is not None
    )


def _functions(facts: SourceFacts, kind: TensorType, *, fp4: bool) -> tuple[str, str, str] | None:
    """Loader, dot product and write-back of the tensor-core path (its VDR is -1)."""
    found = re.finditer(
        rf"case {kind.enumerator}:\s*(?:if \([^)]*\) \{{\s*)?return ggml_cuda_mmq_util_funcs\("
        r"\s*-1,\s*(\w+)<[^;]*?>,\s*(\w+)<[^;]*?>,\s*(\w+)<",
        facts.body(MMQ, "ggml_cuda_mmq_get_util_funcs"),
    )
    named = ((match[1], match[2], match[3]) for match in found)
    return next((three for three in named if (_FOUR_BITS in three[1]) == fp4), None)


def _partner_layout(facts: SourceFacts, kind: TensorType) -> str | None:
    """Which sums a block of y carries for this type: the first return after its case."""
    body = facts.body(MMQ, "mmq_get_q8_1_ds_layout")
    found = re.search(
        rf"case {kind.enumerator}:(?:\s*case \w+:)*\s*return MMQ_Q8_1_DS_LAYOUT_(\w+);", body
    )
    return found[1] if found else None


def _template(facts: SourceFacts) -> str | None:
    """The template parameters of ``mul_mat_q``; None where it is not the kernel that is known."""
    found = re.search(
        r"template <ggml_type type, int J, bool fallback([^>]*)>"
        r"[^{]*?static __global__ void mul_mat_q\(",
        facts.text[MMQ],
    )
    if found is None or facts.parameters(MMQ, "mul_mat_q") != PARAMETERS:
        return None
    known = ("", ", ggml_prec prec_src1 = GGML_PREC_Q8")
    return found[1] if found[1] in known else None
