"""Checks of the operating system and what a shell there gives to programs."""

from __future__ import annotations

from typing import Final

from sparkbuild.doctor.captured import UNLIMITED, Limit, Machine
from sparkbuild.doctor.checks.common import Check, gib, good_roots, numbers, plain, unread
from sparkbuild.doctor.model import Finding
from sparkbuild.doctor.rules import Rule


def is_spark(machine: Machine, products: tuple[str, ...]) -> bool:
    """GB10 by the GPU's name or its capability on Arm; by the product's name where none is seen."""
    if machine.gpu.devices:
        return any(
            "GB10" in device.name
            or (device.capability == (12, 1) and machine.system.architecture == "aarch64")
            for device in machine.gpu.devices
        )
    product = (machine.system.product or "").lower()
    return any(name in product for name in products)


def machine_kind(machine: Machine, rule: Rule) -> Finding:
    """Whether this is a Spark at all."""
    expected = "a DGX Spark, or another machine with GB10"
    product = plain(machine.system.product or "a machine of unknown make")
    if rule.on_spark:
        return rule.ok(expected, product)
    reason = "no Spark: advice for GB10 is a note here, and what holds for every machine is checked"
    return rule.note(expected, product, reason)


def operating_system(machine: Machine, rule: Rule) -> Finding:
    """The distribution that GB10's packages are made for."""
    known = rule.words("known")
    expected, system = " or ".join(known), machine.system
    if system.os is None:
        return unread(machine, rule, "system.os", expected)
    found = ", ".join(plain(name) for name in (system.os, system.dgx) if name)
    if any(name in found for name in known):
        return rule.ok(expected, found)
    step = "nothing has to be done where all else is well; NVIDIA has packages for that one alone"
    return rule.warning(expected, found, step=step)


def architecture(machine: Machine, rule: Rule) -> Finding:
    """A processor that toolkits exist for."""
    known, found = rule.words("known"), machine.system.architecture
    if found in known:
        return rule.ok(" or ".join(known), found)
    return rule.fault(" or ".join(known), plain(found), step="build on one of those")


def kernel(machine: Machine, rule: Rule) -> Finding:
    """Kernels that were seen to hang under this driver."""
    expected = "no kernel and driver with reports of hangs"
    found = f"{plain(machine.system.kernel)}, driver {plain(machine.gpu.driver or 'none')}"
    named = any(
        machine.system.kernel.startswith(f"{kernel}-") or machine.system.kernel == kernel
        for kernel in rule.words("kernels")
    )
    if named and machine.gpu.driver in rule.words("drivers"):
        spare = machine.memory.meminfo.get("MemTotal", 0) * rule.number("free_share")
        reason = f"{rule.entry.why}: {gib(spare)} here"
        return rule.note(expected, found, reason)
    return rule.ok(expected, found)


def locale(machine: Machine, rule: Rule) -> Finding:
    """A locale that can write every character."""
    system = machine.system
    found = f"{plain(system.locale or 'none set')}, {plain(system.encoding or 'not known')}"
    if system.encoding.upper().replace("-", "") == "UTF8":
        return rule.ok("UTF-8", found)
    return rule.note("UTF-8", found, f"{rule.entry.why}: export LC_ALL=C.UTF-8")


def _told(limit: Limit) -> str:
    return "unlimited" if limit.soft == UNLIMITED else f"{limit.soft:,}"


def limits(machine: Machine, rule: Rule) -> Finding:
    """Open files, processes, and locked memory of a shell here."""
    found: list[str] = []
    low: list[str] = []
    wanted = {name: int(rule.number(name)) for name in ("nofile", "nproc")}
    expected = ", ".join(f"{name} {count:,} or more" for name, count in wanted.items())
    if not machine.system.limits:
        return unread(machine, rule, "system.limits", expected)
    for name, limit in machine.system.limits.items():
        size = limit.soft != UNLIMITED and name == "memlock"
        found.append(f"{name} {gib(limit.soft) if size else _told(limit)}")
        if limit.soft != UNLIMITED and limit.soft < wanted.get(name, 0):
            low.append(name)
    group = machine.system.process_limit
    if group is not None:
        found.append(f"{group:,} processes in this control group")
        low += ["the control group"] if group < wanted["nproc"] else []
    if not low:
        return rule.ok(expected, ", ".join(found))
    flags = {"nofile": "-n", "nproc": "-u"}
    commands = [f"ulimit {flags[name]} {wanted[name]}" for name in low if name in flags]
    step = "in the shell that builds or serves: " + "; ".join(commands or ["raise pids.max"])
    return rule.warning(expected, ", ".join(found), step=step)


def container(machine: Machine, rule: Rule) -> Finding:
    """Whether this is a container, and whether its limit means anything."""
    expected, system = "no container, or one without a memory limit", machine.system
    total = machine.memory.meminfo.get("MemTotal", 0)
    if system.container is None:
        return rule.ok(expected, "no container")
    if system.memory_limit is None or system.memory_limit >= total:
        return rule.note(expected, f"{plain(system.container)}, no memory limit", rule.entry.why)
    found = f"{plain(system.container)}, limited to {gib(system.memory_limit)} of {gib(total)}"
    step = "start it without --memory, and let `sparkbuild inspect MODEL` do the sum"
    return rule.warning(expected, found, step=step)


def time_sync(machine: Machine, rule: Rule) -> Finding:
    """A clock that some server of time keeps right."""
    expected, clock = "a synchronised clock", machine.system.clock
    if clock is None:
        return unread(machine, rule, "system.clock", expected)
    if clock.synchronised:
        return rule.ok(expected, f"synchronised, at most {clock.error:.3f} s off")
    if machine.system.container is not None:
        reason = f"the host's clock, which a container cannot set: {rule.entry.why}"
        return rule.note(expected, "not synchronised", reason)
    mend = (("sudo", "timedatectl", "set-ntp", "true"),)
    return rule.warning(expected, "not synchronised", mend=mend)


def openssl(machine: Machine, rule: Rule) -> Finding:
    """Headers that llama.cpp's HTTPS needs."""
    found = machine.system.openssl
    if found is not None:
        return rule.ok("there", plain(found))
    mend = (("sudo", "apt-get", "install", "--yes", "libssl-dev"),)
    return rule.warning("there", "none", mend=mend)


def glibc(machine: Machine, rule: Rule) -> Finding:
    """C libraries that a toolkit's headers contradict; a trial that passed knows better."""
    expected, found = "one that the toolkits' headers agree with", machine.system.glibc
    if found is None:
        return unread(machine, rule, "system.glibc", expected)
    roots = machine.toolkits.roots or ()
    contradicted = []
    for root in roots:
        here = numbers(root.nvcc or "")[:2]
        limits = (("second_glibc", "second_release"), ("first_glibc", "first_release"))
        for glibc_key, release_key in limits:
            since = numbers(str(rule.number(glibc_key)))
            last = numbers(str(rule.number(release_key)))
            if here and numbers(found)[:2] >= since and here <= last:
                contradicted.append(root)
                break
    proved = [root.root for root in contradicted if root.tried and root.tried.good]
    left = [f"{root.nvcc}" for root in contradicted if root.root not in proved]
    if not left:
        return rule.ok(expected, plain(found))
    usable = any(root not in contradicted for root in good_roots(machine))
    told = f"{plain(found)}, with nvcc {', '.join(plain(one) for one in left)}"
    step = "sparkbuild toolkit install 13.3, or a newer release"
    if usable or proved:
        return rule.note(expected, told, f"{rule.entry.why}; another toolkit here is not concerned")
    return rule.fault(expected, told, step=step)


CHECKS: Final[dict[str, Check]] = {
    "machine": machine_kind,
    "operating system": operating_system,
    "architecture": architecture,
    "kernel": kernel,
    "glibc": glibc,
    "locale": locale,
    "limits": limits,
    "container": container,
    "time sync": time_sync,
    "OpenSSL headers": openssl,
}
