"""What is wrong with an answer, and with numbers: by hand-made ones."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.llama.answers import TokenProbabilities, TopLogprob, hole
from sparkbuild.model.read import read_model
from sparkbuild.smoke import tiny
from sparkbuild.smoke.served.load import load_suite
from sparkbuild.smoke.served.numbers import Distance, compared, recorded
from sparkbuild.smoke.served.speed import active, fastest, limit
from sparkbuild.smoke.served.suite import Expected
from sparkbuild.smoke.served.talk import Reply, Times
from sparkbuild.smoke.served.words import judged, misread, monotony

SUITE = load_suite(Path(__file__).parents[1] / "data/served/stub.toml")
GARBLE = SUITE.garble
PROSE = (
    "The keeper climbed the stairs before dawn, trimmed the wick, and looked out over a sea that "
    "had been grey for a week. Nobody had passed since Tuesday; the last boat carried timber."
)


def reply(content: str, *, finish: str = "stop", reasoning: str = "") -> Reply:
    return Reply(content=content, reasoning=reasoning, finish=finish, prompt_tokens=9, tokens=7)


@pytest.mark.parametrize(
    ("answer", "group", "text"),
    [
        (reply("", finish="length", reasoning="hm " * 9), "no answer", "content is empty"),
        (reply("  \n"), "no answer", "content is empty: finish_reason 'stop'"),
        (reply("Paris is", finish="length"), "no answer", "content was cut"),
        (reply("?" * 30), "garbled", "'?' 30 times in a row"),
        (reply("Paris", reasoning="@" * 99), "garbled", "reasoning: '@' 99 times"),
        (reply("Paris \ufffd"), "garbled", "no UTF-8"),
        (reply("ab" * 40), "garbled", "bits a character"),
        (reply("Paris. the cat and the dog " * 40), "garbled", "zlib shortens it"),
        (reply("London"), "", "expected a match"),
    ],
)
def test_an_answer_is_wrong_in_the_worst_way_that_holds(
    answer: Reply, group: str, text: str
) -> None:
    wrong = judged(answer, Expected(matches="Paris"), GARBLE)
    assert wrong
    assert (wrong.group, text in wrong.text) == (group, True)


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        PROSE * 2,
        "Paris",
        "北京是中华人民共和国的首都。" * 3,
        "| a | b |\n|---|---|\n" + "=" * 60,
        "def f(x):\n    return x\n\n\n" + "# " + "-" * 70,
        "1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192",
    ],
)
def test_healthy_texts_are_not_garbled(text: str) -> None:
    assert monotony(text, GARBLE) == ""


@pytest.mark.parametrize(
    ("content", "errors"),
    [
        ("KX742", 0), ("**KX742**", 0), ("`kx742`.", 0), ("The code is:\n\nKX742", 0),
        ("KX74Z", 1), ("XK742", 2), ("KX7", 2), ("KX742KX742", 5), ("", 5),
    ],
)  # fmt: skip
def test_characters_that_are_read_wrongly_are_counted(content: str, errors: int) -> None:
    assert misread(content, "KX742") == errors


def tops(token: int, values: Sequence[float | None]) -> TokenProbabilities:
    found = tuple(TopLogprob(id=token + at, logprob=value) for at, value in enumerate(values))
    return TokenProbabilities(id=token, top_logprobs=found)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_a_hole(value: float | None) -> None:
    whole = Reply(content="", reasoning="", finish="", prompt_tokens=1, tokens=1,
                  positions=(tops(1, [-0.1, -2.0]),))  # fmt: skip
    assert hole(whole.positions) == ""
    broken = Reply(content="", reasoning="", finish="", prompt_tokens=1, tokens=1,
                   positions=(tops(1, [-0.1, value]),))  # fmt: skip
    assert "is no number" in hole(broken.positions)
    assert hole(reply("x").positions) == "no log-probabilities"


class Voice:
    """Stands for a ``Talk``: says its tokens from where the prompt ends."""

    def __init__(self, tokens: Sequence[int], shift: float = 0.0, start: int = 3) -> None:
        self.tokens = tokens
        self.shift = shift
        self.start = start
        self.asked = 0

    def continued(self, name: str, prompt: Sequence[int], *, count: int, top: int) -> Reply:
        self.asked += bool(name)
        ids = tuple(self.tokens[len(prompt) - self.start :][:count])
        values = [-0.1, -2.0 + self.shift, -4.0, -6.0]
        # The last token ends in the middle of a character: nothing is told of it.
        positions = tuple(tops(one, values[:top]) for one in ids if one != 99)
        return Reply(content="", reasoning="", finish="length", prompt_tokens=len(prompt),
                     tokens=len(ids), ids=ids, positions=positions)  # fmt: skip


def far(first: Any, second: Any, *, allowed: float = 1.0) -> Distance:
    run = recorded(first, "x", (1, 2, 3), count=8, top=4)
    return compared(second, run, top=4, allowed=allowed)


def test_the_same_numbers_are_no_distance_apart() -> None:
    tokens = [10, 20, 30, 40, 50, 60, 70, 99]
    found = far(Voice(tokens), Voice(tokens))
    assert (found.nmse, found.agreement, found.positions) == (0, 1, 8)


def test_a_shift_is_measured_against_the_spread() -> None:
    tokens = [10, 20, 30, 40, 50, 60, 70, 80]
    found = far(Voice(tokens), Voice(tokens, shift=0.5))
    mean = -12.1 / 4
    spread = sum((value - mean) ** 2 for value in (-0.1, -2.0, -4.0, -6.0))
    assert found.nmse == pytest.approx(0.25 / spread)
    assert found.agreement == 1


def test_after_another_token_both_go_on_over_the_same_text() -> None:
    tokens = [10, 20, 30, 40, 50, 60, 70, 80]
    other = Voice([10, 21, 30, 40, 50, 61, 70, 80])
    found = far(Voice(tokens), other)
    assert (found.partings, found.positions, other.asked) == (2, 8, 3)
    assert found.agreement == 0.75


def test_nothing_more_is_asked_where_far_too_much_is_other() -> None:
    other = Voice(range(100, 140))
    run = recorded(Voice(range(0, 400, 10)), "x", (1, 2, 3), count=40, top=4)  # type: ignore[arg-type]
    found = compared(other, run, top=4, allowed=0.0)  # type: ignore[arg-type]
    assert found.positions == found.partings == 5
    assert math.isnan(far(Voice([]), Voice([])).nmse)


def test_the_limit_counts_what_one_token_reads(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    path.write_bytes(tiny.model_bytes())
    model = read_model(path)
    total = sum(one.bytes or 0 for one in model.tensors.values())
    embeddings = model.tensors["token_embd.weight"].bytes or 0
    assert active(model).bytes == total - embeddings
    bandwidth = SUITE.speed.bandwidth.limit
    assert limit(model, SUITE.speed) == pytest.approx(bandwidth / (total - embeddings))


def test_accepted_drafts_are_no_passes_and_short_answers_do_not_count() -> None:
    plain = Times(predicted_n=21, predicted_ms=1000)
    drafted = Times(predicted_n=21, predicted_ms=500, draft_n=20, draft_n_accepted=14)
    short = Times(predicted_n=5, predicted_ms=0.001)
    assert (plain.speed, plain.passes, drafted.passes) == (20, 21, 7)
    assert fastest([plain, short]) == (20, 20)
    assert fastest([drafted]) == pytest.approx((40 / 3, 40))
    assert fastest([short]) is None
