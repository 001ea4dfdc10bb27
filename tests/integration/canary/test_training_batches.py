"""Batches hold what their samples say, the same whoever makes them; drafts see text alone."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pytest

REASON = "the trainer's packages come with the extra canary"
torch = pytest.importorskip("torch", reason=REASON)
pytest.importorskip("PIL", reason=REASON)

from sparkbuild.canary.tasks import chat, corpus, tokenizer  # noqa: E402
from sparkbuild.canary.tasks.drawing import array  # noqa: E402
from sparkbuild.canary.tasks.long import Needle, Recall  # noqa: E402
from sparkbuild.canary.tasks.sample import Sample, Split, Turn  # noqa: E402
from sparkbuild.canary.train.batch import (  # noqa: E402
    Batch,
    Batches,
    Room,
    positions_of,
    row_of,
)
from sparkbuild.canary.train.model import Model, answers, shown_first, up_to_last  # noqa: E402
from sparkbuild.canary.train.nets.base import Net, Trunk  # noqa: E402
from sparkbuild.canary.train.nets.glm5v import Shape, Tower  # noqa: E402
from sparkbuild.canary.train.recipes import Lessons  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

ROOMS = (
    Room(name="short", rows=3, tokens=96, share=1.0),
    Room(name="two", rows=4, tokens=96, share=1.0, pictures=6, picture_tokens=80, longest=24),
)
TWO = ROOMS[1]
PAGE = Room(name="page", rows=4, tokens=384, share=1.0)


@pytest.fixture(scope="module")
def batches() -> Batches:
    known = tokenizer.load(corpus.tokenizer_json())
    return Batches(ROOMS, Lessons(), known, seed=5, steps=8)


def in_room(batches: Batches, index: int) -> Batch:
    return next(batch for room, batch in (batches[n] for n in range(8)) if room == index)


def equal(one: Batch, other: Batch) -> bool:
    return all(torch.equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Batch))


@pytest.mark.parametrize("index", [0, 1])
def test_a_room_has_one_shape_whatever_is_in_it(batches: Batches, index: int) -> None:
    room = ROOMS[index]
    seen = [batch for number, batch in (batches[n] for n in range(8)) if number == index]
    assert len(seen) > 1
    for batch in seen:
        assert batch.tokens.shape == batch.weights.shape == (room.rows, room.tokens)
        assert batch.positions.shape == (3, room.rows, room.tokens)
        assert batch.patches.shape == (4 * room.picture_tokens, 588)
        assert batch.slots.shape == (4 * room.picture_tokens,)
        assert batch.places.shape == (room.picture_tokens,)
        assert batch.mask.shape == (room.pictures + 1, 1, 1, 4 * room.longest)
        # Nobody shares a slot with a picture that is looked at.
        used = batch.slots[batch.slots < room.pictures * 4 * room.longest]
        assert len(set(used.tolist())) == len(used)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_only_the_answer_with_its_end_is_learned(batches: Batches, room: Room) -> None:
    known = batches.tokenizer
    rows = batches.drawn(room, random.Random(3), 0.5)  # noqa: S311
    batch = batches.collated(room, rows)
    for at, row in enumerate(rows):
        learned = batch.tokens[at][batch.weights[at] > 0].tolist()
        arrays = [array(picture) for turn in row.sample.turns for picture in turn.pictures]
        counts = [a.shape[0] * a.shape[1] // 28**2 for a in arrays]
        prompt, answer = chat.render(row.sample, image_tokens=counts)
        assert known.decode(learned) == answer
        assert answer.endswith(row.sample.end)
        assert row.sample.answer in answer
        first = int(torch.argmax((batch.weights[at] > 0).int()))
        assert known.decode(batch.tokens[at, :first].tolist()) == prompt
    assert not batch.weights[len(rows) :].any()


def test_what_is_known_from_earlier_is_learned_beside_the_answer(batches: Batches) -> None:
    draw = random.Random(3)  # noqa: S311
    made = [task.sample(draw, split="train", length=300) for task in (Recall(), Needle(), Recall())]
    batch = batches.collated(PAGE, [row_of(sample, batches.tokenizer) for sample in made])
    for at, sample in enumerate(made):
        tokens, weights = batch.tokens[at], batch.weights[at]
        light, full = ((weights > 0) & (weights < 1), weights == 1)
        text = sample.turns[-1].text
        known = "".join(text[first:end] for first, end in sample.known)
        assert batches.tokenizer.decode(tokens[light].tolist()) == known
        assert batches.tokenizer.decode(tokens[full].tolist()) == sample.answer + sample.end
        assert torch.equal(answers(batch)[at], full)
        assert int(batch.starts[at]) == int(full.int().argmax())
    assert int(batch.starts[3]) == PAGE.tokens
    assert not answers(batch)[3].any()


def test_known_parts_are_found_behind_other_turns_and_letters_of_several_bytes(
    batches: Batches,
) -> None:
    text = "é the A1=½ B; é A1=½ B; é?"
    again = text.rindex("½")
    sample = Sample(
        task="t",
        turns=(
            Turn(role="user", text=text),
            Turn(role="assistant", text="</think>\nYes."),
            Turn(role="user", text=text),
        ),
        answer="B",
        known=((again, again + 3),),
    )
    row = row_of(sample, batches.tokenizer)
    ids = batches.tokenizer.encode("½ B")
    assert [row.tokens[place] for place in row.known] == ids
    behind = batches.tokenizer.decode(row.tokens[row.known[-1] + 1 :])
    assert behind.startswith("; é?<|assistant|>")
    assert behind.count("<|assistant|>") == 1


class Sayer(Net):
    """Says the next token rightly, but at the places where it is told to be ``wrong``."""

    drafts, axes, width = True, 0, 512

    def __init__(self, wrong: Tensor) -> None:
        super().__init__()
        self.wrong = wrong
        self.real: list[Tensor] = []

    def embed(self, tokens: Tensor) -> Tensor:
        following = tokens.roll(-1, 1) + self.wrong.roll(-1, 1).long()
        found: Tensor = torch.nn.functional.one_hot(following % 512, 512).float()
        return found

    def forward(
        self, embedded: Tensor, positions: Tensor | None = None, *, real: Tensor | None = None
    ) -> Trunk:
        del positions
        assert real is not None
        self.real.append(real)
        return Trunk(embedded)

    def head(self, hidden: Tensor) -> Tensor:
        return 20 * hidden

    def draft(
        self,
        hidden: Tensor,
        embedded: Tensor,
        positions: Tensor | None = None,
        *,
        real: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        del hidden, positions
        assert real is not None
        self.real.append(real)
        return embedded, {}


def test_an_answer_is_right_whatever_is_said_of_what_was_known(batches: Batches) -> None:
    draw = random.Random(3)  # noqa: S311
    rows = [
        row_of(Recall().sample(draw, split="train", length=300), batches.tokenizer)
        for _ in range(3)
    ]
    batch = batches.collated(PAGE, rows)
    wrong = torch.zeros_like(batch.weights, dtype=torch.bool)
    wrong[0, rows[0].known[2]] = True  # known of the prompt
    wrong[1, rows[1].start + 2] = True  # of the answer
    wrong[2, rows[2].start - 1] = True  # of nothing that is predicted
    loss, parts = Model(Sayer(wrong))(batch, drafts=1)
    assert parts["right"].tolist() == [True, False, True, True]
    # Two tokens of all that are predicted have a loss of 20, by their weights.
    weighed = 20 * (1 + batch.weights[0, rows[0].known[2]]) / batch.weights.sum()
    assert float(parts["answer"]) == pytest.approx(float(weighed), rel=1e-3)
    assert float(parts["draft1"]) == pytest.approx(float(weighed), rel=1e-3)
    assert float(loss) > float(parts["answer"])


def test_padding_is_not_real_and_to_drafts_no_picture_is(batches: Batches) -> None:
    batch = in_room(batches, 1)
    net = Sayer(torch.zeros_like(batch.weights, dtype=torch.bool))
    Model(net)(batch, drafts=2)
    trunk, *drafts = net.real
    for at in range(TWO.rows):
        predicted = batch.weights[at].nonzero()
        count = int(predicted.max()) + 1 if len(predicted) else 0
        assert torch.equal(trunk[at].nonzero().squeeze(1), torch.arange(count))
    assert trunk.any()
    assert not trunk.all()
    tokens = batch.tokens.gather(1, shown_first(batch))
    assert len(drafts) == 2
    for real in drafts:
        assert (tokens[real] != batches.image).all()
        assert int(real.sum()) == int((trunk & (batch.tokens != batches.image)).sum())
    assert torch.equal(up_to_last(batch.weights), trunk)


def test_pictures_go_where_their_tokens_are_and_nowhere_else(batches: Batches) -> None:
    batch = in_room(batches, 1)
    nowhere = TWO.rows * TWO.tokens
    places = batch.places[batch.places < nowhere]
    wanted = (batch.tokens.flatten() == batches.image).nonzero().squeeze(1)
    assert len(wanted)
    assert torch.equal(places, wanted)
    assert (batch.places[len(places) :] == nowhere).all()


def test_the_plan_of_a_batch_shows_each_picture_as_if_it_were_alone(batches: Batches) -> None:
    rows = batches.drawn(TWO, random.Random(3), 0.5)  # noqa: S311
    batch = batches.collated(TWO, rows)
    torch.manual_seed(1)
    tower = Tower(Shape(depth=1, width=64, inner=64, tokens=64, projector=64)).eval()
    arrays = [picture for row in rows for picture in row.arrays]
    with torch.no_grad():
        together = tower(batch.patches, batch.plan())
        at = 0
        for picture in arrays:
            patches = tower.patchify(torch.from_numpy(picture.copy())[None])
            grid = (picture.shape[0] // 14, picture.shape[1] // 14)
            alone = tower(patches.flatten(0, -2), [grid])
            torch.testing.assert_close(together[at : at + len(alone)], alone, rtol=0, atol=1e-4)
            at += len(alone)
    assert at == int((batch.places < TWO.rows * TWO.tokens).sum())


def test_positions_are_those_of_m_rope() -> None:
    # Text, a picture of two rows and three columns, text, one of one cell, text.
    image = 9
    ids = np.array([1, 2, *[image] * 6, 3, image, 4, 5])
    sizes = [np.zeros((56, 84, 3), np.uint8), np.zeros((28, 28, 3), np.uint8)]
    time, height, width = positions_of(ids, image, sizes).tolist()
    assert time == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 8]
    assert height == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8]
    assert width == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8]


def test_rows_without_pictures_count_from_zero(batches: Batches) -> None:
    positions = in_room(batches, 0).positions
    assert (positions == torch.arange(ROOMS[0].tokens)).all()


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_batches_do_not_depend_on_who_makes_them(batches: Batches) -> None:
    loader = torch.utils.data.DataLoader(
        batches, batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    found = dict(enumerate(loader))
    for number in (7, 0, 3):  # in another order
        room, batch = batches[number]
        assert found[number][0] == room
        assert equal(found[number][1], batch)
    assert not equal(batches[0][1], batches[1][1])


def test_seeds_and_splits_give_other_batches(batches: Batches) -> None:
    def made(seed: int, split: Split) -> Batch:
        kind = Batches(
            ROOMS[:1], batches.curriculum, batches.tokenizer, seed=seed, steps=8, split=split
        )
        return kind[0][1]

    first = made(5, "train")
    assert equal(first, made(5, "train"))
    assert not torch.equal(first.tokens, made(6, "train").tokens)
    assert not torch.equal(first.tokens, made(5, "held-out").tokens)


def test_drafts_see_the_text_in_order_and_pictures_after_all(batches: Batches) -> None:
    batch = in_room(batches, 1)
    order = shown_first(batch)
    shown = batch.tokens.gather(1, order)
    for row, ordered, places in zip(batch.tokens, shown, order, strict=True):
        text = row != batches.image
        count = int(text.sum())
        assert torch.equal(ordered[:count], row[text])
        assert (ordered[count:] == batches.image).all()
        assert (places[:count].diff() > 0).all()
    assert (batch.tokens == batches.image).any()
