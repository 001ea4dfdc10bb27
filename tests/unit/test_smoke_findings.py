"""What checks are made of: comparisons, the log scan, the version line, answers as they arrive."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.llama.client import Api, UnexpectedAnswerError
from sparkbuild.llama.memory import Memory, reading
from sparkbuild.llama.port import free_port
from sparkbuild.llama.server import ending
from sparkbuild.smoke.checks import log_clean
from sparkbuild.smoke.compare import Comparisons
from sparkbuild.smoke.context import Context
from sparkbuild.smoke.identity import parse_version
from sparkbuild.smoke.suite import load_suite

SUITE, LOGPROBS = load_suite("tiny")
LOG = (Path(__file__).parent.parent / "data/smoke/server-b11434-cpu.log").read_text()
TOKENS = st.lists(st.integers(0, 5), max_size=8)


def test_nothing_compared_is_a_failure() -> None:
    compare = Comparisons("all")
    assert not compare.passed
    assert compare.found("fine") == "nothing was compared"


def test_all_mismatches_are_counted_and_the_first_shown() -> None:
    compare = Comparisons("all")
    for number in range(9):
        compare.equal(f"case {number}", 0, number)
    assert not compare.passed
    assert "case 1: expected 0, found 1" in compare.found("fine")
    assert "and 4 more" in compare.found("fine")


@given(TOKENS, TOKENS)
def test_token_lists_are_equal_or_the_first_difference_is_named(
    one: list[int], other: list[int]
) -> None:
    compare = Comparisons("tokens")
    compare.tokens("case", one, other)
    assert compare.passed == (one == other)
    if one != other:
        at = int(compare.mismatches[0].split("from token ")[1].split(" ")[0])
        assert one[:at] == other[:at]
        assert one[at : at + 1] != other[at : at + 1]


def logged(folder: Path, more: str) -> tuple[bool, str]:
    """The outcome of the check of the log, and what it found."""
    log = folder / "server.log"
    log.write_text(LOG + more)
    context = Context(
        suite=SUITE, logprobs=LOGPROBS, executable=folder / "x", model=folder / "m", build=None,
        identity="x", log=log,
    )  # fmt: skip
    compare = Comparisons("no fault")
    summary = log_clean(context, compare)
    return compare.passed, compare.found(summary)


def test_a_healthy_servers_log_is_clean_and_counted(tmp_path: Path) -> None:
    assert logged(tmp_path, "") == (
        True, "81 lines: 0 faults, 0 warnings, 9 notes (no GPU 3, requests 6)",
    )  # fmt: skip
    passed, found = logged(tmp_path, "0.1 W llama_context: graph reuse disabled\n")
    assert passed
    assert "1 warning (backend fallback 1)" in found
    assert "backend fallback: line 83: W llama_context: graph reuse disabled" in found


def test_faults_in_the_log_are_counted_and_the_first_shown(tmp_path: Path) -> None:
    passed, found = logged(tmp_path, "0.1 E spec draft: llama_process[1] returned -1\n" * 2661)
    assert not passed
    assert found.startswith("2742 lines: 2661 faults (draft decode error 2661), 0 warnings, 9 ")
    assert "draft decode error: 2661 times, the first time in line 83: E spec draft" in found


def test_a_suite_knows_faults_of_its_own(tmp_path: Path) -> None:
    line = "0.1 W model has unused tensor blk.3.attn_norm.weight (size = 4 bytes) -- ignoring\n"
    passed, found = logged(tmp_path, line)
    assert not passed
    assert SUITE.log[0].reason in found


def test_a_server_that_writes_nothing_has_no_clean_log(tmp_path: Path) -> None:
    compare = Comparisons("no fault")
    context = Context(
        suite=SUITE, logprobs=LOGPROBS, executable=tmp_path / "x", model=tmp_path / "m", build=None,
        identity="x", log=tmp_path / "absent",
    )  # fmt: skip
    log_clean(context, compare)
    assert not compare.passed
    assert "nothing was logged" in compare.found("fine")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "version: 0.6.0-dev (build 11434, commit deadbeefcafe)\nbuilt with GNU 13.3.0 for x",
            (11434, "deadbeefcafe"),
        ),
        ("warning: no GPU\nversion: 0.6.0-dev (build 0, commit unknown)\n", (0, "unknown")),
        ("version: 9000 (d07e71ed)\nbuilt with", (9000, "d07e71ed")),
        ("version: 0.6.0-dev (build 11434, commit )", None),
        ("versions: 9000 (d07e71ed)", None),
        ("libllama.so: cannot open shared object file", None),
        ("", None),
    ],
)
def test_the_version_line(text: str, expected: tuple[int, str] | None) -> None:
    assert parse_version(text) == expected


@given(st.integers(0, 10**9), st.from_regex(r"\A[0-9a-f]{7,40}\Z"), st.text())
def test_a_version_line_is_read_back(build: int, commit: str, noise: str) -> None:
    parse_version(noise)
    line = f"version: 1.2.3 (build {build}, commit {commit})"
    assert parse_version(f"{line}\n{noise}") == (build, commit)


def api(content: bytes, status: int = 200) -> Api:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=content)

    return Api(httpx.Client(transport=httpx.MockTransport(answer), base_url="http://127.0.0.1"))


@given(st.binary(), st.sampled_from([200, 200, 200, 404, 500, 503]))
def test_any_bytes_are_an_answer_or_unexpected(content: bytes, status: int) -> None:
    asks: list[Callable[[Api], object]] = [
        lambda known: known.complete([1], count=1),
        lambda known: known.chat("x", count=1),
        lambda known: known.models(),
        lambda known: known.props(),
        lambda known: known.tokenize("x"),
    ]
    for ask in asks:
        with pytest.raises(UnexpectedAnswerError):
            ask(api(content, status))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["tokens", "content", "data", "models"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(JSON)
def test_any_json_is_tokens_or_unexpected(value: object) -> None:
    tokens = None
    with contextlib.suppress(UnexpectedAnswerError):
        tokens = list(api(json.dumps(value).encode()).tokenize("x"))
    if tokens is not None:
        assert isinstance(value, dict)
        assert tokens == value["tokens"]


def test_a_refused_answer_quotes_status_and_text() -> None:
    with pytest.raises(UnexpectedAnswerError, match="/completion answered 500: no room"):
        api(b"no room", 500).complete([1], count=1)


def test_endings_in_words() -> None:
    assert ending(0) == "exit status 0"
    assert ending(-9) == "killed by SIGKILL"
    assert ending(-64) == "killed by SIGRTMAX"
    assert ending(-99) == "killed by signal 99"


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**30), st.integers(0, 2**30))
def test_memory_that_a_neighbour_took_is_not_missing(
    available: int, owned: int, taken: int, stranded: int
) -> None:
    before = Memory(available=available, owned=owned)
    after = Memory(available=available - taken - stranded, owned=owned + taken)
    assert after.missing_since(before) == stranded


def test_memory_is_read_and_ports_are_free() -> None:
    now = reading()
    assert now.available > 0
    assert now.owned > 10 << 20
    assert free_port() != free_port()
