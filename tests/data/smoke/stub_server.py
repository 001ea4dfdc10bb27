"""A real HTTP server that behaves like llama-server with one fault, named by its first argument.

usage: stub_server.py FAULT RECORDED.json [llama-server's arguments]
RECORDED holds what a healthy server would say: the stub has no model. One that eats memory does so
at a question (eats, eats-deaf, eats-and-strands) or before it listens (eats-first), until no more
than ``down_to`` bytes are available.
"""

import itertools
import json
import mmap
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

FAULT, RECORDED, *ARGUMENTS = sys.argv[1:]
VALUES: dict[str, Any] = json.loads(Path(RECORDED).read_text())
ANSWERS = itertools.count()
BUSY: list[object] = []
"""Who is being answered."""


def argument(name: str) -> str:
    return ARGUMENTS[ARGUMENTS.index(name) + 1]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        if self.path == "/health":
            self.say({"status": "ok"}, 503 if FAULT == "never-healthy" else 200)
        elif self.allowed():
            model = argument("--model")
            entry = {"id": model, "meta": {"n_vocab": VALUES["vocabulary"], "n_params": 1}}
            found = {
                "/v1/models": {"data": [entry], "models": [{"capabilities": ["completion"]}]},
                "/props": {"build_info": VALUES["build_info"], "model_path": model},
            }
            self.say(found[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        if self.path == "/tokenize":
            self.say({"tokens": VALUES["tokenize"].get(body["content"], [])})
        elif self.path == "/detokenize":
            self.say({"content": VALUES["detokenize"].get(json.dumps(body["tokens"]), "")})
        elif self.path == "/apply-template":
            self.say({"prompt": body["messages"][0]["content"]})
        elif self.path == "/completion":
            self.complete(body)
        else:
            self.say(VALUES["chat"])

    def complete(self, body: dict[str, Any]) -> None:
        if FAULT == "error-500":
            self.say({"error": {"message": "Invalid input batch."}}, 500)
        elif FAULT == "hangs":
            print("I stub: hangs", flush=True)  # noqa: T201
            time.sleep(600)
        elif FAULT == "drops-connection":
            self.close_connection = True
        elif FAULT == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif FAULT in {"eats", "eats-deaf", "eats-and-strands"}:
            if FAULT == "eats-and-strands":
                strand_memory()
            eat_memory()
        elif FAULT == "waits":
            BUSY.append(self)
            print("I stub: asked", flush=True)  # noqa: T201
            self.connection.recv(1)  # until the client hangs up
            BUSY.remove(self)
        elif FAULT == "not-json":
            self.send(b"<html>GGGGGGGG</html>", 200)
        elif body.get("n_probs"):
            self.say(self.probabilities(body))
        else:
            self.say(self.answer(body))

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        found = dict(VALUES["completion"].get(json.dumps(body["prompt"]), {"tokens": []}))
        if FAULT == "wrong-tokens":  # what a miscompiled build does: fluent, and not the answer
            found["tokens"] = [31] * len(found["tokens"])
            found["content"] = "?" * len(found["tokens"])
        if FAULT == "empty":
            found |= {"tokens": [], "content": "", "tokens_predicted": 0}
        if FAULT == "wavers" and next(ANSWERS) % 2:
            found["content"] += "x"
        return found

    def probabilities(self, body: dict[str, Any]) -> dict[str, Any]:
        values = VALUES["logprobs"].get(json.dumps(body["prompt"]), [])
        top = [{"id": i, "logprob": v} for i, v in enumerate(values)]
        if FAULT == "nan-logprobs":
            top[7]["logprob"] = None  # how llama-server writes a NaN
        if FAULT == "literal-nan":
            top[7]["logprob"] = float("nan")
        if FAULT == "shifted-logprobs":
            top = [{"id": e["id"], "logprob": values[e["id"] - 1]} for e in top]
        return {**self.answer(body), "completion_probabilities": [{"top_logprobs": top}]}

    def allowed(self) -> bool:
        key = Path(argument("--api-key-file")).read_text().strip()
        if FAULT == "no-key" or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.say({"error": {"code": 401}}, 401)
        return False

    def say(self, value: object, status: int = 200) -> None:
        self.send(json.dumps(value).encode(), status)

    def send(self, data: bytes, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def strand_memory() -> None:
    """Shared memory with no owner (300 MiB), as a killed process on unified memory leaves it."""
    with Path(VALUES["shared_memory"]).open("w+b") as file:
        file.truncate(VALUES.get("stranded", 300 << 20))
        with mmap.mmap(file.fileno(), 0) as room:
            for offset in range(0, len(room), mmap.PAGESIZE):
                room[offset] = 1


def eat_memory() -> None:
    """Memory of its own, step by step, and more where others give some back; it never returns."""
    print("I stub: eats", flush=True)  # noqa: T201
    held = []
    while True:
        if psutil.virtual_memory().available > VALUES["down_to"]:
            held.append(b"x" * (16 << 20))
        time.sleep(0.01)


def leave_when_idle() -> None:
    """As llama-server does: TERM is heard, and whoever still waits for an answer is waited for."""
    while BUSY:
        time.sleep(0.02)
    os._exit(0)


def main() -> None:
    if "--version" in ARGUMENTS:
        print(VALUES["version"])  # noqa: T201
        return
    print("I stub: started", flush=True)  # noqa: T201
    if FAULT in {"deaf", "eats-deaf"}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif FAULT == "waits":
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=leave_when_idle).start())
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(3 if FAULT == "fails-at-end" else 0))
    if FAULT == "logs-error":
        print("0.00.100.000 E llama_decode: something went wrong", flush=True)  # noqa: T201
    if FAULT == "strands-memory":
        strand_memory()
    if FAULT == "eats-first":
        eat_memory()
    port = int(argument("--port"))
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
