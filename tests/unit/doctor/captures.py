"""The captured machines of tests/data/doctor, and changed copies of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sparkbuild.doctor.captured import Machine, load
from sparkbuild.doctor.diagnose import diagnose
from sparkbuild.doctor.model import Finding

DATA = Path(__file__).parents[2] / "data" / "doctor"
GIB = 1 << 30


def captured(name: str) -> Machine:
    return load(DATA / f"{name}.json")


def changed(machine: Machine, **values: Any) -> Machine:
    """A copy; ``memory__swappiness=60`` sets a field of a field, ``_0`` is an element."""
    plain = msgspec.to_builtins(machine)
    for path, value in values.items():
        *way, last = path.split("__")
        place: Any = plain
        for step in way:
            place = place[int(step[1:]) if step.startswith("_") else step]
        place[int(last[1:]) if last.startswith("_") else last] = msgspec.to_builtins(value)
    return msgspec.convert(plain, Machine)


def finding(machine: Machine, name: str) -> Finding:
    return next(one for one in diagnose(machine).findings if one.name == name)
