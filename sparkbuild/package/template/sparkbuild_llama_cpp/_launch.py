"""Console scripts: this process becomes the binary, so nothing stands between it and its user."""

from __future__ import annotations

import os
import signal
import sys

from . import path_of

__all__ = ["become"]

_CANNOT_START = 126
"""The status by which shells say that a program was found and could not be run."""


def become(name: str) -> int:
    """Replace this process by the binary, with the arguments of this one.

    Returns only where that failed: the exit status for the script to end with.
    """
    path = path_of(name)
    # Python ignores these two, and an ignored signal stays ignored in the new program:
    # `llama-server --help | head` must end as it does without Python.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(path, [str(path), *sys.argv[1:]])  # noqa: S606 - a fixed path, no shell
    except OSError as error:
        sys.stderr.write(f"{name}: cannot start {path}: {error.strerror}\n")
        return _CANNOT_START
