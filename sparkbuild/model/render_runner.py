"""Child process of ``render``: fills one chat template in, within limits, and prints what came out.

usage: render_runner.py FILE, which holds a JSON object: template, bos_token, eos_token, words,
seconds, memory.

A template is a program. Jinja's sandbox keeps it from the machine, and the limits that the kernel
keeps end one that never ends by itself or asks for all memory.
"""

from __future__ import annotations

import datetime as dt
import json
import resource
import sys
from pathlib import Path
from typing import Any, NoReturn

_SHOWN = 4096
"""Characters of the result that are printed."""


def main() -> None:
    """Render with a plain text, and where that is lost with a list of parts."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (asked["memory"], asked["memory"]))
    words = asked["words"]
    told: dict[str, Any]
    try:
        text = _rendered(asked, words)
        if words not in text:
            text = _rendered(asked, [{"type": "text", "text": words}])
    except Exception as error:  # noqa: BLE001 - a template may raise anything
        told = {"error": f"{type(error).__name__}: {error}"[:_SHOWN]}
    else:
        told = {"length": len(text), "held": words in text, "end": text[-_SHOWN:]}
    sys.stdout.write(json.dumps(told))


def _rendered(asked: dict[str, Any], content: Any) -> str:
    from sparkbuild.model.template import environment  # noqa: PLC0415 - after the limits

    template = environment().from_string(asked["template"])
    return template.render(
        messages=[{"role": "user", "content": content}],
        add_generation_prompt=True,
        bos_token=asked["bos_token"],
        eos_token=asked["eos_token"],
        raise_exception=_raise,
        strftime_now=_now,
    )


def _raise(message: str) -> NoReturn:
    raise ValueError(message)


def _now(form: str) -> str:
    return dt.datetime.now(dt.UTC).strftime(form)


if __name__ == "__main__":
    main()
