"""Machine facts from files in the kernel's own formats."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkbuild import __version__
from sparkbuild.report.machine import machine_facts


def write(root: Path, **files: str) -> Path:
    places = {
        "cpuinfo": "proc/cpuinfo",
        "os": "etc/os-release",
        "version": "proc/driver/nvidia/version",
        "gpu0": "proc/driver/nvidia/gpus/0000:01:00.0/information",
        "gpu1": "proc/driver/nvidia/gpus/0000:02:00.0/information",
    }
    for name, text in files.items():
        path = root / places[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_machine() -> None:
    facts = machine_facts()
    assert facts["kernel"] == os.uname().release
    assert facts["arch"] == os.uname().machine
    assert facts["sparkbuild"] == __version__
    assert int(facts["cores"]) == len(os.sched_getaffinity(0))
    assert float(facts["memory"].removesuffix(" GiB")) > 0
    assert all(facts.values())


def test_where_nothing_can_be_read(tmp_path: Path) -> None:
    facts = machine_facts(tmp_path)
    assert (facts["os"], facts["cpu"], facts["gpu"]) == ("Linux", "unknown", "none")
    assert "nvidia_driver" not in facts


def test_a_named_processor_and_system(tmp_path: Path) -> None:
    block = (
        "processor\t: {}\nvendor_id\t: AuthenticAMD\nmodel\t\t: 2\nmodel name\t: AMD EPYC 9655\n"
    )
    facts = machine_facts(
        write(
            tmp_path,
            cpuinfo="\n".join(block.format(number) for number in range(2)),
            os='PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\n',
        )
    )
    assert facts["cpu"] == "AMD EPYC 9655"
    assert facts["os"] == "Debian GNU/Linux 12 (bookworm)"


def test_arm_cores_are_counted_by_kind(tmp_path: Path) -> None:
    # The layout of arch/arm64/kernel/cpuinfo.c, with the part numbers of GB10's cores.
    block = "processor\t: {}\nCPU implementer\t: 0x41\nCPU part\t: {}\nCPU revision\t: 1\n\n"
    parts = ["0xd87"] * 2 + ["0xd85"] * 3 + ["0xfff"]
    text = "".join(block.format(number, part) for number, part in enumerate(parts))
    facts = machine_facts(write(tmp_path, cpuinfo=text))
    assert facts["cpu"] == "2 x Cortex-A725, 3 x Cortex-X925, 1 x Arm part 0xfff"


def test_gpus_of_an_nvidia_driver(tmp_path: Path) -> None:
    information = "Model: \t\t {}\nIRQ:   \t\t 41\nGPU UUID: \t GPU-0\nVideo BIOS: \t 96.00\n"
    version = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  "
        "(builder@)  \nGCC version:  gcc version 15.3.0 (GCC) \n"
    )
    facts = machine_facts(
        write(
            tmp_path,
            version=version,
            gpu0=information.format("NVIDIA GB10"),
            gpu1=information.format("NVIDIA A100"),
        )
    )
    assert facts["gpu"] == "NVIDIA GB10, NVIDIA A100"
    assert facts["nvidia_driver"] == "580.159.04"


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sun Feb 18 07:23:17 UTC 2024",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.161.08  Release Build",
    ],
)
def test_driver_version_of_both_kernel_modules(line: str, tmp_path: Path) -> None:
    facts = machine_facts(write(tmp_path, version=line + "\n"))
    assert (facts["nvidia_driver"], facts["gpu"]) == ("535.161.08", "unknown")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_in_those_files_gives_text(text: str, tmp_path: Path) -> None:
    root = write(tmp_path, cpuinfo=text, os=text, version=text, gpu0=text)
    assert all(machine_facts(root).values())
