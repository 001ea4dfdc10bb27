"""The program between llama-server and who asks it breaks the one thing that it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess  # noqa: TID251 - starts the program as the product would
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

PROGRAM = Path(__file__).parents[2] / "faults" / "servers" / "between.py"
SERVER = f"""#!{sys.executable}
import json, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

if "--version" in sys.argv:
    sys.exit("version: real")
WORDS = iter(range(10 ** 6))

class Real(BaseHTTPRequestHandler):
    def do_GET(self):
        key = self.headers.get("Authorization")
        told = {{"/health": {{"status": "ok"}},
                "/props": {{"build_info": "b1-real", "key": key}},
                "/v1/models": {{"models": [{{"capabilities": ["completion"]}}]}}}}
        self.told(told[self.path])
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/completion":
            time.sleep(0.01)
            self.told({{"content": str(next(WORDS)), "stop_type": "eos", "tokens_evaluated": 7,
                       "p": [{{"logprob":-0.5}}]}})
        else:
            message = {{"content": "said", "reasoning_content": None}}
            self.told({{"choices": [{{"message": message, "finish_reason": "stop"}}]}})
    def told(self, value):
        data = json.dumps(value, separators=(",", ":")).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Real).serve_forever()
"""


class Asked:
    """A server through the program, and its process."""

    def __init__(self, client: httpx.Client, child: subprocess.Popen[str]) -> None:
        self.client = client
        self.child = child
        self.lines = ""

    def complete(self) -> httpx.Response:
        return self.client.post("/completion", json={})

    def said(self) -> dict[str, Any]:
        return dict(self.complete().json())


Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """The function ``start(breaks, setting)``, a context with what is asked."""

    @contextmanager
    def started(breaks: str, setting: Any = "") -> Iterator[Asked]:
        for name, text in (
            ("llama-server.real", SERVER),
            ("llama-server", f"#!{sys.executable}\n{PROGRAM.read_text()}"),
            ("key", "secret\n"),
        ):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        left = str(tmp_path / "left")
        (tmp_path / "between.json").write_text(
            json.dumps({"breaks": breaks, "setting": setting, "left": left})
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        argv = [str(tmp_path / "llama-server"), "--port", str(port)]
        argv += ["--api-key-file", str(tmp_path / "key")]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=5)
        asked = Asked(client, child)
        try:
            _wait(client)
            yield asked
        finally:
            client.close()
            asked.lines = _end(child)

    return started


def _wait(client: httpx.Client) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            assert client.get("/health").json() == {"status": "ok"}
        except httpx.TransportError:
            time.sleep(0.02)
        else:
            return
    pytest.fail("it never came up")


def members(session: int) -> list[psutil.Process]:
    """Live processes of a session."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _end(child: subprocess.Popen[str]) -> str:
    """End all of its session, whatever it makes of signals; what it printed."""
    for process in members(child.pid):
        with contextlib.suppress(psutil.Error):
            process.kill()
    return child.communicate()[0]


def test_with_nothing_to_break_all_goes_through(start: Start) -> None:
    with start("nothing") as asked:
        assert [asked.said()["content"] for _ in range(3)] == ["0", "1", "2"]
        assert asked.client.get("/props").json() == {"build_info": "b1-real", "key": None}


def test_answers_fail_after_so_many_and_health_stays(start: Start) -> None:
    with start("fail", 2) as asked:
        assert [asked.complete().status_code for _ in range(4)] == [200, 200, 500, 500]
        assert asked.client.get("/health").status_code == 200


def test_a_body_ends_early_with_status_200(start: Start) -> None:
    with start("cut", 0.5) as asked:
        answer = asked.complete()
        assert answer.status_code == 200
        with pytest.raises(ValueError, match=r".+"):
            answer.json()


def test_chats_are_all_reasoning(start: Start) -> None:
    with start("reasoning") as asked:
        (choice,) = asked.client.post("/v1/chat/completions", json={}).json()["choices"]
        assert choice["message"] == {"content": "", "reasoning_content": "said"}


def test_ends_are_others(start: Start) -> None:
    with start("ends", "length") as asked:
        assert asked.said()["stop_type"] == "limit"
        (choice,) = asked.client.post("/v1/chat/completions", json={}).json()["choices"]
        assert choice["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("breaks", "setting", "key", "value"),
    [
        ("lost", "tokens_evaluated", "tokens_evaluated", None),
        ("counters", "", "tokens_evaluated", 17),
        ("none", 1, "p", [{"logprob": None}]),
    ],
)
def test_a_field_is_another(
    start: Start, breaks: str, setting: Any, key: str, value: object
) -> None:
    with start(breaks, setting) as asked:
        said = asked.said()
        assert said.get(key) == value
        assert said["content"] == "0"


def test_every_third_answer_is_the_one_before(start: Start) -> None:
    with start("another", 3) as asked:
        assert [asked.said()["content"] for _ in range(6)] == ["0", "1", "1", "3", "4", "4"]


def test_the_build_and_what_it_can_are_others(start: Start) -> None:
    with start("stranger", "b9-other") as asked:
        assert asked.client.get("/props").json()["build_info"] == "b9-other"
    with start("poorer", "embedding") as asked:
        (one,) = asked.client.get("/v1/models").json()["models"]
        assert one == {"capabilities": ["embedding"]}


def test_it_adds_the_key_by_itself(start: Start) -> None:
    with start("open") as asked:
        assert asked.client.get("/props").json()["key"] == "Bearer secret"


def test_it_gets_slower_by_a_factor(start: Start) -> None:
    with start("slow", 50) as asked:
        begun = time.monotonic()
        asked.complete()
        assert time.monotonic() - begun > 0.5


def test_a_line_is_logged_at_the_third_answer(start: Start) -> None:
    with start("logs", "E a line") as asked:
        for _ in range(4):
            asked.complete()
    assert asked.lines == "E a line\n"


def test_no_answer_comes_any_more(start: Start) -> None:
    with start("hang", 1) as asked:
        assert asked.complete().status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            asked.client.post("/completion", json={}, timeout=0.5)
        assert asked.client.get("/health").status_code == 200


def test_it_dies_at_an_answer(start: Start) -> None:
    with start("dies", 1) as asked:
        assert asked.complete().status_code == 200
        with pytest.raises(httpx.TransportError):
            asked.complete()
        assert asked.child.wait(5) == -signal.SIGKILL


def test_it_is_deaf_to_term(start: Start) -> None:
    with start("stubborn") as asked:
        asked.child.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert asked.child.poll() is None


def test_the_real_one_ends_with_it_though_nobody_told_it(start: Start) -> None:
    """As when a worker of the product is killed: the kernel tells its child alone."""
    with start("nothing") as asked:
        asked.child.send_signal(signal.SIGTERM)
        asked.child.wait(10)
        assert members(asked.child.pid) == []


def test_shared_memory_stays(start: Start, tmp_path: Path) -> None:
    with start("eater", 3):
        pass
    assert (tmp_path / "left").stat().st_size == 3 << 20


def test_another_version_is_said(start: Start, tmp_path: Path) -> None:
    with start("version", "version: other"):
        argv = [str(tmp_path / "llama-server"), "--version"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == "version: other\n"
