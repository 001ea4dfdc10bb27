"""The ``glm5v`` vision tower: patches to tokens of the language model, many pictures at once.

What it computes is what ``Glm5NextVisionModel`` of transformers 5.17 computes, and its parameters
have the same names; ``tests/integration/canary/test_vision_tower.py`` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn

PATCH: Final = 14
"""Pixels of a patch's side (GLM-5.3-Flash)."""
MERGE: Final = 2
"""Patches of a side that become one token (GLM-5.3-Flash)."""
CELL: Final = PATCH * MERGE
"""Pixels of a token's side; pictures with such sides reach the tower unchanged."""
MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
DEVIATION: Final = (0.26862954, 0.26130258, 0.27577711)
"""CLIP's normalisation of red, green and blue, which GLM-5.3-Flash uses."""
HEAD: Final = 64
"""Width of an attention head: as in GLM-5.3-Flash, and a size of CUDA's flash attention."""
_EPSILON: Final = 1e-5
"""Of every norm; the LayerNorm's is fixed in llama.cpp's ``models/glm4v.cpp``."""
_THETA: Final = 10000.0
"""RoPE base, fixed in llama.cpp's ``clip.cpp``."""
_LOUD: Final = 4.0
"""Gain of the last projection at the start: a gated product of normal values is small."""
_MAX_TOKENS: Final = 1024
"""Of one picture: 896 by 896 pixels, more than any picture of the tasks."""

Grid = tuple[int, int]
"""Rows and columns of patches, both even."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Dimensions of a tower; ``tokens`` is the language model's width.

    ``limit`` clamps the SwiGLU: lower than GLM-5.3-Flash's 10, so that the clamp bites in so
    small a model too.
    """

    depth: int = 3
    width: int = 192
    inner: int = 384
    tokens: int = 256
    projector: int = 384
    limit: float = 4.0


class _RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalises in float32 whatever the autocast's type is."""
        return F.rms_norm(x.float(), self.weight.shape, self.weight, _EPSILON).to(x.dtype)


class _Swiglu(nn.Module):
    def __init__(self, width: int, inner: int, limit: float, *, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=bias)
        self.up_proj = nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=bias)
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x).clamp(max=self.limit)
        up = self.up_proj(x).clamp(-self.limit, self.limit)
        down: Tensor = self.down_proj(F.silu(gate) * up)
        return down


@dataclass(frozen=True)
class Plan:
    """How packed patches of several pictures meet attention.

    ``positions`` [patches, 2] are row and column; ``slots`` [patches] the places in a batch of
    ``pictures`` by ``longest``, and ``mask`` [pictures, 1, 1, longest] what is filled there; both
    are None where all pictures have equally many patches.
    """

    pictures: int
    longest: int
    positions: Tensor
    slots: Tensor | None
    mask: Tensor | None


@lru_cache(maxsize=1024)
def _positions(grid: Grid) -> npt.NDArray[np.int64]:
    """[patches, 2]: row and column of a picture's patches, four of a token one after the other."""
    order = np.arange(grid[0] * grid[1]).reshape(grid[0] // MERGE, MERGE, grid[1] // MERGE, MERGE)
    flat = order.transpose(0, 2, 1, 3).reshape(-1)
    return np.stack([flat // grid[1], flat % grid[1]], axis=1)


def plan_of(grids: Sequence[Grid], device: torch.device) -> Plan:
    """The plan of pictures that are packed in this order."""
    counts = np.array([rows * columns for rows, columns in grids])
    longest = int(counts.max())
    positions = torch.from_numpy(np.concatenate([_positions(grid) for grid in grids]))
    positions = positions.to(device, non_blocking=True)
    if (counts == longest).all():
        return Plan(len(grids), longest, positions, None, None)
    mask = torch.from_numpy(np.arange(longest)[None] < counts[:, None])
    slots = mask.flatten().nonzero().squeeze(1).to(device, non_blocking=True)
    mask = mask[:, None, None].to(device, non_blocking=True)
    return Plan(len(grids), longest, positions, slots, mask)


class _Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // HEAD
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.q_norm = _RmsNorm(HEAD)
        self.k_norm = _RmsNorm(HEAD)

    def forward(self, x: Tensor, plan: Plan, turn: tuple[Tensor, Tensor]) -> Tensor:
        qkv = self.qkv(x).view(-1, 3, self.heads, HEAD)
        q = _rotated(self.q_norm(qkv[:, 0]), turn)
        k = _rotated(self.k_norm(qkv[:, 1]), turn)
        q, k, v = (_by_picture(part, plan) for part in (q, k, qkv[:, 2]))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=plan.mask)
        flat = mixed.transpose(1, 2).reshape(plan.pictures * plan.longest, -1)
        if plan.slots is not None:
            flat = flat.index_select(0, plan.slots)
        out: Tensor = self.proj(flat)
        return out


def _rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    first, second = x.float().chunk(2, dim=-1)
    parts = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(parts, dim=-1).to(x.dtype)


def _by_picture(x: Tensor, plan: Plan) -> Tensor:
    """[patches, heads, head] to [pictures, heads, longest, head]."""
    if plan.slots is not None:
        room = x.new_zeros(plan.pictures * plan.longest, *x.shape[1:])
        x = room.index_copy(0, plan.slots, x)
    return x.reshape(plan.pictures, plan.longest, *x.shape[1:]).transpose(1, 2)


class _Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1 = _RmsNorm(shape.width)
        self.norm2 = _RmsNorm(shape.width)
        self.attn = _Attention(shape.width)
        self.mlp = _Swiglu(shape.width, shape.inner, shape.limit, bias=True)

    def forward(self, x: Tensor, plan: Plan, turn: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attn(self.norm1(x), plan, turn)
        x = x + self.mlp(self.norm2(x))
        return x  # noqa: RET504 - torch types what a module returns as Any


class _Merger(_Swiglu):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape.tokens, shape.projector, shape.limit, bias=False)
        self.proj = nn.Linear(shape.tokens, shape.tokens, bias=False)
        self.post_projection_norm = nn.LayerNorm(shape.tokens, eps=_EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.gelu(self.post_projection_norm(self.proj(x))))


class _PatchEmbed(nn.Module):
    """Both temporal halves of the kernel see the same still picture, so their sum sees it once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, width, (2, PATCH, PATCH), stride=(2, PATCH, PATCH))

    def forward(self, patches: Tensor) -> Tensor:
        weight = self.proj.weight.sum(2).flatten(1)
        return F.linear(patches, weight, self.proj.bias)


class Tower(nn.Module):
    """Patches of any number of pictures to their tokens; attention never leaves a picture."""

    _scale: Tensor
    _shift: Tensor
    _frequencies: Tensor

    def __init__(self, shape: Shape | None = None) -> None:
        super().__init__()
        self.shape = shape = shape or Shape()
        self.patch_embed = _PatchEmbed(shape.width)
        self.blocks = nn.ModuleList([_Block(shape) for _ in range(shape.depth)])
        self.post_layernorm = _RmsNorm(shape.width)
        self.downsample = nn.Conv2d(shape.width, shape.tokens, MERGE, stride=MERGE)
        self.merger = _Merger(shape)
        self.register_buffer(
            "_scale", _columns([1 / (255 * d) for d in DEVIATION]), persistent=False
        )
        shift = [-m / d for m, d in zip(MEAN, DEVIATION, strict=True)]
        self.register_buffer("_shift", _columns(shift), persistent=False)
        steps = torch.arange(0, HEAD // 2, 2) / (HEAD // 2)
        self.register_buffer("_frequencies", _THETA**-steps, persistent=False)
        self._start()

    def _start(self) -> None:
        """Weights to train from: tokens come out as large as the language model's embeddings are.

        PyTorch's own start leaves them at 0.04, and the language model then takes thousands of
        steps before it looks at them at all.
        """
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d | nn.Conv3d):
                nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.merger.down_proj.weight.mul_(_LOUD)
            for block in self.modules():
                if isinstance(block, _Block):
                    for out in (block.attn.proj, block.mlp.down_proj):
                        out.weight.mul_((2 * self.shape.depth) ** -0.5)

    def forward(self, patches: Tensor, grids: Sequence[Grid] | Plan) -> Tensor:
        """Tokens [patches / 4, tokens], picture after picture, row by row.

        ``patches`` is what ``pack`` or ``patchify`` makes: [patches, 588], as bytes or normalised;
        ``grids`` has the rows and columns of patches of each picture.
        """
        x = self.patch_embed(self.normalised(patches))
        plan = grids if isinstance(grids, Plan) else plan_of(grids, patches.device)
        angles = (plan.positions[..., None] * self._frequencies).flatten(1)[:, None]
        turn = (angles.cos(), angles.sin())
        for block in self.blocks:
            x = block(x, plan, turn)
        x = self.post_layernorm(x)
        # A 2 by 2 convolution with stride 2 is a product over the four patches of a token.
        kernel = self.downsample.weight.permute(0, 2, 3, 1).flatten(1)
        x = F.linear(x.reshape(-1, kernel.shape[1]), kernel, self.downsample.bias)
        tokens: Tensor = self.merger(x)
        return tokens

    def normalised(self, patches: Tensor) -> Tensor:
        """Bytes as CLIP's normalised floats; floats as they are."""
        if patches.dtype != torch.uint8:
            return patches
        return torch.addcmul(self._shift, patches.float(), self._scale)

    def patchify(self, images: Tensor) -> Tensor:
        """Normalised patches [pictures * patches, 588] of bytes [pictures, height, width, 3]."""
        count, height, width, _ = images.shape
        cells = images.view(
            count, height // CELL, MERGE, PATCH, width // CELL, MERGE, PATCH, 3
        )  # fmt: skip
        return self.normalised(cells.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(-1, 3 * PATCH**2))

    def config(self) -> dict[str, Any]:
        """``vision_config`` of ``config.json``."""
        return {
            "model_type": "glm5_next_vision",
            "attention_bias": True,
            "depth": self.shape.depth,
            "hidden_act": "silu",
            "hidden_size": self.shape.width,
            "image_size": 336,
            "in_channels": 3,
            "intermediate_size": self.shape.inner,
            "num_heads": self.shape.width // HEAD,
            "out_hidden_size": self.shape.tokens,
            "patch_size": PATCH,
            "projection_intermediate_size": self.shape.projector,
            "rms_norm_eps": _EPSILON,
            "spatial_merge_size": MERGE,
            "swiglu_limit": self.shape.limit,
            "temporal_patch_size": 2,
        }

    def tensors(self) -> dict[str, Tensor]:
        """The tower's part of ``model.safetensors``."""
        return {f"model.visual.{name}": value for name, value in self.state_dict().items()}


def preprocessor_config() -> dict[str, Any]:
    """``preprocessor_config.json``, from which the converter takes the pixel budget.

    A picture of one token is allowed: none is scaled up.
    """
    return {
        "image_processor_type": "Glm5NextImageProcessor",
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "image_mean": list(MEAN),
        "image_std": list(DEVIATION),
        "min_image_tokens": 1,
        "max_image_tokens": _MAX_TOKENS,
    }


def grid_of(image: npt.NDArray[np.uint8]) -> Grid:
    """Rows and columns of patches of a picture [height, width, 3].

    Raises ValueError where a side is not a multiple of 28 pixels.
    """
    height, width = image.shape[:2]
    if height % CELL or width % CELL:
        raise ValueError(f"a picture of {width} by {height} pixels: sides must divide by {CELL}")
    return height // PATCH, width // PATCH


def token_count(image: npt.NDArray[np.uint8]) -> int:
    """Tokens that a picture becomes, begin and end marks not counted."""
    rows, columns = grid_of(image)
    return rows * columns // MERGE**2


def pack(images: Sequence[npt.NDArray[np.uint8]]) -> tuple[Tensor, list[Grid]]:
    """Patches [patches, 588] as bytes, and the grids, of pictures of any sizes [height, width, 3].

    Bytes are a quarter of the floats to move to a GPU; ``Tower.forward`` normalises them there.
    """
    grids = [grid_of(image) for image in images]
    rows = [
        image.reshape(height // MERGE, MERGE, PATCH, width // MERGE, MERGE, PATCH, 3)
        .transpose(0, 3, 1, 4, 6, 2, 5)
        .reshape(-1, 3 * PATCH**2)
        for image, (height, width) in zip(images, grids, strict=True)
    ]
    return torch.from_numpy(np.concatenate(rows)), grids


def _columns(channels: Sequence[float]) -> Tensor:
    return torch.tensor(channels, dtype=torch.float64).repeat_interleave(PATCH**2).float()
