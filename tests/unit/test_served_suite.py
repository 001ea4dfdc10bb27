"""Served suites: what ships is whole, and its patterns know right answers from wrong ones."""

from pathlib import Path

import pytest

from sparkbuild.errors import ManifestError, UnknownNameError, UsageError
from sparkbuild.model.finding import Finding
from sparkbuild.smoke.served import before
from sparkbuild.smoke.served.known import haystack
from sparkbuild.smoke.served.load import (
    FOLDER,
    is_served,
    load_hints,
    load_suite,
    names,
    suite_file,
)
from sparkbuild.smoke.served.suite import Suite
from sparkbuild.smoke.served.words import mismatches
from sparkbuild.smoke_served import chosen_suite

DATA = Path(__file__).parents[1] / "data/served"
RIGHT = {
    "capital of France": ["Paris", "**Paris**", "The capital is Paris."],
    "Monate": ["31", "**31**", "Einunddreißig", "Der Januar hat 31 Tage."],
    "saison": ["Mardi", "mardi.", "**Mardi**"],
    "首都": ["北京", "北京。", "**北京市**", "Beijing"],
    "山": ["富士山", "富士山です。"],
    "столица": ["Москва", "Москва."],
    "product": ["3901", "**3,901**", "47 * 83 = 3901", "3 901", "3.901"],
    "sheep": ["9", "**9**", "Nine", "9 sheep"],
    "prime": ["```python\ndef is_prime(n):\n    return all(n % d for d in range(2, n))\n```"],
    "object": ['{"city": "Oslo", "numbers": [2, 3, 5, 7]}',
               '```json\n{"numbers": [2, 3, 5, 7],\n "city": "Oslo"}\n```'],
    "copy": ["KX7-42QD-VN93", "`KX7-42QD-VN93`"],
    "role": ["Good morning! ZEBRA", "Good morning to you.\n\nZEBRA."],
}  # fmt: skip
WRONG = {
    "capital of France": ["London", "Parisienne", "GGGGGGGG", ""],
    "Monate": ["30", "310", "dreißig"],
    "saison": ["lundi", "mercredi"],
    "首都": ["上海", "????"],
    "山": ["北岳"],
    "столица": ["Киев"],
    "product": ["3801", "39010", "13901", "47 * 83"],
    "sheep": ["8", "17", "19"],
    "prime": ["def is_prime(n) return", "```python\ndef prime(n):\n    return n % 2\n```", "no %"],
    "object": ['{"city": "Oslo"}', '{"city": "Oslo", "numbers": [2, 3, 5, 9]}', "Oslo, 2 3 5 7"],
    "copy": ["KX7-42QD-VN94", "KX7-42QD-VN933"],
    "role": ["Good morning!", "ZEBRA morning to you"],
}
LOOKS = {
    "red": (["Red", "**red**"], ["Blue", "red or blue"]),
    "blue": (["Blue."], ["Red"]),
    "white": (["White"], ["Black and white"]),
    "top left": (["top left", "Upper-left", "**Top left**"], ["bottom left", "top right"]),
    "bottom right": (["bottom right", "lower right"], ["bottom left", "top left", "right"]),
}


@pytest.fixture(scope="module")
def glm() -> Suite:
    return load_suite(FOLDER / "glm-5.3-flash.toml")


def test_every_question_that_ships_knows_right_from_wrong(glm: Suite) -> None:
    assert {one.name for one in glm.questions} == RIGHT.keys() == WRONG.keys()
    for one in glm.questions:
        for text in RIGHT[one.name]:
            assert list(mismatches(text, one.expect)) == [], one.name
        for text in WRONG[one.name]:
            assert list(mismatches(text, one.expect)), f"{one.name}: {text}"
    looks = {one.name: one for one in glm.vision.looks} if glm.vision else {}
    for name, (right, wrong) in LOOKS.items():
        expect = looks[name].expect
        assert expect
        assert not any(list(mismatches(text, expect)) for text in right), name
        assert all(list(mismatches(text, expect)) for text in wrong), name


def test_what_ships_asks_what_field_reports_say(glm: Suite) -> None:
    assert glm.server.context == 32768
    assert glm.server.most.limit < 1 << 20
    assert glm.request["chat_template_kwargs"] == {"reasoning_effort": "low"}
    ways = [(way.cache_k, way.cache_v, way.flash_attention) for way in glm.ways]
    assert ways == [("f16", "f16", True), ("q8_0", "q8_0", True), ("f16", "f16", False)]
    assert glm.needles
    assert (glm.needles.least, glm.needles.at) == (5000, (0.12, 0.88))
    assert glm.long_run
    assert glm.long_run.count == 300
    assert glm.drafts
    assert glm.drafts.depths == (2, 3)


def test_the_long_prompt_is_the_same_every_time_and_holds_its_facts(glm: Suite) -> None:
    assert glm.needles
    text, facts = haystack(glm.needles)
    assert (text, facts) == haystack(glm.needles)
    assert len({key for key, _ in facts}) == 2
    for place, (key, value) in zip(glm.needles.at, facts, strict=True):
        fact = f"The code of locker {key} is {value}."
        assert text.count(fact) == 1
        assert abs(text.index(fact) / len(text) - place) < 0.02


def test_a_context_of_1m_is_refused(glm: Suite) -> None:
    before.refuse_context(glm, 262144)
    with pytest.raises(UsageError, match="1,048,576 tokens is not started"):
        before.refuse_context(glm, 1 << 20)


def test_every_group_of_checks_has_a_hint() -> None:
    hints = load_hints()
    groups = [
        "start", "memory guard", "GPU", "alive", "no answer", "garbled", "no numbers", "speed",
        "numbers", "the same again", "at the same time", "long run", "long prompt",
        "another picture", "pictures: colour", "drafts", "drafts among pictures", "log", "after",
        "answers: code",
    ]  # fmt: skip
    last = hints[-1]
    for group in groups:
        hint = next(one for one in hints if one.fits({group}, {"answers: languages"}))
        assert hint is not last, group
    assert next(one for one in hints if one.fits({"start", "log"}, set())) is last


PROBLEMS = {
    "its place says": ('name = "stub"', 'name = "other"'),
    "no question is named 'nobody'": ('short = "sum"', 'short = "nobody"'),
    "more requests than 1 slots": ("slots = 4", "slots = 1"),
    "belong to all but the first": ('agreement = { limit = 0.9, reason = "equal" }', ""),
    "no cache type 'q9'": ('name = "first"', 'name = "first"\ncache_k = "q9"'),
    "is no regular expression": (r"matches = '\b42\b'", "matches = '('"),
    "nothing is expected": (r"{ matches = '\b42\b' }", "{}"),
    "no band for 'prose' at depth 2": ('kind = "prose"\nlow', 'kind = "verse"\nlow'),
    "two questions are named": ('name = "sum"', 'name = "capital"'),
}


@pytest.mark.parametrize("problem", sorted(PROBLEMS))
def test_a_suite_that_is_not_whole_is_refused(problem: str, tmp_path: Path) -> None:
    text = (DATA / "stub.toml").read_text()
    assert PROBLEMS[problem][0] in text
    file = tmp_path / "stub.toml"
    file.write_text(text.replace(*PROBLEMS[problem]))
    with pytest.raises(ManifestError) as error:
        load_suite(file)
    assert problem in " ".join(error.value.problems)


def test_a_look_either_reads_or_expects(tmp_path: Path) -> None:
    text = (DATA / "qwen35.toml").read_text()
    file = tmp_path / "qwen35.toml"
    file.write_text(
        text.replace("reads = [1]", "reads = [2]").replace("expect = { matches = '^red$' }", "")
    )
    with pytest.raises(ManifestError) as error:
        load_suite(file)
    assert "look 'red': either `reads` or `expect`" in error.value.problems
    assert "look 'second of two': picture 2 has no text to be read" in error.value.problems


def test_suites_are_found_by_name_file_and_architecture(tmp_path: Path) -> None:
    assert names() == ["glm-5.3-flash"]
    assert is_served("glm-5.3-flash")
    assert is_served(str(DATA / "stub.toml"))
    assert not is_served("canary")
    assert not is_served(str(tmp_path / "none.toml"))
    assert suite_file("glm-5.3-flash") == FOLDER / "glm-5.3-flash.toml"
    with pytest.raises(UnknownNameError):
        suite_file("nobody")
    assert chosen_suite(None, None) is None
    assert chosen_suite("canary", None) is None
    with pytest.raises(UsageError, match=r"glm-5\.3-flash asks a real model") as error:
        chosen_suite("glm-5.3-flash", None)
    assert "--model" in error.value.next_step
    with pytest.raises(UsageError, match="asks models of its own"):
        chosen_suite("canary", tmp_path / "m.gguf")


def test_a_fault_is_told_once_whichever_way_has_it() -> None:
    one = Finding(name="memory", state="fault", expected="x", found="y")
    other = Finding(name="memory", state="warning", expected="x", found="y")
    assert list(before._once([one, other, one])) == [one, other]
