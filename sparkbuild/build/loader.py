"""What the dynamic loader really resolves, asked of the loader itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.errors import BinaryError

_LINE: Final = re.compile(
    r"\s+(?P<name>\S+)(?: => (?P<place>not found|.+?))?(?: \(0x[0-9a-fA-F]+\))?"
)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """One library: the name that was asked for, and the file found, None where there is none."""

    name: str
    place: str | None


def parse_loader_list(text: str) -> tuple[Resolved, ...]:
    """Read what the loader prints when it traces; the kernel's own vDSO is left out."""
    found = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None or match["name"].startswith(("linux-vdso", "linux-gate")):
            continue
        name, place = match["name"], match["place"]
        if place is None:
            place, name = name, name.rpartition("/")[2]
        if name:
            found.append(Resolved(name=name, place=None if place == "not found" else place))
    return tuple(found)


def resolve(file: Path, interpreter: str, *, search: Sequence[Path] = ()) -> tuple[Resolved, ...]:
    """Ask ``interpreter``, glibc's loader, what it loads for a program or library.

    It is asked from ``/`` and in a built environment; ``search`` becomes ``LD_LIBRARY_PATH``, the
    user's own never gets here. In its tracing mode the loader runs nothing and goes on where a
    library is missing (its ``--list`` stops there). Raises BinaryError when it refuses the file.
    """
    env = {**loader_environment(search), "LD_TRACE_LOADED_OBJECTS": "1"}
    answer = process.capture([interpreter, str(file)], env=env, cwd=Path("/"))
    resolved = parse_loader_list(answer.stdout)
    if answer.returncode != 0 or not resolved:
        said = (answer.stderr.strip() or answer.stdout.strip() or "nothing").splitlines()[0]
        raise BinaryError(
            f"the loader refuses {file.name}",
            problems=[f"{file.name}: the loader refuses it, saying {said}"],
            evidence=[file],
            next_step=f"LD_TRACE_LOADED_OBJECTS=1 {process.quoted(answer.argv)}",
        )
    return resolved


def loader_environment(search: Sequence[Path]) -> dict[str, str]:
    """The environment in which binaries are tried: no GPU is touched, no library slips in."""
    extra = {"CUDA_VISIBLE_DEVICES": "-1"}
    if search:
        extra["LD_LIBRARY_PATH"] = ":".join(map(str, search))
    return process.environment(extra=extra)
