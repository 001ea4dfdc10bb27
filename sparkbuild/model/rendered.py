"""A chat template, filled in once with one question: do its words get through to the model."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from sparkbuild import process
from sparkbuild.model import template
from sparkbuild.model.finding import Finding, not_asked, shown
from sparkbuild.model.read import Model

NAME: Final = "template rendered"
WORDS: Final = "Where does the lamp stand?"
SECONDS: Final = 5
"""Of processor time. Those of published models take some milliseconds."""
MEMORY: Final = 1 << 30
"""Bytes of address space; Python with Jinja2 takes 60 MB of it."""
_KEY: Final = "tokenizer.chat_template"
_RUNNER: Final = Path(__file__).with_name("render_runner.py")
_EXPECTED: Final = "the user's words in it"
_STEP: Final = "--chat-template-file FILE, from the model's own repository"
_TAIL: Final = 40
"""Characters of the end that are told."""


def rendered(model: Model) -> Finding:
    """Fill the template in, in a process of its own with limits; nothing where none parses."""
    text = model.text(_KEY)
    if text is None or template.fault(text):
        return not_asked(NAME)
    told = _run(text, _token(model, "bos"), _token(model, "eos"))
    if "error" in told:
        return _warning(
            str(told["error"]),
            "a server answers such a request with status 500, where its own reader of templates "
            "sees it in the same way",
        )
    end = shown(told["end"][-_TAIL:])
    found = f"{told['length']:,} characters, the end is {end}"
    if not told["held"]:
        return _warning(found, "the model would be asked nothing, and answer something")
    return Finding(name=NAME, state="ok", expected=_EXPECTED, found=found)


def _run(text: str, bos: str, eos: str) -> dict[str, Any]:
    asked = {"template": text, "bos_token": bos, "eos_token": eos, "words": WORDS,
             "seconds": SECONDS, "memory": MEMORY}  # fmt: skip
    package = Path(__file__).parents[2]
    env = process.environment(extra={"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"})
    with tempfile.TemporaryDirectory(prefix="sparkbuild-template-") as folder:
        file = Path(folder) / "asked.json"
        file.write_text(json.dumps(asked))
        done = process.capture(
            [sys.executable, "-B", "-P", str(_RUNNER), str(file)], env=env, timeout=20.0 * SECONDS
        )
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return {"error": f"no end within {SECONDS} s of processor time and {MEMORY >> 30} GiB"}
    return told if isinstance(told, dict) else {"error": "no result"}


def _token(model: Model, name: str) -> str:
    number = model.number(f"tokenizer.ggml.{name}_token_id")
    tokens = model.texts("tokenizer.ggml.tokens") or ()
    return tokens[number] if number is not None and 0 <= number < len(tokens) else ""


def _warning(found: str, reason: str) -> Finding:
    return Finding(
        name=NAME,
        state="warning",
        expected=_EXPECTED,
        found=found if found.isprintable() else shown(found),
        reason=reason,
        next_step=_STEP,
    )
