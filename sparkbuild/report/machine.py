"""The machine that a report was made on: read from the system, no other program is started."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Final

from sparkbuild import __version__

_ROOT: Final = Path("/")

_ARM_PARTS: Final = {"0xd87": "Cortex-A725", "0xd85": "Cortex-X925"}
"""GB10's two kinds of core, by the part numbers in Linux' arch/arm64/include/asm/cputype.h:
/proc/cpuinfo on Arm has no names."""


def machine_facts(root: Path = _ROOT) -> dict[str, str]:
    """System, kernel, processor, memory, Python and GPUs, each as text.

    ``root`` is where ``proc`` and ``etc`` are looked for. What cannot be read is ``unknown``;
    ``gpu`` is ``none`` where no NVIDIA driver is loaded. Memory in GiB, as the kernel sees it.
    """
    gpus, driver = _gpus(root), _driver(root)
    return {
        "os": _os_name(root),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "cpu": _cpu_model(_text(root / "proc/cpuinfo")),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{_memory() / 2**30:.1f} GiB",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sparkbuild": __version__,
        "gpu": ", ".join(gpus) or ("unknown" if driver else "none"),
        **({"nvidia_driver": driver} if driver else {}),
    }


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _os_name(root: Path) -> str:
    match = re.search(r'(?m)^PRETTY_NAME="?(?P<name>[^"\n]+)"?$', _text(root / "etc/os-release"))
    return str(match["name"]) if match else platform.system()


def _cpu_model(cpuinfo: str) -> str:
    """x86-64 names its model; Arm gives part numbers, one for each core."""
    fields = re.findall(r"(?m)^(model name|CPU part)[ \t]*:[ \t]*(\S.*?)[ \t]*$", cpuinfo)
    models = [value for name, value in fields if name == "model name"]
    if models:
        return str(models[0])
    parts = [_ARM_PARTS.get(value, f"Arm part {value}") for _, value in fields]
    counted = {part: parts.count(part) for part in parts}
    return ", ".join(f"{count} x {part}" for part, count in counted.items()) or "unknown"


def _gpus(root: Path) -> list[str]:
    """Model names, as the NVIDIA driver lists them; "GB10" for a DGX Spark."""
    files = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    found = (re.search(r"(?m)^Model:[ \t]*(\S.*?)[ \t]*$", _text(file)) for file in files)
    return [match[1] for match in found if match]


def _driver(root: Path) -> str:
    text = _text(root / "proc/driver/nvidia/version")
    match = re.search(r"(?m)^NVRM version:.*?\b(?P<version>\d+\.\d+(?:\.\d+)?)\b", text)
    return match["version"] if match else ""
