"""Checkpoint to GGUF, by the pinned llama.cpp's own converter in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, Literal

from sparkbuild import process
from sparkbuild.errors import CanaryError

_CONVERTER: Final = "convert_hf_to_gguf.py"
_RUNNER: Final = Path(__file__).with_name("convert_runner.py")
PRE_TOKENIZER: Final = "glm4"
"""``tokenizer.ggml.pre`` of every canary: they share one tokenizer, with GLM-4's split pattern."""

OutType = Literal["f32", "f16", "bf16", "q8_0"]


def convert(
    checkpoint: Path,
    source: Path,
    out: Path,
    *,
    kind: Literal["text", "mmproj"],
    outtype: OutType,
    log: Path,
) -> Path:
    """Convert a checkpoint folder to ``out`` with the converter of the llama.cpp tree ``source``.

    ``kind`` chooses the language model, draft block included, or the vision tower. Needs the extra
    ``canary``. Nothing is written into ``source``, and ``out`` appears whole or not at all. Raises
    CanaryError with the converter's log.
    """
    program = source / _CONVERTER
    if not program.is_file():
        raise CanaryError(
            f"{source} is no llama.cpp tree",
            problems=[f"there is no {_CONVERTER}"],
            next_step="name the folder of the pinned source",
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.part")
    argv = [sys.executable, "-B", "-P", str(_RUNNER), PRE_TOKENIZER, str(program)]
    argv += [str(checkpoint), "--outfile", str(part), "--outtype", outtype]
    argv += ["--mmproj"] if kind == "mmproj" else []
    env = process.environment(
        extra={
            "PYTHONPATH": f"{source / 'gguf-py'}:{source}",
            "PYTHONDONTWRITEBYTECODE": "1",
            # Whatever the checkpoint lacks is an error, nothing to look for in a network.
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
    )
    try:
        done = process.run(argv, log=log, env=env, cwd=out.parent)
        if done.returncode or not part.is_file():
            raise CanaryError(
                f"the converter of {source.name} failed on {checkpoint.name}",
                problems=[f"exit status {done.returncode}, expected {out.name}"],
                evidence=[log],
                next_step=f"read {log}; torch and transformers come with sparkbuild[canary]",
                detail=done.tail,
            )
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return out
