"""A checkpoint's weights as they are in a GGUF file that was made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray
from torch import Tensor

from sparkbuild.canary.gguf.weights import all_weights
from sparkbuild.errors import CanaryError

Array = NDArray[np.float32]
_BLOCK: Final = 32
"""Weights that Q8_0 rounds together (ggml-common.h, ``QK8_0``)."""
_Q8_0: Final = GGMLQuantizationType.Q8_0


class Rounding:
    """What became of a checkpoint's weights in ``master``, and in another form of that file.

    The converter renames, splits, stacks and reorders matrices, but leaves together what lies
    side by side: a matrix is found again by its blocks of 32 weights, wherever they went. That all
    of them are found is what shows that both programs have one set of weights.
    """

    def __init__(self, master: Path, form: Path | None = None) -> None:
        """``form`` has the master's tensors in other types; without it, weights are the master's.

        Raises CanaryError where one of the two is no whole GGUF file.
        """
        self.master = master
        known = {tensor.name: values for tensor, values in all_weights(master) if _whole(values)}
        given = known
        if form is not None:
            given = {tensor.name: values for tensor, values in all_weights(form)}
        self._weights = np.concatenate([_blocks(given[name]) for name in known])
        self._place: dict[bytes, int] = {}
        for at, block in enumerate(np.concatenate([_blocks(one) for one in known.values()])):
            self._place.setdefault(block.tobytes(), at)

    def __call__(
        self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """The tensors, float32 and by the same names, with the file's weights.

        ``tensors`` are as the trainer saves them, matrices in float16. Vectors, and matrices whose
        rows are no whole blocks, nothing rounds further. Raises CanaryError naming the matrices
        that the master does not hold.
        """
        found, problems = {}, []
        for name, value in tensors.items():
            content = value.float().numpy().copy()
            if not all(self._round(part) for part in _parts(name, content, config)):
                problems.append(f"{name} is not in it")
            found[name] = torch.from_numpy(content)
        if problems:
            raise CanaryError(
                f"{self.master.name} was not made of this checkpoint",
                problems=problems,
                evidence=[self.master],
                next_step="convert the checkpoint again",
            )
        return found

    def _round(self, part: Array) -> bool:
        """Overwrite a matrix with what it is in the file, if it is there."""
        if not _whole(part):
            return True
        for way in _WAYS:
            places = [self._place.get(block.tobytes(), -1) for block in _blocks(way(part))]
            if min(places) >= 0:
                part[...] = self._weights[places].reshape(part.shape)
                return True
        return False


def _whole(values: Array) -> bool:
    return values.ndim > 1 and values.shape[-1] % _BLOCK == 0


def _blocks(values: Array) -> Array:
    return np.ascontiguousarray(values, np.float32).reshape(-1, _BLOCK)


def _eighth(values: Array) -> Array:
    rows = np.ascontiguousarray(values).reshape(-1, values.shape[-1])
    return np.asarray(quants.dequantize(quants.quantize(rows, _Q8_0), _Q8_0), np.float32)


def _same(values: Array) -> Array:
    return values


_WAYS: Final[tuple[Callable[[Array], Array], ...]] = (_eighth, _same)
"""What a matrix can have become in the master: Q8_0, or float16 and wider."""


def _parts(name: str, content: Array, config: Mapping[str, Any]) -> Iterator[Array]:
    """Views of a tensor, each with rows as the converter writes them.

    Latent attention's keys are stored transposed, so that queries can be taken to the latent.
    """
    if not name.endswith("kv_b_proj.weight"):
        yield content
        return
    heads = content.reshape(config["num_attention_heads"], -1, content.shape[-1])
    keys = config["qk_nope_head_dim"]
    yield heads[:, :keys].transpose(0, 2, 1)
    yield heads[:, keys:]
