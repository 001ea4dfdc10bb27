"""What a proof says of a build: every look is told, and nothing looked at proves nothing."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from sparkbuild.errors import SmokeError
from sparkbuild.patch_bench import Bench, Drafts, proof
from sparkbuild.patch_talk import Talk

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    build, source = tmp_path / "build", tmp_path / "source"
    build.mkdir()
    source.mkdir()
    for name in ("llama-server", "llama-quantize"):
        (build / name).touch()
    return ["proofs/one.py", str(build), str(source), str(tmp_path / "scratch")]


def test_all_is_well_where_every_look_is(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def body(bench: Bench) -> None:
        assert bench.check("answers", well=True, found="4 of 4")

    assert proof(argv, body) == 0
    assert capsys.readouterr().out == "well  answers: 4 of 4\none: 1 of 1 well\n"
    assert Path(argv[3]).is_dir()


def test_one_wrong_look_is_enough_and_the_rest_is_told(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def body(bench: Bench) -> None:
        assert not bench.check("answers", well=False, found="3 of 4")
        bench.check("the log", well=True, found="no fault")

    assert proof(argv, body) == 1
    told = capsys.readouterr().out.splitlines()
    assert told == ["WRONG answers: 3 of 4", "well  the log: no fault",
                    "one: 1 of 2 well; not answers"]  # fmt: skip


def test_nothing_looked_at_proves_nothing(argv: list[str]) -> None:
    assert proof(argv, lambda _: None) == 1


def test_a_server_that_does_not_come_up_is_a_failed_proof(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def body(bench: Bench) -> None:
        bench.check("one thing", well=True, found="so")
        raise SmokeError(
            "it did not come up", problems=["exit status 1"], detail="E no graph", next_step="x"
        )

    assert proof(argv, body) == 1
    told = capsys.readouterr().out
    assert "E no graph" in told
    assert "WRONG the whole proof: it did not come up; exit status 1" in told


@pytest.mark.parametrize("more", [[], ["a"], ["a", "b", "c", "d"], ["/none", "/none", "/tmp"]])
def test_other_arguments_than_three_folders_are_refused(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert proof(["proofs/one.py", *more], lambda _: None) == 2
    assert "takes three folders" in capsys.readouterr().out


def test_drafts_have_a_model_where_they_take_one() -> None:
    assert Drafts(most=2).flags[:4] == ("--spec-type", "draft-mtp", "--spec-draft-n-max", "2")
    flags = Drafts(kind="draft-eagle3", model=Path("/m.gguf")).flags
    assert flags[-2:] == ("--spec-draft-model", "/m.gguf")


def talk(answer: httpx.Response | Exception) -> Talk:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = httpx.Client(transport=httpx.MockTransport(handle), base_url="http://x")
    return Talk(client, {})


def test_an_answer_with_its_counts() -> None:
    timings = {"cache_n": 7, "draft_n": 4, "draft_n_accepted": 3, "predicted_ms": 1.5}
    choices = [{"message": {"content": "Hi.", "reasoning_content": "so"}},
               {"message": {"content": None}}]  # fmt: skip
    said = talk(httpx.Response(200, json={"choices": choices, "timings": timings})).chat(MESSAGES)
    assert (said.status, said.texts, said.counts, said.cached) == (200, ("so|Hi.", "|"), (4, 3), 7)
    body = {"content": "Hi.", "tokens": [1, 2]}
    said = talk(httpx.Response(200, json=body)).complete([5], count=2)
    assert (said.texts, said.tokens, said.counts) == (("Hi.",), (1, 2), (0, 0))


def test_an_error_is_an_answer_and_so_is_none() -> None:
    said = talk(httpx.Response(500, text="failed to process" + "x" * 999)).chat(MESSAGES)
    assert (said.status, said.texts) == (500, ())
    assert said.error.startswith("failed to process")
    assert len(said.error) == 200
    gone = talk(httpx.ReadError("reset"))
    assert (gone.chat(MESSAGES).status, gone.chat(MESSAGES).error) == (0, "ReadError: reset")
    assert gone.slot(0, "save", "x") == 0
    gone.break_off(MESSAGES, after=1)


def test_a_request_is_broken_off_after_so_many_pieces() -> None:
    read: list[int] = []

    def pieces() -> object:
        for number in range(9):
            read.append(number)
            yield f'data: {{"n": {number}}}\n\n'.encode()

    talk(httpx.Response(200, content=pieces())).break_off(MESSAGES, after=2)  # type: ignore[arg-type]
    assert read == [0, 1]
