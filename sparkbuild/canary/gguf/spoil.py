"""Perturbations of a GGUF file: one tensor or one hyper-parameter wrong, and then right again.

They stand for what goes wrong in kernels and loaders: an index off by some rows, a factor, a block
of weights that is not read, a sign, a constant that is not the model's.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from sparkbuild.canary.gguf.layout import Field, Layout, Scalar, Tensor, layout
from sparkbuild.errors import CanaryError

Kind = Literal["rolled", "scaled", "zeroed", "negated", "changed"]
TENSOR_KINDS: Final[tuple[Kind, ...]] = ("rolled", "scaled", "zeroed", "negated")

_SHIFT: Final = 7
"""Rows; a prime, so that no head, group or block of a tensor comes to lie on another one."""
_FACTOR: Final = 0.9
_BLOCK: Final = 256
"""Weights: the largest block of any quantised type."""


@dataclass(frozen=True, kw_only=True, order=True)
class Spoil:
    """One perturbation: of a tensor, or (``changed``) of a metadata value."""

    target: str
    kind: Kind
    detail: str

    @property
    def name(self) -> str:
        """For people and for records."""
        return f"{self.target} {self.kind}"


def _times(factor: float) -> Callable[[Scalar], Scalar]:
    return lambda value: float(value) * factor


def _less(value: Scalar) -> Scalar:
    """One less, where one is left, else one more."""
    return int(value) - 1 if int(value) > 1 else int(value) + 1


_CHANGES: Final[dict[str, Callable[[Scalar], Scalar]]] = {
    # Epsilons act where activations are small: a healthy net hardly sees a factor of ten.
    "attention.layer_norm_rms_epsilon": _times(1000),
    "attention.layer_norm_epsilon": _times(10000),
    "hyper_connection.epsilon": _times(10000),
    "hyper_connection.sinkhorn_iterations": lambda _: 1,
    "attention.indexer.top_k": lambda value: int(value) // 2,
    "attention.indexer.kpool_select_tail": lambda value: not value,
    "attention.scale": _times(_FACTOR),
    "attention.clamp_kqv": _times(0.1),
    "kda.gate_lower_bound": _times(_FACTOR),
    "expert_used_count": _less,
    "expert_weights_scale": _times(_FACTOR),
    "expert_weights_norm": lambda value: not value,
    "expert_gating_func": lambda value: 1 if value == 2 else 2,
    "swiglu_clamp_exp": _times(0.1),
    "swiglu_clamp_shexp": _times(0.1),
    "rope.freq_base": _times(0.5),
    "rope.dimension_count": lambda value: int(value) // 2,
    "full_attention_interval": _less,
    "vision.attention.head_count": lambda value: int(value) * 2,
    "vision.image_mean": _times(0.5),
    "vision.image_std": _times(_FACTOR),
    "vision.swiglu_clamp": _times(0.1),
    "vision.spatial_merge_size": _less,
    "use_silu": lambda value: not value,
}
"""What a hyper-parameter is changed to, by its key without the architecture."""
_ROLLED: Final = "rope.dimension_sections"
"""An array of which the order is what matters."""


_DETAILS: Final[dict[Kind, str]] = {
    "rolled": f"rows by {_SHIFT}",
    "scaled": f"by {_FACTOR}",
    "zeroed": f"{_BLOCK} weights in the middle",
    "negated": "all weights",
}


def spoils(path: Path) -> list[Spoil]:
    """Every perturbation of a float32 file that changes its bytes, in the file's order."""
    found = layout(path)
    listed = []
    for tensor in found.tensors.values():
        before = _read(found, tensor)
        listed += [
            Spoil(target=tensor.name, kind=kind, detail=_DETAILS[kind])
            for kind in TENSOR_KINDS
            if not np.array_equal(before, _spoilt(before, kind))
        ]
    for field in found.fields.values():
        after = _changed(found, field)
        if after is not None and after != _values(field):
            shown = f"{_shown(_values(field))} to {_shown(after)}"
            listed.append(Spoil(target=field.key, kind="changed", detail=shown))
    return listed


@contextlib.contextmanager
def spoilt(path: Path, spoil: Spoil) -> Iterator[None]:
    """Write a perturbation into ``path``, a copy that nobody else uses; undo it at the end.

    Only the bytes that change are written. A process that was killed meanwhile leaves the file
    spoilt. Raises CanaryError where the file has no such target.
    """
    found = layout(path)
    offset, before, after = _bytes(found, spoil)
    _write(path, offset, after)
    try:
        yield
    finally:
        _write(path, offset, before)


def _bytes(found: Layout, spoil: Spoil) -> tuple[int, bytes, bytes]:
    """Where, what is there, what comes there."""
    if spoil.kind == "changed" and spoil.target in found.fields:
        field = found.fields[spoil.target]
        after = _changed(found, field)
        if after is not None:
            code = f"<{len(after)}{field.code}"
            return field.offset, struct.pack(code, *_values(field)), struct.pack(code, *after)
    elif spoil.target in found.tensors:
        tensor = found.tensors[spoil.target]
        before = _read(found, tensor)
        return tensor.offset, before.tobytes(), _spoilt(before, spoil.kind).tobytes()
    raise CanaryError(
        f"{found.path.name} has nothing to be spoilt as {spoil.name}",
        evidence=[found.path],
        next_step="list the perturbations of this very file",
    )


def _read(found: Layout, tensor: Tensor) -> NDArray[np.float32]:
    if tensor.type != "f32":
        raise CanaryError(
            f"{found.path.name} is no float32 file: {tensor.name} is {tensor.type}",
            evidence=[found.path],
            next_step="derive the form f32 first",
        )
    return np.fromfile(found.path, "<f4", tensor.elements, offset=tensor.offset).reshape(
        tensor.shape
    )


def _spoilt(values: NDArray[np.float32], kind: Kind) -> NDArray[np.float32]:
    if kind == "scaled":
        return values * np.float32(_FACTOR)
    if kind == "negated":
        return -values
    if kind == "zeroed":
        result = values.reshape(-1).copy()
        middle = result.size // 2 // _BLOCK * _BLOCK
        result[middle : middle + min(_BLOCK, max(1, result.size // 2))] = 0
        return result.reshape(values.shape)
    axis = _row_axis(values.shape)
    return np.roll(values, _SHIFT if values.shape[axis] > _SHIFT else 1, axis=axis)


def _row_axis(shape: tuple[int, ...]) -> int:
    """The last axis before a row's own that has more than one entry; a vector's only one."""
    longer = [axis for axis, size in enumerate(shape[:-1]) if size > 1]
    return longer[-1] if longer else len(shape) - 1


def _values(field: Field) -> tuple[Scalar, ...]:
    return field.value if isinstance(field.value, tuple) else (field.value,)


def _changed(found: Layout, field: Field) -> tuple[Scalar, ...] | None:
    """The changed values; None for what is not a hyper-parameter that a loader would accept."""
    key = field.key.removeprefix(f"{found.architecture}.")
    values = _values(field)
    if not field.code:
        return None
    if key == _ROLLED:
        return (*values[1:], values[0])
    change = _CHANGES.get(key)
    return None if change is None else tuple(_as_stored(change(v), field.code) for v in values)


def _as_stored(value: Scalar, code: str) -> Scalar:
    """The value as the file holds it: single precision where it does."""
    stored: Scalar = struct.unpack(f"<{code}", struct.pack(f"<{code}", value))[0]
    return stored


def _shown(values: tuple[Scalar, ...]) -> str:
    """One value where all are the same."""
    texts = [f"{v:.6g}" if isinstance(v, float) and math.isfinite(v) else str(v) for v in values]
    return texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}]"


def _write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
