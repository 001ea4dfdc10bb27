"""A server that answers the same request otherwise in other circumstances: each is noticed."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparkbuild.canary import behaviour
from sparkbuild.canary.model import BEHAVIOUR, CanaryReport, Item
from sparkbuild.canary.numbers import encode_numbers
from sparkbuild.canary.run import Setup, canary
from sparkbuild.canary.suite import (
    PICTURE,
    Answer,
    Numbers,
    Picture,
    Reference,
    Suite,
    encode_suite,
)
from sparkbuild.files import sha256_bytes, sha256_file

STUB = Path(__file__).parents[2] / "data/canary/numbers_server.py"
PNG = b"\x89PNG not really"
OTHER_PNG = b"\x89PNG neither"
LOGPROBS = np.log(np.array([[0.1, 0.2, 0.3, 0.4]], np.float32))
NUMBERS = encode_numbers(dict.fromkeys(("short", "long", "seen", "seen, other"), LOGPROBS))
SUITE = Suite(
    schema=1, canary="toy", vocabulary=4, context=256,
    pictures={
        "p": Picture(file="p.png", sha256=sha256_bytes(PNG)),
        "q": Picture(file="q.png", sha256=sha256_bytes(OTHER_PNG)),
    },
    answers=(
        Answer(name="chat", group="words", messages=({"role": "user", "content": "hi"},),
               text="x", count=4),
        Answer(name="copy", group="copies", raw="copy", text="x", finish="length", count=4),
        Answer(name="copy much", group="copies", raw="much " * 120, text="x", finish="length",
               count=4),
        Answer(name="find", group="needles", raw="find", text="x", finish="length", count=4),
    ),
    references=(
        Reference(name="long", prompt=(1,) * 40, tokens=(2,)),
        Reference(name="seen", prompt=("look", f"{PICTURE}p"), tokens=(2,)),
        Reference(name="seen, other", prompt=("look", f"{PICTURE}q"), tokens=(2,)),
        Reference(name="short", prompt=(1, 3), tokens=(2,)),
    ),
    numbers=Numbers(file="n.npz", sha256=sha256_bytes(NUMBERS)),
)  # fmt: skip
LIMITS = """schema = 1
[[rates]]
group = "behaviour"
minimum = 0.1
reason = "no rate excuses a server that wavers"
[[bounds]]
worst = 1e-6
median = 1e-6
reason = "x"
"""
ALL = [
    "short, twice",
    "long, twice",
    "seen, twice",
    "300 tokens, twice",
    "short, after 300 tokens",
    "short, after requests that were broken off",
    "short, in slot 1",
    "long, in slot 2",
    "seen, in slot 3",
    "prompts one after another, from the cache",
    "prompts in slots 0 and 3 in turn, from the cache",
    "pictures one after another, from the cache",
    "answers at the same time",
    "a long prompt beside short ones",
]
TWICE, SLOTS = ALL[:3], ALL[6:9]
RUN, AFTER_RUN, BROKEN = ALL[3:6]
CACHED = ALL[9:12]
ONE_SLOT, TWO_SLOTS, PICTURES = CACHED
AT_ONCE, BESIDE = ALL[12:]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "model.gguf").write_bytes(b"toy")
    (tmp_path / "n.npz").write_bytes(NUMBERS)
    (tmp_path / "p.png").write_bytes(PNG)
    (tmp_path / "q.png").write_bytes(OTHER_PNG)
    (tmp_path / "suite.json").write_bytes(encode_suite(SUITE))
    (tmp_path / "limits.toml").write_text(LIMITS)
    server = tmp_path / "llama-server"
    server.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} {tmp_path / "healthy.json"} "$@"\n')
    server.chmod(0o755)
    return Setup(
        executable=server, model=tmp_path / "model.gguf", vision=None, form="f16", backend="cpu",
        cache="f16", scratch=tmp_path / "s", log=tmp_path / "l",
    )  # fmt: skip


def asked(
    setup: Setup, faults: dict[str, str], *, answers: bool = True, quick: bool = False
) -> CanaryReport:
    folder = setup.model.parent
    values = {
        "sha256": [sha256_file(setup.model)], "token": 2, "logprobs": LOGPROBS[0].tolist(),
        "faults": faults,
    }  # fmt: skip
    (folder / "healthy.json").write_text(json.dumps(values))
    return canary(folder, setup, answers=answers, quick=quick)


def behaviours(report: CanaryReport) -> dict[str, Item]:
    return {item.name: item for item in report.items if item.group == BEHAVIOUR}


def test_a_server_that_is_well_passes(setup: Setup) -> None:
    report = asked(setup, {})
    found = behaviours(report)
    assert list(found) == ALL
    assert {name: item.found for name, item in found.items() if not item.passed} == {}
    assert report.passed
    assert found[AT_ONCE].found == "as alone: chat, copy, find"
    assert found[BESIDE].found == "as alone: copy much, copy, find, chat"
    (group,) = (group for group in report.groups if group.name == BEHAVIOUR)
    assert (group.right, group.of, group.minimum) == (14, 14, 1.0)


@pytest.mark.parametrize(
    ("faults", "failed", "told"),
    [
        ({"again": "bits"}, TWICE, "log-probability of token 0 at position 0 is -2.30258"),
        ({"again": "token"}, TWICE, "token 0 of 1 is 3, was 2; NMSE 0"),
        ({"again": "count"}, TWICE, "tokens_evaluated is 2, was 1"),
        ({"slot": "token"}, [*SLOTS, TWO_SLOTS], "token 0 of 1 is 3, was 2"),
        ({"slot": "number"}, [*SLOTS, TWO_SLOTS], "NMSE 0.9"),
        ({"slot": "bits"}, [], ""),
        ({"long run": "null"}, [RUN], "token 0 at position 299 is no number"),
        ({"long run": "short"}, [RUN], "299 tokens, stop_type 'limit'"),
        ({"second long run": "token"}, [RUN], "token 299 of 300 is 3, was 2"),
        ({"second long run": "bits"}, [RUN], "at position 0 is -2.30258"),
        ({"after a long run": "bits"}, [RUN, AFTER_RUN], "was -2.30258"),
        ({"after a break": "bits"}, [BROKEN], "was -2.30258"),
        ({"slots of a break": "stuck"}, [BROKEN], "slots [0] are still busy after 0.3 s"),
        ({"slots of a break": "lost"}, [BROKEN], "3 slots"),
        ({"from the cache": "token"}, CACHED, "in slot"),
        ({"from the cache": "number"}, CACHED, "NMSE 0.9"),
        ({"from the cache": "bits"}, [], ""),
        ({"cache": "none"}, CACHED, "no token is from the cache"),
        ({"cache": "many"}, [ONE_SLOT, TWO_SLOTS], "tokens of 40 are from the cache, "),
        ({"cache": "sum"}, [ONE_SLOT, TWO_SLOTS], "computed are not the prompt's"),
        ({"cache": "last"}, [TWO_SLOTS], "39 tokens of 40 are from the cache, 1 are the same"),
        ({"company": "count"}, [AT_ONCE, BESIDE], "tokens of prompt and answer (2, 1), alone (1,"),
        ({"beside a long one": "count"}, [BESIDE], "(2, 1), alone (1, 1)"),
    ],
)
def test_each_fault_is_noticed_and_told(
    setup: Setup,
    faults: dict[str, str],
    failed: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(behaviour, "IDLE", 0.3)
    report = asked(setup, faults)
    wrong = {name: item.found for name, item in behaviours(report).items() if not item.passed}
    assert list(wrong) == failed
    assert all(told in found for found in wrong.values()), wrong
    # Every known answer is right: nothing else notices these.
    assert [group.name for group in report.groups if not group.passed] == (
        [BEHAVIOUR] if failed else []
    )


def test_a_number_that_is_none_is_not_the_same_again(setup: Setup) -> None:
    found = behaviours(asked(setup, {"later": "null"}))
    assert {found[name].found for name in TWICE} == {
        "the log-probability of token 0 at position 0 is no number"
    }
    assert {found[name].found for name in SLOTS} == {"NMSE nan, expected at most 1e-06"}
    assert {found[name].nmse for name in SLOTS} == {None}


def test_a_server_that_hangs_after_a_break_is_asked_nothing_more(setup: Setup) -> None:
    impatient = replace(setup, patience=replace(setup.patience, request=1.0))
    found = behaviours(asked(impatient, {"after a break": "hang"}))
    assert found[BROKEN].found.startswith("ReadTimeout")
    later = ALL[ALL.index(BROKEN) + 1 :]
    assert {found[name].found for name in later} == {f"not asked: no answer came to {BROKEN!r}"}
    assert not any(found[name].passed for name in later)


def test_nothing_is_repeated_for_numbers_alone_and_in_quick_passes(setup: Setup) -> None:
    assert behaviours(asked(setup, {}, answers=False)) == {}
    quick = asked(setup, {}, quick=True)
    assert behaviours(quick) == {}
    assert len(quick.items) == len(SUITE.references) + 1 + len(SUITE.answers)


def test_with_one_slot_there_is_no_other(setup: Setup) -> None:
    found = behaviours(asked(replace(setup, slots=1), {}))
    assert list(found) == [name for name in ALL if name not in [*SLOTS, TWO_SLOTS]]
    assert all(item.passed for item in found.values())
