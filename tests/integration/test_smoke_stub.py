"""Every check fails when it must: a small real server with one fault stands for llama-server."""

import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sparkbuild.errors import SmokeError
from sparkbuild.llama import room
from sparkbuild.llama.port import free_port
from sparkbuild.llama.server import Limits, Server, running
from sparkbuild.smoke import run as run_module
from sparkbuild.smoke.model import Check, SmokeReport
from sparkbuild.smoke.run import smoke
from sparkbuild.smoke.suite import FOLDER, load_suite

STUB = Path(__file__).parent.parent / "data/smoke/stub_server.py"
SUITE, LOGPROBS = load_suite("tiny")
SERVER_CHECKS = [
    "version served", "API key", "models", "tokenizer", "greedy tokens", "greedy again",
    "endings", "log-probabilities", "concurrent", "chat",
]  # fmt: skip

Children = Callable[[], list[psutil.Process]]


def recorded(shared_memory: Path) -> dict[str, object]:
    """What a healthy server would say to the suite's questions."""
    greedy = {
        json.dumps(list(case.prompt)): {
            "content": case.text,
            "tokens": list(case.tokens),
            "stop_type": case.stop,
            "tokens_evaluated": len(case.prompt),
            "tokens_predicted": case.count,
            "truncated": False,
        }
        for case in SUITE.greedy
    }
    prompts = {case.name: json.dumps(list(case.prompt)) for case in SUITE.greedy}
    chat = SUITE.chat[0]
    texts = {case.text: list(case.tokens) for case in SUITE.tokenizer}
    return {
        "version": "version: 0.6.0-dev (build 11434, commit deadbeefcafe)",
        "build_info": "b11434-deadbeefcafe",
        "vocabulary": 320,
        "completion": greedy,
        "logprobs": {prompts[name]: values for name, values in LOGPROBS.first_token.items()},
        "tokenize": {**texts, chat.user: list(chat.prompt)},
        "detokenize": {json.dumps(tokens): text for text, tokens in texts.items()},
        "chat": {
            "choices": [{"message": {"content": chat.text}, "finish_reason": chat.finish}],
            "usage": {"prompt_tokens": len(chat.prompt), "completion_tokens": len(chat.tokens)},
        },
        "shared_memory": str(shared_memory),
    }


class Stub:
    """A folder of binaries whose llama-server has one fault, and an impatient suite."""

    def __init__(self, folder: Path, shared_memory: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "server.log"
        self.suites = folder / "suites"
        shutil.copytree(FOLDER, self.suites)
        self.change("start = { limit = 120", "start = { limit = 5")
        self.change("request = { limit = 60", "request = { limit = 2")
        self.change("stop = { limit = 20", "stop = { limit = 0.5")
        self.change("missing = { limit = 1024", "missing = { limit = 200")
        self.change("wait = { limit = 60", "wait = { limit = 0.5")
        self.recorded = folder / "recorded.json"
        self.recorded.write_text(json.dumps(recorded(shared_memory)))
        self.checks: list[Check] = []

    def change(self, old: str, new: str) -> None:
        path = self.suites / "tiny.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def executable(self, fault: str, *, before: str = "") -> Path:
        path = self.bin / "llama-server"
        command = f"exec {sys.executable} {STUB} {fault} {self.recorded}"
        path.write_text(f'#!/bin/sh\n{before}\n{command} "$@"\n')
        path.chmod(0o755)
        return path

    def run(
        self,
        fault: str,
        *,
        before: str = "",
        identity: str = "deadbeefcafe",
        build: int | None = 11434,
        on_check: Callable[[Check], None] | None = None,
    ) -> SmokeReport:
        self.executable(fault, before=before)
        return smoke(
            self.bin,
            suite="tiny",
            build=build,
            identity=identity,
            workdir=self.folder / "work",
            log=self.log,
            on_check=on_check or self.checks.append,
            suites=self.suites,
        )

    def failures(self, fault: str, **more: str) -> dict[str, str]:
        """Names of the failing checks and what they found; the error must tell the same."""
        with pytest.raises(SmokeError) as caught:
            self.run(fault, **more)  # type: ignore[arg-type]
        report = caught.value.report
        assert isinstance(report, SmokeReport)
        assert list(report.checks) == self.checks
        failed = {check.name: check.found for check in report.checks if not check.passed}
        assert len(caught.value.problems) == len(failed) > 0
        for check, problem in zip(failed, caught.value.problems, strict=True):
            assert problem.startswith(f"{check}: expected ")
            assert failed[check] in problem
        assert caught.value.evidence == (self.log,)
        assert len(report.checks) == 15
        return failed


@pytest.fixture
def stub(tmp_path: Path, children: Children) -> Iterator[Stub]:
    yield Stub(tmp_path, shared_memory=tmp_path / "unused")
    # What one test's server ate is not the next one's: its limit is a fifth of what ships, and
    # the kernel's caches move by as much.
    room._Owed.before = None
    assert children() == [], "a server was left behind"


def test_a_server_without_fault_passes_every_check(stub: Stub) -> None:
    report = stub.run("none")
    assert report.passed
    assert [check.name for check in report.checks] == [check.name for check in stub.checks]
    assert report.model_sha256 == SUITE.model.sha256
    assert not (stub.folder / "work/server").exists()


@pytest.mark.parametrize(
    ("fault", "failing", "told"),
    [
        ("wrong-tokens", {"greedy tokens", "endings"}, "found [31, 31"),
        ("empty", {"greedy tokens", "endings"}, "found the end"),
        ("nan-logprobs", {"log-probabilities"}, "NMSE nan"),
        ("literal-nan", {"log-probabilities"}, "UnexpectedAnswerError: /completion"),
        ("shifted-logprobs", {"log-probabilities"}, "NMSE 1."),
        ("no-key", {"API key"}, "GET /v1/models with a wrong key: expected 401, found 200"),
        ("logs-error", {"log"}, "E llama_decode: something went wrong"),
        ("fails-at-end", {"end"}, "found 'exit status 3'"),
        ("deaf", {"end"}, "KILL was needed after 0.5 s"),
    ],
)
def test_a_fault_fails_its_checks_and_no_others(
    stub: Stub, fault: str, failing: set[str], told: str
) -> None:
    failed = stub.failures(fault)
    assert failed.keys() == failing
    assert told in " ".join(failed.values())


def test_a_server_that_wavers_is_caught_when_asked_again(stub: Stub) -> None:
    failed = stub.failures("wavers")
    assert "and 1 more" in failed["greedy again"], "five of five answers differ"
    assert {"greedy again", "endings"} <= failed.keys() <= {"greedy again", "endings", "concurrent"}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("error-500", "/completion answered 500"),
        ("not-json", "in <html>GGGGGGGG</html>"),
        ("drops-connection", "RemoteProtocolError"),
        ("hangs", "ReadTimeout"),
    ],
)
def test_a_healthy_server_that_cannot_answer_fails_every_question(
    stub: Stub, fault: str, told: str
) -> None:
    failed = stub.failures(fault)
    assert failed.keys() == {
        "greedy tokens", "greedy again", "endings", "log-probabilities", "concurrent",
    }  # fmt: skip
    for found in failed.values():
        assert told in found


def test_a_server_that_dies_of_a_question_fails_the_rest_with_the_reason(stub: Stub) -> None:
    failed = stub.failures("dies")
    assert "the server has ended: killed by SIGSEGV" in failed["greedy tokens"]
    for name in ("greedy again", "endings", "log-probabilities", "concurrent", "chat"):
        assert failed[name] == "not asked, the server has ended: killed by SIGSEGV"
    assert "it had ended by itself: killed by SIGSEGV" in failed["end"]
    assert "tokenizer" not in failed
    assert "log" not in failed


def test_a_server_that_is_never_healthy_is_ended_in_time(stub: Stub) -> None:
    stub.change("start = { limit = 5", "start = { limit = 1")
    failed = stub.failures("never-healthy")
    assert "llama-server did not come up: not healthy within 1 s" in failed["start"]
    for name in (*SERVER_CHECKS, "end"):
        assert failed[name].startswith("not asked, there is no server: llama-server did not")
    assert failed.keys() == {"start", "end", *SERVER_CHECKS}


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("[ $1 = --version ] || { echo 'error: invalid argument' >&2; exit 1; }", "exit status 1"),
        ("[ $1 = --version ] || kill -ILL $$", "killed by SIGILL"),
    ],
)
def test_a_server_that_dies_at_the_start_is_told_with_its_log(
    stub: Stub, before: str, told: str
) -> None:
    with pytest.raises(SmokeError) as caught:
        stub.run("none", before=before)
    failed = [check for check in stub.checks if not check.passed]
    assert {check.name for check in failed} - {"log"} == {"start", *SERVER_CHECKS, "end"}
    assert f"llama-server did not come up: {told}" in failed[0].found
    assert "llama-server" in caught.value.detail


def test_a_missing_program_is_a_finding(stub: Stub) -> None:
    with pytest.raises(SmokeError) as caught:
        smoke(
            stub.folder / "nowhere",
            suite="tiny",
            build=1,
            identity="x",
            workdir=stub.folder / "work",
            log=stub.log,
            on_check=stub.checks.append,
            suites=stub.suites,
        )
    assert "start: expected" in caught.value.problems[0]
    assert "nowhere/llama-server" in caught.value.problems[0]


@pytest.mark.parametrize(
    ("identity", "build", "told"),
    [
        ("0123456789ab", 11434, "commit: expected '0123456789ab', found 'deadbeefcafe'"),
        ("deadbeefcafe", 11435, "build: expected 11435, found 11434"),
    ],
)
def test_another_pin_fails_both_version_checks(
    stub: Stub, identity: str, build: int, told: str
) -> None:
    with pytest.raises(SmokeError) as caught:
        stub.run("none", identity=identity, build=build)
    assert len(caught.value.problems) == 2
    assert all(told in problem for problem in caught.value.problems)


def test_an_unknown_build_number_is_not_compared(stub: Stub) -> None:
    assert stub.run("none", build=None).passed


def test_a_model_that_cannot_be_made_as_recorded_stops_before_the_server(stub: Stub) -> None:
    for file in ("tiny.toml", "tiny.logprobs.json"):
        path = stub.suites / file
        path.write_text(path.read_text().replace(SUITE.model.sha256, "0" * 64))
    with pytest.raises(SmokeError) as caught:
        stub.run("none")
    failed = {check.name: check.found for check in stub.checks if not check.passed}
    assert SUITE.model.sha256 in failed["model"]
    assert failed["chat"] == "not asked, there is no server: it was not started: there is no model"
    assert caught.value.evidence == ()


@pytest.mark.parametrize("table", ["tokenizer", "greedy", "chat"])
def test_a_suite_that_compares_nothing_fails(stub: Stub, table: str) -> None:
    path = stub.suites / "tiny.toml"
    blocks = path.read_text().split("\n[[")
    kept = "\n[[".join(block for block in blocks if not block.startswith(f"{table}]]"))
    path.write_text(f"{table} = []\n{kept}")
    if table == "greedy":
        data = json.loads((stub.suites / "tiny.logprobs.json").read_text())
        (stub.suites / "tiny.logprobs.json").write_text(json.dumps({**data, "first_token": {}}))
    with pytest.raises(SmokeError):
        stub.run("none")
    failed = {check.name: check.found for check in stub.checks if not check.passed}
    assert "nothing was compared" in failed[{"greedy": "greedy tokens"}.get(table, table)]


def test_memory_left_without_an_owner_is_missed(stub: Stub) -> None:
    if shutil.disk_usage("/dev/shm").free < 2 << 30:
        pytest.skip("/dev/shm has less than 2 GiB free")
    left = Path(f"/dev/shm/sparkbuild-test-{os.getpid()}")
    # Far more than the limit of 200 MiB: the kernel gives back caches of some hundred meanwhile.
    stub.recorded.write_text(json.dumps({**recorded(left), "stranded": 1 << 30}))
    try:
        failed = stub.failures("strands-memory")
    finally:
        left.unlink(missing_ok=True)
    assert failed.keys() == {"end"}
    missing = int(failed["end"].split(" missing without")[0].split()[-1])
    assert 200 < missing < 2000


def limits(**changes: float) -> Limits:
    values = {"start": 5.0, "request": 2.0, "stop": 0.5, "memory": 0.0} | changes
    return Limits(**values, missing=1 << 40)  # type: ignore[arg-type]


def test_a_stolen_port_is_given_up_for_another(stub: Stub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        taken = thief.getsockname()[1]
        ports = iter([taken, taken, free_port()])
        with running(
            stub.executable("none"), (), model=stub.folder / "m", scratch=stub.folder / "s",
            log=stub.log, limits=limits(), choose_port=lambda: next(ports),
        ) as server:  # fmt: skip
            assert server.port != taken
            assert server.state() == "ready"


def test_no_port_at_all_is_a_refusal(stub: Stub) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as thief,
        pytest.raises(SmokeError, match="no port to listen on") as caught,
        running(
            stub.executable("none"), (), model=stub.folder / "m", scratch=stub.folder / "s",
            log=stub.log, limits=limits(), choose_port=lambda: thief.getsockname()[1],
        ),
    ):  # fmt: skip
        pass
    assert "Address already in use" in caught.value.detail


@pytest.mark.parametrize("fault", ["eats", "eats-first"])
def test_a_server_that_the_memory_guard_ends_fails_the_run_with_the_numbers(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    floor = psutil.virtual_memory().available - (500 << 20)
    values = {**recorded(stub.folder / "unused"), "down_to": floor - (64 << 20)}
    stub.recorded.write_text(json.dumps(values))
    stub.change("start = { limit = 5", "start = { limit = 60")
    stub.change("request = { limit = 2", "request = { limit = 60")
    plain = run_module._limits
    monkeypatch.setattr(run_module, "_limits", lambda suite: replace(plain(suite), floor=floor))
    with pytest.raises(SmokeError) as caught:
        stub.run(fault)
    error, report = caught.value, caught.value.report
    assert error.short_of_memory
    assert isinstance(report, SmokeReport)
    assert list(report.checks) == stub.checks
    assert len(report.checks) == 15
    assert "suite tiny failed: llama-server was ended: only " in error.message
    numbers = f"MemAvailable: expected more than {floor >> 20} MiB, found "
    assert sum(numbers in problem for problem in error.problems) == 1
    assert "smaller context" in error.next_step
    failed = {check.name: check.found for check in report.checks if not check.passed}
    if fault == "eats-first":
        assert failed["start"].startswith("llama-server was ended: only ")
        assert failed["end"].startswith("not asked, there is no server: llama-server was ended")
        return
    ended = "ended by the memory guard: "
    assert f"the server has ended: {ended}" in failed["greedy tokens"]
    assert failed["chat"].startswith(f"not asked, the server has ended: {ended}")
    assert f"it was {ended}" in failed["end"]


def test_the_end_tells_the_least_memory_that_was_left(stub: Stub) -> None:
    report = stub.run("none")
    found = next(check.found for check in report.checks if check.name == "end")
    before, lowest = re.findall(r"(\d+) MiB before, (\d+) at the lowest", found)[0]
    assert 0 < int(lowest) <= int(before)


def test_ctrl_c_between_checks_ends_the_server(stub: Stub, children: Children) -> None:
    def interrupt(check: Check) -> None:
        at_work = [child.pid for child in children() if "none" in child.cmdline()]
        assert at_work or check.name == "model"
        if check.name == "tokenizer":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stub.run("none", on_check=interrupt)
    assert children() == []
    assert not (stub.folder / "work/server").exists()


@pytest.mark.parametrize(("fault", "sign"), [("hangs", "hangs"), ("never-healthy", "started")])
def test_ctrl_c_while_waiting_for_an_answer_ends_the_server(
    stub: Stub, children: Children, fault: str, sign: str
) -> None:
    stub.change("start = { limit = 5", "start = { limit = 300")
    stub.change("request = { limit = 2", "request = { limit = 300")

    def interrupt() -> None:
        while not (stub.log.exists() and f"I stub: {sign}" in stub.log.read_text()):
            time.sleep(0.02)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    waiter = threading.Thread(target=interrupt, daemon=True)
    waiter.start()
    with pytest.raises(KeyboardInterrupt):
        stub.run(fault)
    waiter.join()
    assert children() == []


def test_nothing_of_the_users_shell_reaches_the_server(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_PORT", "1")
    monkeypatch.setenv("LLAMA_API_KEY", "mine")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    with running(
        stub.executable("none"), (), model=stub.folder / "m", scratch=stub.folder / "s",
        log=stub.log, limits=limits(),
    ) as server:  # fmt: skip
        child = psutil.Process(server.pid)
        assert not {n for n in child.environ() if n.startswith(("LLAMA_", "HTTP_", "LD_"))}
        assert child.environ()["HOME"] == str(stub.folder / "s")
        assert child.cwd() == "/"
        key = server.client.headers["Authorization"].removeprefix("Bearer ")
        assert len(key) == 64
        assert key not in " ".join(child.cmdline())
        assert (stub.folder / "s/api-key").stat().st_mode & 0o777 == 0o600
        assert key_of(server) == key
    assert not (stub.folder / "s").exists()


def key_of(server: Server) -> str:
    found = server.log.read_text()
    assert "api-key" in found
    return (Path(found.split("--api-key-file ")[1].split()[0])).read_text().strip()
