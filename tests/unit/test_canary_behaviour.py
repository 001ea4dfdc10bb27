"""What of a suite is asked again, and how two answers to the same request are told apart."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest

from sparkbuild.canary import choice
from sparkbuild.canary.behaviour import LONG_RUN, checks, context
from sparkbuild.canary.catalogue import DATA, load_catalogue
from sparkbuild.canary.run import Setup, flags
from sparkbuild.canary.same import holes, lead, nmse, parted, tokens_parted
from sparkbuild.canary.session import Session
from sparkbuild.canary.suite import PICTURE, Answer, Suite, load_suite
from sparkbuild.llama.answers import Chat, Completion, Slot, TokenProbabilities, TopLogprob
from sparkbuild.llama.client import Api, UnexpectedAnswerError

SUITES = {
    name: load_suite(DATA / name)[0]
    for entry in load_catalogue().canaries
    for name in (entry.suite, entry.mix_suite)
    if name
}


def position(token: int, *values: float | None) -> TokenProbabilities:
    tops = tuple(TopLogprob(id=i, logprob=value) for i, value in enumerate(values))
    return TokenProbabilities(top_logprobs=tops, id=token)


def answer(*positions: TokenProbabilities, **changes: Any) -> Completion:
    values = {
        "content": "x", "tokens": tuple(one.id for one in positions), "stop_type": "limit",
        "tokens_evaluated": 3, "tokens_predicted": len(positions), "truncated": False,
        "completion_probabilities": positions,
    }  # fmt: skip
    return Completion(**{**values, **changes})


WHOLE = answer(position(0, -0.4, -1.5, -2.0), position(1, -0.9, -0.8, -3.0))


def test_an_answer_is_no_other_than_itself() -> None:
    again = msgspec.json.decode(msgspec.json.encode(WHOLE), type=Completion)
    assert parted(WHOLE, again, vocabulary=3) == tokens_parted(WHOLE, again) == ""
    assert nmse(WHOLE, again, 3) == 0
    assert holes(WHOLE) == ""


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (answer(WHOLE.completion_probabilities[0], position(2, -0.9, -0.8, -3.0)),
         "token 1 of 2 is 2, was 1; NMSE 0"),
        (answer(WHOLE.completion_probabilities[0]), "1 tokens, were 2; NMSE nan"),
        (answer(position(0, -0.4, -1.5, -2.0), position(1, -0.9, math.nextafter(-0.8, 0), -3.0)),
         "token 1 at position 1 is -0.7999999999999999, was -0.8; NMSE 0"),
        (answer(position(0, -0.4, -1.5), position(1, -0.9, -0.8, -3.0)),
         "token 2 at position 0 is None, was -2.0; NMSE nan"),
        (msgspec.structs.replace(WHOLE, completion_probabilities=()),
         "0 positions have log-probabilities, 2 had; NMSE nan"),
        (msgspec.structs.replace(WHOLE, content="y"), "content is 'y', was 'x'; NMSE 0"),
        (msgspec.structs.replace(WHOLE, truncated=True), "truncated is True, was False; NMSE 0"),
    ],
)  # fmt: skip
def test_the_first_difference_is_told(now: Completion, told: str) -> None:
    assert parted(WHOLE, now, vocabulary=3).endswith(told)
    assert parted(WHOLE, now) == parted(WHOLE, now, vocabulary=3).partition("; NMSE")[0]


def test_a_number_that_is_none_is_a_hole() -> None:
    missing = answer(WHOLE.completion_probabilities[0], position(1, -0.9, None))
    assert holes(missing) == "the log-probability of token 1 at position 1 is no number"
    assert "no number" in holes(answer(position(1, -math.inf)))
    assert holes(answer(position(1))) == "no log-probabilities at position 0"
    assert holes(answer(tokens=(1,))) == "no log-probabilities"


def test_the_closest_decision_says_how_clear_an_answer_is() -> None:
    assert lead(answer(position(0, -0.4, -1.5), position(1, -2.0, -0.5))) == pytest.approx(1.1)
    # A grammar took what the model would not have taken.
    assert lead(answer(position(0, -0.4, -0.3))) == pytest.approx(-0.1)
    assert lead(answer(position(7, -0.4, -0.3))) == -math.inf
    assert lead(answer()) == lead(answer(position(0, -0.4))) == -math.inf


def test_a_chat_tells_its_most_likely_tokens() -> None:
    tops = [{"id": 4, "logprob": -0.25}, {"id": 5, "logprob": -2.0}]
    given: dict[str, Any] = {
        "message": {"content": "x"}, "finish_reason": "stop",
        "logprobs": {"content": [{"id": 4, "top_logprobs": tops}]},
    }  # fmt: skip
    bodies: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        return httpx.Response(200, json={"choices": [given], "usage": usage})

    found = served(handle).converse([{"role": "user", "content": "hi"}], count=4, probabilities=2)
    assert isinstance(found, Chat)
    assert lead(found) == 1.75
    assert (bodies[0]["logprobs"], bodies[0]["top_logprobs"]) == (True, 2)
    given["logprobs"] = None
    found = served(handle).converse([{"role": "user", "content": "hi"}], count=4)
    assert lead(found) == -math.inf
    assert "logprobs" not in bodies[1]


def served(handle: Callable[[httpx.Request], httpx.Response]) -> Api:
    return Api(httpx.Client(base_url="http://x", transport=httpx.MockTransport(handle)))


class Pieces(httpx.SyncByteStream):
    """An endless stream that counts what was read and whether it was closed."""

    def __init__(self) -> None:
        self.read = 0
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.read += 1
            yield b'data: {"content": "x"}\n\n'

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_request_is_broken_off_after_so_many_pieces(after: int) -> None:
    pieces, bodies = Pieces(), []

    def handle(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, stream=pieces)

    served(handle).break_off((1, 2), count=300, slot=1, after=after)
    assert (pieces.read, pieces.closed) == (after, True)
    (body,) = bodies
    assert (body["stream"], body["n_predict"], body["id_slot"], body["ignore_eos"]) == (
        True, 300, 1, True,
    )  # fmt: skip


def test_a_refused_stream_and_slots_that_are_none_are_told() -> None:
    refused = served(lambda _: httpx.Response(501, text="no slots here"))
    with pytest.raises(UnexpectedAnswerError, match="/completion answered 501: no slots here"):
        refused.break_off((1,), count=3)
    with pytest.raises(UnexpectedAnswerError, match="/slots answered 501"):
        refused.slots()
    slots = [{"id": 0, "is_processing": True, "n_ctx": 512}, {"id": 1, "is_processing": False}]
    assert served(lambda _: httpx.Response(200, json=slots)).slots() == (
        Slot(id=0, is_processing=True), Slot(id=1, is_processing=False),
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(SUITES))
def test_every_suite_that_ships_has_something_for_each_check(name: str) -> None:
    suite = SUITES[name]
    sees = bool(suite.pictures)
    first = choice.references(suite)
    assert [choice.is_text(one) for one in first] == [True, True, False][: 2 + sees]
    assert len(first[0].prompt) < len(first[1].prompt) <= 300
    families = choice.families(suite)
    assert len(families) == choice.AT_ONCE
    assert all(1 <= len(members) <= 6 for members in families)
    chosen = [entry for members in families for entry in members]
    assert len({entry.name for entry in chosen}) == len(chosen)
    assert any(entry.calls for entry in chosen)
    assert any(entry.reasoning for entry in chosen)
    assert any(PICTURE in str(entry.messages) for entry in chosen) == sees
    long = choice.long_ones(suite)
    assert max(map(choice.size, long)) <= 1000
    assert min(map(choice.size, long)) > 3 * min(map(choice.size, chosen))
    found = checks(suite, 4)
    names = [check.name for check in found]
    assert len(names) == len(set(names)) == 2 * len(first) + 5 + 2 + sees
    known = {entry.name for entry in suite.answers} | {one.name for one in suite.references}
    assert not known.intersection(names), "drafts skip answers by the names of missed items"
    assert len(checks(suite, 1)) == len(first) + 5 + 1 + sees
    assert context(suite) == len(first[1].prompt) + LONG_RUN
    setup = Setup(
        executable=Path("x"), model=Path("m"), vision=None, form="f16", backend="cpu", cache="f16",
        scratch=Path("s"), log=Path("l"), slots=2,
    )  # fmt: skip
    argv = flags(setup, suite)
    assert int(argv[argv.index("--ctx-size") + 1]) >= 2 * max(context(suite), suite.context)


def test_a_suite_without_texts_or_answers_has_fewer_checks() -> None:
    suite = next(suite for suite in SUITES.values() if suite.pictures)
    pictured = tuple(one for one in suite.references if not choice.is_text(one))

    def names(changed: Suite) -> list[str]:
        return [check.name.removeprefix(f"{pictured[0].name}, ") for check in checks(changed, 4)]

    assert names(msgspec.structs.replace(suite, references=pictured, answers=())) == [
        "twice", "in slot 1", "pictures one after another, from the cache",
    ]  # fmt: skip
    assert names(msgspec.structs.replace(suite, references=(), answers=())) == []
    assert context(msgspec.structs.replace(suite, references=pictured)) == 0


def test_a_long_conversation_is_taken_where_there_is_no_other() -> None:
    suite = next(iter(SUITES.values()))
    entry = msgspec.structs.replace(suite.answers[0], raw="x" * 5000)
    assert choice.long_ones(msgspec.structs.replace(suite, answers=(entry,))) == [entry]


def test_the_first_clear_answer_is_taken_and_no_more_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    leads = {"tie": 0.01, "clear": 1.0, "clearer": 3.0}

    def alone(_: Session, entry: Answer) -> tuple[dict[str, Any], float]:
        asked.append(entry.name)
        return {}, leads[entry.name]

    monkeypatch.setattr(Session, "alone", alone)
    session = Session(
        server=cast("Any", None), api=cast("Any", None), suite=next(iter(SUITES.values())),
        pictures={}, bound=cast("Any", None), slots=4,
    )  # fmt: skip
    tie, clear, clearer = (
        Answer(name=name, group="g", raw="x", text="y", count=1) for name in leads
    )
    assert session.clear([tie, clear, clearer]) is clear
    assert asked == ["tie", "clear"]
    assert session.clear([tie]) is tie
    leads["clear"] = 0.2
    assert session.clear([tie, clear]) is clear
