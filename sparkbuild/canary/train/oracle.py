"""Reference numbers against transformers: the same weights, the same prompts, another program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from sparkbuild.canary.gguf.layout import layout
from sparkbuild.canary.gguf.weights import nmse, weights
from sparkbuild.canary.numbers import load_numbers
from sparkbuild.canary.suite import load_suite
from sparkbuild.canary.train.checkpoint import WEIGHTS
from sparkbuild.files import write_atomic


def differences(
    checkpoint: Path, master: Path, suite_folder: Path, workdir: Path, *, longest: int = 256
) -> dict[str, float]:
    """NMSE of every text reference of at most ``longest`` tokens, by name.

    ``checkpoint`` is the folder that the trainer wrote for the language model, ``master`` the file
    that was made of it. Its rounding is done again here, so that both programs have one set of
    weights. transformers is slow: a second a token.
    """
    suite, _ = load_suite(suite_folder)
    numbers = load_numbers(suite_folder, suite)
    model = _model(rounded(checkpoint, master, workdir))
    found = {}
    for entry in suite.references:
        prompt = [part for part in entry.prompt if isinstance(part, int)]
        if len(prompt) != len(entry.prompt) or len(prompt) > longest:
            continue
        tokens = torch.tensor([[*prompt, *entry.tokens]])
        with torch.no_grad():
            logits = model(input_ids=tokens, use_cache=False).logits[0].float()
        rows = logits[len(prompt) - 1 : len(prompt) - 1 + len(entry.tokens)].log_softmax(-1)
        found[entry.name] = nmse(rows.numpy(), numbers[entry.name])
    return found


def rounded(checkpoint: Path, master: Path, workdir: Path) -> Path:
    """A copy of a checkpoint with the weights that the master has, by its own names."""
    workdir.mkdir(parents=True, exist_ok=True)
    rows = _rows(master)
    content = {
        name: _rounded(value.float(), rows)
        for name, value in load_file(checkpoint / WEIGHTS).items()
    }
    save_file(content, workdir / WEIGHTS, {"format": "pt"})
    config = json.loads((checkpoint / "config.json").read_bytes())
    write_atomic(workdir / "config.json", json.dumps(_loadable(config)).encode())
    return workdir


def _rows(master: Path) -> set[bytes]:
    """Every row of every Q8_0 matrix, dequantised."""
    found = layout(master)
    rows: set[bytes] = set()
    for tensor in found.tensors.values():
        if tensor.type.lower() == "q8_0":
            flat = weights(found, tensor).reshape(-1, tensor.shape[-1])
            rows.update(row.tobytes() for row in flat.astype(np.float32))
    return rows


def _rounded(value: Tensor, rows: set[bytes]) -> Tensor:
    """A tensor as Q8_0 where the master has it so; else as float16, which the converter wrote."""
    if value.ndim < 2:
        return value
    half: NDArray[np.float32] = value.half().float().numpy()
    if half.shape[-1] % 32:
        return torch.from_numpy(half)
    kind = GGMLQuantizationType.Q8_0
    eighth = quants.dequantize(quants.quantize(half, kind), kind).astype(np.float32)
    flat = eighth.reshape(-1, eighth.shape[-1])
    if all(row.tobytes() in rows for row in flat):
        return torch.from_numpy(eighth)
    return torch.from_numpy(half)


def _loadable(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as transformers wants it; a tower that is not there is made very small."""
    result = dict(config)
    if result.get("model_type") == "glm5_next" and "vision_config" not in result:
        result["vision_config"] = {
            "depth": 1,
            "hidden_size": 64,
            "num_heads": 1,
            "intermediate_size": 64,
            "out_hidden_size": result["text_config"]["hidden_size"],
            "projection_intermediate_size": 64,
            "patch_size": 14,
        }
    return result


def _model(folder: Path) -> Any:
    """The class that the configuration names, with the weights of the folder."""
    import transformers  # noqa: PLC0415 - slow to import

    config = json.loads((folder / "config.json").read_bytes())
    kind = getattr(transformers, config["architectures"][0])
    return kind.from_pretrained(folder, dtype=torch.float32).eval()
