"""Questions, numbers and what is enough of them, against a server made of recorded answers."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from sparkbuild.canary.ask import Asker
from sparkbuild.canary.catalogue import Canary, Catalogue, load_catalogue, shipped, verify
from sparkbuild.canary.model import Acceptance, CanaryReport, Group, Item
from sparkbuild.canary.numbers import compare, encode_numbers, load_numbers
from sparkbuild.canary.run import Setup, flags
from sparkbuild.canary.suite import (
    Answer,
    Bound,
    Call,
    Limits,
    Numbers,
    Picture,
    Rate,
    Reference,
    Suite,
    encode_suite,
    load_pictures,
    load_suite,
)
from sparkbuild.errors import CanaryError, ManifestError, UnknownNameError
from sparkbuild.files import sha256_bytes
from sparkbuild.llama.answers import Completion
from sparkbuild.llama.client import Api, picture
from sparkbuild.llama.log import LogReport

VOCABULARY = 8
PNG = b"\x89PNG not really"
RNG = np.random.default_rng(7)
NUMBERS = {
    name: np.log(RNG.dirichlet(np.ones(VOCABULARY), 2)).astype(np.float32) for name in ("a", "b")
}
LIMITS = """
schema = 1
[[rates]]
group = "held-out"
form = "mix"
minimum = 0.5
reason = "two of three are at the border of what the types can hold"
[[bounds]]
backend = "cuda"
worst = 1e-2
median = 1e-3
reason = "other orders of sums"
[[bounds]]
worst = 1e-6
median = 1e-8
reason = "float32 on both sides"
"""
PHOTO = {
    "role": "user",
    "content": [
        {"type": "image_url", "image_url": {"url": "picture:p"}},
        {"type": "text", "text": "read"},
    ],
}
SUITE = Suite(
    schema=1,
    canary="toy",
    vocabulary=VOCABULARY,
    context=1000,
    pictures={"p": Picture(file="pictures/p.png", sha256=sha256_bytes(PNG))},
    answers=(
        Answer(name="one", group="words", messages=({"role": "user", "content": "hi"},),
               text="Hello.", count=8),
        Answer(name="two", group="words", messages=(PHOTO,), thinking=True, text="7391",
               reasoning="digits", count=8),
        Answer(name="tool", group="tools", messages=({"role": "user", "content": "rain?"},),
               tools=({"type": "function", "function": {"name": "weather"}},), text="",
               calls=(Call(name="weather", arguments={"city": "Köln", "days": 2}),),
               finish="tool_calls", count=8),
        Answer(name="raw", group="words", raw="1 2 3", text=" 4 5", count=4),
    ),
    references=(
        Reference(name="a", prompt=(1, 2, 3), tokens=(4, 5)),
        Reference(name="b", prompt=("<|user|>", "picture:p", "read"), tokens=(6, 7)),
    ),
    numbers=Numbers(file="n.npz", sha256=sha256_bytes(encode_numbers(NUMBERS))),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/p.png").write_bytes(PNG)
    (tmp_path / "n.npz").write_bytes(encode_numbers(NUMBERS))
    (tmp_path / "suite.json").write_bytes(encode_suite(SUITE))
    (tmp_path / "limits.toml").write_text(LIMITS)
    return tmp_path


def completion(name: str, change: Callable[[Any], Any]) -> dict[str, Any]:
    reference = next(r for r in SUITE.references if r.name == name)
    values = change(NUMBERS[name].copy())
    return {
        "content": "x", "tokens": reference.tokens, "stop_type": "limit", "tokens_evaluated": 3,
        "tokens_predicted": 2, "truncated": False,
        "completion_probabilities": [
            {"id": token, "top_logprobs": [
                {"id": i, "logprob": None if np.isnan(v) else float(v)} for i, v in enumerate(row)
            ]} for token, row in zip(reference.tokens, values, strict=True)
        ],
    }  # fmt: skip


def chat(content: str | None, **rest: Any) -> dict[str, Any]:
    finish = rest.pop("finish", "stop")
    return {
        "choices": [{"message": {"content": content, **rest}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }


class Stub:
    """A healthy llama-server with this suite's canary; tests change its answers."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.change: Callable[[Any], Any] = lambda values: values
        self.says: dict[str, dict[str, Any]] = {
            "hi": chat("Hello."),
            "read": chat("7391", reasoning_content="digits"),
            "rain?": chat(
                None,
                tool_calls=[{"id": "1", "type": "function", "function": {
                    "name": "weather", "arguments": '{"days": 2, "city": "K\\u00f6ln"}'}}],
                finish="tool_calls",
            ),
        }  # fmt: skip
        self.client = httpx.Client(base_url="http://x", transport=httpx.MockTransport(self._handle))

    def died(self) -> str:
        return ""

    def _handle(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/props":
            return httpx.Response(
                200, json={"build_info": "b", "model_path": "m", "media_marker": "<M>"}
            )
        body = json.loads(request.content)
        self.bodies.append(body)
        if request.url.path == "/completion":
            if body["prompt"] == "1 2 3":
                answer = {**completion("a", self.change), "content": " 4 5", "stop_type": "eos"}
                return httpx.Response(200, json=answer)
            name = "a" if body["prompt"] == [1, 2, 3] else "b"
            return httpx.Response(200, json=completion(name, self.change))
        content = body["messages"][0]["content"]
        text = content if isinstance(content, str) else content[-1]["text"]
        return httpx.Response(200, json=self.says[text])


@pytest.fixture
def stub() -> Stub:
    return Stub()


def asker(stub: Stub, *, worst: float = 1e-6, median: float = 1e-6) -> Asker:
    bound = Bound(worst=worst, median=median, reason="x")
    return Asker(stub, SUITE, {"p": PNG}, NUMBERS, bound, lambda _: None)  # type: ignore[arg-type]


def failed(items: list[Item]) -> dict[str, str]:
    return {item.name: item.found for item in items if not item.passed}


def test_a_healthy_server_answers_everything(stub: Stub) -> None:
    answers, references = asker(stub).answers(2), asker(stub).references()
    assert failed(answers + references) == {}
    assert [item.name for item in answers] == ["one", "two", "tool", "raw"]
    assert [item.nmse for item in references] == [0.0, 0.0, 0.0]


def test_pictures_tools_and_thinking_reach_the_server(stub: Stub) -> None:
    asker(stub).answers(1)
    asker(stub).references()
    bodies = {str(b.get("prompt", b.get("messages")))[-20:]: b for b in stub.bodies}
    thinking = [b.get("chat_template_kwargs") for b in bodies.values() if "messages" in b]
    assert thinking.count({"enable_thinking": True}) == 1
    photo = next(b for b in bodies.values() if "read" in str(b) and "messages" in b)
    assert photo["messages"][0]["content"][0] == picture(PNG)
    mixed = next(b["prompt"] for b in bodies.values() if isinstance(b.get("prompt"), dict))
    assert mixed == {
        "prompt_string": "<|user|><M>read",
        "multimodal_data": [base64.b64encode(PNG).decode()],
    }
    plain = next(b for b in bodies.values() if b.get("prompt") == [1, 2, 3])
    assert (plain["n_probs"], plain["n_predict"], plain["ignore_eos"]) == (VOCABULARY, 2, True)
    assert next(b for b in bodies.values() if "tools" in b)["tools"] == [
        dict(SUITE.answers[2].tools[0])
    ]


@pytest.mark.parametrize(
    ("question", "says", "name", "told"),
    [
        ("hi", chat("Hello!"), "one", "text 'Hello!'"),
        ("hi", chat("Hello.", finish="length"), "one", "finish 'length'"),
        ("read", chat("7391"), "two", ""),
        ("read", chat("<think>digits</think>7391"), "two", "text '<think>"),
        ("rain?", chat("weather(Köln)"), "tool", "text 'weather"),
        ("rain?", {**chat(None), "choices": []}, "tool", "0 choices"),
        ("rain?", {"error": "x"}, "tool", "UnexpectedAnswerError"),
        (
            "rain?",
            chat(None, tool_calls=[{"function": {"name": "weather", "arguments": "{}"}}]),
            "tool",
            "weather",
        ),
    ],
)
def test_an_answer_that_differs_in_any_part_is_told(
    stub: Stub, question: str, says: dict[str, Any], name: str, told: str
) -> None:
    stub.says[question] = says
    missed = failed(asker(stub).answers(4))
    assert missed.keys() == {name}
    assert told in missed[name]


def slightly_off(values: Any) -> Any:
    values[1, 3] *= 1.001
    return values


def with_nan(values: Any) -> Any:
    values[0, 0] = np.nan
    return values


def test_numbers_that_are_off_fail_by_the_worst_and_by_the_median(stub: Stub) -> None:
    stub.change = slightly_off
    found = {item.name: item for item in asker(stub, worst=1e-12, median=1.0).references()}
    assert not found["a"].passed
    assert found["median of references"].passed
    value = found["a"].nmse
    assert value is not None
    assert 1e-9 < value < 1e-5
    assert not asker(stub, worst=1.0, median=1e-12).references()[-1].passed


def test_a_missing_number_fails_whatever_the_bound(stub: Stub) -> None:
    stub.change = with_nan
    items = asker(stub, worst=1e9, median=1e9).references()
    assert failed(items).keys() == {"a", "b", "median of references"}
    assert items[0].nmse is None


def answered(tokens: tuple[int, ...], given: list[int]) -> Completion:
    rows = {4: NUMBERS["a"][0], 5: NUMBERS["a"][1], 6: NUMBERS["b"][0]}
    probabilities = [
        {
            "id": token,
            "top_logprobs": [{"id": i, "logprob": float(v)} for i, v in enumerate(rows[token])],
        }
        for token in given
    ]
    return msgspec.convert(
        {"content": "", "tokens": tokens, "stop_type": "limit", "tokens_evaluated": 1,
         "tokens_predicted": 2, "truncated": False, "completion_probabilities": probabilities},
        Completion,
    )  # fmt: skip


def test_after_another_token_nothing_is_compared() -> None:
    found = compare(answered((4, 6), [4, 6]), (4, 5), NUMBERS["a"])
    assert (found.positions, found.of) == (2, 2)
    assert found.nmse > 0.1
    early = compare(answered((6, 4), [6, 4]), (4, 5), NUMBERS["a"])
    assert (early.positions, early.of) == (1, 2)


def test_positions_are_found_by_their_token_where_the_server_leaves_some_out() -> None:
    assert np.isnan(compare(answered((4, 5), [5]), (4, 5), NUMBERS["a"]).nmse)
    assert np.isnan(compare(answered((4,), [4]), (4, 5), NUMBERS["a"]).nmse)
    assert np.isnan(compare(answered((), []), (4, 5), NUMBERS["a"]).nmse)
    assert compare(answered((4, 5), [4, 5]), (4, 5), NUMBERS["a"]).nmse == 0


def test_a_suite_comes_back_as_it_was_written(folder: Path) -> None:
    suite, limits = load_suite(folder)
    assert suite == SUITE
    assert load_pictures(folder, suite) == {"p": PNG}
    for name, values in load_numbers(folder, suite).items():
        np.testing.assert_array_equal(values, NUMBERS[name])
    assert limits.rate("held-out", "mix").minimum == 0.5
    assert limits.rate("held-out", "f16").minimum == 1.0
    assert limits.bound(backend="cuda", cache="f16", form="mix").worst == 1e-2
    assert limits.bound(backend="cpu", cache="f16", form="mix").worst == 1e-6


def test_answers_and_references_may_be_asked_in_some_forms_alone() -> None:
    far = Answer(name="far", group="w", raw="x", text="y", count=1, forms=("q8_0", "mix"))
    near = Answer(name="near", group="w", raw="x", text="y", count=1)
    exact = Reference(name="exact", prompt=(1,), tokens=(2,), forms=("f32",))
    every = Reference(name="every", prompt=(1,), tokens=(2,))
    suite = msgspec.structs.replace(SUITE, answers=(far, near), references=(exact, every))
    assert [one.name for one in suite.in_form("mix").answers] == ["far", "near"]
    assert [one.name for one in suite.in_form("f16").answers] == ["near"]
    assert [one.name for one in suite.in_form("f32").references] == ["exact", "every"]
    assert [one.name for one in suite.in_form("f16").references] == ["every"]


def test_a_way_to_run_without_a_bound_is_refused() -> None:
    limits = Limits(
        schema=1, bounds=(Bound(backend="cpu", cache="f32", worst=1.0, median=1.0, reason="x"),)
    )
    wanted = "no bound is recorded for s390x, cuda, KV f16, form mix"
    with pytest.raises(CanaryError, match=wanted):
        limits.bound(backend="cuda", cache="f16", form="mix", machine="s390x")


def test_a_bound_may_be_of_one_kind_of_machine_and_wider_for_pictures() -> None:
    arm = Bound(machine="aarch64", worst=1e-9, pictures=1e-5, median=1e-10, reason="x")
    limits = Limits(schema=1, bounds=(arm, Bound(worst=1e-8, median=1e-10, reason="x")))
    text = Reference(name="t", prompt=(1, 2), tokens=(3,))
    seen = Reference(name="p", prompt=("picture:0123456789ab", "?"), tokens=(3,))
    for machine, wanted in (("aarch64", [1e-9, 1e-5]), ("x86_64", [1e-8, 1e-8])):
        bound = limits.bound(backend="cpu", cache="f32", form="f32", machine=machine)
        assert [bound.of(one) for one in (text, seen)] == wanted


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"one"', '"two"', "two entries are named 'two'"),
        ('"picture:p"', '"picture:q"', "there is no 'picture:q'"),
        ('"count": 8', '"count": 0', "count"),
        ('"toy"', '"Toy!"', "canary"),
        ('"vocabulary"', '"vocabularies"', "vocabular"),
        ('"<|user|>"', "17", "neither all numbers nor all text"),
        ("{", "", "suite.json"),
    ],
)
def test_a_damaged_suite_is_refused(folder: Path, old: str, new: str, told: str) -> None:
    path = folder / "suite.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1) if old == "{" else text.replace(old, new))
    with pytest.raises(ManifestError) as caught:
        load_suite(folder)
    assert told in caught.value.message


def test_a_changed_or_missing_picture_is_refused(folder: Path) -> None:
    (folder / "pictures/p.png").write_bytes(PNG + b"!")
    with pytest.raises(CanaryError, match="not as recorded"):
        load_pictures(folder, SUITE)
    (folder / "pictures/p.png").unlink()
    with pytest.raises(CanaryError, match="not as recorded"):
        load_pictures(folder, SUITE)


def test_numbers_that_do_not_fit_the_suite_are_refused(folder: Path) -> None:
    path = folder / "n.npz"
    path.write_bytes(encode_numbers({"a": NUMBERS["a"][:1]}))
    with pytest.raises(CanaryError, match="not as recorded") as caught:
        load_numbers(folder, SUITE)
    assert caught.value.problems[1:] == (
        "a: expected (2, 8) numbers, found (1, 8)",
        "b: expected (2, 8) numbers, found None",
    )
    path.write_bytes(b"PK nothing")
    with pytest.raises(CanaryError, match="not as recorded"):
        load_numbers(folder, SUITE)


@pytest.mark.parametrize(
    ("right", "of", "minimum", "passed"),
    [
        (3, 3, 1.0, True),
        (2, 3, 1.0, False),
        (2, 3, 0.6, True),
        (1, 3, 0.6, False),
        (0, 0, 0.0, False),
    ],
)
def test_a_group_passes_by_its_rate_and_never_empty(
    right: int, of: int, minimum: float, *, passed: bool
) -> None:
    group = Group(name="g", right=right, of=of, minimum=minimum, reason="x")
    assert group.passed is passed
    report = CanaryReport(
        canary="toy", form="mix", backend="cpu", cache="f16", load_seconds=0.1, seconds=0.1,
        items=(), groups=(group,), log=LogReport(lines=1),
    )  # fmt: skip
    assert report.passed is passed
    assert not msgspec.structs.replace(report, groups=()).passed


def test_nothing_drafted_is_nothing_accepted() -> None:
    assert Acceptance(depth=1).share == 0
    assert Acceptance(depth=1, drafted=4, accepted=3).share == 0.75


def test_every_slot_gets_the_context_that_the_suite_needs() -> None:
    setup = Setup(
        executable=Path("x"), model=Path("m"), vision=Path("v"), form="mix", backend="cuda",
        cache="q8_0", scratch=Path("s"), log=Path("l"),
    )  # fmt: skip
    argv = flags(setup, SUITE)
    at = argv.index
    slots = int(argv[at("--parallel") + 1])
    assert int(argv[at("--ctx-size") + 1]) == slots * 1024
    assert argv[at("--cache-type-k") + 1] == argv[at("--cache-type-v") + 1] == "q8_0"
    assert argv[at("--n-gpu-layers") + 1] == "99"
    assert argv[at("--mmproj") + 1] == "v"


CATALOGUE = """
schema = 1
licence = "MIT"
[[canaries]]
name = "toy"
architecture = "toy"
summary = "x"
model = "toy/m.gguf"
suite = "toy"
[[canaries.files]]
file = "toy/m.gguf"
sha256 = "{digest}"
bytes = {size}
[canaries.forms.mix]
digests = ["{digest}"]
errors = {{ q4_0 = 0.1 }}
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/m.gguf").write_bytes(PNG)
    text = CATALOGUE.format(digest=sha256_bytes(PNG), size=len(PNG))
    (tmp_path / "catalogue.toml").write_text(text)
    return tmp_path


def problems(data: Path, *names: str) -> tuple[str, ...]:
    with pytest.raises(CanaryError, match="not as their catalogue says") as caught:
        verify(data, names=names)
    return caught.value.problems


def test_a_catalogue_is_checked_against_its_files(data: Path) -> None:
    catalogue: Catalogue = verify(data)
    entry: Canary = catalogue.canary("toy")
    assert entry.forms["mix"].errors == {"q4_0": 0.1}
    assert shipped(data / "toy", data) == entry.files
    (data / "toy/stray").touch()
    assert problems(data) == ("toy/stray: not in the catalogue",)
    assert verify(data, names=("toy",)) == catalogue
    (data / "toy/m.gguf").write_bytes(PNG[:-1])
    assert f"found {len(PNG) - 1}" in problems(data, "toy")[0]
    (data / "toy/m.gguf").unlink()
    assert problems(data, "toy")[0].startswith("toy/m.gguf: No such file")


def test_more_than_the_repository_should_hold_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkbuild.canary.catalogue.MOST", len(PNG) - 1)
    assert problems(data) == (f"{len(PNG)} bytes together, expected at most {len(PNG) - 1}",)


def test_a_model_that_is_not_among_the_files_is_refused(data: Path) -> None:
    path = data / "catalogue.toml"
    path.write_text(path.read_text().replace('model = "toy/m', 'model = "toy/n'))
    assert problems(data) == ("toy: toy/n.gguf is not among its files",)


def test_an_unknown_canary_is_told_with_the_nearest_name(data: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_catalogue(data).canary("tony")
    assert "toy" in caught.value.next_step


def test_rates_may_hold_for_every_form() -> None:
    limits = Limits(
        schema=1,
        rates=(Rate(group="g", minimum=0.9, reason="x"),),
        bounds=(Bound(worst=1.0, median=1.0, reason="x"),),
    )
    assert limits.rate("g", "mix").minimum == limits.rate("g", "f32").minimum == 0.9


def test_a_prompt_of_text_alone_needs_no_marker(stub: Stub) -> None:
    Api(stub.client).complete_mixed(["1 2", " 3"], count=4)
    assert stub.bodies == [
        {"prompt": "1 2 3", "n_predict": 4, "temperature": 0, "cache_prompt": False,
         "return_tokens": True, "n_probs": 0, "id_slot": -1}
    ]  # fmt: skip
