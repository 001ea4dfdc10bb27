"""From a captured machine to a diagnosis: every check, in the order in which it is shown."""

from __future__ import annotations

from itertools import chain
from typing import Final

from sparkbuild.doctor.captured import Machine
from sparkbuild.doctor.checks import disk, gpu, memory, system, toolkits
from sparkbuild.doctor.checks.common import Check, gib, plain
from sparkbuild.doctor.model import Diagnosis
from sparkbuild.doctor.rules import Book, read_rules

CHECKS: Final[dict[str, Check]] = dict(
    chain.from_iterable(module.CHECKS.items() for module in (system, gpu, toolkits, memory, disk))
)


def diagnose(machine: Machine, book: Book | None = None) -> Diagnosis:
    """All findings on ``machine``; pure, so that another machine's capture is judged as this one.

    ``book`` are the rules, sparkbuild's own by default. Raises ManifestError where those are
    damaged.
    """
    rules = read_rules() if book is None else book
    here = system.is_spark(machine, rules.rules["machine"].words["products"])
    return Diagnosis(
        name=_name(machine),
        spark=here,
        origin=machine.origin,
        findings=tuple(
            check(machine, rules.rule(name, here=here)) for name, check in CHECKS.items()
        ),
    )


def _name(machine: Machine) -> str:
    devices = [plain(device.name) for device in machine.gpu.devices]
    parts = (
        plain(machine.system.product or ""),
        machine.system.architecture,
        plain(machine.system.os or ""),
        ", ".join(devices) or "no NVIDIA GPU",
        gib(machine.memory.meminfo.get("MemTotal", 0)),
    )
    return ", ".join(part for part in parts if part)
