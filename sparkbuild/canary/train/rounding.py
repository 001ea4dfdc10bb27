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
    """What became of a checkpoint's weights in ``master``, and in another file made of that.

    The converter renames, splits, stacks and reorders matrices, but leaves together what lies
    side by side: a matrix is found again by its blocks of 32 weights, wherever they went. That all
    of them are found is what shows that both programs have one set of weights.
    """

    def __init__(self, master: Path, form: Path | None = None) -> None:
        """``form`` has the master's tensors in other types; without it, weights are the master's.

        Raises CanaryError where a tensor of the two differs in its shape.
        """
        self.master = master
        known = [(tensor.name, values) for tensor, values in all_weights(master)]
        given = {tensor.name: values for tensor, values in all_weights(form or master)}
        self._place: dict[bytes, int] = {}
        self._weights = np.concatenate([_blocks(given[name]) for name, v in known if _whole(v)])
        for at, block in enumerate(np.concatenate([_blocks(v) for _, v in known if _whole(v)])):
            self._place.setdefault(block.tobytes(), at)

    def __call__(
        self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """The tensors with the file's weights, by the same names.

        Vectors, and matrices whose rows are no whole blocks, nothing rounds further than the
        trainer did. Raises CanaryError naming the matrices that the master does not hold.
        """
        found, problems = {}, []
        for name, value in tensors.items():
            array = value.float().numpy().copy()
            if not all([self._round(part) for part in _parts(name, array, config)]):
                problems.append(name)
            found[name] = torch.from_numpy(array)
        if problems:
            raise CanaryError(
                f"{self.master.name} was not made of this checkpoint",
                problems=[f"{name} is not in it" for name in problems],
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


def _parts(name: str, array: Array, config: Mapping[str, Any]) -> Iterator[Array]:
    """Views of a tensor, each with rows as the converter writes them.

    Latent attention's keys are stored transposed, so that queries can be taken to the latent.
    """
    if not name.endswith("kv_b_proj.weight"):
        yield array
        return
    heads = array.reshape(config["num_attention_heads"], -1, array.shape[-1])
    keys = config["qk_nope_head_dim"]
    yield heads[:, :keys].transpose(0, 2, 1)
    yield heads[:, keys:]
