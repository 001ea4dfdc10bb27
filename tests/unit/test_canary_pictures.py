"""Picture tasks: the answer is really in the picture, and the splits never share a content."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("PIL", reason="Pillow comes with the extra 'canary'")

from sparkbuild.canary.tasks import drawing, glyphs, ocr, scenes
from sparkbuild.canary.tasks.heldout import split_of
from sparkbuild.canary.tasks.pictures import (
    AfterPicture,
    Colour,
    Layout,
    Ocr,
    TwoPictures,
    Where,
    array,
    picture_tasks,
    wordings,
)
from sparkbuild.canary.tasks.sample import Sample, Split, Task

Pixels = npt.NDArray[np.uint8]
SPLITS: tuple[Split, ...] = ("train", "held-out")


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same pictures in every run


def samples(task: Task, count: int, split: Split = "train") -> Iterator[Sample]:
    rng = seeded(1)
    for _ in range(count):
        yield task.sample(rng, split=split, length=100)


def pixels(sample: Sample) -> Pixels:
    return array(sample.turns[0].pictures[0])


def ink(image: Pixels) -> npt.NDArray[np.bool_]:
    """Where a picture is not as in its corner, where nothing is ever drawn."""
    marks: npt.NDArray[np.bool_] = (np.abs(image.astype(int) - image[0, 0]) > 2).any(-1)
    return marks


@pytest.mark.parametrize("task", picture_tasks(), ids=lambda task: task.name)
def test_the_same_seed_makes_the_same_sample(task: Task) -> None:
    for first, second in zip(samples(task, 4), samples(task, 4), strict=True):
        assert (first.answer, first.check) == (second.answer, second.check)
        assert [turn.text for turn in first.turns] == [turn.text for turn in second.turns]
        for one, other in zip(first.turns, second.turns, strict=True):
            assert [p.tobytes() for p in one.pictures] == [p.tobytes() for p in other.pictures]


@pytest.mark.parametrize("task", picture_tasks(), ids=lambda task: task.name)
@pytest.mark.parametrize("split", SPLITS)
def test_pictures_are_whole_tokens_and_not_too_wide(task: Task, split: Split) -> None:
    for sample in samples(task, 8, split):
        shown = [picture for turn in sample.turns for picture in turn.pictures]
        assert shown
        for picture in shown:
            assert picture.mode == "RGB"
            assert picture.width % 28 == picture.height % 28 == 0
            assert picture.width <= 392
            assert picture.height <= 112
        assert sample.answer


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_strings_belong_to_their_split(level: float) -> None:
    for split in SPLITS:
        for sample in samples(Ocr(level=level), 12, split):
            if len(sample.answer) >= 4:
                assert split_of(sample.answer) == split
            assert set(sample.answer) <= set(ocr.ALPHABET)


def test_held_out_strings_are_never_so_short_that_they_were_trained() -> None:
    assert all(len(s.answer) >= 4 for s in samples(Ocr(level=0.0), 25, "held-out"))


def test_both_texts_of_a_held_out_sample_are_held_out() -> None:
    for sample in samples(TwoPictures(colours=0.0), 15, "held-out"):
        assert {split_of(text) for text in sample.answer.split(" ")} == {"held-out"}


def test_scenes_of_the_splits_are_disjoint(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    plain = scenes._asked

    def recorded(name: str, scene: scenes.Scene) -> Sample:
        made.append(scene.content)
        return plain(name, scene)

    monkeypatch.setattr(scenes, "_asked", recorded)
    for split in SPLITS:
        made.clear()
        for task in (Colour(), Layout()):
            list(samples(task, 15, split))
        assert len(made) == 30
        assert {split_of(content) for content in made} == {split}


def test_level_0_is_one_black_character_a_cell() -> None:
    for sample in samples(Ocr(level=0.0), 15):
        assert 1 <= len(sample.answer) <= 2
        image = pixels(sample)
        assert image[0, 0].tolist() == [255, 255, 255]
        assert image.shape == (28, 28 * len(sample.answer), 3)
        filled = ink(image).any(0).reshape(-1, 28).any(1)
        assert filled.all()


def test_level_1_is_long_and_of_all_looks() -> None:
    task = Ocr(level=1.0, easier=0.0)
    told = [dict(sample.check) for sample in samples(task, 40)]
    assert {int(facts["characters"]) for facts in told} <= set(range(12, 17))
    assert {facts["face"] for facts in told} == set(glyphs.FACES)
    assert {facts["polarity"] for facts in told} == {"dark on light", "light on dark"}
    assert {facts["picture"].split("x")[1] for facts in told} == {"28", "56", "84"}


@pytest.mark.parametrize("level", [0.0, 0.3, 0.6, 1.0])
def test_no_character_is_cut_and_ink_stands_out(level: float) -> None:
    rng = seeded(2)
    for _ in range(12):
        text = ocr.code(rng, "train", 1, 16)
        page = ocr.written(rng, text, level)
        stain, look = page.stain, page.line.look
        assert stain.mask.max() > 200
        assert 0 <= stain.x <= page.image.width - stain.mask.shape[1]
        assert 0 <= stain.y <= page.image.height - stain.mask.shape[0]
        assert abs(drawing.luma(look.ink) - drawing.luma(look.paper)) >= 110
        assert len(page.line.text.middles) == len(text)
        assert list(page.line.text.middles) == sorted(page.line.text.middles)


def test_the_longest_and_widest_text_is_made_small_enough() -> None:
    line = ocr.set_line(seeded(1), "W" * 16, ocr.Look(face="bold", size=30, spacing=3))
    assert line.text.mask.shape[1] <= 390
    assert line.look.size < 30


@pytest.mark.parametrize("face", glyphs.FACES)
@pytest.mark.parametrize("size", [14, 24, 30])
def test_every_character_looks_different(face: glyphs.Face, size: int) -> None:
    masks = {glyphs.line(c, face, size).mask.tobytes() for c in ocr.ALPHABET}
    assert len(masks) == len(ocr.ALPHABET)


def test_a_shade_is_nearest_to_its_own_name() -> None:
    rng = seeded(3)
    names = list(drawing.COLOURS)
    table = np.array([drawing.COLOURS[name] for name in names])
    for name in names * 20:
        distance = ((table - np.array(drawing.shade(rng, name))) ** 2).sum(1)
        assert names[int(distance.argmin())] == name


def test_a_flat_picture_has_the_colour_that_is_told() -> None:
    for sample in samples(Colour(), 25):
        middle = np.array(drawing.COLOURS[sample.answer])
        near = np.abs(pixels(sample) - middle).max(-1) <= 10
        assert near.sum() >= 100


def test_a_place_is_where_the_shape_is() -> None:
    for sample in samples(Layout(kinds=("place",)), 30):
        rows, columns = np.nonzero(ink(pixels(sample)))
        height, width = pixels(sample).shape[:2]
        row, column = int(rows.mean() * 3 / height), int(columns.mean() * 3 / width)
        assert scenes.PLACES[row][column] == sample.answer


def test_as_many_dots_as_are_told() -> None:
    counts = set()
    for sample in samples(Layout(kinds=("count",)), 40):
        cells = ink(pixels(sample))
        height, width = cells.shape
        filled = cells.reshape(height // 28, 28, width // 28, 28).any((1, 3))
        assert filled.sum() == int(sample.answer)
        counts.add(sample.answer)
    assert counts == set("12345")


def test_the_larger_shape_is_wider() -> None:
    kinds: dict[str, set[bool]] = {}
    for sample in samples(Layout(kinds=("larger",)), 40):
        marks = ink(pixels(sample))
        height, width = marks.shape
        # The picture's longer side tells how the two shapes stand.
        halves = np.split(marks, 2, axis=1 if width > height else 0)
        spans = [np.nonzero(half.any(0))[0] for half in halves]
        first, second = (int(span[-1] - span[0]) for span in spans)
        assert max(first, second) >= 1.4 * min(first, second)
        kinds.setdefault(sample.answer, set()).add(first > second)
    assert all(order == {True, False} for order in kinds.values())


def test_text_is_in_the_half_that_is_told() -> None:
    for sample in samples(Where(lines=0.0), 15):
        rows = np.nonzero(ink(pixels(sample)))[0]
        height = pixels(sample).shape[0]
        assert sample.answer == ("top" if rows.max() < height // 2 else "bottom")
        assert rows.min() >= height // 2 or rows.max() < height // 2


def test_the_line_that_is_asked_for_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    plain = ocr.set_line

    def recorded(rng: random.Random, text: str, how: ocr.Look) -> ocr.Line:
        drawn.append(text)
        return plain(rng, text, how)

    monkeypatch.setattr("sparkbuild.canary.tasks.pictures.set_line", recorded)
    for sample in samples(Where(lines=1.0), 12):
        top, bottom = drawn[-2:]
        assert sample.answer == (top if "top" in sample.turns[0].text else bottom)


def test_two_pictures_are_told_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, ocr.Written]] = []
    plain = ocr.written

    def recorded(rng: random.Random, text: str, level: float) -> ocr.Written:
        drawn.append((text, plain(rng, text, level)))
        return drawn[-1][1]

    monkeypatch.setattr("sparkbuild.canary.tasks.pictures.written", recorded)
    for sample in samples(TwoPictures(colours=0.0), 20):
        (first, one), (second, two) = drawn[-2:]
        assert sample.turns[0].pictures == (one.image, two.image)
        wanted = {"first": first, "second": second, "both": f"{first} {second}"}
        assert sample.answer == wanted[dict(sample.check)["which"]]


def test_what_comes_after_a_picture_fits_what_was_said() -> None:
    kinds = set()
    for sample in samples(AfterPicture(), 40):
        kind = dict(sample.check)["kind"]
        kinds.add(kind)
        first, said, last = sample.turns
        assert [turn.role for turn in sample.turns] == ["user", "assistant", "user"]
        assert first.pictures
        assert bool(last.pictures) == (kind == "picture")
        wanted = {"first": said.text[0], "last": said.text[-1], "repeat": last.text.split(": ")[-1]}
        wanted |= {"again": said.text, "colour": said.text, "picture": sample.answer}
        assert sample.answer == wanted[kind]
    assert kinds == set(AfterPicture().kinds)


def test_every_question_begins_with_a_known_wording() -> None:
    known = tuple(wordings())
    for task in picture_tasks():
        for sample in samples(task, 10):
            for turn in sample.turns:
                assert turn.role == "assistant" or turn.text.startswith(known)
