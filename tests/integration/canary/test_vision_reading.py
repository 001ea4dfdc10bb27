"""What a tower is asked while it learns to read is what the picture holds."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch", reason="PyTorch comes with the extra 'canary'")
pytest.importorskip("PIL", reason="Pillow comes with the extra 'canary'")

import torch

from sparkbuild.canary.tasks import ocr
from sparkbuild.canary.train import reading
from sparkbuild.canary.train.nets.glm5v import Shape, Tower


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_labels_spell_the_text(level: float, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    plain = ocr.written

    def recorded(rng: random.Random, text: str, level: float) -> ocr.Written:
        texts.append(text)
        return plain(rng, text, level)

    monkeypatch.setattr(reading, "written", recorded)
    rng = random.Random(1)  # noqa: S311 - the same pictures in every run
    for _ in range(8):
        image, labels = reading.labelled(rng, level)
        assert labels.shape == (image.shape[0] * image.shape[1] // 28**2, reading.SLOTS)
        told = "".join(ocr.ALPHABET[i] for i in labels.flatten() if i < len(ocr.ALPHABET))
        assert told == texts[-1]
        marked = (labels < len(ocr.ALPHABET)).any(1)
        cells = image.reshape(image.shape[0] // 28, 28, -1, 28, 3).std((1, 3)).max(-1).flatten()
        assert (cells[marked] > 1).all()


def test_the_same_seed_gives_the_same_tower_and_it_learns() -> None:
    plan = reading.Plan(steps=25, pictures=3, seed=3, rise=20, warm=5)
    told: list[reading.Progress] = []

    def trained() -> Tower:
        torch.manual_seed(1)
        tower = Tower(Shape(depth=1, width=64, inner=64, tokens=64, projector=64))
        reading.warm_up(tower, plan, torch.device("cpu"), told.append)
        return tower

    first, second = trained().state_dict(), trained().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert [progress.step for progress in told] == [25, 25]
    # Without learning: the logarithm of 37 kinds of label, 3.6.
    assert told[0].loss < 2.0
