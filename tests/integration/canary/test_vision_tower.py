"""The vision tower computes what transformers' class computes, and keeps pictures apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="PyTorch comes with the extra 'canary'")
pytest.importorskip("transformers", reason="transformers comes with the extra 'canary'")

import torch
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextVisionConfig
from transformers.models.glm5_next.image_processing_pil_glm5_next import (
    Glm5NextImageProcessorPil,
)
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextVisionModel

from sparkbuild.canary.train.nets.glm5v import (
    Grid,
    Shape,
    Tower,
    grid_of,
    pack,
    preprocessor_config,
    token_count,
)

SIZES = ((28, 56), (84, 112), (56, 28), (28, 28))


@pytest.fixture(scope="module")
def images() -> list[npt.NDArray[np.uint8]]:
    numbers = np.random.default_rng(1)
    return [numbers.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]


@pytest.fixture(scope="module")
def tower() -> Tower:
    """Random weights large enough for every part to matter, the clamps included."""
    torch.manual_seed(1)
    tower = Tower(Shape(depth=2, width=128, inner=192, tokens=64, projector=96, limit=0.7))
    with torch.no_grad():
        for weight in tower.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return tower.eval()


def theirs(tower: Tower, patches: torch.Tensor, grids: list[Grid]) -> torch.Tensor:
    model = Glm5NextVisionModel(Glm5NextVisionConfig(**tower.config()))
    named = {name.removeprefix("model.visual."): value for name, value in tower.tensors().items()}
    model.load_state_dict(named)
    twice = tower.normalised(patches).view(-1, 3, 1, 14, 14).expand(-1, -1, 2, -1, -1)
    grid = torch.tensor([[1, *grid] for grid in grids])
    with torch.no_grad():
        tokens: torch.Tensor = model(twice.reshape(-1, 3 * 2 * 14 * 14), grid).pooler_output
    return tokens


def test_the_tower_is_the_one_of_transformers(
    tower: Tower, images: list[npt.NDArray[np.uint8]]
) -> None:
    patches, grids = pack(images)
    with torch.no_grad():
        ours = tower(patches, grids)
    wanted = theirs(tower, patches, grids)
    assert ours.shape == (sum(map(token_count, images)), 64)
    assert (ours - wanted).abs().max() < 1e-5
    assert wanted.abs().mean() > 1e-2


def test_equal_sizes_take_another_way_to_the_same_tokens(
    tower: Tower, images: list[npt.NDArray[np.uint8]]
) -> None:
    equal = [images[1], images[1][::-1].copy()]
    with torch.no_grad():
        together = tower(*pack([*equal, images[0]]))[: 2 * token_count(images[1])]
        alone = tower(*pack(equal))
    assert (together - alone).abs().max() < 1e-5


def test_a_picture_does_not_see_its_neighbours(
    tower: Tower, images: list[npt.NDArray[np.uint8]]
) -> None:
    changed = [images[0], 255 - images[1], *images[2:]]
    first, second = token_count(images[0]), token_count(images[1])
    with torch.no_grad():
        before, after = tower(*pack(images)), tower(*pack(changed))
    assert torch.equal(before[:first], after[:first])
    assert torch.equal(before[first + second :], after[first + second :])
    assert (before - after)[first : first + second].abs().max() > 1e-2


def test_pictures_of_whole_tokens_pass_the_original_preprocessor_unchanged(
    tower: Tower, images: list[npt.NDArray[np.uint8]]
) -> None:
    config = preprocessor_config()
    config.pop("image_processor_type")
    processor = Glm5NextImageProcessorPil(**config)
    for image in images:
        wanted = processor(images=[image], return_tensors="pt")
        assert wanted["image_grid_thw"].tolist() == [[1, *grid_of(image)]]
        single = wanted["pixel_values"].view(-1, 3, 2, 14, 14)[:, :, 0].flatten(1)
        packed = tower.normalised(pack([image])[0])
        assert (packed - single).abs().max() < 1e-5
        assert torch.equal(packed, tower.patchify(torch.from_numpy(image)[None]))


def test_a_picture_of_broken_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="30 by 28"):
        pack([np.zeros((28, 30, 3), np.uint8)])


def test_every_weight_learns(tower: Tower, images: list[npt.NDArray[np.uint8]]) -> None:
    tower.zero_grad()
    torch.autograd.backward(tower(*pack(images)).square().sum())
    gradients = {name: weight.grad for name, weight in tower.named_parameters()}
    without = [name for name, slope in gradients.items() if slope is None or not slope.any()]
    assert without == []
