"""Stands between llama-server and who asks it, and breaks one thing that ``between.json`` names.

Started as ``llama-server``: the real one is beside it, gets another port, and is passed through.
``breaks`` is one of the names below, ``setting`` its number or text.
"""

import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess  # noqa: TID251 - a stand-in for a program
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(sys.argv[0]).resolve().parent
REAL = str(HERE / "llama-server.real")
ASKED = json.loads((HERE / "between.json").read_text())
BREAKS, SETTING = ASKED["breaks"], ASKED["setting"]
Answer = tuple[int, bytes]
"""Status and body."""
GRACE = 3.0
"""Seconds for the real server to end after a TERM of its own; it takes well below one."""
COMPLETION, CHAT = "/completion", "/v1/chat/completions"
ANSWERS = (COMPLETION, CHAT)

seen = itertools.count(1)
"""Numbers of the requests for answers."""
before: dict[str, bytes] = {}
"""The last answer of each path."""
busy = 0
"""Requests for answers under way."""
lock = threading.Lock()


def fail(path: str, status: int, body: bytes, number: int) -> Answer:
    """Answers with an error after so many right ones; ``/health`` stays well."""
    if path in ANSWERS and number > SETTING:
        error = {"error": {"code": 500, "message": "Compute error.", "type": "server_error"}}
        return 500, json.dumps(error).encode()
    return status, body


def reasoning(path: str, status: int, body: bytes, number: int) -> Answer:
    """All of an answer is reasoning, its content is empty."""
    if path != CHAT or status != 200:
        return status, body
    said = json.loads(body)
    for choice in said["choices"]:
        message = choice["message"]
        message["reasoning_content"] = (message.get("reasoning_content") or "") + message["content"]
        message["content"] = ""
    return status, json.dumps(said).encode()


def ends(path: str, status: int, body: bytes, number: int) -> Answer:
    """Answers say another reason for their end."""
    if path not in ANSWERS or status != 200:
        return status, body
    said = json.loads(body)
    if "stop_type" in said:
        said["stop_type"] = "limit"
    for choice in said.get("choices", ()):
        choice["finish_reason"] = SETTING
    return status, json.dumps(said).encode()


def cut(path: str, status: int, body: bytes, number: int) -> Answer:
    """The body of an answer ends early, with status 200."""
    return status, body[: int(len(body) * SETTING)] if path in ANSWERS else body


def lost(path: str, status: int, body: bytes, number: int) -> Answer:
    """A field is missing wherever it stands in an answer."""
    if status != 200:
        return status, body
    try:
        return status, json.dumps(without(json.loads(body))).encode()
    except ValueError:
        return status, body


def without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without(inner) for key, inner in value.items() if key != SETTING}
    return [without(one) for one in value] if isinstance(value, list) else value


def none(path: str, status: int, body: bytes, number: int) -> Answer:
    """Log-probabilities are no numbers, in one answer of so many."""
    if path in ANSWERS and number % SETTING == 0:
        body = re.sub(rb'"logprob":-?[0-9.e-]+', b'"logprob":null', body)
    return status, body


def another(path: str, status: int, body: bytes, number: int) -> Answer:
    """Every so many answers it is the one before, which was somebody else's."""
    if path != COMPLETION or status != 200:
        return status, body
    with lock:
        old, before[path] = before.get(path), body
    return status, old if old and number % SETTING == 0 else body


def mixed(path: str, status: int, body: bytes, number: int) -> Answer:
    """While several are asked at once, one gets the answer that went to another one before."""
    return another(path, status, body, number) if busy > 1 else (status, remember(path, body))


def remember(path: str, body: bytes) -> bytes:
    with lock:
        before[path] = body
    return body


def stranger(path: str, status: int, body: bytes, number: int) -> Answer:
    """The build that it says it is, is another one."""
    return status, re.sub(rb'("build_info":")[^"]*', rb"\1" + SETTING.encode(), body)


def poorer(path: str, status: int, body: bytes, number: int) -> Answer:
    """It does not say what it can."""
    if path == "/v1/models" and status == 200:
        said = json.loads(body)
        for one in said["models"]:
            one["capabilities"] = [SETTING]
        body = json.dumps(said).encode()
    return status, body


def counters(path: str, status: int, body: bytes, number: int) -> Answer:
    """It counts as many prompt tokens as it likes."""
    return status, re.sub(rb'("tokens_evaluated":)(\d+)', rb"\g<1>1\2", body)


CHANGES = {one.__name__: one for one in (fail, reasoning, ends, cut, lost, none, another, mixed,
                                         stranger, poorer, counters)}  # fmt: skip
"""What changes answers; the other breaks are ``slow``, ``hang``, ``open``, ``logs``, ``stubborn``,
``eater``, ``shared``, ``dies``, ``version``."""


class Between(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    real = 0

    def log_message(self, *_: object) -> None:
        """Nothing: the log is llama-server's."""

    def do_GET(self) -> None:
        self.passed(b"")

    def do_POST(self) -> None:
        self.passed(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def passed(self, body: bytes) -> None:
        global busy  # noqa: PLW0603 - a program of one purpose
        path = self.path.partition("?")[0]
        number = next(seen) if path in ANSWERS else 0
        with lock:
            busy += bool(number)
        try:
            self.asked(path, body, number)
        finally:
            with lock:
                busy -= bool(number)

    def asked(self, path: str, body: bytes, number: int) -> None:
        headers = dict(self.headers)
        if BREAKS == "open":
            headers["Authorization"] = f"Bearer {key()}"
        if path in ANSWERS:
            held(number)
        started = time.monotonic()
        line = http.client.HTTPConnection("127.0.0.1", self.real)
        line.request(self.command, self.path, body, headers)
        answer = line.getresponse()
        if b'"stream": true' in body or b'"stream":true' in body:
            self.streamed(answer)
            line.close()
            return
        status, data = answer.status, answer.read()
        line.close()
        if BREAKS == "slow" and path in ANSWERS:
            time.sleep((time.monotonic() - started) * (SETTING - 1))
        if BREAKS in CHANGES:
            status, data = CHANGES[BREAKS](path, status, data, number)
        self.send_response(status)
        self.send_header("Content-Type", answer.getheader("Content-Type", "application/json"))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def streamed(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while piece := answer.read1(4096):
            self.wfile.write(piece)
            self.wfile.flush()


def held(number: int) -> None:
    """What happens at the number-th request for an answer, before it is passed on."""
    if BREAKS == "hang" and number > SETTING:
        time.sleep(3600)
    if BREAKS == "dies" and number > SETTING:
        os.kill(os.getpid(), signal.SIGKILL)
    if BREAKS == "logs" and number == 3:
        sys.stdout.write(f"{SETTING}\n")
        sys.stdout.flush()


def key() -> str:
    return Path(sys.argv[sys.argv.index("--api-key-file") + 1]).read_text().strip()


def eat() -> None:
    """So many MiB of shared memory that stay when everybody is gone, and that no process holds."""
    with Path(ASKED["left"]).open("wb") as file:
        file.writelines(bytes(1 << 20) for _ in range(int(SETTING)))


def share(port: int) -> None:
    """A second listener on the same port."""
    child = (
        "import socket, sys, time\ns = socket.socket()\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "s.bind(('127.0.0.1', int(sys.argv[1])))\ns.listen()\ntime.sleep(3600)\n"
    )
    subprocess.Popen([sys.executable, "-c", child, str(port)], stdin=subprocess.DEVNULL)


def main() -> int:
    arguments = sys.argv[1:]
    if "--port" not in arguments:
        if BREAKS == "version" and "--version" in arguments:
            sys.stdout.write(f"{SETTING}\n")
            return 0
        os.execv(REAL, [REAL, *arguments])  # noqa: S606 - no shell is wanted
    at = arguments.index("--port") + 1
    port = int(arguments[at])
    while Between.real in {0, port}:  # nobody listens at its own port yet: it could be given away
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            Between.real = probe.getsockname()[1]
    arguments[at] = str(Between.real)
    real = subprocess.Popen([REAL, *arguments])

    def gone(*_: object) -> None:
        if BREAKS == "stubborn":
            return
        # Whoever ends a session tells all of it, and a second TERM would be too much for the real
        # one. Only where it was not told does it go on.
        try:
            real.wait(GRACE)
        except subprocess.TimeoutExpired:
            real.terminate()
        os._exit(real.wait())

    signal.signal(signal.SIGTERM, gone)
    if BREAKS == "eater":
        eat()
    if BREAKS == "shared":
        share(port)
    ThreadingHTTPServer.allow_reuse_address = True
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 64
    if BREAKS == "shared":
        ThreadingHTTPServer.allow_reuse_port = True
    while not answers(real):
        time.sleep(0.05)
    ThreadingHTTPServer(("127.0.0.1", port), Between).serve_forever()
    return 0


def answers(real: subprocess.Popen[bytes]) -> bool:
    """Whether the real server listens; ends with it where it has ended."""
    if real.poll() is not None:
        sys.exit(real.returncode)
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", Between.real)) == 0


if __name__ == "__main__":
    sys.exit(main())
