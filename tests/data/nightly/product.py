"""Stands in for sparkbuild: prints what a real run of the command printed, as a scenario says.

``product.py SCENARIO.json ARGUMENTS``: the first rule all of whose words are among the arguments is
followed. Each call is a line of ``calls`` beside the scenario.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
scenario, words = Path(sys.argv[1]), sys.argv[2:]
with scenario.with_name("calls").open("a") as calls:
    calls.write(" ".join(words) + "\n")


def option(name: str) -> str:
    return words[words.index(name) + 1] if name in words else ""


def rule() -> dict[str, Any]:
    rules: list[dict[str, Any]] = json.loads(scenario.read_text())
    for number, one in enumerate(rules):
        if not set(one["when"]) <= set(words):
            continue
        used = scenario.with_name(f"used-{number}")
        count = len(used.read_text()) if used.exists() else 0
        if "times" in one and count >= one["times"]:
            continue
        used.write_text("x" * (count + 1))
        return one
    return {}


follow = rule()
if follow.get("real"):
    os.execv(sys.executable, [sys.executable, "-m", "sparkbuild", *words])  # noqa: S606
time.sleep(float(follow.get("sleep", 0)))
if "kill_parent" in follow:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
if "noise" in follow:
    sys.stdout.write(str(follow["noise"]))
answer = follow.get("answer")
if answer is None and words[0] == "make":
    answer = "make-vision-cpu.json"
if answer is None and words[:2] == ["patch", "check"]:
    answer = "patches-vision-b11401.json"
if answer is None and words[:2] == ["patch", "refresh"]:
    done = "--continue" in words
    answer = f"refresh-vision-b11401{'-done' if done else ''}.json"
if answer is None and words[:2] == ["wheel", "index"]:
    answer = "index-add.json"
if answer and answer != "nothing":
    text = str(answer)
    document = json.loads((HERE / text if "/" not in text else HERE.parent / text).read_text())
    if "seconds" in follow:
        for stage in document["stages"]:
            if stage["name"] == "build":
                stage["seconds"] = follow["seconds"]
    if words[0] == "make" and document.get("wheel"):
        name = Path(document["wheel"]["path"]).name.replace("vision", option("--variant"))
        document["wheel"]["path"] = f"/work/package/{name}"
        out = Path(option("--out"))
        out.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(b"wheel" * 100)
    sys.stderr.write("some line before\n")
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()
    sys.stderr.write("and one after\n")
sys.exit(int(str(follow.get("code", 0))))
