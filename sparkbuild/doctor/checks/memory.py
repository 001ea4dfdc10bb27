"""Checks of memory: how much there is, who holds it, and what the kernel does where it runs out."""

from __future__ import annotations

from typing import Final

from sparkbuild.doctor.captured import Machine, Swap
from sparkbuild.doctor.checks.common import MIB, Check, gib, plain, unread
from sparkbuild.doctor.model import Command, Finding
from sparkbuild.doctor.rules import Rule

_HELD: Final = (
    "MemFree", "Buffers", "Cached", "SwapCached", "Slab", "AnonPages", "KernelStack", "PageTables",
    "SecPageTables", "Percpu", "VmallocUsed", "Hugetlb", "Bounce", "Zswap", "Balloon",
)  # fmt: skip
"""Lines of /proc/meminfo that are apart from each other: tmpfs and shared memory are in Cached,
locked pages in AnonPages or Cached (Linux' Documentation/filesystems/proc.rst)."""


def held_by_nobody(machine: Machine) -> int:
    """Bytes that no line of /proc/meminfo, no zram device and no program on the GPU explains.

    On unified memory the driver's pages for a program are among them, so those are taken off.
    """
    memory = machine.memory
    known = sum(memory.meminfo.get(name, 0) for name in _HELD) + (memory.zram or 0)
    known += sum(
        process.memory or 0 for device in machine.gpu.devices for process in device.processes or ()
    )
    return max(0, memory.meminfo.get("MemTotal", 0) - known)


def available(machine: Machine, rule: Rule) -> Finding:
    """Room for the model that this is made for, and a tenth of the memory besides."""
    meminfo = machine.memory.meminfo
    needed = rule.size("model") + meminfo.get("MemTotal", 0) // 10
    expected, here = f"{gib(needed)} for the model and a tenth", meminfo.get("MemAvailable")
    if here is None:
        return unread(machine, rule, "memory.meminfo", expected)
    found = f"{gib(here)} of {gib(meminfo.get('MemTotal', 0))}"
    if here >= needed:
        return rule.ok(expected, found)
    step = "end what holds it: ps -eo rss,comm --sort=-rss | head"
    if here < rule.size("build"):
        return rule.fault(expected, found, step=step)
    if rule.on_spark:
        return rule.warning(expected, found, step=step)
    reason = "a smaller model may fit: sparkbuild inspect MODEL does the sum"
    return rule.note(expected, found, reason)


def nobody(machine: Machine, rule: Rule) -> Finding:
    """Memory that a crash left behind."""
    expected = f"less than {gib(rule.size('much'))}"
    if "MemTotal" not in machine.memory.meminfo:
        return unread(machine, rule, "memory.meminfo", expected)
    held = held_by_nobody(machine)
    if held < rule.size("much"):
        return rule.ok(expected, gib(held))
    running = [one for device in machine.gpu.devices for one in device.processes or ()]
    unknown = [one for one in running if one.memory is None]
    if unknown or any(device.processes is None for device in machine.gpu.devices):
        reason = (
            "a program on the GPU holds some of it, and the driver does not say how much: "
            f"{rule.entry.why}"
        )
        return rule.note(expected, gib(held), reason)
    step = "end every program that used the GPU, wait a minute, look again; if it is still so: "
    if held < rule.size("lost"):
        return rule.warning(expected, gib(held), step=f"{step}sudo systemctl reboot")
    return rule.fault(expected, gib(held), step=f"{step}sudo systemctl reboot")


def _disks(swaps: tuple[Swap, ...]) -> list[Swap]:
    return [swap for swap in swaps if swap.kind != "zram"]


def swap(machine: Machine, rule: Rule) -> Finding:
    """What an earlier shortage left on a disk."""
    expected, swaps = f"less than {gib(rule.size('residue'))} on a disk", machine.memory.swaps
    if swaps is None:
        return unread(machine, rule, "memory.swaps", expected)
    disks = _disks(swaps)
    used = sum(one.used for one in disks)
    found = f"{gib(used)} of {gib(sum(one.size for one in disks))} used"
    if used < rule.size("residue"):
        return rule.ok(expected, found if disks else "no swap on a disk")
    if machine.memory.meminfo.get("MemAvailable", 0) > 2 * used:
        paths = [one.path for one in disks if one.used]
        mend = tuple(("sudo", what, path) for path in paths for what in ("swapoff", "swapon"))
        return rule.warning(expected, found, mend=mend)
    return rule.warning(expected, found, step="end what holds memory first, then swapoff, swapon")


def zram(machine: Machine, rule: Rule) -> Finding:
    """A compressed swap that comes before any disk."""
    size = rule.size("size")
    expected, swaps = f"{gib(size)} that come before any disk", machine.memory.swaps
    if swaps is None:
        return unread(machine, rule, "memory.swaps", expected)
    there = [one for one in swaps if one.kind == "zram"]
    found = ", ".join(f"{gib(one.size)}, priority {one.priority}" for one in there) or "none"
    disks = [one.priority for one in _disks(swaps)]
    first = max((one.priority for one in there), default=-1) > max(disks, default=-2)
    if there and first:
        return rule.ok(expected, found)
    priority = int(rule.number("priority"))
    if there:
        return rule.warning(expected, found, step=f"swapoff it, then swapon --priority {priority}")
    lines = f"[zram0]\\nzram-size = {size // MIB}\\nswap-priority = {priority}\\n"
    mend = (
        ("sudo", "apt-get", "install", "--yes", "systemd-zram-generator"),
        ("sudo", "sh", "-c", f"printf '{lines}' > /etc/systemd/zram-generator.conf"),
        ("sudo", "systemctl", "daemon-reload"),
        ("sudo", "systemctl", "start", "systemd-zram-setup@zram0.service"),
    )
    return rule.warning(expected, found, mend=mend)


def _setting(name: str, value: int) -> tuple[Command, ...]:
    """Set a kernel parameter now and for every start."""
    file = f"/etc/sysctl.d/90-sparkbuild-{name}.conf"
    line = f"vm.{name}={value}"
    return (
        ("sudo", "sysctl", "-w", line),
        ("sudo", "sh", "-c", f"echo {line} > {file}"),
    )


def swappiness(machine: Machine, rule: Rule) -> Finding:
    """How early cold pages go to the swap that is there."""
    here, swaps = machine.memory.swappiness, machine.memory.swaps
    lowest, highest = int(rule.number("zram_lowest")), int(rule.number("disk_highest"))
    expected = f"{lowest} to 200 with zram, at most {highest} with a disk alone"
    if here is None or swaps is None:
        field = "memory.swappiness" if here is None else "memory.swaps"
        return unread(machine, rule, field, expected)
    if not swaps:
        return rule.ok(expected, f"{here}, and no swap")
    zram_here = any(one.kind == "zram" for one in swaps)
    found = f"{here} with {'zram' if zram_here else 'a disk alone'}"
    if here >= lowest if zram_here else here <= highest:
        return rule.ok(expected, found)
    mend = _setting("swappiness", int(rule.number("zram")))
    alone = f"with zram, which is missing; or {rule.number('disk'):g} where it stays so"
    return rule.warning(expected, found, mend=mend, step="" if zram_here else alone)


def watermark(machine: Machine, rule: Rule) -> Finding:
    """When the kernel begins to reclaim."""
    lowest, highest = int(rule.number("lowest")), int(rule.number("highest"))
    expected, here = f"{lowest} to {highest}", machine.memory.watermark_scale_factor
    if here is None:
        return unread(machine, rule, "memory.watermark_scale_factor", expected)
    kept = machine.memory.meminfo.get("MemTotal", 0) * here * 2 / 10_000
    found = f"{here}: {gib(kept)} kept free"
    if lowest <= here <= highest:
        return rule.ok(expected, found)
    return rule.warning(
        expected, found, mend=_setting("watermark_scale_factor", int(rule.number("set")))
    )


def hugepages(machine: Machine, rule: Rule) -> Finding:
    """Pages that are set aside."""
    expected = f"less than {gib(rule.size('much'))} set aside"
    if not machine.memory.meminfo:
        return unread(machine, rule, "memory.meminfo", expected)
    meminfo = machine.memory.meminfo
    pages = meminfo.get("HugePages_Total", 0) * meminfo.get("Hugepagesize", 0)
    aside = max(meminfo.get("Hugetlb", 0), pages)
    if aside < rule.size("much"):
        return rule.ok(expected, gib(aside))
    return rule.warning(expected, gib(aside), mend=_setting("nr_hugepages", 0))


def tmpfs(machine: Machine, rule: Rule) -> Finding:
    """Files and segments that are memory."""
    expected = f"less than {gib(rule.size('much'))}"
    mounts, orphans = machine.memory.tmpfs, machine.memory.orphans or 0
    if mounts is None:
        return unread(machine, rule, "memory.tmpfs", expected)
    total = sum(one.used for one in mounts) + orphans
    largest = max(mounts, key=lambda one: one.used, default=None)
    told = [gib(total)]
    if largest is not None and largest.used:
        told.append(f"{gib(largest.used)} in {plain(largest.path)}")
    if orphans:
        told.append(f"{gib(orphans)} in segments that no process is attached to")
    if total < rule.size("much"):
        return rule.ok(expected, ", ".join(told))
    step = "remove what is not needed: du -xsh /dev/shm/* /tmp/* | sort -h"
    if orphans:
        step += "; segments: ipcs -m, then ipcrm -m ID for those with nattch 0"
    return rule.warning(expected, ", ".join(told), step=step)


CHECKS: Final[dict[str, Check]] = {
    "memory available": available,
    "memory held by nobody": nobody,
    "swap": swap,
    "zram": zram,
    "swappiness": swappiness,
    "watermark scale": watermark,
    "hugepages": hugepages,
    "tmpfs": tmpfs,
}
