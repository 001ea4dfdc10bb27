"""A server whose numbers depend on the bytes of the model: enough to be perturbed.

usage: numbers_server.py HEALTHY.json [llama-server's arguments]
HEALTHY holds the digests of healthy models, the reference's token and its log-probabilities; where
it has ``no_graph`` the server ends with those words when it is to draft, and where it has
``down_to`` a spoilt model makes it eat memory at a question, until no more bytes are available.
``log`` is what it logs besides, ``draft_log`` when it drafts; ``refuses`` is the status that it
answers every question with when it drafts. ``faults`` says what else is wrong when (see
``circumstances``): ``bits``, ``number`` and ``null`` of a log-probability, ``token``, ``short``,
``count`` of the prompt's tokens, ``hang``; after a request that was broken off also ``stuck`` and
``lost`` slots. ``cache`` is for what it says that it used of a slot (see ``from_cache``).
"""

import hashlib
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
from circumstances import Circumstances

HEALTHY, *ARGUMENTS = sys.argv[1:]
VALUES: dict[str, Any] = json.loads(Path(HEALTHY).read_text())
MODEL = Path(ARGUMENTS[ARGUMENTS.index("--model") + 1])
SPOILT = hashlib.sha256(MODEL.read_bytes()).hexdigest() not in VALUES["sha256"]
# Right only where the command line or the environment says so: what a switch cures.
SAID = " ".join([*ARGUMENTS, *(f"{name}={value}" for name, value in os.environ.items())])
SPOILT = SPOILT or VALUES.get("wrong_unless", "") not in SAID
DRAFTS = "--spec-type" in ARGUMENTS
if DRAFTS and "no_graph" in VALUES:
    sys.exit(VALUES["no_graph"])
LOGGED = [*VALUES.get("log", ()), *(VALUES.get("draft_log", ()) if DRAFTS else ())]
AROUND = Circumstances(VALUES.get("faults", {}))
SLOTS = int(ARGUMENTS[ARGUMENTS.index("--parallel") + 1]) if "--parallel" in ARGUMENTS else 1
print("0.00.000.100 I srv  llama_server: model loaded", *LOGGED, sep="\n", flush=True)  # noqa: T201


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        if self.path != "/slots":
            self.say({"status": "ok", "build_info": "", "model_path": "", "media_marker": "<M>"})
            return
        fault = AROUND.faults.get("slots of a break", "") if AROUND.broken else ""
        slots = range(SLOTS - 1 if fault == "lost" else SLOTS)
        self.say([{"id": i, "is_processing": fault == "stuck" and i == 0} for i in slots])

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        body = json.loads(text)
        held = []
        while SPOILT and "down_to" in VALUES:
            if psutil.virtual_memory().available > VALUES["down_to"]:
                held.append(b"x" * (16 << 20))
            time.sleep(0.01)
        if DRAFTS and "refuses" in VALUES:
            self.send_error(VALUES["refuses"])
            return
        with AROUND.slot(body):
            if body.get("stream"):
                self.stream(body)
                return
            with AROUND.around(text, body) as faults:
                self.say(answer(body, faults))

    def stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(body["n_predict"]):
                self.wfile.write(b'data: {"content": "x"}\n\n')
                time.sleep(0.002)
        except OSError:
            AROUND.broke_off()

    def say(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def answer(body: dict[str, Any], faults: set[str]) -> dict[str, Any]:
    while "hang" in faults:
        time.sleep(1)
    count = 1 + ("count" in faults)
    if "messages" in body:
        return {
            "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": count, "completion_tokens": 1},
        }
    values = [v - 1 if SPOILT and i == 0 else v for i, v in enumerate(VALUES["logprobs"])]
    values[0] -= ("number" in faults) + 1e-7 * ("bits" in faults)
    top = [{"id": i, "logprob": v} for i, v in enumerate(values)]
    tokens = [VALUES["token"]] * (body.get("n_predict", 1) - ("short" in faults))
    tokens[-1] += "token" in faults
    positions = [{"id": token, "top_logprobs": top} for token in tokens]
    used, computed = AROUND.from_cache(body)
    if "null" in faults:
        positions[-1] = {"id": tokens[-1], "top_logprobs": [{"id": 0, "logprob": None}]}
    return {
        "content": "x", "tokens": tokens, "stop_type": "limit", "truncated": False,
        "tokens_evaluated": count, "tokens_predicted": 1, "completion_probabilities": positions,
        "timings": {"cache_n": used, "prompt_n": computed,
                    "predicted_n": 1, "draft_n": 4 if DRAFTS else None,
                    "draft_n_accepted": (0 if SPOILT else 4) if DRAFTS else None},
    }  # fmt: skip


PORT = int(ARGUMENTS[ARGUMENTS.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
