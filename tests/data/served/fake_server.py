"""A real HTTP server that serves a model as llama-server does, with one fault, its first argument.

usage: fake_server.py FAULT [llama-server's arguments]
It knows the answers of stub.toml beside it, and no model.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULT, *ARGUMENTS = sys.argv[1:]
ANSWERS = {
    "What is the capital of France?": "The capital of France is Paris.",
    "What is 17 + 25?": "17 + 25 = 42",
    "Why?": "Because the moon turns once around itself in the time it takes to go around once.",
}
DRAFTS = "--spec-type" in ARGUMENTS
ASKED: dict[str, int] = {}
LOCK = threading.Lock()
BUSY = [0]


def argument(name: str) -> str:
    return ARGUMENTS[ARGUMENTS.index(name) + 1]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        model = argument("--model")
        capabilities = ["completion", "multimodal"] if FAULT == "sees" else ["completion"]
        info = "b1-deadbeef" if FAULT == "other-build" else "b11434-0123456789ab"
        self.say({
            "/health": {"status": "ok"},
            "/v1/models": {
                "data": [{"id": model, "meta": {"n_vocab": 50, "n_params": 1}}],
                "models": [{"capabilities": capabilities}],
            },
            "/props": {"build_info": info, "model_path": model},
        }[self.path])  # fmt: skip

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/apply-template":
            self.say({"prompt": body["messages"][-1]["content"]})
        elif self.path == "/tokenize":
            self.say({"tokens": [ord(character) % 50 for character in body["content"]]})
        elif self.path == "/completion":
            self.say(self.continued(body))
        else:
            self.chat(body)

    def continued(self, body: dict[str, Any]) -> dict[str, Any]:
        start, count = len(body["prompt"]), body["n_predict"]
        off = argument("--flash-attn") == "off"
        healthy = [at * 7 % 50 for at in range(start, start + count)]
        tokens = list(healthy)
        if off and FAULT == "parts":  # the same numbers, another choice
            tokens = [token if token % 3 else token + 1 for token in healthy]
        if FAULT == "short-run" and count > 100:
            tokens = tokens[:10]
        return {
            "content": "a quiet text of many words, none of them twice",
            "tokens": tokens,
            "stop_type": "limit",
            "tokens_evaluated": start,
            "completion_probabilities": [
                {"id": token, "top_logprobs": self.tops(known, off=off)}
                for token, known in zip(tokens, healthy, strict=False)
            ],
            "timings": self.timings(count),
        }

    def tops(self, token: int, *, off: bool = False) -> list[dict[str, Any]]:
        shift = 1.0 if off and FAULT == "kernel" else 0.0
        values: list[float | None] = [-0.1, -3.0 - shift, -5.0 + shift, -8.0]
        if FAULT == "nan":
            values[2] = None  # how llama-server writes a NaN
        return [{"id": token + at, "logprob": value} for at, value in enumerate(values)]

    def timings(self, count: int) -> dict[str, Any]:
        speed = {"fast": 1e9, "slow": 0.2}.get(FAULT, 20.0)
        found: dict[str, Any] = {"predicted_n": count, "predicted_ms": (count - 1) / speed * 1e3}
        if DRAFTS and FAULT != "no-counters":
            drawn = count // 2
            found |= {
                "draft_n": drawn,
                "draft_n_accepted": drawn // (10 if FAULT == "blind" else 2),
            }
        return found

    def chat(self, body: dict[str, Any]) -> None:
        user = body["messages"][-1]["content"]
        with LOCK:
            ASKED[user] = ASKED.get(user, 0) + 1
            BUSY[0] += 1
        try:
            self.answer(body, user)
        finally:
            with LOCK:
                BUSY[0] -= 1

    def answer(self, body: dict[str, Any], user: str) -> None:
        text, finish, reasoning = ANSWERS.get(user, "?"), "stop", ""
        alone = body.get("id_slot") == 0
        if "locker" in user:
            key = user.rpartition("locker ")[2].rstrip("?")
            value = user.split(f"locker {key} is ", 1)[1].split(".", maxsplit=1)[0]
            text = "I do not know." if FAULT == "forgets" and user.index(value) < 900 else value
        if FAULT == "error-500":
            self.say({"error": {"message": "Invalid input batch."}}, 500)
            return
        if FAULT == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if FAULT == "thinks":
            text, finish, reasoning = "", "length", "Let me think. " * 100
        if FAULT == "wrong" and "capital" in user:
            text = "The capital of France is London."
        if FAULT == "garbled":
            text = "G" * 60
        if FAULT == "loops":
            reasoning = "and then again " * 60
        if FAULT == "wavers" and ASKED[user] % 2:
            text += " "
        if FAULT == "company" and not alone:
            text = text.replace("Paris", "Paris, or Rome")
        count = 40
        message = {"content": text, "reasoning_content": reasoning}
        choice: dict[str, Any] = {"message": message, "finish_reason": finish}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [{"id": 1, "top_logprobs": self.tops(1)}]}
        words = 10 if FAULT == "cuts-prompts" else len(str(user).split())
        usage = {"prompt_tokens": words, "completion_tokens": count}
        self.say({"choices": [choice], "usage": usage, "timings": self.timings(count)})

    def say(self, value: object, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    if "--version" in ARGUMENTS:
        print("version: 0.6.0-dev (build 11434, commit 0123456789ab)")  # noqa: T201
        return
    print("0.00.000.100 I stub: started", flush=True)  # noqa: T201
    if "--device" in ARGUMENTS:
        print("0.00.000.200 I load_tensors:  CPU model buffer size = 4 MiB", flush=True)  # noqa: T201
    if DRAFTS and FAULT == "no-graph":
        print("0.1 E NextN graph not implemented yet", flush=True)  # noqa: T201
        raise SystemExit(1)
    if FAULT == "no-start":
        print("0.1 E error loading model: unknown model architecture", flush=True)  # noqa: T201
        raise SystemExit(1)
    if FAULT == "logs":
        for _ in range(2661):
            print("0.1 E llama_decode[1] returned -1", flush=True)  # noqa: T201
    ending = signal.SIG_IGN if FAULT == "deaf" else lambda *_: os._exit(0)
    signal.signal(signal.SIGTERM, ending)
    server = ThreadingHTTPServer(("127.0.0.1", int(argument("--port"))), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
