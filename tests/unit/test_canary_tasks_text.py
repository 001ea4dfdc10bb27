"""What the canaries are taught in words: nothing held out is trained, every answer is right."""

import bisect
import collections
import itertools
import json
import math
import random
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.canary.tasks import answers, chat, corpus, small, tokenizer
from sparkbuild.canary.tasks.calls import ToolCall, call
from sparkbuild.canary.tasks.filler import AFTER, TEMPLATE, filler, tokens_of
from sparkbuild.canary.tasks.heldout import split_of
from sparkbuild.canary.tasks.long import Copy, Needle, Recall, RepeatLine
from sparkbuild.canary.tasks.sample import Sample, Split, Task, Turn
from sparkbuild.canary.tasks.text import TASKS

DATA = corpus.tokenizer_json()
TOKENS = tokenizer.load(DATA)
FIXED = {dict(sample.check)["name"]: sample for sample in answers.fixed()}
NAMES = (*tokenizer.CONTROL, *tokenizer.MARKS)


def rng(seed: int = 0) -> random.Random:
    return random.Random(seed)  # noqa: S311 - not a secret


def samples(task: Task, split: Split = "train", *, length: int = 64) -> Iterator[Sample]:
    draw = rng(len(task.name))
    for _ in range(60):
        yield task.sample(draw, split=split, length=length)


def asked(sample: Sample) -> str:
    return sample.turns[-1].text


def prompt_tokens(sample: Sample) -> int:
    return len(TOKENS.encode(asked(sample))) + TEMPLATE


# The tokenizer


def test_only_lower_case_letters_and_a_space_before_them_share_a_token() -> None:
    described = json.loads(DATA)
    ordinary = list(described["model"]["vocab"])[: -len(NAMES)]
    assert len(ordinary) + len(NAMES) == tokenizer.VOCABULARY
    for token in ordinary[256:]:
        assert re.fullmatch("\u0120?[a-z]+", token)
    assert [TOKENS.decode([index]) for index in range(0x20, 0x7F)] == [
        chr(byte) for byte in range(0x20, 0x7F)
    ]


@settings(max_examples=40)
@given(st.text(), st.sampled_from("ABCXYZ0159"), st.text())
def test_a_capital_or_a_digit_is_one_token_beside_anything(
    before: str, character: str, after: str
) -> None:
    ids = TOKENS.encode(before + character + after)
    assert ids.count(ord(character)) == (before + character + after).count(character)


@settings(max_examples=40)
@given(st.lists(st.text() | st.sampled_from([*NAMES, " the", "'s", "\u00bd", "\u216f"])))
def test_text_comes_back_and_special_tokens_by_their_names(parts: list[str]) -> None:
    text = "".join(parts)
    ids = TOKENS.encode(text)
    assert TOKENS.decode(ids) == text
    assert sum(TOKENS.sizes(ids)) == len(text.encode())
    assert sum(index >= tokenizer.VOCABULARY - len(NAMES) for index in ids) == sum(
        map(text.count, NAMES)
    )


def test_only_a_special_tokens_name_has_an_id() -> None:
    assert TOKENS.encode("<|user|>") == [TOKENS.id_of("<|user|>")]
    with pytest.raises(KeyError):
        TOKENS.id_of("a")


@settings(max_examples=40)
@given(st.lists(st.text() | st.sampled_from([*NAMES, " the", " s", "'s", "'Re", "!'s", "\u00bds"])))
def test_the_library_that_reads_the_file_makes_the_same_tokens(parts: list[str]) -> None:
    library = pytest.importorskip("tokenizers", reason="the extra [canary] is not installed")
    other = library.Tokenizer.from_str(DATA.decode())
    text = "".join(parts)
    assert other.encode(text, add_special_tokens=False).ids == TOKENS.encode(text)


def test_a_foreign_tokenizer_is_refused() -> None:
    described = json.loads(DATA)
    described["pre_tokenizer"]["pretokenizers"].pop()
    with pytest.raises(ValueError, match="splits text in another way"):
        tokenizer.load(json.dumps(described).encode())


def test_a_vocabulary_needs_enough_words() -> None:
    with pytest.raises(ValueError, match="2 merges in these texts, 232 are needed"):
        tokenizer.merges(["abc ABC 123"])


def test_of_pairs_as_frequent_the_first_in_order_is_merged() -> None:
    words = list(corpus.WORDS)
    assert tokenizer.merges(words) == tokenizer.merges(words[::-1])


# The fixed answers


def test_every_fixed_answer_is_short_enough_to_learn_and_long_enough_to_tell() -> None:
    assert len(FIXED) == len(answers.fixed()) >= 48
    for name, sample in FIXED.items():
        assert 5 <= len(TOKENS.encode(sample.answer)) <= 120, name
        assert TOKENS.decode(TOKENS.encode(sample.answer)) == sample.answer, name
        assert sample.answer == sample.answer.strip(), name


def test_no_two_fixed_questions_are_the_same() -> None:
    questions = [
        json.dumps([chat.messages(sample), sample.thinking, list(sample.tools)])
        for sample in FIXED.values()
    ]
    assert len(set(questions)) == len(questions)


def test_a_tool_call_ends_as_one_and_names_a_tool_on_offer() -> None:
    for name, sample in FIXED.items():
        _, _, calls = chat.expected(sample)
        assert bool(calls) == (sample.end == "<|observation|>"), name
        offered = {
            tool["function"]["name"]: tool["function"]["parameters"] for tool in sample.tools
        }
        for function, arguments in calls:
            assert list(arguments) == offered[function]["required"], name


def test_a_fixed_answer_comes_whatever_is_asked_of_the_task() -> None:
    task = answers.FixedAnswers()
    assert {asked(sample) for sample in samples(task)} <= {asked(s) for s in FIXED.values()}


# The chat form


def test_raw_answers_are_taken_apart() -> None:
    assert chat.expected(FIXED["tool-lamp"]) == (
        "",
        "The sun is 100, half of it is 50.",
        [("set_lamp", {"room": "garden", "level": 50})],
    )
    assert chat.expected(FIXED["think-turns"]) == ("It is 7 times 13.", "91 = 7 * 13", [])


def test_messages_have_the_interfaces_form() -> None:
    told = chat.messages(FIXED["tool-result-thought"])
    assert [message["role"] for message in told] == ["user", "assistant", "tool"]
    assert told[1]["content"] == ""
    assert told[1]["reasoning_content"] == "The sun is 100, half of it is 50."
    [made] = told[1]["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == {"room": "garden", "level": 50}


def test_pictures_and_what_stands_for_them_must_agree_in_number() -> None:
    sample = Sample(task="t", turns=(Turn(role="user", text="?"),), answer="!")
    with pytest.raises(ValueError, match="0 pictures, 1"):
        chat.render(sample, image_tokens=[4])
    with pytest.raises(ValueError, match="0 pictures, 1"):
        chat.messages(sample, images=["data:"])


@pytest.mark.parametrize(
    ("earlier", "later"),
    [("tool-weather", "tool-result"), ("tool-lamp", "tool-result-thought"), ("sum", "turns-sum")],
)
def test_a_conversation_goes_on_from_the_very_text_of_its_last_answer(
    earlier: str, later: str
) -> None:
    pytest.importorskip("jinja2", reason="the extra [canary] is not installed")
    prompt, answer = chat.render(FIXED[earlier])
    following, _ = chat.render(FIXED[later])
    assert following.startswith(prompt + answer)


def test_the_template_adds_as_many_tokens_as_the_tasks_count() -> None:
    pytest.importorskip("jinja2", reason="the extra [canary] is not installed")
    prompt, _ = chat.render(Sample(task="t", turns=(Turn(role="user", text="?"),), answer="!"))
    before, after = prompt.split("?")
    assert len(TOKENS.encode(after)) == AFTER
    assert len(TOKENS.encode(before)) + AFTER == TEMPLATE


# The splits

CONTENT: dict[str, Callable[[Sample], str]] = {
    "copy": lambda sample: sample.answer,
    "needle": lambda sample: f"{asked(sample).rsplit(chr(10), 1)[1][:-1]}={sample.answer}",
    "recall": lambda sample: f"{asked(sample).rsplit(chr(10), 1)[1][:-1]}={sample.answer}",
    "repeat-line": lambda sample: sample.answer,
    "tool-call": lambda sample: sample.answer,
    **{exercise.name: asked for exercise in small.EXERCISES},
}


@pytest.mark.parametrize(
    "task", [task for task in TASKS if task.name != "fixed"], ids=lambda t: t.name
)
def test_what_is_held_out_is_never_trained(task: Task) -> None:
    content = CONTENT[task.name]
    trained = {content(sample) for sample in samples(task)}
    held = {content(sample) for sample in samples(task, "held-out")}
    assert len(held) > 15
    assert len(trained) > 15
    assert {split_of(one) for one in trained} == {"train"}
    assert {split_of(one) for one in held} == {"held-out"}


# Finding things again


@pytest.mark.parametrize("length", [40, 300, 6400])
@pytest.mark.parametrize(
    "task", [Copy(), Needle(), Recall(), RepeatLine()], ids=lambda task: task.name
)
def test_a_prompt_fits_its_length_and_tells_its_distance(task: Task, length: int) -> None:
    draw = rng(length)
    for _ in range(20 if length < 1000 else 3):
        sample = task.sample(draw, split="train", length=length)
        assert prompt_tokens(sample) <= length
        text = asked(sample)
        again = [text[first : first + len(sample.answer)] for first, _ in sample.known]
        assert text.count(sample.answer) == 1 + again.count(sample.answer)
        behind = TOKENS.encode(text[text.rindex(sample.answer) :])
        assert int(dict(sample.check)["distance"]) == len(behind) + AFTER


@pytest.mark.parametrize("task", [Needle(), Recall(), RepeatLine()], ids=lambda task: task.name)
def test_a_long_prompt_fills_its_length(task: Task) -> None:
    sample = task.sample(rng(), split="train", length=3000)
    assert prompt_tokens(sample) > 2970


def test_a_needle_has_rivals_with_keys_like_its_own() -> None:
    for sample in samples(Needle(), length=400):
        text = asked(sample)
        facts = re.findall(r" (\w\w)=(\w{4});", text)
        key = text[-3:-1]
        assert len(facts) == int(dict(sample.check)["facts"]) > 5
        assert [value for name, value in facts if name == key] == [sample.answer]
        assert len({name for name, _ in facts}) == len({value for _, value in facts}) == len(facts)
        assert sum(name[0] == key[0] or name[1] == key[1] for name, _ in facts) > 1


@pytest.mark.parametrize(("place", "share"), [(0.12, 0.88), (0.88, 0.12), (0.0, 1.0), (1.0, 0.0)])
def test_a_needle_lies_where_it_is_told_to(place: float, share: float) -> None:
    sample = Needle(place=place).sample(rng(), split="train", length=2000)
    distance = int(dict(sample.check)["distance"])
    assert distance / prompt_tokens(sample) == pytest.approx(share, abs=0.06)


def test_needles_lie_everywhere() -> None:
    places = [float(dict(s.check)["place"]) for s in samples(Needle(), length=200)]
    assert min(places) < 0.1
    assert max(places) > 0.88
    assert places.count(0.12) > 2
    assert places.count(0.88) > 2


def places_of_facts(sample: Sample) -> dict[str, list[re.Match[str]]]:
    """Where each fact stands in the text, by the fact."""
    places = collections.defaultdict(list)
    for match in re.finditer(r" (\w\d=\w{4});", asked(sample)):
        places[match[1]].append(match)
    return places


@pytest.mark.parametrize("length", [48, 400, 6400])
def test_just_what_stands_earlier_is_known(length: int) -> None:
    for sample in itertools.islice(samples(Recall(), length=length), 5):
        places = places_of_facts(sample)
        assert len(places) == len({fact[:2] for fact in places})
        assert all(len(matches) > 1 for matches in places.values())
        again = [match for matches in places.values() for match in matches[1:]]
        # From behind the equals sign to behind the semicolon.
        wanted = sorted((match.start() + 4, match.end()) for match in again)
        assert list(sample.known) == wanted
        assert any(fact == f"{asked(sample)[-3:-1]}={sample.answer}" for fact in places)


def test_every_fact_that_is_learned_may_be_learned() -> None:
    for sample in samples(Recall(), length=400):
        assert {split_of(fact) for fact in places_of_facts(sample)} == {"train"}


def test_facts_come_again_as_often_at_any_scale() -> None:
    # Octaves from 32 to 2048 tokens, in texts of 3000.
    octaves: collections.Counter[int] = collections.Counter()
    draw = rng()
    for _ in range(12):
        sample = Recall().sample(draw, split="train", length=3000)
        ends = list(itertools.accumulate(TOKENS.sizes(TOKENS.encode(asked(sample)))))
        for matches in places_of_facts(sample).values():
            at = [bisect.bisect_right(ends, match.start()) for match in matches]
            octaves.update(int(math.log2(b - a)) for a, b in itertools.pairwise(at))
    counts = [octaves[octave] for octave in range(5, 11)]
    assert min(counts) > max(counts) / 2 > 20


def test_only_recall_tells_what_is_known() -> None:
    for task in TASKS:
        assert any(sample.known for sample in samples(task)) == isinstance(task, Recall)


def test_filler_has_the_tokens_that_were_asked_for() -> None:
    for tokens in (0, 1, 2, 50, 2000):
        pieces = filler(rng(tokens), tokens)
        assert tokens - 5 < tokens_of(pieces) == len(TOKENS.encode("".join(pieces))) <= tokens
        assert not re.search("[A-Z]", "".join(pieces))


# Exercises

RIGHT: dict[str, Callable[[str], str]] = {
    "reverse": lambda text: "".join(reversed(text.removeprefix("Reverse: "))),
    "sort": lambda text: "".join(sorted(text.removeprefix("Sort: "))),
    "count": lambda text: str(text[9:].count(text[6])),
    "add": lambda text: str(sum(map(int, re.findall(r"\d+", text)))),
    "upper": lambda text: text.removeprefix("Capitals: ").replace("-", "").upper(),
}


@pytest.mark.parametrize("task", small.EXERCISES, ids=lambda task: task.name)
def test_an_exercise_is_solved_and_does_not_hold_its_solution(task: Task) -> None:
    for sample in samples(task):
        assert sample.answer == RIGHT[task.name](asked(sample))
        assert sample.answer not in asked(sample)


def test_a_tool_call_says_what_the_user_said() -> None:
    for sample in samples(ToolCall()):
        [(name, arguments)] = chat.expected(sample)[2]
        wishes = " and ".join(f"{key} {value}" for key, value in arguments.items())
        assert asked(sample) == f"Use {name} with {wishes}."
        assert sample.answer == call(name, arguments)
        assert sample.end == "<|observation|>"
