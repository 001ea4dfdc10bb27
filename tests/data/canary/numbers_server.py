"""A server whose numbers depend on the bytes of the model: enough to be perturbed.

usage: numbers_server.py HEALTHY.json [llama-server's arguments]
HEALTHY holds the digests of healthy models, the reference's token and its log-probabilities; where
it has ``no_graph`` the server ends with those words when it is to draft, and where it has
``down_to`` a spoilt model makes it eat memory at a question, until no more bytes are available.
``log`` is what it logs besides, ``draft_log`` when it drafts; ``refuses`` is the status that it
answers every question with when it drafts.
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
print("0.00.000.100 I srv  llama_server: model loaded", *LOGGED, sep="\n", flush=True)  # noqa: T201


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self.say({"status": "ok"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        held = []
        while SPOILT and "down_to" in VALUES:
            if psutil.virtual_memory().available > VALUES["down_to"]:
                held.append(b"x" * (16 << 20))
            time.sleep(0.01)
        if DRAFTS and "refuses" in VALUES:
            self.send_error(VALUES["refuses"])
            return
        values = [v - 1 if SPOILT and i == 0 else v for i, v in enumerate(VALUES["logprobs"])]
        top = [{"id": i, "logprob": v} for i, v in enumerate(values)]
        self.say({
            "content": "x", "tokens": [VALUES["token"]], "stop_type": "limit", "truncated": False,
            "tokens_evaluated": 1, "tokens_predicted": 1,
            "completion_probabilities": [{"id": VALUES["token"], "top_logprobs": top}],
            "timings": {"prompt_n": 1, "predicted_n": 1, "draft_n": 4 if DRAFTS else None,
                        "draft_n_accepted": (0 if SPOILT else 4) if DRAFTS else None},
        })  # fmt: skip

    def say(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


PORT = int(ARGUMENTS[ARGUMENTS.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
