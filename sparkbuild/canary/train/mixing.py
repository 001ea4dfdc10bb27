"""The form ``mix`` at recording: complete, and with the slowest of it made beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sparkbuild.canary.gguf.derive import derive
from sparkbuild.canary.gguf.layout import layout
from sparkbuild.canary.gguf.rewrite import select
from sparkbuild.canary.gguf.typemap import MIX, missing_types, quantised_types
from sparkbuild.errors import CanaryError

PREMADE: Final = "premade-mix.gguf"
_HEADER: Final = "ggml/include/ggml.h"
_TABLED: Final = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s")
"""Types for which llama-quantize first searches tables (ggml-quants.c, ``iq2xs_init_impl``)."""


def make_premade(master: Path, out: Path, *, source: Path, quantiser: Path, workdir: Path) -> Path:
    """Write to ``out`` the tensors of the mix that a quantiser takes long to make.

    ``source`` is the llama.cpp tree of the quantiser. Raises CanaryError where the mix lacks one
    of that tree's quantised types, on dense or on expert matrices.
    """
    whole = derive(
        master,
        "mix",
        quantiser=quantiser,
        folder=workdir / "forms",
        record=None,
        log=workdir / "derive-mix-whole.log",
    )
    check_complete(whole.path, source)
    return select(whole.path, out, _TABLED)


def check_complete(mix: Path, source: Path) -> None:
    """Raise CanaryError where a mix does not hold every quantised type of a llama.cpp tree."""
    missing = missing_types(layout(mix), quantised_types(source / _HEADER))
    if missing:
        raise CanaryError(
            f"{mix.name} does not hold every quantised type of this llama.cpp",
            problems=missing,
            evidence=[mix, source / _HEADER],
            next_step=f"give those types a place in {MIX}",
        )
