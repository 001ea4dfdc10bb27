"""NVIDIA's driver and its GPUs: from NVML where it answers, and from /proc."""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from sparkbuild.doctor.captured import Device, Gpu, GpuProcess
from sparkbuild.doctor.read.reader import Reader

_T = TypeVar("_T")
_MILLI: Final = 1000
_SECONDS: Final = 10.0
"""For all questions together."""
_VERSION: Final = re.compile(r"(?m)^NVRM version:.*?\b(?P<version>\d+\.\d+(?:\.\d+)?)\b")
_MODEL: Final = re.compile(r"(?m)^Model:[ \t]*(?P<model>\S.*?)[ \t]*$")


def read_gpu(reader: Reader) -> Gpu:
    """The driver and every GPU. Without NVML there are names and the driver's version alone.

    NVML is asked only where the kernel module is loaded. What a GPU does not support (GB10: its
    memory) is None, and the reason is kept.
    """
    module = _VERSION.search(reader.text("proc/driver/nvidia/version") or "")
    driver = module["version"] if module else None
    if driver is None:
        return Gpu()
    try:
        pynvml: Any = importlib.import_module("pynvml")  # for machines with a driver only
        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001 - NVML's own class is not there without its module
        reader.lack("gpu", f"NVML: {error}")
        return _from_files(reader, driver)
    try:
        return _within(_SECONDS, lambda: _asked(reader, pynvml, driver))
    except TimeoutError as error:
        reader.lack("gpu", error)
        return _from_files(reader, driver)


def _within(seconds: float, call: Callable[[], _T]) -> _T:
    """``call`` in a thread of its own: a driver that hangs must not take the doctor with it.

    Raises TimeoutError; the thread is then left to itself, and ends with the process.
    """
    answers: list[_T] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(seconds)
    if not answers:
        raise TimeoutError(f"the driver gave no answer within {seconds:g} s")
    return answers[0]


def _from_files(reader: Reader, driver: str) -> Gpu:
    for name in ("capability", "cuda", "power", "processes"):
        reader.lack(f"gpu.{name}", reader.unread["gpu"])
    files = sorted((reader.root / "proc/driver/nvidia/gpus").glob("*/information"))
    texts = (reader.text(str(file.relative_to(reader.root))) for file in files)
    found = (_MODEL.search(text or "") for text in texts)
    return Gpu(driver=driver, devices=tuple(Device(name=one["model"]) for one in found if one))


def _asked(reader: Reader, nvml: Any, driver: str) -> Gpu:
    """NVML's functions by name, so that a test can give others."""

    def ask(name: str, call: Callable[[], _T]) -> _T | None:
        try:
            return call()
        except nvml.NVMLError as error:
            reader.lack(f"gpu.{name}", f"NVML: {error}")
            return None

    count = ask("devices", nvml.nvmlDeviceGetCount) or 0
    handles = [
        ask("devices", partial(nvml.nvmlDeviceGetHandleByIndex, number)) for number in range(count)
    ]
    return Gpu(
        driver=driver,
        cuda=ask("cuda", nvml.nvmlSystemGetCudaDriverVersion_v2),
        devices=tuple(_device(nvml, handle, ask) for handle in handles if handle is not None),
    )


def _device(nvml: Any, handle: Any, ask: Callable[[str, Callable[[], Any]], Any]) -> Device:
    memory = ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    power = ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    rates = ask("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    capability = ask("capability", lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    return Device(
        name=str(ask("name", lambda: nvml.nvmlDeviceGetName(handle)) or "unknown"),
        capability=(int(capability[0]), int(capability[1])) if capability else None,
        memory=int(memory.total) if memory else None,
        power=power / _MILLI if power is not None else None,
        utilisation=int(rates.gpu) if rates else None,
        processes=_processes(nvml, handle, ask),
    )


def _processes(
    nvml: Any, handle: Any, ask: Callable[[str, Callable[[], Any]], Any]
) -> tuple[GpuProcess, ...] | None:
    """Programs that compute and those that draw, each process once."""
    lists = [
        ask("processes", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        ask("processes", lambda: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)),
    ]
    if all(one is None for one in lists):
        return None
    found = {process.pid: process for one in lists for process in one or ()}
    return tuple(
        GpuProcess(program=_program(nvml, pid, ask), memory=process.usedGpuMemory)
        for pid, process in sorted(found.items())
    )


def _program(nvml: Any, pid: int, ask: Callable[[str, Callable[[], Any]], Any]) -> str:
    """Name without folders: a path may hold a user's name."""
    name = ask("program", lambda: nvml.nvmlSystemGetProcessName(pid))
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")
    return text.split(" ", 1)[0].rpartition("/")[2] or "unknown"
