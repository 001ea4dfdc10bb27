"""Checks of the GPU, its driver, and what runs on it."""

from __future__ import annotations

from typing import Final

from sparkbuild.doctor.captured import GpuProcess, Machine
from sparkbuild.doctor.checks.common import (
    Check,
    gib,
    good_roots,
    has_driver,
    numbers,
    plain,
    release,
    unread,
)
from sparkbuild.doctor.model import Finding
from sparkbuild.doctor.rules import Rule

_NO_GPU: Final = "no GPU to look at"


def gpu(machine: Machine, rule: Rule) -> Finding:
    """Whether there is one, and a driver with it."""
    expected = "an NVIDIA GPU and its driver"
    names = ", ".join(plain(device.name) for device in machine.gpu.devices)
    if names and has_driver(machine):
        return rule.ok(expected, names)
    if names:
        found = f"{names}, no driver"
    else:
        found = "a driver, no GPU" if has_driver(machine) else "no driver, no GPU"
    if not rule.on_spark and not names and not has_driver(machine):
        reason = (
            "CPU builds are verified and served here; CUDA builds made here need another machine"
        )
        return rule.note(expected, found, reason, blocks=rule.entry.concerns)
    if machine.system.container is not None:
        return rule.fault(expected, found, step="start the container with --gpus all")
    step = "install NVIDIA's driver for this kernel and restart, or see why it was not loaded: "
    return rule.fault(expected, found, step=f"{step}sudo dmesg | grep -i nvidia")


def capability(machine: Machine, rule: Rule) -> Finding:
    """Whether code for sm_121a runs here."""
    wanted = (int(rule.number("major")), int(rule.number("minor")))
    expected = f"{wanted[0]}.{wanted[1]}"
    devices = machine.gpu.devices
    if not devices:
        return rule.note(expected, "none", _NO_GPU)
    known = [device.capability for device in devices if device.capability is not None]
    if not known:
        return unread(machine, rule, "gpu.capability", expected)
    found = ", ".join(f"{major}.{minor}" for major, minor in known)
    if wanted in known:
        return rule.ok(expected, found)
    targets = " ".join(f"--arch {major}{minor}" for major, minor in dict.fromkeys(known))
    reason = f"{rule.entry.why}: for this one, sparkbuild make {targets}"
    return rule.note(expected, found, reason)


def driver(machine: Machine, rule: Rule) -> Finding:
    """A driver that CUDA 13 runs with."""
    oldest = int(rule.number("oldest"))
    expected, found = f"{oldest} or newer", machine.gpu.driver
    if found is None:
        return rule.note(expected, "none", _NO_GPU)
    cuda = f", CUDA up to {release(machine.gpu.cuda)}" if machine.gpu.cuda else ""
    told = f"{plain(found)}{cuda}"
    if numbers(found)[:1] >= (oldest,):
        return rule.ok(expected, told)
    step = f"update NVIDIA's driver to {oldest} or newer"
    if rule.on_spark:
        return rule.fault(expected, told, step=step)
    return rule.warning(expected, told, step=f"{step}, or stay with toolkits of CUDA 12")


def driver_and_toolkit(machine: Machine, rule: Rule) -> Finding:
    """Toolkits whose programs this driver starts."""
    expected, most = "a driver as new as the toolkits", machine.gpu.cuda
    if not has_driver(machine):
        return rule.note(expected, "no driver", _NO_GPU)
    if most is None:
        return unread(machine, rule, "gpu.cuda", expected)
    versions = {
        plain(root.nvcc): numbers(root.nvcc)[:2] for root in good_roots(machine) if root.nvcc
    }
    limit = (most // 1000, most % 1000 // 10)
    too_new = [name for name, version in versions.items() if version[:1] > limit[:1]]
    newer = [name for name, version in versions.items() if version > limit]
    told = f"up to {release(most)}; nvcc {', '.join(versions) or 'none'}"
    if too_new and len(too_new) == len(versions):
        step = "update NVIDIA's driver, or install a toolkit of its major release"
        return rule.fault(expected, told, step=step)
    if newer:
        reason = f"{rule.entry.why}: with {', '.join(newer)} build for the exact GPU, as 121a-real"
        return rule.note(expected, told, reason)
    return rule.ok(expected, told)


def driver_build(machine: Machine, rule: Rule) -> Finding:
    """Builds of the driver that kept memory to themselves."""
    expected, found = "none with reports of missing memory", machine.gpu.driver
    if found is None:
        return rule.note(expected, "none", _NO_GPU)
    if found not in rule.words("builds"):
        return rule.ok(expected, plain(found))
    return rule.note(expected, plain(found), rule.entry.why)


def _desktop(process: GpuProcess, names: tuple[str, ...], most: int) -> bool:
    return process.program in names and (process.memory or 0) <= most


def processes(machine: Machine, rule: Rule) -> Finding:
    """Other programs on the GPU; a desktop's own few hundred MiB are none."""
    expected = "none but a desktop's own"
    if not machine.gpu.devices:
        return rule.note(expected, "none", _NO_GPU)
    lists = [device.processes for device in machine.gpu.devices]
    if all(one is None for one in lists):
        return unread(machine, rule, "gpu.processes", expected)
    running = [process for one in lists for process in one or ()]
    told = ", ".join(
        f"{plain(one.program)} {gib(one.memory) if one.memory is not None else '(size unknown)'}"
        for one in running
    )
    names, most = rule.words("desktop"), rule.size("desktop")
    if all(_desktop(one, names, most) for one in running):
        return rule.ok(expected, told or "none")
    step = "end it with TERM, never KILL, and wait until MemAvailable is back"
    return rule.warning(expected, told, step=step)


def power(machine: Machine, rule: Rule) -> Finding:
    """A busy GPU that draws next to nothing."""
    busy, watts = int(rule.number("busy")), rule.number("watts")
    expected = f"{watts:g} W or more where it is {busy} % busy"
    devices = machine.gpu.devices
    if not devices:
        return rule.note(expected, "none", _NO_GPU)
    read = [one for one in devices if one.power is not None and one.utilisation is not None]
    if not read:
        return unread(machine, rule, "gpu.power", expected)
    told = ", ".join(f"{one.utilisation} % busy at {one.power:.1f} W" for one in read)
    if not any((one.utilisation or 0) >= busy and (one.power or 0) < watts for one in read):
        return rule.ok(expected, told)
    step = "look again in a minute; if it stays so, shut down and take the power supply off and on"
    return rule.warning(expected, told, step=step)


CHECKS: Final[dict[str, Check]] = {
    "GPU": gpu,
    "compute capability": capability,
    "driver": driver,
    "driver and toolkit": driver_and_toolkit,
    "driver build": driver_build,
    "GPU processes": processes,
    "power": power,
}
