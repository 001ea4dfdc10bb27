"""Each check where it is well and where it is not, from captured inputs."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.doctor.captured import (
    UNLIMITED,
    AptSource,
    Clock,
    CMake,
    Device,
    GpuProcess,
    Library,
    Limit,
    Mount,
    Reach,
    Root,
    Speed,
    Swap,
    Tried,
)
from sparkbuild.doctor.diagnose import CHECKS, diagnose
from sparkbuild.model.finding import State

from .captures import GIB, captured, changed, finding

SPARK = captured("spark")
OTHER = captured("virtual-machine")
ROOT = (SPARK.toolkits.roots or ())[0]
DISK = SPARK.disks[0]
Values = dict[str, Any]


def root(**values: Any) -> Root:
    import msgspec

    return msgspec.structs.replace(ROOT, **values)


def device(**values: Any) -> Values:
    """Fields of the Spark's GPU."""
    return {f"gpu__devices___0__{name}": value for name, value in values.items()}


def cuda(path: str, through: str = "cache") -> tuple[Library, ...]:
    return (Library(soname="libcuda.so.1", path=path, through=through),)  # type: ignore[arg-type]


def apt(uri: str, *, enabled: bool = True) -> Values:
    return {"apt": (AptSource(file="/etc/apt/sources.list.d/n.list", uri=uri, enabled=enabled),)}


SBSA = "https://x.example/compute/cuda/repos/ubuntu2404/sbsa/"
ARM64 = "https://x.example/compute/cuda/repos/ubuntu2404/arm64/"
DISK_SWAP = Swap(path="/swap.img", kind="file", size=16 * GIB, used=0, priority=-2)
ZRAM = Swap(path="/dev/zram0", kind="zram", size=6 * GIB, used=0, priority=100)
OLD_ROOT = root(root="/opt/cuda-12.9", nvcc="12.9.86", tried=None)
STUB = "/usr/local/cuda-13.0/targets/sbsa-linux/lib/stubs/libcuda.so"

ON_A_SPARK: list[tuple[str, State, Values]] = [
    ("machine", "ok", {}),
    ("machine", "ok", {"gpu__devices": (), "gpu__driver": None}),  # by its product's name
    ("machine", "note", device(name="NVIDIA H200", capability=(9, 0))),
    ("operating system", "ok", {}),
    ("operating system", "warning", {"system__os": "Ubuntu 22.04.5 LTS", "system__dgx": None}),
    ("operating system", "note", {"system__os": None}),
    ("architecture", "ok", {}),
    ("architecture", "fault", {"system__architecture": "ppc64le"}),
    ("kernel", "ok", {}),
    ("kernel", "ok", {"system__kernel": "6.17.0-1029-nvidia"}),
    ("kernel", "ok", {"gpu__driver": "580.173.02"}),
    ("kernel", "ok", {"system__kernel": "6.17.0-10299-nvidia", "gpu__driver": "580.173.02"}),
    ("kernel", "note", {"system__kernel": "6.17.0-1032-nvidia", "gpu__driver": "580.173.02"}),
    ("glibc", "ok", {}),
    ("glibc", "note", {"system__glibc": None}),
    ("glibc", "ok", {"system__glibc": "2.41"}),  # 13.0's headers agree with it
    ("glibc", "ok", {"system__glibc": "2.42"}),  # contradicted by the table, and tried well
    ("glibc", "fault", {"system__glibc": "2.42", "toolkits__roots": (root(tried=None),)}),
    ("glibc", "fault", {"system__glibc": "2.41", "toolkits__roots": (OLD_ROOT,)}),
    ("glibc", "ok", {"system__glibc": "2.40", "toolkits__roots": (OLD_ROOT,)}),
    ("glibc", "note", {"system__glibc": "2.41", "toolkits__roots": (OLD_ROOT, ROOT)}),
    ("locale", "ok", {}),
    ("locale", "ok", {"system__encoding": "UTF-8"}),
    ("locale", "note", {"system__locale": "de_DE", "system__encoding": "iso8859-1"}),
    ("limits", "ok", {}),
    ("limits", "ok", {"system__limits": {"nproc": Limit(soft=UNLIMITED, hard=UNLIMITED)}}),
    ("limits", "warning", {"system__limits": {"nofile": Limit(soft=256, hard=256)}}),
    ("limits", "warning", {"system__limits": {"nproc": Limit(soft=128, hard=128)}}),
    ("limits", "warning", {"system__process_limit": 100}),
    ("limits", "note", {"system__limits": {}}),
    ("container", "ok", {}),
    ("container", "note", {"system__container": "docker"}),
    ("container", "note", {"system__container": "docker", "system__memory_limit": 1 << 50}),
    ("container", "warning", {"system__container": "docker", "system__memory_limit": GIB}),
    ("time sync", "ok", {}),
    ("time sync", "warning", {"system__clock": Clock(synchronised=False, error=16.0)}),
    ("time sync", "note", {"system__clock": None}),
    ("OpenSSL headers", "ok", {}),
    ("OpenSSL headers", "warning", {"system__openssl": None}),
    ("GPU", "ok", {}),
    ("GPU", "fault", {"gpu__driver": None}),
    ("GPU", "fault", {"gpu__devices": ()}),
    ("GPU", "fault", {"gpu__devices": (), "gpu__driver": None}),
    ("GPU", "fault", {"gpu__devices": (), "system__container": "docker"}),
    ("compute capability", "ok", {}),
    ("compute capability", "note", device(capability=(9, 0))),
    ("compute capability", "note", device(capability=None)),
    ("driver", "ok", {}),
    ("driver", "fault", {"gpu__driver": "570.86.15"}),
    ("driver and toolkit", "ok", {}),
    ("driver and toolkit", "fault", {"gpu__cuda": 12080}),
    ("driver and toolkit", "note", {"toolkits__roots": (ROOT, root(nvcc="13.2.86"))}),
    ("driver and toolkit", "note", {"gpu__cuda": None}),
    ("driver build", "ok", {}),
    ("driver build", "note", {"gpu__driver": "610.43.02"}),
    ("GPU processes", "ok", {}),
    ("GPU processes", "ok", device(processes=())),
    ("GPU processes", "warning", device(processes=(GpuProcess(program="vllm", memory=GIB),))),
    ("GPU processes", "warning", device(processes=(GpuProcess(program="Xorg", memory=9 * GIB),))),
    ("GPU processes", "warning", device(processes=(GpuProcess(program="python", memory=None),))),
    ("GPU processes", "note", device(processes=None)),
    ("power", "ok", {}),
    ("power", "ok", device(utilisation=96, power=38.0)),
    ("power", "warning", device(utilisation=96, power=12.0)),
    ("power", "note", device(power=None)),
    ("toolkits", "ok", {}),
    ("toolkits", "fault", {"toolkits__roots": ()}),
    ("toolkits", "fault", {"toolkits__roots": (root(state="known bad"),)}),
    ("toolkits", "fault", {"toolkits__roots": (root(state="mixed"),)}),
    ("toolkits", "fault", {"toolkits__roots": (root(platform="linux-x86_64"),)}),
    ("toolkits", "ok", {"toolkits__roots": (root(root="/a", state="mixed"), ROOT)}),
    ("toolkits", "note", {"toolkits__roots": None}),
    ("cmake's choice", "ok", {}),
    ("cmake's choice", "warning", {"toolkits__cmake___0__agrees": False}),
    ("cmake's choice", "warning", {"toolkits__roots": (root(state="known bad"),)}),
    ("cmake's choice", "note", {"toolkits__cmake": ()}),
    ("cmake's choice", "note", {"toolkits__cmake": None}),
    ("nvcc of the shell", "ok", {}),
    ("nvcc of the shell", "ok", {"toolkits__shell": None}),
    ("nvcc of the shell", "warning", {"toolkits__shell": "/usr/bin/nvcc"}),
    ("nvcc of the shell", "warning", {"toolkits__roots": (root(state="mixed"),)}),
    ("driver library", "ok", {}),
    ("driver library", "ok", {"toolkits__libraries": cuda("/usr/lib/libcuda.so.1")}),
    ("driver library", "fault", {"toolkits__libraries": cuda(STUB, "LD_LIBRARY_PATH")}),
    ("driver library", "fault", {"toolkits__libraries": ()}),
    ("driver library", "fault", {"toolkits__libraries": cuda("/l/libcuda.so.570.1")}),
    ("driver library", "warning", {"toolkits__libraries": cuda("/c/compat/libcuda.so.590.1")}),
    ("driver library", "note", {"toolkits__libraries": None}),
    ("driver library", "note", {"gpu__driver": None}),
    ("foreign libraries", "ok", {}),
    ("foreign libraries", "note", {"toolkits__libraries": None}),
    (
        "foreign libraries",
        "warning",
        {
            "toolkits__libraries": (
                Library(soname="libllama.so", path="/l/libllama.so", through="LD_LIBRARY_PATH"),
            )
        },
    ),
    ("host compiler", "ok", {}),
    ("host compiler", "fault", {"toolkits__compiler": None}),
    ("host compiler", "note", {"toolkits__roots": (root(tried=None),)}),
    (
        "host compiler",
        "fault",
        {"toolkits__roots": (root(tried=Tried(good=False, compiler="GNU 16", error="no")),)},
    ),
    (
        "host compiler",
        "warning",
        {"toolkits__roots": (ROOT, root(tried=Tried(good=False, compiler="GNU 16", error="no")))},
    ),
    ("apt source", "ok", {}),
    ("apt source", "ok", {"apt": ()}),
    ("apt source", "ok", apt(ARM64, enabled=False)),
    ("apt source", "ok", {**apt(ARM64), "system__tegra": True}),
    ("apt source", "warning", apt(ARM64)),
    ("apt source", "warning", {**apt(SBSA), "system__architecture": "x86_64"}),
    ("apt source", "warning", apt("https://x.example/jetson/common")),
    ("apt source", "note", {"apt": None}),
    ("memory available", "ok", {}),
    ("memory available", "warning", {"memory__meminfo__MemAvailable": 60 * GIB}),
    ("memory available", "fault", {"memory__meminfo__MemAvailable": 3 * GIB}),
    ("memory available", "note", {"memory__meminfo": {}}),
    ("memory held by nobody", "ok", {}),
    ("memory held by nobody", "warning", {"memory__meminfo__MemFree": 100 * GIB}),
    ("memory held by nobody", "fault", {"memory__meminfo__MemFree": 20 * GIB}),
    (
        "memory held by nobody",
        "ok",  # the driver says who has it
        {
            "memory__meminfo__MemFree": 20 * GIB,
            **device(processes=(GpuProcess(program="llama-server", memory=92 * GIB),)),
        },
    ),
    (
        "memory held by nobody",
        "note",
        {
            "memory__meminfo__MemFree": 20 * GIB,
            **device(processes=(GpuProcess(program="llama-server", memory=None),)),
        },
    ),
    ("memory held by nobody", "note", {"memory__meminfo": {}}),
    ("swap", "ok", {}),
    ("swap", "ok", {"memory__swaps": ()}),
    ("swap", "warning", {"memory__swaps___1__used": 5 * GIB}),
    ("swap", "ok", {"memory__swaps___0__used": 5 * GIB}),  # zram is no disk
    ("swap", "note", {"memory__swaps": None}),
    ("zram", "ok", {}),
    ("zram", "ok", {"memory__swaps": (ZRAM,)}),
    ("zram", "warning", {"memory__swaps": (DISK_SWAP,)}),
    ("zram", "warning", {"memory__swaps": ()}),
    ("zram", "warning", {"memory__swaps___0__priority": -3}),
    ("zram", "note", {"memory__swaps": None}),
    ("swappiness", "ok", {}),
    ("swappiness", "warning", {"memory__swappiness": 60}),
    ("swappiness", "ok", {"memory__swappiness": 1, "memory__swaps": (DISK_SWAP,)}),
    ("swappiness", "warning", {"memory__swappiness": 60, "memory__swaps": (DISK_SWAP,)}),
    ("swappiness", "ok", {"memory__swappiness": 60, "memory__swaps": ()}),
    ("swappiness", "note", {"memory__swappiness": None}),
    ("watermark scale", "ok", {}),
    ("watermark scale", "warning", {"memory__watermark_scale_factor": 10}),
    ("watermark scale", "warning", {"memory__watermark_scale_factor": 500}),
    ("watermark scale", "note", {"memory__watermark_scale_factor": None}),
    ("hugepages", "ok", {}),
    ("hugepages", "warning", {"memory__meminfo__Hugetlb": 8 * GIB}),
    ("hugepages", "warning", {"memory__meminfo__HugePages_Total": 4096}),
    ("hugepages", "note", {"memory__meminfo": {}}),
    ("tmpfs", "ok", {}),
    ("tmpfs", "warning", {"memory__tmpfs": (Mount(path="/dev/shm", used=30 * GIB),)}),
    ("tmpfs", "warning", {"memory__orphans": 30 * GIB}),
    ("tmpfs", "note", {"memory__tmpfs": None}),
    ("disk space", "ok", {}),
    ("disk space", "warning", {"disks___0__free": 40 * GIB}),
    ("disk space", "warning", {"disks___0__free": 3 * GIB}),
    ("disk space", "fault", {"disks___0__free": GIB // 2}),
    ("disk space", "note", {"disks": ()}),
    ("disk speed", "ok", {}),
    (
        "disk speed",
        "warning",
        {"disks___0__speed": Speed(bytes=200 << 20, seconds=2.0, file="existing")},
    ),
    ("disk speed", "note", {"disks___0__speed": None}),
    ("load mode", "ok", {}),
    ("load mode", "ok", {"system__variables": {"LLAMA_ARG_LOAD_MODE": "dio"}}),
    ("load mode", "warning", {"system__variables": {"LLAMA_ARG_LOAD_MODE": "mmap"}}),
    ("network", "ok", {}),
    (
        "network",
        "warning",
        {"network": (Reach(place="package index", reached=False, seconds=6.0, problem="no"),)},
    ),
    ("network", "note", {"network": None}),
]


@pytest.mark.parametrize(
    ("name", "state", "values"),
    ON_A_SPARK,
    ids=[f"{name}-{state}-{number}" for number, (name, state, _) in enumerate(ON_A_SPARK)],
)
def test_a_check_on_a_spark(name: str, state: State, values: Values) -> None:
    found = finding(changed(SPARK, **values), name)
    assert found.state == state, found
    assert bool(found.blocks) == (state == "fault")


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_is_seen_well_and_otherwise(name: str) -> None:
    states = {state for one, state, _ in ON_A_SPARK if one == name}
    assert "ok" in states
    assert states - {"ok"}


@pytest.mark.parametrize("name", ["zram", "watermark scale", "disk speed", "operating system"])
def test_advice_for_a_spark_is_a_note_elsewhere(name: str) -> None:
    slow = Speed(bytes=100 << 20, seconds=2.0, file="existing")
    found = finding(changed(OTHER, disks___0__speed=slow), name)
    assert found.state == "note"
    assert found.reason.startswith("applies to a Spark: ")
    assert not found.mend
    assert not found.next_step


def test_without_a_gpu_a_machine_still_builds_and_serves_from_the_cpu() -> None:
    found = finding(OTHER, "GPU")
    assert found.state == "note"
    assert found.blocks == ("verify-cuda", "serve-cuda")


def test_without_a_toolkit_a_machine_that_has_no_gpu_is_not_at_fault() -> None:
    roots = (root(state="incomplete"),)
    found = finding(changed(OTHER, toolkits__roots=roots), "toolkits")
    assert (found.state, found.blocks) == ("note", ("build-cuda",))
    with_gpu = changed(
        OTHER,
        toolkits__roots=roots,
        gpu__driver="580.142",
        gpu__devices=(Device(name="NVIDIA H200", capability=(9, 0)),),
    )
    assert finding(with_gpu, "toolkits").state == "fault"


def test_a_toolkit_for_another_platform_helps_nobody_here() -> None:
    aarch64 = root(platform="linux-aarch64")
    found = diagnose(changed(OTHER, toolkits__roots=(aarch64,)))
    assert found.abilities()["build"] == ["cpu"]


def test_the_wrong_repository_is_mended_in_its_own_file() -> None:
    found = finding(changed(SPARK, **apt(ARM64)), "apt source")
    assert found.mend[0] == (
        "sudo", "sed", "-i",
        "s|/compute/cuda/repos/ubuntu2404/arm64|/compute/cuda/repos/ubuntu2404/sbsa|g",
        "/etc/apt/sources.list.d/n.list",
    )  # fmt: skip
    assert found.mend[1] == ("sudo", "apt-get", "update")


def test_an_address_that_a_sed_expression_cannot_hold_is_left_to_a_person() -> None:
    found = finding(changed(SPARK, **apt(f"{ARM64}|e touch x|")), "apt source")
    assert found.state == "warning"
    assert not found.mend
    assert found.next_step


def test_another_compiler_that_goes_with_it_is_named() -> None:
    refused = Tried(good=False, compiler="GNU 16.1.0 (/usr/bin/c++)", error="unsupported")
    roots = (root(tried=refused, goes_with="/usr/bin/g++-13"),)
    found = finding(changed(SPARK, toolkits__roots=roots), "host compiler")
    assert found.state == "fault"
    assert found.blocks == ("build-cuda",)
    assert "unsupported" in found.found
    assert "ln -sf /usr/bin/gcc-13 ~/cc/cc && ln -sf /usr/bin/g++-13 ~/cc/c++" in found.next_step


def test_two_cmakes_that_disagree_are_both_named() -> None:
    other = CMake(version="3.25.1", toolkit="/usr", toolkit_version="11.8", compiler=None,
                  agrees=False)  # fmt: skip
    cmake = (*(SPARK.toolkits.cmake or ()), other)
    found = finding(changed(SPARK, toolkits__cmake=cmake), "cmake's choice")
    assert found.state == "warning"
    assert "4.4.5" in found.found
    assert "3.25.1" in found.found
    assert "-DCUDAToolkit_ROOT=/usr/local/cuda-13.0" in found.next_step


def test_what_is_held_by_nobody_is_the_sum_that_is_left() -> None:
    found = finding(captured("spark-stranded"), "memory held by nobody")
    assert found.found == "81.1 GiB"  # 86e9 bytes and the GiB that spark.json has


def test_swap_is_emptied_only_where_memory_has_room_for_it() -> None:
    full = {"memory__swaps___1__used": 5 * GIB}
    assert finding(changed(SPARK, **full), "swap").mend == (
        ("sudo", "swapoff", "/swap.img"),
        ("sudo", "swapon", "/swap.img"),
    )
    tight = changed(SPARK, **full, memory__meminfo__MemAvailable=6 * GIB)
    assert not finding(tight, "swap").mend


def test_a_machines_own_words_cannot_reach_the_terminal() -> None:
    evil = changed(SPARK, system__os="Ubuntu\x1b[2J\n24.04", system__product="a\rb")
    for one in diagnose(evil).findings:
        assert one.found.isprintable(), one
        assert one.reason.isprintable(), one
    assert diagnose(evil).name.isprintable()


def lacking(plain: Any) -> list[Values]:
    """The same without one thing, for each thing that it has."""
    if not isinstance(plain, dict):
        return []
    found: list[Values] = []
    for key, value in plain.items():
        found += [{**plain, key: None}, {**plain, key: []}, {**plain, key: {}}]
        found.append({name: one for name, one in plain.items() if name != key})
        found += [{**plain, key: inner} for inner in lacking(value)]
        if isinstance(value, list | tuple):
            for number, one in enumerate(value):
                inside = [[*value[:number], inner, *value[number + 1 :]] for inner in lacking(one)]
                found += [{**plain, key: inner} for inner in inside]
    return found


@pytest.mark.parametrize("name", ["spark", "spark-serving", "virtual-machine"])
def test_whatever_is_missing_the_rest_is_judged(name: str) -> None:
    import msgspec

    judged = 0
    for plain in lacking(msgspec.to_builtins(captured(name))):
        try:
            machine = msgspec.convert(plain, type(SPARK))
        except msgspec.ValidationError:
            continue  # what a capture cannot lack
        assert len(diagnose(machine).findings) == len(CHECKS)
        judged += 1
    assert judged > 60
