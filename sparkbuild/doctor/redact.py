"""A captured machine that may be shown to strangers: whose it is, and where, taken out."""

from __future__ import annotations

import getpass
import re
import socket
from pathlib import Path
from typing import Any, Final

import msgspec

from sparkbuild.doctor.captured import Machine

_HOMES: Final = re.compile(r"/home/[^/\s:;,'\"]+")
_HARDWARE: Final = re.compile(
    r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])|GPU-[0-9a-f-]{36}"
)
"""MAC addresses, and the identifiers that NVIDIA's driver gives to GPUs."""
_ADDRESS: Final = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{1,4}(?![\w:]))"
)
_VERSIONS: Final = "toolkits"
"""Part of a machine whose versions look like addresses: cuBLAS 13.1.0.3."""
_COMMON: Final = {"root", "local", "usr", "lib", "opt", "cuda", "nvidia"}
"""Names that say nothing of anybody, and are parts of every system's paths."""


def redacted(machine: Machine, *, user: str, host: str, home: Path) -> Machine:
    """``machine`` without home folder, user and host name in paths, and without addresses."""
    names = {
        name: word
        for whole, word in ((user, "USER"), (host, "HOST"), (host.partition(".")[0], "HOST"))
        if (name := whole) and name not in _COMMON
    }

    def clean(text: str, *, versions: bool) -> str:
        if home != Path("/"):
            text = re.sub(rf"{re.escape(str(home))}(?![\w-])", "~", text)
        text = _HARDWARE.sub("XX", _HOMES.sub("/home/USER", text))
        for name, word in names.items():
            text = re.sub(rf"(?<=[/@]){re.escape(name)}(?=$|[/:.@\s])", word, text)
        return text if versions else _ADDRESS.sub("ADDRESS", text)

    def walk(value: Any, *, versions: bool) -> Any:
        if isinstance(value, str):
            return clean(value, versions=versions)
        if isinstance(value, dict):
            return {
                key: walk(one, versions=versions or key == _VERSIONS) for key, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [walk(one, versions=versions) for one in value]
        return value

    return msgspec.convert(walk(msgspec.to_builtins(machine), versions=False), Machine)


def for_strangers(machine: Machine) -> Machine:
    """``machine`` without what this process knows of its user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    return redacted(machine, user=user, host=socket.gethostname(), home=Path.home())
