"""What the checks share: what a check is, and the facts that several of them ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparkbuild.doctor.captured import Machine, Root
from sparkbuild.doctor.model import Finding
from sparkbuild.doctor.rules import Rule
from sparkbuild.model.finding import shown

Check = Callable[[Machine, Rule], Finding]
GIB: Final = 1 << 30
MIB: Final = 1 << 20
_LONGEST: Final = 500
"""Characters of one text out of a machine; a compiler's first error is some 300."""


def unread(machine: Machine, rule: Rule, field: str, expected: str) -> Finding:
    """The finding of a check whose input is not there: why it could not be read."""
    reason = machine.unread.get(field, "not captured")
    return rule.note(expected, "not known", f"not read: {reason}")


def gib(count: float) -> str:
    """Bytes as GiB with one digit, what is less as MiB."""
    return f"{count / GIB:,.1f} GiB" if count >= GIB else f"{count / MIB:,.0f} MiB"


def has_driver(machine: Machine) -> bool:
    """Whether NVIDIA's kernel driver is loaded."""
    return machine.gpu.driver is not None


def good_roots(machine: Machine) -> list[Root]:
    """Toolkits that are whole, have no known defect, and run on this machine."""
    platform = f"linux-{machine.system.architecture}"
    return [
        root
        for root in machine.toolkits.roots or ()
        if root.state == "good" and root.platform == platform
    ]


def numbers(version: str) -> tuple[int, ...]:
    """``580.159.03`` as (580, 159, 3), as far as there are numbers."""
    found: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


def release(thousands: int) -> str:
    """13000 as ``13.0``."""
    return f"{thousands // 1000}.{thousands % 1000 // 10}"


def plain(text: str) -> str:
    """A text out of a machine as it may stand in a line: quoted where it is not harmless."""
    return text if text.isprintable() and len(text) <= _LONGEST else shown(text)
