"""Checks of disks, of how a model is read from them, and of the network."""

from __future__ import annotations

from typing import Final

from sparkbuild.doctor.captured import Machine
from sparkbuild.doctor.checks.common import Check, gib, plain, unread
from sparkbuild.doctor.model import Finding
from sparkbuild.doctor.rules import Rule

_MODE: Final = "LLAMA_ARG_LOAD_MODE"
_MAPPING: Final = {"mmap", "mmap+mlock"}
"""Variable and values of b11434 (common/arg.cpp)."""


def space(machine: Machine, rule: Rule) -> Finding:
    """Room for a build in the work folder, which is the first, and for a model anywhere."""
    model, build, least = (rule.size(name) for name in ("model", "build", "least"))
    expected = f"{gib(build)} for builds, {gib(model)} for the model"
    disks = machine.disks
    if not disks:
        return unread(machine, rule, "disks", expected)
    found = ", ".join(f"{plain(one.folder)} {gib(one.free)} free" for one in disks)
    work, most = disks[0].free, max(one.free for one in disks)
    if work < least:
        step = "free some, or name another work folder: --work DIR"
        return rule.fault(expected, found, step=step, blocks=("build-cpu", "build-cuda"))
    if work < build:
        return rule.warning(expected, found, step="name a work folder with more room: --work DIR")
    if most >= model:
        return rule.ok(expected, found)
    if rule.on_spark:
        step = "free some, unless the model is here already"
        return rule.warning(expected, found, step=step)
    return rule.note(expected, found, f"{rule.entry.why}; smaller ones have room")


def speed(machine: Machine, rule: Rule) -> Finding:
    """A measured sequential read past the page cache."""
    lowest, model = rule.number("bytes_per_second"), rule.number("model")
    expected = f"{lowest / 1e9:.1f} GB/s or more"
    measured = [(one, one.speed) for one in machine.disks if one.speed is not None]
    if not measured:
        return unread(machine, rule, "disks.speed", expected)
    disk, read = measured[0]
    rate = read.bytes / max(read.seconds, 1e-6)
    what = "a file that was there" if read.file == "existing" else "a file made for it"
    found = (
        f"{rate / 1e9:.2f} GB/s in {plain(disk.folder)} ({read.bytes / 1e6:.0f} MB of {what} in "
        f"{read.seconds:.2f} s); the model would take {model / rate:,.0f} s"
    )
    if rate >= lowest:
        return rule.ok(expected, found)
    return rule.warning(expected, found, step="keep the model on the machine's own NVMe drive")


def load_mode(machine: Machine, rule: Rule) -> Finding:
    """A variable that makes llama-server map a model's files."""
    expected, mode = "no mapping of the model's files", machine.system.variables.get(_MODE)
    if mode is None:
        return rule.ok(expected, f"{_MODE} not set: llama-server decides")
    if mode not in _MAPPING:
        return rule.ok(expected, f"{_MODE}={plain(mode)}")
    step = f"unset {_MODE}, or serve with --load-mode dio"
    return rule.warning(expected, f"{_MODE}={mode}", step=step)


def network(machine: Machine, rule: Rule) -> Finding:
    """Every place that the recipes name."""
    expected, places = "all that the recipes name", machine.network
    if places is None:
        return unread(machine, rule, "network", expected)
    lost = [f"{plain(one.place)}: {plain(one.problem)}" for one in places if not one.reached]
    slowest = max((one.seconds for one in places if one.reached), default=0.0)
    reached = f"{len(places) - len(lost)} of {len(places)} answered"
    if not lost:
        return rule.ok(expected, f"{reached}, the slowest after {slowest:.1f} s")
    step = "set HTTPS_PROXY or PIP_INDEX_URL where there is a way; what the store has needs none"
    return rule.warning(expected, f"{reached}; {'; '.join(lost)}", step=step)


CHECKS: Final[dict[str, Check]] = {
    "disk space": space,
    "disk speed": speed,
    "load mode": load_mode,
    "network": network,
}
